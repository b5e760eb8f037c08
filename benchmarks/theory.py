"""Compare the model of tandem/plan with published rows, each left out in turn, and the kept real runs: docs/theory.md.

python benchmarks/theory.py [--write]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import theory_real  # noqa: E402
from between_marks import write_between  # noqa: E402
from theory_model import HeldOutRow, compute_error, hold_rows_out  # noqa: E402

from tandem.plan.measurement_rows import load_published  # noqa: E402
from tandem.plan.step_cost import fit_draft_cost, imply_draft_ms  # noqa: E402

FIGURES, REAL_FIGURES = "published rows", "real runs"
RULES = {  # field of HeldOutRow -> how the table calls it
    "predicted": "model", "mean_of_others": "mean of the others", "tokens_alone": "tokens alone",
}  # fmt: skip


def compute_median_errors(held: list[HeldOutRow]) -> dict[str, float]:
    """Return the median absolute error of the model and of each naive rule, as shares."""
    return {
        field: median(compute_error(getattr(entry, field), entry.row.speed_up) for entry in held) for field in RULES
    }


def format_table() -> Iterator[str]:
    """Yield the Markdown of the table and its conclusions."""
    rows = load_published()
    held, cost = list(hold_rows_out(rows)), fit_draft_cost(rows)
    yield "| row | tokens a step | window | measured | " + " | ".join(RULES.values()) + " | a draft forward, ms |"
    yield "|---|---|---|---|" + "---|" * (len(RULES) + 1)
    for entry in held:
        cells = [f"{entry.row.speed_up:.2f}", *(f"{getattr(entry, field):.2f}" for field in RULES)]
        tokens = f"{entry.row.tokens:.2f}{' (assumed)' if entry.row.assumed else ''}"
        place = [f"{entry.row.name}", tokens, str(entry.row.window), *cells, f"{imply_draft_ms(entry.row):.2f}"]
        yield f"| {' | '.join(place)} |"
    errors = compute_median_errors(held)
    cells = [f"{errors[field]:.1%}".replace("%", " %") for field in RULES]
    yield f"| median absolute error | | | | {' | '.join(cells)} | |"
    yield ""
    span = f"{cost.low_ms:.1f} to {cost.high_ms:.1f}"
    yield f"One draft forward takes {cost.mean_ms:.1f} ms in the mean of all rows ({span} in one of them)."
    yield ""
    yield "| left out | because |"
    yield "|---|---|"
    yield from (f"| {row.name}: {row.setup} | {row.left_out} |" for row in rows if row.left_out)


def main() -> int:
    """Print the table, or put it into its page; return 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/theory.md")
    text, real_text = "\n".join(format_table()), "\n".join(theory_real.format_table())
    if parser.parse_args().write:
        write_between(FIGURES, text)
        write_between(REAL_FIGURES, real_text)
    else:
        print(text, real_text, sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
