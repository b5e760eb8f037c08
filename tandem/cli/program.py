"""The command line: parse, call, print.

Invariant: no traceback reaches a user for bad input; the exit codes are those of `tandem.cli.outcome`. Of all
commands only the one that was asked is loaded: a report of a million records, and each process that helps to read them,
waits for no rule of an environment.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import TextIO, cast

from tandem.bench.terminal_text import PrintableStream
from tandem.cli.outcome import print_faults, print_json
from tandem.cli.selection import Selection, add_selection_flags, read_selection
from tandem.errors import ExitCode
from tandem.spec.faults import SpecError

EPILOG = "exit codes: 0 done; 1 stale, or warned with --strict; 2 bad input; 3 the world outside failed; 4 void"
INTERRUPT_EXIT_CODE = 130
WRITING_COMMANDS = frozenset({"start", "stop", "destroy"})  # commands whose reader may be gone before they have acted


@dataclass(frozen=True, slots=True)
class _CommandEntry:
    """A module of tandem.cli with `add_flags`, or `add_verbs` where the command has verbs.

    Args:
        description: for the help.
        call: calls the module's function; None for the function of the command's name, with selection and options.
        module: its name; None for the command's own.
    """

    description: str
    call: Callable[[ModuleType, Selection, argparse.Namespace], ExitCode] | None = None
    module: str | None = None


_COMMANDS = {
    "check": _CommandEntry(
        "hold specs against their schema and the rules; say what an edit recompiles and what watching costs",
        lambda module, selection, options: module.check(selection, options.against),
    ),
    "render": _CommandEntry(
        "write manifests/ from the specs",
        lambda module, selection, options: module.render(selection, options.out, check=options.check),
    ),
    "images": _CommandEntry(
        "list what an environment pulls and what must be mirrored",
        lambda module, selection, options: module.images(selection, resolve=options.resolve, seed=options.seed),
    ),
    "show": _CommandEntry(
        "summarize: variants, artifact keys, cost, warnings, next commands",
        lambda module, selection, _: module.show(selection),
    ),
    "artifacts": _CommandEntry("list, explain, collect and adopt what the bucket holds"),
    "bench": _CommandEntry("measure servers, read again and publish what was measured"),
    "simulate": _CommandEntry("start simulated servers of an experiment, without an accelerator"),
    "doctor": _CommandEntry(
        "ask the account whether an environment can be deployed and raised; or prove its one-shot stop"
    ),
    "start": _CommandEntry("raise the fleet for so many hours, behind a lease and an armed stop"),
    "stop": _CommandEntry("stop the fleet: fence it and set it to 0; or lift the fence"),
    "status": _CommandEntry("show the fleet, what it has cost since its launch, and what will end it"),
    "destroy": _CommandEntry("take an environment down stack by stack, and search for what is left"),
    "new": _CommandEntry(
        "write a commented starter of both files",
        lambda module, selection, options: module.new(options, selection),
        "starter",
    ),
}


# (command, flag or nothing) -> what a user writes now
_OLD_WORDS = {
    ("dashboard", ""): (
        "`tandem dashboard` is gone: open report.html of `tandem bench report`, which draws Figures 3 to 5"
    ),
    ("twin", ""): "`tandem twin` is now `tandem simulate`",
    ("simulate", "--faster"): "`--faster` is now `--time-scale`",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; nothing that it prints moves a terminal's cursor."""
    out, errors = cast(TextIO, PrintableStream(sys.stdout)), cast(TextIO, PrintableStream(sys.stderr))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        return _run_arguments(argv)


def _run_arguments(argv: Sequence[str] | None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    old_word = _find_old_word(arguments)
    if old_word is not None:
        print(f"error: {old_word}", file=sys.stderr)
        return int(ExitCode.BAD_INPUT)
    options = _build_parser(next((word for word in arguments if not word.startswith("-")), "")).parse_args(arguments)
    options.words = tuple(arguments)  # as they were given: a run's manifest keeps them
    try:
        return int(_run_command(options))
    except SpecError as error:
        if options.json:
            print_json({"faults": [fault.as_dict() for fault in error.faults], "exit_code": int(ExitCode.BAD_INPUT)})
        else:
            print_faults(error.faults)
        only_warnings = all(fault.severity == "warning" for fault in error.faults)
        return int(ExitCode.STALE if only_warnings else ExitCode.BAD_INPUT)
    except BrokenPipeError:  # nobody reads any more; a command that changes something may not have done it
        return int(ExitCode.EXTERNAL_FAILURE if options.command in WRITING_COMMANDS else ExitCode.DONE)
    except KeyboardInterrupt:
        return INTERRUPT_EXIT_CODE
    except (OSError, RuntimeError) as error:
        if options.json:
            document = {"problem": str(error), "where": "", "change": ""}  # the shape of every other fault
            print_json({"fault": document, "exit_code": int(ExitCode.EXTERNAL_FAILURE)})
        print(f"error: {error}", file=sys.stderr)
        return int(ExitCode.EXTERNAL_FAILURE)


def _find_old_word(arguments: Sequence[str]) -> str | None:
    """Return the sentence on the first word that went; words behind `--` are another program's."""
    words = list(itertools.takewhile(lambda word: word != "--", arguments))
    command = next((word for word in words if not word.startswith("-")), "")
    flags = [word.partition("=")[0] for word in words if word.startswith("--")]
    return next((_OLD_WORDS[command, flag] for flag in ("", *flags) if (command, flag) in _OLD_WORDS), None)


def _run_command(options: argparse.Namespace) -> ExitCode:
    name, command = options.command, _COMMANDS[options.command]
    module = _import_command(name)
    if command.call is not None:
        return command.call(module, read_selection(options), options)
    return ExitCode(getattr(module, name)(read_selection(options), options))


def _import_command(name: str) -> ModuleType:
    return import_module(f"tandem.cli.{_COMMANDS[name].module or name}")


def _build_parser(command_name: str | None = None) -> argparse.ArgumentParser:
    """Return the parser with the flags of the command that is asked alone, of none for the empty word; None: of all."""
    parser = argparse.ArgumentParser(
        prog="tandem", description="from environment and experiment files to stacks and manifests", epilog=EPILOG
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, sub in _add_subparsers(commands):
        if command_name in {name, None}:
            _add_flags(_import_command(name), sub)
    return parser


def _add_subparsers(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for name, command in _COMMANDS.items():
        yield name, commands.add_parser(name, help=command.description, description=command.description, epilog=EPILOG)


def _add_flags(module: ModuleType, parser: argparse.ArgumentParser) -> None:
    if hasattr(module, "add_verbs"):
        shared = argparse.ArgumentParser(add_help=False)
        add_selection_flags(shared)
        module.add_verbs(parser, shared)
    else:
        module.add_flags(parser)
        add_selection_flags(parser)
