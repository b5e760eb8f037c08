"""The command line: parse, call, print.

Invariant: no traceback reaches a user for bad input; the exit codes are those of `tandem.commands.outcome`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tandem.commands import bench, dashboard, destroy, doctor, start, status, stop, twin
from tandem.commands.artifacts import add_verbs, artifacts
from tandem.commands.check import check
from tandem.commands.images import images
from tandem.commands.inputs import Selection
from tandem.commands.outcome import Exit, print_faults, print_json
from tandem.commands.render import render
from tandem.commands.show import show
from tandem.commands.starter import new
from tandem.spec.faults import SpecError

EPILOG = "exit codes: 0 done; 1 stale, or warned with --strict; 2 bad input; 3 the world outside failed; 4 void"
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    options = _parser().parse_args(argv)
    try:
        return int(_run(options))
    except SpecError as error:
        if options.json:
            print_json({"faults": [fault.as_dict() for fault in error.faults], "exit_code": int(Exit.BAD_INPUT)})
        else:
            print_faults(error.faults)
        only_warnings = all(fault.severity == "warning" for fault in error.faults)
        return int(Exit.STALE if only_warnings else Exit.BAD_INPUT)
    except BrokenPipeError:
        return int(Exit.DONE)
    except KeyboardInterrupt:
        return INTERRUPTED
    except (OSError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return int(Exit.WORLD_FAILED)


def _run(options: argparse.Namespace) -> Exit:
    chosen = Selection(
        environments=options.environments,
        experiments=options.experiments,
        names=tuple(dict.fromkeys(getattr(options, "names", ()))),
        strict=getattr(options, "strict", False),
        as_json=options.json,
    )
    commands: dict[str, Callable[[], Exit]] = {
        "new": lambda: new(options.name, chosen),
        "check": lambda: check(chosen, options.against),
        "render": lambda: render(chosen, options.out, check=options.check),
        "artifacts": lambda: artifacts(chosen, options),
        "images": lambda: images(chosen, resolve=options.resolve),
        "bench": lambda: bench.bench(chosen, options),
        "dashboard": lambda: dashboard.dashboard(chosen, options),
        "twin": lambda: twin.twin(chosen, options),
        "destroy": lambda: destroy.destroy(chosen, options),
        "doctor": lambda: doctor.doctor(chosen, options),
        "show": lambda: show(chosen),
        "start": lambda: start.start(chosen, options),
        "stop": lambda: stop.stop(chosen, options),
        "status": lambda: status.status(chosen, options),
    }
    return commands[options.command]()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tandem", description="from environment and experiment files to stacks and manifests", epilog=EPILOG
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    check = _command(commands, "check", "hold specs against their schema and the rules; say what an edit recompiles")
    check.add_argument(
        "--against", type=Path, metavar="PATH",
        help="what artifact keys are compared with: an experiment file, a folder of them, rendered manifests (default)",
    )  # fmt: skip
    render = _command(commands, "render", "write manifests/ from the specs")
    render.add_argument("--out", type=Path, default=Path("manifests"), metavar="DIR", help="folder to write below")
    render.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file is stale")
    images = _command(commands, "images", "list what an environment pulls and what must be mirrored")
    images.add_argument("--resolve", action="store_true", help="online: ask the registries and write the digests")
    _command(commands, "show", "summarize: variants, artifact keys, cost, warnings, next commands")
    stored = commands.add_parser(
        "artifacts", help="list, explain, collect and adopt what the bucket holds", epilog=EPILOG
    )
    shared = argparse.ArgumentParser(add_help=False)
    _shared(shared)
    add_verbs(stored, shared)
    measure = commands.add_parser("bench", help="measure servers, and read again what was measured", epilog=EPILOG)
    bench.add_verbs(measure, shared)
    does = "draw what CloudWatch would show of a run, as one page that needs no AWS"
    dashboard.add_flags(commands.add_parser("dashboard", help=does, description=does, epilog=EPILOG, parents=[shared]))
    does = "start the servers of an experiment as twins, without an accelerator"
    twin.add_flags(commands.add_parser("twin", help=does, description=does, epilog=EPILOG, parents=[shared]))
    does = "ask the account whether an environment can be deployed and raised; nothing is written"
    doctor.add_flags(commands.add_parser("doctor", help=does, description=does, epilog=EPILOG, parents=[shared]))
    does = "raise the fleet for so many hours, behind a lease and an armed stop"
    start.add_flags(commands.add_parser("start", help=does, description=does, epilog=EPILOG, parents=[shared]))
    does = "stop the fleet: fence it and set it to 0; or lift the fence"
    stop.add_flags(commands.add_parser("stop", help=does, description=does, epilog=EPILOG, parents=[shared]))
    does = "show the fleet, what it has cost since its launch, and what will end it"
    status.add_flags(commands.add_parser("status", help=does, description=does, epilog=EPILOG, parents=[shared]))
    does = "take an environment down stack by stack, and search for what is left"
    destroy.add_flags(commands.add_parser("destroy", help=does, description=does, epilog=EPILOG, parents=[shared]))
    new = commands.add_parser("new", help="write a commented starter of both files", epilog=EPILOG)
    new.add_argument("name", metavar="NAME", help="name of the environment and the experiment")
    _shared(new)
    return parser


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, does: str
) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=does, description=does, epilog=EPILOG)
    command.add_argument("names", nargs="*", metavar="NAME", help="environments; all when none is named")
    command.add_argument("--strict", action="store_true", help="refuse what is only warned of")
    _shared(command)
    return command


def _shared(command: argparse.ArgumentParser) -> None:
    command.add_argument("--environments", type=Path, default=Path("environments"), metavar="DIR", help="folder")
    command.add_argument("--experiments", type=Path, default=Path("experiments"), metavar="DIR", help="folder")
    command.add_argument("--json", action="store_true", help="print one JSON document")
