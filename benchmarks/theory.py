"""Compare the model of tandem/plan with published rows, leaving each pair out: docs/theory.md.

python benchmarks/theory.py [--write | --row FILE]

The kept real runs are compared too. FILE has rows as tandem/plan/data/published.yaml has them; each
is compared with what the published rows say of it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import theory_real
from between_marks import write_between

from tandem.plan.measurement_rows import PublishedRow, load_published
from tandem.plan.step_cost import (
    HeldOutRow,
    find_objection,
    fit_step_cost,
    hold_rows_out,
    predict_range,
)

FIGURES = "published rows"
REAL_FIGURES = "real runs"
NO_NUMBER = "no number"


def format_table() -> Iterator[str]:
    """Yield the Markdown of the rows, the kinds, and what is left out."""
    rows = load_published()
    yield (
        "| row | kind | tokens a step | window | a step costs, plain steps | measured | range by"
        " the other pairs |"
    )
    yield "|---|---|---|---|---|---|---|"
    yield from (_format_row(held) for held in hold_rows_out(rows))
    yield ""
    yield (
        "| kind | pairs | rows | a draft forward, ms | a verified token, plain steps | largest"
        " error | a speed-up is given |"
    )
    yield "|---|---|---|---|---|---|---|"
    yield from _format_kinds(rows)
    yield ""
    yield "| left out | because |"
    yield "|---|---|"
    yield from (f"| {row.name}: {row.setup} | {row.left_out} |" for row in rows if row.left_out)


def _format_row(held: HeldOutRow) -> str:
    row = held.row
    span = NO_NUMBER
    if held.predicted is not None:
        word = "contains it" if held.is_within else "misses it"
        span = f"{held.predicted.low:.2f} to {held.predicted.high:.2f}: {word}"
    tokens = f"{row.tokens:.2f}{' (assumed)' if row.assumed else ''}"
    cells = [
        row.name,
        row.kind.words,
        tokens,
        str(row.window),
        f"{row.step_cost:.2f}",
        f"{row.speed_up:.2f}",
        span,
    ]
    return f"| {' | '.join(cells)} |"


def _format_kinds(rows: Sequence[PublishedRow]) -> Iterator[str]:
    held_rows = list(hold_rows_out(rows))
    for kind in dict.fromkeys(held.row.kind for held in held_rows):
        own = [held for held in held_rows if held.row.kind == kind]
        cost = fit_step_cost(rows, kind)
        objection = find_objection(rows, kind)
        answer = f"no: {objection}" if objection else f"yes, up to concurrency {cost.concurrency}"
        draft_ms = f"{cost.draft_ms:.1f} ({cost.low_ms:.1f} to {cost.high_ms:.1f})"
        errors = [_compute_error_times(held) for held in own if held.predicted is not None]
        cells = [
            kind.words,
            str(len({held.row.pair for held in own})),
            str(len(own)),
            "" if objection else draft_ms,
            f"{cost.verified_share:.3f}",
            f"{max(errors):.2f} times" if errors else "",
            answer,
        ]
        yield f"| {' | '.join(cells)} |"


def _compute_error_times(held: HeldOutRow) -> float:
    assert held.predicted is not None, "a row that nothing predicts has no error"
    ratio = held.predicted.middle / held.row.speed_up
    return max(ratio, 1 / ratio)


def compare_rows(path: Path) -> Iterator[str]:
    """Yield what published rows say of each file row, and whether that contains the measurement.

    Raises:
        SpecError: the file is malformed.
    """
    rows = load_published()
    for row in load_published(path):
        if row.left_out is not None:
            yield f"{row.name}: left out: {row.left_out}"
            continue
        yield f"{row.name}: measured {row.speed_up:.2f}, {_compare_row(row, rows)}"


def _compare_row(row: PublishedRow, rows: Sequence[PublishedRow]) -> str:
    objection = find_objection(rows, row.kind)
    if objection:
        return f"{NO_NUMBER}: {objection}"
    cost = fit_step_cost(rows, row.kind)
    if row.concurrency > cost.concurrency:
        return f"{NO_NUMBER}: nobody published a load above {cost.concurrency}"
    predicted = predict_range(row, cost)
    word = "contains it" if predicted.low <= row.speed_up <= predicted.high else "MISSES IT"
    return f"forecast {predicted.low:.2f} to {predicted.high:.2f}: {word}"


def main() -> int:
    """Print the tables, put them into their page, or compare the rows of a file; return 0."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="put the tables into docs/theory.md")
    parser.add_argument(
        "--row",
        type=Path,
        metavar="FILE",
        help="rows of your own, compared with the published ones",
    )
    arguments = parser.parse_args()
    if arguments.row is not None:
        print(*compare_rows(arguments.row), sep="\n")
        return 0
    text = "\n".join(format_table())
    real_text = "\n".join(theory_real.format_table())
    if arguments.write:
        write_between(FIGURES, text)
        write_between(REAL_FIGURES, real_text)
    else:
        print(text, real_text, sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
