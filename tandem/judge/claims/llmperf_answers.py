"""What the post's own generator says to the claims of the post, beside what Tandem's own requests say.

Invariant: asked of the records that llmperf left of the same servers, in the folder `llmperf` of the run's own; never
of simulated servers, nor of one of which nobody knows what it is. llmperf keeps two moments of a request and makes its
prompts by itself, so it can answer claims of TTFT and E2E that hold for every prompt, and no other. A call is a round.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tandem.bench.llmperf.results import GENERATOR
from tandem.bench.manifest import FILE
from tandem.bench.request_table import RequestTable, read_request_table
from tandem.judge.cells import judge_cells
from tandem.judge.claims.answers import answer_claims
from tandem.judge.claims.register import read_register
from tandem.judge.schema import ClaimVerdict, RunControls

FOLDER = GENERATOR
_METRICS = ("ttft_ms", "e2e_ms")  # what its records have
_ASKS = ("best class", "cells")


def answer_llmperf(table: RequestTable, variants: Sequence[str], *, margin: float) -> tuple[ClaimVerdict, ...]:
    """Return the answers; none where llmperf was not asked, or nothing says that the servers are real.

    Args:
        table: the run beside which it was asked.
        variants: of the post's set-up.
        margin: within which a speed-up is the same.

    Raises:
        InputError: its files cannot be read.
    """
    if not variants or not (table.folder / FOLDER / FILE).exists():
        return ()
    llmperf_table = read_request_table(table.folder / FOLDER)
    if llmperf_table.run.simulated is not False:
        return ()
    # its requests are one class and, as they have no ids, one prompt: judged over its calls
    claims = [
        replace(
            claim,
            text=f"{claim.text} (by {GENERATOR}'s own requests)",
            metrics=tuple(metric for metric in claim.metrics if metric in _METRICS),
            classes=(GENERATOR,),
        )
        for claim in read_register().claim
        if claim.asks in _ASKS and not claim.classes and set(claim.metrics).intersection(_METRICS)
    ]
    cells = judge_cells(llmperf_table, RunControls(), margin=margin)
    known_variants = [variant for variant in variants if variant in llmperf_table.variants]
    return answer_claims(
        llmperf_table, known_variants, cells, (), (), margin=margin, controls=RunControls(), claims=claims
    )
