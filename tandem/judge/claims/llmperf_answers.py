"""What the post's own generator says to the claims of the post, beside what Tandem's own requests say.

Invariant: asked of the records that llmperf left of the same servers, in the folder `llmperf` of the run's own; never
of simulated servers, nor of one of which nobody knows what it is. llmperf keeps two moments of a request and makes its
prompts by itself, so it can answer claims of TTFT and E2E that hold for every prompt, and no other. A call is a round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from tandem.bench.llmperf.results import GENERATOR
from tandem.bench.manifest import FILE
from tandem.bench.request_table import RequestTable, read_request_table
from tandem.judge.cells import judge_cells
from tandem.judge.claims.figure_answers import answer_best_class, answer_cells
from tandem.judge.claims.register import ClaimAnswer, read_register
from tandem.judge.claims.variant_results import VariantResults
from tandem.judge.pairs import RequestPairing
from tandem.judge.schema import ClaimVerdict, RunControls

FOLDER = GENERATOR
_METRICS = ("ttft_ms", "e2e_ms")  # what its records have
_ANSWER_FUNCTIONS = {"best class": answer_best_class, "cells": answer_cells}


def answer_llmperf(
    table: RequestTable, variants: Sequence[str], *, margin: float
) -> tuple[tuple[ClaimVerdict, ...], tuple[str, ...]]:
    """Return the answers, and notes on claims that stay without one; neither where llmperf was not asked.

    Args:
        table: the run beside which it was asked.
        variants: of the post's set-up.
        margin: within which a speed-up is the same.

    Raises:
        InputError: its files cannot be read.
    """
    folder = table.folder / FOLDER
    if not (folder / FILE).exists():
        return (), ()
    llmperf_table = read_request_table(folder)
    if llmperf_table.run.simulated is not False:
        return (), (f"no claim of the post is answered from {GENERATOR}'s records: nothing says that they are real",)
    answers = tuple(_answer_claims(llmperf_table, set(variants) & set(llmperf_table.variants), margin))
    names = ", ".join(dict.fromkeys(answer.claim for answer in answers)) or "none"
    return answers, (f"claims of the post that {GENERATOR}'s own requests answer: {names}; the others are of prompts",)


def _answer_claims(table: RequestTable, variants: set[str], margin: float) -> Iterator[ClaimVerdict]:
    claim_register, cells = read_register(), judge_cells(table, RunControls(), margin=margin)
    for claim in claim_register.claim:
        metrics = tuple(metric for metric in claim.metrics if metric in _METRICS)
        if claim.asks not in _ANSWER_FUNCTIONS or claim.classes or not metrics:
            continue
        for variant in sorted(variants):
            results = VariantResults(
                pairing=RequestPairing(table),
                variant=variant,
                cells=tuple(cell for cell in cells if cell.variant == variant),
                equality=None,
                acceptance=(),
                margin=margin,
                set_up=claim_register.set_up,
                test_count=max(sum(cell.prompts > 0 for cell in cells), 1),
            )
            # its requests are one class and, as they have no ids, one prompt: judged over its calls
            narrow_claim = replace(claim, metrics=metrics, classes=(GENERATOR,))
            answer, bias = _ANSWER_FUNCTIONS[claim.asks](narrow_claim, results), results.explain_bias()
            if bias:
                answer = ClaimAnswer("not comparable", f"{bias}; {answer.reason}")
            yield ClaimVerdict(
                claim=claim.id,
                text=f"{claim.text} (by {GENERATOR}'s own requests)",
                where=claim.where,
                answer=answer.answer,
                why=f"{answer.reason.rstrip('.')}.",
                against=claim.against,
                variant=variant,
            )
