"""Long proofs: the same fixtures as the tests of the artifacts, a seed that is printed, a table at
the end.

`make proof` runs them with a new seed, `make proof SEED=N` with that of an earlier run.
"""

from __future__ import annotations

import os
import random
import secrets
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

from artifact_fixtures import (  # noqa: E402, F401 - fixtures of this folder too
    aws,
    blob,
    bucket,
    clients,
    front,
    impatient,
    module,
    proxy,
    proxy_store,
    store,
)

SEED = int(os.environ.get("TANDEM_PROOF_SEED") or secrets.randbelow(10**9))
ROWS: list[tuple[str, str]] = []


@pytest.fixture
def chance(request):
    """The proof's own random numbers: they follow from the seed and the proof's name."""
    return random.Random(f"{SEED} {request.node.name}")  # noqa: S311 - no secret


@pytest.fixture
def report(request):
    """Put a row into the table that is printed at the end."""

    def say(**figures: Any) -> None:
        words = request.node.name.removeprefix("test_").replace("_", " ")
        ROWS.append(
            (
                words,
                ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in figures.items()),
            )
        )

    return say


def pytest_report_header() -> str:
    return f"seed {SEED} (repeat with: make proof SEED={SEED})"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not ROWS:
        return
    terminalreporter.write_line(f"\nseed {SEED}\n\n| proof | seen |\n|---|---|")
    for what, seen in ROWS:
        terminalreporter.write_line(f"| {what} | {seen} |")
