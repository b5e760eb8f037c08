"""The flags of `tandem bench run` in a manifest, so that `--resume DIR` needs no other.

Invariant: a flag that is given again beside `--resume` stands before the recorded one; whether it contradicts the run
is then said as of any other setting, with both values.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from tandem.bench import folder as folders
from tandem.bench import manifest
from tandem.bench.fault import BenchError
from tandem.bench.manifest import FILE
from tandem.bench.suites.suite import BUILT_IN
from tandem.commands.bench_flags import add_flags

Flags = Mapping[str, tuple[str, ...]]

ELSEWHERE = frozenset({"--out", "--resume", "--placement", "--goodput", "--price"})
"""What is no setting of a run, or may change while it goes on: the manifest holds the last one in its own field."""
EITHER = (("--rounds", "--duration"), ("--concurrency", "--rate"))
SIZES = ("--quick", "--full")
UNCOMPARED = {"--ask": "no extras", "--warm-up": "auto"}
"""What no field of the manifest holds as it was asked, with the words for its default."""


def flags_of(words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return option to its values, as `words` give them; files by their whole path.

    Args:
        words: of the command line, other commands' options among them; none gives none.
    """
    if not words:
        return {}
    parser = argparse.ArgumentParser(add_help=False)
    add_flags(parser)
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to ask what was given
        action.default, action.type = argparse.SUPPRESS, None
    given, _ = parser.parse_known_args(list(words))
    found = {}
    for action in parser._actions:  # noqa: SLF001
        option = action.option_strings[0]
        if hasattr(given, action.dest) and option not in ELSEWHERE:
            found[option] = _option_values(option, getattr(given, action.dest))
    return found


def _option_values(option: str, value: object) -> tuple[str, ...]:
    """Return an option's values as text, none for a switch; files by their whole path."""
    if isinstance(value, bool) or value == "":
        return ()
    texts = [str(part) for part in value] if isinstance(value, list) else [str(value)]
    files = option in {"--llmperf-source", "--suite"}
    return tuple(str(Path(text).absolute()) if files and text not in BUILT_IN else text for text in texts)


def with_recorded(options: argparse.Namespace) -> argparse.Namespace:
    """Return the options of a run that goes on: those recorded where none is given now.

    Raises:
        BenchError: the folder holds no run, the run recorded no flags and none are given, or a flag contradicts one
            that no other setting shows.
    """
    words = getattr(options, "words", None)
    if options.resume is None or words is None:
        return options
    folders.check(options.resume, resume=True)
    before, given = manifest.read(options.resume), flags_of(words)
    if not before.flags:
        if "--baseline" in given or "--env" in given:
            return options
        raise BenchError(
            "this run recorded no flags: an earlier version began it", where=str(options.resume / FILE),
            change="give the same flags again, beside --resume",
        )  # fmt: skip
    _refuse_contradiction(before.flags, given, options.resume)
    kept = {option: values for option, values in before.flags.items() if not _is_replaced(option, given)}
    parser = argparse.ArgumentParser(add_help=False)
    add_flags(parser)
    recorded = [word for option, values in kept.items() for word in (option, *values)]
    merged, _ = parser.parse_known_args([*recorded, *words])
    return argparse.Namespace(**{**vars(options), **vars(merged)})


def _is_replaced(option: str, given: Flags) -> bool:
    """Return whether a flag given now stands in the place of a recorded one."""
    rivals = {option, *(name for pair in EITHER if option in pair for name in pair)}
    return not rivals.isdisjoint(given)


def _refuse_contradiction(before: Flags, given: Flags, folder: Path) -> None:
    """Refuse a flag that differs from the recorded one and that no field of the manifest shows.

    Raises:
        BenchError: one does; both values are named.
    """
    for option in SIZES:
        if option in given and option not in before:
            raise BenchError(
                f"{option} was not given when this run began", where=str(folder / FILE),
                change=f"leave {option} out, or begin another run: --out DIR",
            )  # fmt: skip
    for option, default in UNCOMPARED.items():
        was, is_ = (" ".join(flags.get(option, (default,))) for flags in (before, given))
        if option in given and was != is_:
            raise BenchError(
                f"{option} was {was} when this run began and is {is_} now", where=str(folder / FILE),
                change=f"leave {option} out, or begin another run: --out DIR",
            )  # fmt: skip
