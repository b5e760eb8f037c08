"""Compute docs/tuning.md's tables: windows, acceptance, load and length, by tandem/plan.

python benchmarks/tuning.py [--write]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator

from between_marks import write_between

from tandem.declarations.catalogue import load_catalogue
from tandem.plan.forecast import PlanLoad, compute_step_cost, convert_cost, stretch_step
from tandem.plan.measurement_rows import SERVED_DENSE, load_published
from tandem.plan.plan_basis import DraftBasis, DraftShare
from tandem.plan.step_cost import RANGE_FACTOR, fit_step_cost
from tandem.plan.step_tokens import CommitLaw, count_drafted, expect_tokens, find_acceptance

WINDOWS = (3, 5, 7, 10, 15)
ACCEPTANCES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
LOADS = (1, 4, 16, 32, 64, 128)
LAWS: dict[CommitLaw, str] = {"k": "NxD Inference", "k+1": "native"}
ANSWER_TOKENS = (1, 16, 64, 256, 600, 1500)
# of the row llama-3.3-70b-fused, plain and speculative (its source, 2026-11-22)
LONG_ROW_TTFT_MS = (814.0, 870.0)
PLAIN_TPOT_MS = 20.0  # as of the row llama-3.3-70b-fused, 19.66


def fit_share() -> DraftShare:
    """Return what published rows of dense targets say of a plain server with the page's TPOT."""
    return convert_cost(fit_step_cost(load_published(), SERVED_DENSE), PLAIN_TPOT_MS)


def count_steps(share: DraftShare, law: CommitLaw, window: int) -> float:
    """Return how many plain steps a step of a window takes at concurrency 1."""
    return 1 + window * share.mean + count_drafted(law, window) * share.verified


def format_windows() -> Iterator[str]:
    """Yield speed-ups by acceptance and window if a runtime commits at most k, row's best bold."""
    share = fit_share()
    yield f"| acceptance | {' | '.join(f'k = {window}' for window in WINDOWS)} |"
    yield "|---|" + "---|" * len(WINDOWS)
    for acceptance in ACCEPTANCES:
        values = [
            expect_tokens("k", acceptance, window) / count_steps(share, "k", window)
            for window in WINDOWS
        ]
        cells = [f"**{value:.2f}**" if value == max(values) else f"{value:.2f}" for value in values]
        yield f"| {acceptance:g} | {' | '.join(cells)} |"
    yield ""
    yield (
        f"A dense target with a plain TPOT of {PLAIN_TPOT_MS:.0f} ms: a draft forward takes"
        f" {share.mean:.2f} of a plain step, a verified token {share.verified:.3f}. The range is"
        f" {RANGE_FACTOR:.2f} times either way."
    )


def format_break_even() -> Iterator[str]:
    """Yield the acceptance below which speculation is slower, by runtime and window."""
    share = fit_share()
    yield f"| runtime | most tokens a step | {' | '.join(f'k = {window}' for window in WINDOWS)} |"
    yield "|---|---|" + "---|" * len(WINDOWS)
    for law, name in LAWS.items():
        points = [
            find_acceptance(law, count_steps(share, law, window), window) for window in WINDOWS
        ]
        cells = ["always slower" if point is None else f"{point:.2f}" for point in points]
        yield f"| {name} | {law} | {' | '.join(cells)} |"


def format_loads() -> Iterator[str]:
    """Yield how the batch changes a draft's cost and the post's pair's speed-up at window 7."""
    share = fit_share()
    target = load_catalogue().models["Qwen/Qwen3-32B"]
    load = PlanLoad(law="k", target=target, context_tokens=684, draft=DraftBasis())
    tokens = expect_tokens(load.law, load.draft.acceptance, 7)
    yield (
        "| concurrency | a plain step reads | speculative step over plain, k = 7 | speed-up at"
        " acceptance 0.8 |"
    )
    yield "|---|---|---|---|"
    for concurrency in LOADS:
        cost = compute_step_cost(load, share.mean, 7, concurrency, share.verified)
        yield (
            f"| {concurrency} | {stretch_step(load, concurrency):.2f} times | {cost:.2f} |"
            f" {tokens / cost:.2f} |"
        )


def format_lengths() -> Iterator[str]:
    """Yield a whole answer's speed-up by length, from one pair's published TTFT and TPOT."""
    row = next(row for row in load_published() if row.name == "llama-3.3-70b-fused")
    yield "| output tokens | E2E plain, ms | E2E speculative, ms | speed-up |"
    yield "|---|---|---|---|"
    for tokens in ANSWER_TOKENS:
        plain, speculative = (
            ttft_ms + (tokens - 1) * tpot_ms
            for ttft_ms, tpot_ms in zip(
                LONG_ROW_TTFT_MS,
                (row.baseline_tpot_ms.value, row.speculative_tpot_ms.value),
                strict=True,
            )
        )
        yield f"| {tokens:,} | {plain:,.0f} | {speculative:,.0f} | {plain / speculative:.2f} |"


TABLES: dict[str, Callable[[], Iterator[str]]] = {
    "tuning windows": format_windows,
    "tuning break-even": format_break_even,
    "tuning loads": format_loads,
    "tuning lengths": format_lengths,
}


def main() -> int:
    """Print the tables, or put them into their page; return 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/tuning.md")
    should_write = parser.parse_args().write
    for name, format_table in TABLES.items():
        text = "\n".join(format_table())
        if should_write:
            write_between(name, text)
        else:
            print(text, end="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
