"""`python -m rehearsal.run`: a whole run here by the real CLI, or its world for use by hand."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from rehearsal.aws.cdk_cli import CdkError
from rehearsal.aws.endpoint import list_exports
from rehearsal.aws.installation import REPOSITORY, EndpointError
from rehearsal.run.settings import RehearsalSettings
from rehearsal.run.world import RehearsalAccount, RunWorld
from tandem.declarations.faults import SpecError
from tandem.errors import ExitCode
from tandem.guard.fence import FENCE_KEY
from tandem.shell_command import quote_command

EXPECTED_CODES = {ExitCode.DONE, ExitCode.VOID}
RUN_NAME = "rehearsed"
LOG_LINES = 20  # of a run that failed


def main(arguments: Sequence[str] | None = None) -> int:
    """Return `tandem run`'s exit code; 2 bad input, 3 rehearsal failed or left something behind."""
    options = build_parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with _start_world(options) as world:
            return _hold_world(world, options) if options.hold else _rehearse_run(world, options)
    except SpecError as error:
        print(error, file=sys.stderr)
        return ExitCode.BAD_INPUT
    except (EndpointError, CdkError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return ExitCode.EXTERNAL_FAILURE
    except KeyboardInterrupt:
        print("interrupted; all processes are stopped", file=sys.stderr)
        return ExitCode.EXTERNAL_FAILURE


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m rehearsal.run", description=__doc__)
    parser.add_argument("--env", required=True, metavar="NAME", help="the environment")
    parser.add_argument("--experiment", required=True, metavar="NAME", help="one that it hosts")
    parser.add_argument(
        "--hours",
        default="6",
        metavar="H",
        help="of the lease (default 6: a compile may take four)",
    )
    parser.add_argument(
        "--time-scale",
        type=float,
        default=5.0,
        metavar="X",
        help="of the simulated servers (default 5)",
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="a folder for the run's records, verdict and report"
    )
    parser.add_argument(
        "--hold", action="store_true", help="run nothing: print what to export, and wait for Ctrl-C"
    )
    parser.add_argument(
        "--environments", type=Path, default=REPOSITORY / "environments", metavar="DIR"
    )
    parser.add_argument(
        "--experiments", type=Path, default=REPOSITORY / "experiments", metavar="DIR"
    )
    parser.add_argument(
        "words", nargs="*", metavar="-- OPTION", help="further options of `tandem run`"
    )
    return parser


@contextmanager
def _start_world(options: argparse.Namespace) -> Iterator[RunWorld]:
    """Deploy, write the cluster's other inputs, and start the cluster."""
    with ExitStack() as stack:
        prefix = "tandem-run-"
        folder = Path(
            stack.enter_context(TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True))
        )
        account = RehearsalAccount.create(
            options.env, options.environments, options.experiments, folder
        )
        stack.callback(account.endpoint.stop)
        settings = RehearsalSettings(
            environment=options.env, experiment=options.experiment, time_scale=options.time_scale
        )
        world = RunWorld(account, settings, folder)
        with ThreadPoolExecutor() as pool:
            inputs = pool.submit(world.write_inputs)
            print(
                f"a copy of {options.env} at {account.endpoint.url}: {account.deploy(folder)}",
                flush=True,
            )
            inputs.result()
        stack.enter_context(world)
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(world.skipped.items()))
        print(
            f"SIMULATED servers behind a small Kubernetes API at {world.live.url}; not there:"
            f" {kinds}",
            flush=True,
        )
        yield world


def list_run_words(options: argparse.Namespace) -> list[str]:
    """Return a run's command; its hours hold the longest step of a world without compilation."""
    return ["run", options.experiment, "--env", options.env, "--hours", options.hours]


def _rehearse_run(world: RunWorld, options: argparse.Namespace) -> int:
    """Run the real command, and check that it leaves no instance and no fence."""
    world.wait_for_runner()
    place = ("--env", options.env)
    words = [*list_run_words(options), "--run", RUN_NAME, "--yes", *options.words]
    print(f"$ {quote_command('tandem', *words)}", flush=True)
    code = world.account.run_tandem(*words).returncode
    fleet = world.list_fleet()
    has_fence = world.has_object(FENCE_KEY)
    states = ", ".join(f"{row.id} {row.state}" for row in fleet) or "none"
    print(f"EC2 lists of the fleet: {states}; fence: {'stands' if has_fence else 'none'}; ", end="")
    print(f"the local endpoint itself counts {world.count_node_minutes():.1f} node-minutes")
    if code not in EXPECTED_CODES:
        result = world.account.run_tandem("runs", "logs", RUN_NAME, *place, stdout=subprocess.PIPE)
        print(*result.stdout.splitlines()[-LOG_LINES:], sep="\n")
    elif options.out:
        words = ["results", RUN_NAME, *place, "--out", str(options.out)]
        result = world.account.run_tandem(*words, stdout=subprocess.DEVNULL)
        print(
            "this account of one machine is gone now, and `tandem results` with it; the report"
            " stays:"
        )
        pages = [
            options.out / name
            for name in ("report.html", "decision.html")
            if (options.out / name).is_file()
        ]
        print(
            *pages if result.returncode in EXPECTED_CODES else ["no results could be had"], sep="\n"
        )
    return code if not fleet and not has_fence else ExitCode.EXTERNAL_FAILURE


def _hold_world(world: RunWorld, options: argparse.Namespace) -> int:
    kubeconfig = world.folder / "kubeconfig.yaml"
    kubeconfig.write_text(yaml.safe_dump(world.build_kubeconfig()))
    print(
        "for a shell of yours (source .venv/bin/activate), so that aws and tandem speak to it; stop"
        " it with Ctrl-C. kubectl does not work here: it needs TLS and discovery. Give every"
        " command the --environments and --experiments of the last line."
    )
    print(
        "\n".join(
            [
                *list_exports(world.account.endpoint),
                quote_command("export", f"KUBECONFIG={kubeconfig}"),
            ]
        )
    )
    print(
        quote_command("tandem", *list_run_words(options), *world.account.list_file_options()),
        flush=True,
    )
    return world.account.endpoint.wait()


if __name__ == "__main__":
    sys.exit(main())
