"""docs/bench.md and the pages beside it say what is so: messages exist, defaults are the code's."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from tandem.bench.load import (
    circuit_breaker,
    client,
    host,
    interrupt,
    metrics_scraper,
    warm_up,
)
from tandem.bench.records.manifest import Timeouts
from tandem.bench.records.record import ERROR_WORDS
from tandem.cli import bench_flags

ROOT = Path(__file__).parent.parent.parent
PAGE = "".join(
    (ROOT / "docs" / name).read_text()
    for name in (
        "bench.md",
        "bench-faults.md",
        "restarts.md",
        "servers.md",
        "suites.md",
        "publish.md",
        "compare.md",
    )
)
SPEAKING = [
    *(ROOT / "tandem" / "bench").rglob("*.py"),
    *(ROOT / "tandem" / "publish").rglob("*.py"),
    ROOT / "tandem" / "aws" / "faults.py",
    ROOT / "tandem" / "cli" / "bench_flags.py",
    ROOT / "tandem" / "cli" / "publish.py",
]
CODE = re.sub(r'"\s*\n\s*f?"', "", " ".join(path.read_text() for path in SPEAKING))


def said() -> list[str]:
    tables = [part.split("\n\n")[0] for part in PAGE.split("| said | happened | do |")[1:]]
    first = [row.split(" | ")[0] for table in tables for row in table.splitlines()[2:]]
    return [message for cell in first for message in re.findall(r"`([^`]+)`", cell)]


@pytest.mark.parametrize("message", said())
def test_every_message_of_the_page_is_in_the_code(message):
    if message in ERROR_WORDS or message.startswith("status_"):
        return
    parts = [
        part.strip() for part in re.split(r"\.\.\.|\b[A-Z]{4,}\b|\d+", message) if part.strip()
    ]
    assert [part for part in parts if part not in CODE] == []


def test_the_page_names_every_flag():
    flags = {f"--{field.name.replace('_', '-')}" for field in fields(bench_flags.RunFlags)} - {
        "--recorded"
    }
    assert {flag for flag in flags if flag not in PAGE} == set()


@pytest.mark.parametrize(
    "sentence",
    [
        f"up to {circuit_breaker.MAX_WAIT_S / 60:.0f} min and goes on by itself",
        f"has {interrupt.GRACE_S:.0f} s to end",
        f"by at most {warm_up.MAX_CHANGE:.0%}".replace("%", " %"),
        f"after {warm_up.MAX_SHORT_WINDOWS} windows or {warm_up.MAX_WARM_UP_S / 60:.0f} minutes",
        f"| `/metrics` | {metrics_scraper.METRICS_BYTES >> 20} MiB |",
        f"| `/v1/models` | {client.PAGE_BYTES >> 20} MiB |",
        f"{client.STREAM_BYTES >> 20} MiB, plus {client.STREAM_BYTES_PER_TOKEN >> 10} KiB for each token of",
        f"| the body of an error | {client.ERROR_BODY_BYTES >> 10} KiB |",
        (
            f"Above {1000 * host.MAX_LAG_S:.0f} ms, or when the client takes"
            f" {100 * host.MAX_CLIENT_CPU:.0f} % of a CPU"
        ),
    ],
)
def test_a_figure_of_the_page_is_the_codes(sentence):
    assert sentence in " ".join(PAGE.split())


def test_the_time_outs_of_the_page_are_the_codes():
    defaults = bench_flags.parse_timeouts("connect:10,first-token:120,gap:60,whole:600")
    assert defaults == {name: getattr(Timeouts(), name) for name in defaults}
    assert "connect:10,first-token:120,gap:60,whole:600" in PAGE
