"""Answers of llmperf, the post's own generator, beside those of Tandem's requests.

Invariant: the answers come from llmperf's records of the same servers, in the folder `llmperf` of
the run's folder. Simulated servers never answer. llmperf keeps two moments of a request and makes
its own prompts. So it can answer only claims of TTFT and E2E that hold for every prompt. A call is
a round.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from tandem.bench.figures.request_table import RequestTable, read_request_table
from tandem.bench.llmperf.results import GENERATOR
from tandem.bench.records.manifest import FILE
from tandem.judge.cells import judge_speed_ups
from tandem.judge.pairs import RequestPairing
from tandem.judge.schema import RunControls, Verdict
from tandem.post.answers import answer_claims
from tandem.post.register import Claim, read_register
from tandem.post.schema import ClaimVerdict

FOLDER = GENERATOR
_METRICS = ("ttft_ms", "e2e_ms")  # what its records have
_ASKS = ("best class", "cells")


def answer_llmperf(
    table: RequestTable, verdict: Verdict, drafts: Mapping[str, str], variants: Sequence[str]
) -> Iterator[ClaimVerdict]:
    """Yield the answers; none if llmperf did not run, or nothing says that the servers are real.

    Args:
        table: the run whose folder has llmperf's records.
        verdict: on the run.
        drafts: the draft of each variant that has one.
        variants: of the post's set-up.

    Raises:
        InputError: llmperf's files cannot be read.
    """
    if not (table.folder / FOLDER / FILE).exists():
        return
    llmperf_table = read_request_table(table.folder / FOLDER)
    if llmperf_table.run.simulated is not False:
        return
    pairing = RequestPairing(llmperf_table)
    speed_ups = judge_speed_ups(pairing, RunControls(), margin=verdict.margin)
    llmperf_verdict = replace(verdict, cells=speed_ups.cells, controls=RunControls(), equality=())
    known_variants = [variant for variant in variants if variant in llmperf_table.variants]
    yield from answer_claims(pairing, llmperf_verdict, drafts, list(_list_claims()), known_variants)


def _list_claims() -> Iterator[Claim]:
    """Yield the claims that llmperf can answer, as claims of its requests.

    These are one class and, without ids, one prompt: it is judged over its calls.
    """
    for claim in read_register().claim:
        metrics = tuple(metric for metric in claim.metrics if metric in _METRICS)
        if claim.asks in _ASKS and not claim.classes and metrics:
            text = f"{claim.text} (by {GENERATOR}'s own requests)"
            yield replace(claim, text=text, metrics=metrics, classes=(GENERATOR,))
