"""Whatever a hand does to a committed file, it is read and judged, or refused in words: nothing
else is raised."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tandem.declarations.catalogue import load_catalogue
from tandem.declarations.faults import SpecFault
from tandem.declarations.workspace import load_workspace
from tandem.rules import check_workspace

SLIPS = (
    "~",
    "true",
    "1.0e+400",
    "99999999999999999999",
    "-1",
    "0",
    "''",
    '"\\ud800"',
    '"\\0"',
    "[]",
    "{}",
    "[[]]",
    "{a: 1}",
    "2026-02-30",
    "0x10",
    "!!str x",
    "&a b",
    "*a",
    "<<",
    "é",
    "'",
    "a: b",
    "- x",
    "?",
    "|",
    "\t",
    "\x85",
    "none",
    "cdk",
    "existing",
    "x" * 5000,
    "@",
    "0.0.0.0/0",
    "1.99",
    "nxdi-v1",
    "Qwen/Qwen3-0.6B",
    "16",
    "128",
    "trn2.3xlarge",
    "us-west-2",
    "use2-az9",
    "public",
)


def spoilt(text: str, chance: random.Random) -> str:
    """Return a text with one line lost, doubled, given another value, or mistyped."""
    lines = text.split("\n")
    at = chance.randrange(len(lines))
    slip = chance.choice(SLIPS)
    line = lines[at]
    column = chance.randrange(len(line) + 1)
    lines[at : at + 1] = chance.choice(
        [
            [],
            [line, line],
            [f"{line.partition(':')[0]}: {slip}"],
            [line[:column] + slip + line[column + 1 :]],
        ]
    )
    return "\n".join(lines)


def told(folder: Path) -> tuple[SpecFault, ...]:
    workspace = load_workspace(folder / "environments", folder / "experiments")
    return workspace.faults + check_workspace(workspace, load_catalogue())


@pytest.mark.parametrize("seed", range(24))
def test_spoilt_file_raises_nothing_and_every_fault_is_in_words(seed, specs):
    chance = random.Random(seed)  # noqa: S311  # a seed makes the slip repeatable
    file = chance.choice(sorted(specs.glob("e*/*.yaml")))
    file.write_bytes(spoilt(file.read_text(), chance).encode())

    faults = told(specs)

    assert all(str(fault) and (fault.allowed or fault.got) and fault.change for fault in faults)
