"""Two runs beside each other in a terminal."""

from __future__ import annotations

from observed import Asked, observed
from rich.cells import cell_len

from tandem.judge.compare.comparison import compare_tables
from tandem.report.comparison_table import WIDTH, render_lines


def run(day, *, load=4, arm="spec", class_="repeat"):
    requests = [Asked(arm=name, class_=class_, concurrency=load) for name in ("base", arm)]
    return observed(requests, arms=("base", arm), created_utc=f"2026-11-{day:02}T00:00:00Z")


def test_wide_signs_keep_the_table_in_the_terminal():
    wide = {"arm": "\u901f\u5ea6" * 30, "class_": "\u985e" * 40}
    lines = render_lines(compare_tables(run(1, **wide), run(2, **wide), margin=0.05))
    assert max(map(cell_len, lines)) <= WIDTH


def test_runs_without_a_common_load_say_so():
    words = " ".join(render_lines(compare_tables(run(1), run(2, load=1), margin=0.05)))
    assert "no prompt was answered in both runs at the same load" in " ".join(words.split())
