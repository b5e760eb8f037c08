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
from tandem.cli.bench_flags import add_run_flags

FlagValues = Mapping[str, tuple[str, ...]]

CHANGEABLE_FLAGS = frozenset({"--out", "--resume", "--placement", "--goodput", "--price"})
"""What is no setting of a run, or may change while it goes on: the manifest holds the last one in its own field."""
EXCLUSIVE_FLAGS = (("--rounds", "--duration"), ("--concurrency", "--rate"))
SIZE_FLAGS = ("--quick", "--full")
UNRECORDED_FLAG_DEFAULTS = {"--ask": "no extras", "--warm-up": "auto"}
"""What no field of the manifest holds as it was asked, with the words for its default."""


def parse_flags(words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return option to its values, as `words` give them; files by their whole path.

    Args:
        words: of the command line, other commands' options among them; none gives none.
    """
    if not words:
        return {}
    parser = argparse.ArgumentParser(add_help=False)
    add_run_flags(parser)
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to ask what was given
        action.default, action.type = argparse.SUPPRESS, None
    options, _ = parser.parse_known_args(list(words))
    flags = {}
    for action in parser._actions:  # noqa: SLF001
        option = action.option_strings[0]
        if hasattr(options, action.dest) and option not in CHANGEABLE_FLAGS:
            flags[option] = _option_values(option, getattr(options, action.dest))
    return flags


def _option_values(option: str, value: object) -> tuple[str, ...]:
    """Return an option's values as text, none for a switch; files by their whole path."""
    if isinstance(value, bool) or value == "":
        return ()
    texts = [str(part) for part in value] if isinstance(value, list) else [str(value)]
    files = option in {"--llmperf-source", "--suite"}
    return tuple(str(Path(text).absolute()) if files and text not in BUILT_IN else text for text in texts)


def restore_flags(options: argparse.Namespace) -> argparse.Namespace:
    """Return the options of a run that goes on: those recorded where none is given now.

    Raises:
        BenchError: the folder holds no run, the run recorded no flags and none are given, or a flag contradicts one
            that no other setting shows.
    """
    words = getattr(options, "words", None)
    if options.resume is None or words is None:
        return options
    folders.check_folder(options.resume, resume=True)
    previous_run, new_flags = manifest.read_manifest(options.resume), parse_flags(words)
    if not previous_run.flags:
        if "--baseline" in new_flags or "--env" in new_flags:
            return options
        raise BenchError(
            "this run recorded no flags: an earlier version began it", where=str(options.resume / FILE),
            change="give the same flags again, beside --resume",
        )  # fmt: skip
    _refuse_contradiction(previous_run.flags, new_flags, options.resume)
    old_flags = {option: values for option, values in previous_run.flags.items() if not _is_replaced(option, new_flags)}
    parser = argparse.ArgumentParser(add_help=False)
    add_run_flags(parser)
    old_words = [word for option, values in old_flags.items() for word in (option, *values)]
    all_options, _ = parser.parse_known_args(
        [*words, *old_words]
    )  # behind: a list such as --model takes no word of these
    return argparse.Namespace(**{**vars(options), **vars(all_options)})


def _is_replaced(option: str, new_flags: FlagValues) -> bool:
    """Return whether a flag given now stands in the place of a recorded one."""
    rivals = {option, *(name for pair in EXCLUSIVE_FLAGS if option in pair for name in pair)}
    return not rivals.isdisjoint(new_flags)


def _refuse_contradiction(old_flags: FlagValues, new_flags: FlagValues, folder: Path) -> None:
    """Refuse a flag that differs from the recorded one and that no field of the manifest shows.

    Raises:
        BenchError: one does; both values are named.
    """
    for option in SIZE_FLAGS:
        if option in new_flags and option not in old_flags:
            raise BenchError(
                f"{option} was not given when this run began", where=str(folder / FILE),
                change=f"leave {option} out, or begin another run: --out DIR",
            )  # fmt: skip
    for option, default in UNRECORDED_FLAG_DEFAULTS.items():
        old_value, new_value = (" ".join(flags.get(option, (default,))) for flags in (old_flags, new_flags))
        if option in new_flags and old_value != new_value:
            raise BenchError(
                f"{option} was {old_value} when this run began and is {new_value} now", where=str(folder / FILE),
                change=f"leave {option} out, or begin another run: --out DIR",
            )  # fmt: skip
