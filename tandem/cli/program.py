"""The command line: parse, call, print.

Invariant: no traceback reaches a user for bad input; the exit codes are those of `tandem.errors`.
Of all commands only the one that was asked is loaded: a report of a million records, and each
process that helps to read them, waits for no rule of an environment.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Literal, TextIO, cast

from cyclopts import App, CycloptsError, Group, Parameter, UnknownOptionError

from tandem.bench.records.terminal_text import PrintableStream
from tandem.cli.console import open_console, print_fault
from tandem.errors import INTERRUPT_EXIT_CODE, ExitCode, ExternalError, InputError, TandemError

EXIT_CODES = (
    "exit codes: 0 done; 1 stale, or warned with --strict; 2 bad input; 3 an external service"
    " failed; 4 void"
)
# commands whose reader may be gone before they have acted: all others print at their end, or do
# nothing but print
ACTING_COMMANDS = {
    "run",
    "runs cancel",
    "start",
    "stop",
    "destroy",
    "simulate",
    "artifacts gc",
    "bench run",
    "bench report",
    "bench publish",
}

# a Python package that the light installation does not have -> the extra of pyproject.toml that
# brings it
EXTRAS: Mapping[str, str] = {
    "boto3": "aws",
    "botocore": "aws",
    "dxf": "aws",
    "requests": "aws",
    "s3transfer": "aws",
    "aws_cdk": "deploy",
    "cdk8s": "deploy",
    "cdk8s_plus_36": "deploy",
    "constructs": "deploy",
    "jsii": "deploy",
}

# flags of vLLM's and GuideLLM's benchmarks -> those of `tandem bench run`
FOREIGN_FLAGS: Mapping[str, str] = {
    "--base-url": "--baseline",
    "--target": "--baseline",
    "--data": "--suite",
    "--dataset": "--suite",
    "--dataset-name": "--suite",
    "--dataset-path": "--suite",
    "--max-concurrency": "--concurrency",
    "--max-seconds": "--duration",
    "--num-prompts": "--sample",
    "--request-rate": "--rate",
}

# group -> command -> what its help says in a line of 80 columns, and what is called
COMMANDS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Files only": {
        "check": ("Check the files; show what an edit recompiles and costs", "check:check"),
        "render": ("Write the manifests of environments", "render:render"),
        "images": ("List the images of an environment, and which to mirror", "images:images"),
        "show": ("Show variants, artifact keys, cost and the next commands", "show:show"),
        "plan": ("Forecast the gain of speculation by draft, window and load", "plan:plan"),
        "migrate": (
            "Show what changes on another runtime; write the experiment",
            "migrate:migrate",
        ),
        "new": ("Write a commented environment and experiment to start from", "new:new"),
    },
    "Measure any server": {
        "bench": ("Measure servers; report, compare, verify and publish runs", "bench:app"),
        "simulate": (
            "Start simulated servers of an experiment; needs no accelerator",
            "simulate:simulate",
        ),
    },
    "Read your AWS account": {
        "status": ("Show the fleet, its cost so far, and what will stop it", "status:status"),
        "doctor": ("Check what would stop a deploy or a run; or prove the stop", "doctor:doctor"),
        "artifacts": ("List, explain, import and delete artifacts in the bucket", "artifacts:app"),
        "runs": ("List runs; show, follow or cancel one, or read its logs", "runs:app"),
        "results": ("Print the verdict of a run; download its records", "results:results"),
    },
    "Cost money or change something": {
        "run": ("Run an experiment: stage, compile, serve, measure, judge, stop", "run:run"),
        "start": ("Start the fleet for some hours, with its stop armed first", "start:start"),
        "stop": ("Stop the fleet and fence it; or lift the fence", "stop:stop"),
        "destroy": ("Delete an environment, and search for leftovers", "destroy:destroy"),
    },
}

app = App(
    name="tandem",
    help="From environment and experiment files to stacks, manifests and measured speed-ups.",
    version=lambda: version("tandem"),
    help_format="markdown",
    help_epilogue=EXIT_CODES,
    default_parameter=Parameter(
        negative=(), allow_repeating=True, show_default=lambda value: str(value) if value else None
    ),
    parse_mode="strict",
    exit_on_error=False,
    print_error=False,
)
app["--help"].group = app["--version"].group = Group("About tandem", sort_key=8)
for _number, (_title, _commands) in enumerate(COMMANDS.items()):
    _group = Group(_title, sort_key=_number)
    for _name, (_help, _path) in _commands.items():
        app.command(f"tandem.cli.{_path}", name=_name, help=_help, group=_group)


@app.command(name="help", group=app["--help"].group)
def print_help(*command: str) -> None:
    """Print the help of a command, or of all.

    Args:
        command: words of the command
    """
    app.help_print(command, console=open_console())


@app.command(group=app["--help"].group)
def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print the completion script of a shell.

    Args:
        shell: your shell
    """
    print(app.generate_completion(shell=shell))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; its output never moves a terminal's cursor."""
    words = list(sys.argv[1:] if argv is None else argv)
    out = cast(TextIO, PrintableStream(sys.stdout))
    errors = cast(TextIO, PrintableStream(sys.stderr))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        code = ExitCode.DONE
        try:
            command = " ".join(app.parse_commands(words)[0])
            code = ExitCode.EXTERNAL_FAILURE if command in ACTING_COMMANDS else ExitCode.DONE
            code = _run_command(words)
            sys.stdout.flush()
        except BrokenPipeError:  # nobody reads any more; a command that has ended keeps its code
            pass
        except KeyboardInterrupt:
            return INTERRUPT_EXIT_CODE
        except (TandemError, CycloptsError, OSError, RuntimeError, ImportError) as error:
            fault = _convert_error(error, words)
            try:
                code = print_fault(fault, as_json="--json" in words)
            except OSError:  # a closed pipe or a full disk: the other stream says so
                code = fault.exit_code
                with contextlib.suppress(OSError):
                    print_fault(fault)
        _discard_output()
        return int(code)


def _discard_output() -> None:
    """Discard what a closed pipe or full disk refused, so that the last flush cannot raise."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _run_command(words: Sequence[str]) -> ExitCode:
    """Parse the words and call what they name.

    Raises:
        CycloptsError: they name nothing, or a flag of them is wrong.
    """
    chain, apps, rest = app.parse_commands(words)
    if not rest and apps[-1].default_command is None:
        raise InputError(
            f"no command after `{' '.join(('tandem', *chain))}`", change=_help_command(chain)
        )
    command, bound, _ = app.parse_args(words, console=open_console())
    return ExitCode(command(*bound.args, **bound.kwargs) or 0)


def _convert_error(error: Exception, words: Sequence[str]) -> TandemError:
    """Convert an error into one that is printed; an unexplained one becomes an ExternalError.

    Raises:
        ImportError: a module is missing that every installation has.
    """
    match error:
        case TandemError():
            return error
        case ImportError():
            return _explain_missing_package(error)
        case CycloptsError():
            chain = app.parse_commands(words)[0]
            flag = error.argument.name if error.argument else ""
            text = str(error) if flag in str(error) else f"{flag}: {error}"
            if isinstance(error, UnknownOptionError) and chain == ("bench", "run"):
                word = str(error.token.keyword).partition("=")[0]
                if word in FOREIGN_FLAGS:
                    text = f"Unknown option: {word}. Did you mean {FOREIGN_FLAGS[word]}?"
            return InputError(
                text if text.endswith("...") else text.removesuffix("."),
                where=" ".join(("tandem", *chain)),
                change=_help_command(chain),
            )
        case _:
            return ExternalError(str(error), change="")


def _explain_missing_package(error: ImportError) -> TandemError:
    """Return which extra brings what a command needs.

    Raises:
        ImportError: no extra brings what is missing.
    """
    # cyclopts wraps a command's own
    cause = error.__cause__ if isinstance(error.__cause__, ImportError) else error
    package = (cause.name or "").partition(".")[0]
    if package not in EXTRAS:
        raise error
    extra = EXTRAS[package]
    problem = (
        f"this command needs {package}, of the extra {extra}: in the checkout, pip install"
        f" '.[{extra}]'"
    )
    return InputError(problem, change="")


def _help_command(chain: Sequence[str]) -> str:
    return f"see `{' '.join(('tandem', *chain, '--help'))}`"
