"""What the user chose, the same for every command, and the flags that choose it."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What the user chose, the same for every command.

    Args:
        environments, experiments: folders of declared files.
        names: environments; empty for all.
        strict: refuse what is only warned of.
        as_json: print one JSON document instead of lines.
        verbose: print the parts of a figure too.
    """

    environments: Path
    experiments: Path
    names: tuple[str, ...] = ()
    strict: bool = False
    as_json: bool = False
    verbose: bool = False


def add_selection_flags(parser: argparse.ArgumentParser) -> None:
    """Declare the flags that every command has."""
    parser.add_argument("--environments", type=Path, default=Path("environments"), metavar="DIR", help="folder")
    parser.add_argument("--experiments", type=Path, default=Path("experiments"), metavar="DIR", help="folder")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def add_name_flags(parser: argparse.ArgumentParser) -> None:
    """Declare the environments that a command is about, and how strictly it is."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="environments; all when none is named")
    parser.add_argument("--strict", action="store_true", help="refuse what is only warned of")


def read_selection(options: argparse.Namespace) -> Selection:
    """Return what the flags chose."""
    return Selection(
        environments=options.environments,
        experiments=options.experiments,
        names=tuple(dict.fromkeys(getattr(options, "names", ()))),
        strict=getattr(options, "strict", False),
        as_json=options.json,
        verbose=getattr(options, "verbose", False),
    )
