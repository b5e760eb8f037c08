"""The builders of runs' and of verdicts' tests, for these tests too."""

from __future__ import annotations

from pathlib import Path

BENCH = Path(__file__).parent.parent
