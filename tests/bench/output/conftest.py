"""The builders of runs' and of verdicts' tests, for these tests too."""

from __future__ import annotations

import sys
from pathlib import Path

BENCH = Path(__file__).parent.parent
sys.path[:0] = [str(BENCH), str(BENCH / "judge")]
