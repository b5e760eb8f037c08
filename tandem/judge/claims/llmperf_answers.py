"""Answers of llmperf, the post's own generator, beside those of Tandem's requests.

Invariant: the answers come from llmperf's records of the same servers, in the folder `llmperf` of
the run's folder. Simulated servers, and servers that nobody declared, never answer. llmperf keeps
two moments of a request and makes its own prompts. So it can answer only claims of TTFT and E2E
that hold for every prompt. A call is a round.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tandem.bench.figures.request_table import RequestTable, read_request_table
from tandem.bench.llmperf.results import GENERATOR
from tandem.bench.records.manifest import FILE
from tandem.judge.cells import judge_speed_ups
from tandem.judge.claims.answers import answer_claims
from tandem.judge.claims.register import read_register
from tandem.judge.pairs import RequestPairing
from tandem.judge.schema import ClaimVerdict, RunControls

FOLDER = GENERATOR
_METRICS = ("ttft_ms", "e2e_ms")  # what its records have
_ASKS = ("best class", "cells")


def answer_llmperf(
    table: RequestTable, variants: Sequence[str], *, margin: float
) -> tuple[ClaimVerdict, ...]:
    """Return the answers; none if llmperf did not run, or nothing says that the servers are real.

    Args:
        table: the run whose folder has llmperf's records.
        variants: of the post's set-up.
        margin: within which a speed-up is the same.

    Raises:
        InputError: llmperf's files cannot be read.
    """
    if not variants or not (table.folder / FOLDER / FILE).exists():
        return ()
    llmperf_table = read_request_table(table.folder / FOLDER)
    if llmperf_table.run.simulated is not False:
        return ()
    # llmperf's requests are one class and, without ids, one prompt: judged over its calls
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
    pairing = RequestPairing(llmperf_table)
    cells = judge_speed_ups(pairing, RunControls(), margin=margin).cells
    known_variants = [variant for variant in variants if variant in llmperf_table.variants]
    return answer_claims(
        pairing, known_variants, cells, (), (), margin=margin, controls=RunControls(), claims=claims
    )
