"""`python -m tandem.bench.llmperf`: the command line of the llmperf calls.

Invariant: no traceback for a foreseeable fault; results are kept in every case. Exit codes: 0 every
call succeeded without a failed request; 1 some did not, and every server has results; 2 bad input;
3 a server has no successful request, or an external service failed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from tandem.bench.llmperf.run import LlmperfCall, LlmperfSession
from tandem.bench.llmperf.tool import LlmperfLoad, LlmperfTool
from tandem.bench.records.manifest import ManifestArm
from tandem.errors import INTERRUPT_EXIT_CODE, ExternalError, InputError, TandemError

PARTIAL_EXIT_CODE = 1
OUTCOME_FILE = "outcome.json"  # result of a container that keeps the files
LOAD_FIELDS = {field.name for field in fields(LlmperfLoad)}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the calls and return the exit code."""
    options = _build_parser().parse_args(argv)
    try:
        # absolute, because the tool runs in another folder; links are not resolved, because a
        # venv's Python is a link
        paths = {name: getattr(options, name).absolute() for name in ("source", "python", "home")}
        session = LlmperfSession(
            arms=[
                _parse_arm(text, options.model, is_first=not index)
                for index, text in enumerate(options.server)
            ],
            load=LlmperfLoad(
                **{name: value for name, value in vars(options).items() if name in LOAD_FIELDS}
            ),
            tool=LlmperfTool(**paths),
            out=options.out,
            say=_print_line,
        )
        code = compute_exit_code(session.run(options.calls, options.most_s))
    except TandemError as error:
        _print_line(f"error: {error}")
        code = error.exit_code
    except KeyboardInterrupt:
        _print_line("interrupted: what was measured before is kept")
        code = INTERRUPT_EXIT_CODE
    if not options.defer:
        return code
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / OUTCOME_FILE).write_text(json.dumps({"exit_code": code}) + "\n")
    return 0


def compute_exit_code(calls: Sequence[LlmperfCall]) -> int:
    """Return the exit code for the outcomes of the calls."""
    success_counts = Counter[str]()
    for call in calls:
        success_counts[call.arm] += call.counted - call.errors
    if not success_counts or not all(success_counts.values()):
        return ExternalError.exit_code
    return 0 if all(call.how == "done" and not call.errors for call in calls) else PARTIAL_EXIT_CODE


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tandem.bench.llmperf",
        description=(
            "run llmperf against several servers at the same moment and keep what it writes"
        ),
        epilog=(
            "exit codes: 0 no failed request; 1 some failed; 2 bad input;"
            " 3 a server failed every request"
        ),
    )
    add = parser.add_argument
    variables = os.environ
    load = LlmperfLoad
    add(
        "--server",
        action="append",
        required=True,
        metavar="NAME=URL",
        help="one arm; the first is the baseline",
    )
    add("--model", required=True, help="name that the servers go by")
    add("--out", type=Path, required=True, help="new folder of all that is kept")
    add("--calls", type=_parse_positive, default=1, help="calls of the tool, one after another")
    add(
        "--most-s",
        type=float,
        default=math.inf,
        help="seconds after which no further call is begun",
    )
    add("--input-tokens", type=_parse_positive, default=load.input_tokens)
    add("--output-tokens", type=_parse_positive, default=load.output_tokens)
    add("--concurrency", type=_parse_positive, default=load.concurrency)
    add(
        "--requests",
        type=_parse_positive,
        default=load.requests,
        help="results that one call counts",
    )
    add("--temperature", type=float, default=load.temperature)
    add("--seed", type=int, help="sent to the servers with each request")
    add(
        "--timeout-s",
        type=_parse_positive,
        default=load.timeout_s,
        help="after which a call starts no request",
    )
    add(
        "--source",
        type=Path,
        default=variables.get("LLMPERF_SOURCE", "."),
        help="checkout of llmperf",
    )
    add(
        "--python",
        type=Path,
        default=variables.get("LLMPERF_PYTHON", sys.executable),
        help="it has its packages",
    )
    add(
        "--home",
        type=Path,
        default=variables.get("LLMPERF_HOME", "."),
        help="folder that holds the tokenizer's",
    )
    add(
        "--defer",
        action="store_true",
        help=f"end with 0, and write the exit code into {OUTCOME_FILE}",
    )
    return parser


def _print_line(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _parse_positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("it must be at least 1")
    return value


def _parse_arm(argument: str, model: str, *, is_first: bool) -> ManifestArm:
    name, _, url = argument.partition("=")
    if not name or "/" in name or not url.startswith(("http://", "https://")):
        raise InputError(f"{argument!r} is no server", change="say --server NAME=http://HOST:PORT")
    return ManifestArm(name=name, role="baseline" if is_first else "variant", url=url, model=model)


if __name__ == "__main__":
    # a container's first process ignores a signal that it has no handler for
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
