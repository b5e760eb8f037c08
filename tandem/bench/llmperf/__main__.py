"""`python -m tandem.bench.llmperf`: parse, call, say.

Invariant: no traceback for a foreseeable fault; what was measured is kept however it ends. Exit codes: 0 every call
left its results; 1 some did not, and every server has some; 2 bad input; 3 a server has none, or the world outside
failed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from tandem.bench.fault import BenchError, ExternalBenchError
from tandem.bench.llmperf.run import LlmperfCall, LlmperfServer, LlmperfSession
from tandem.bench.llmperf.tool import LlmperfLoad, LlmperfTool

INTERRUPT_EXIT_CODE = 130
PARTIAL_EXIT_CODE = 1
OUTCOME_FILE = "outcome.json"  # what a container that keeps the files ends with


def main(argv: Sequence[str] | None = None) -> int:
    """Run the calls; the exit code."""
    parser = _build_parser()
    options = parser.parse_args(argv)
    code = _run_session(options)
    if options.defer:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / OUTCOME_FILE).write_text(json.dumps({"exit_code": code}) + "\n")
        return 0
    return code


def _run_session(options: argparse.Namespace) -> int:
    try:
        session = LlmperfSession(
            servers=[_parse_server(argument) for argument in options.server],
            load=_build_load(options),
            tool=_build_tool(options),
            out=options.out,
            say=_print_progress,
        )
        calls = session.run(options.calls, options.most_s)
    except BenchError as error:
        _print_progress(f"error: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        _print_progress("interrupted: what was measured before is kept")
        return INTERRUPT_EXIT_CODE
    return compute_exit_code(calls)


def compute_exit_code(calls: Sequence[LlmperfCall]) -> int:
    """Return the exit code that the calls deserve."""
    success_counts: dict[str, int] = {}
    for call in calls:
        success_counts[call.arm] = success_counts.get(call.arm, 0) + call.counted - call.errors
    if not success_counts or not all(success_counts.values()):
        return ExternalBenchError.exit_code
    return 0 if all(call.how == "done" and not call.errors for call in calls) else PARTIAL_EXIT_CODE


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tandem.bench.llmperf",
        description="run llmperf against several servers at the same moment and keep what it writes",
        epilog="exit codes: 0 all calls left results; 1 some did not; 2 bad input; 3 a server has none, or it failed",
    )
    read_variable = os.environ.get
    parser.add_argument(
        "--server", action="append", required=True, metavar="NAME=URL", help="one arm; the first is the baseline"
    )
    parser.add_argument("--model", required=True, help="name that the servers go by")
    parser.add_argument("--out", type=Path, required=True, help="new folder of all that is kept")
    parser.add_argument("--calls", type=_parse_positive, default=1, help="calls of the tool, one after another")
    parser.add_argument("--most-s", type=float, default=math.inf, help="seconds after which no further call is begun")
    parser.add_argument("--input-tokens", type=_parse_positive, default=LlmperfLoad.input_tokens)
    parser.add_argument("--output-tokens", type=_parse_positive, default=LlmperfLoad.output_tokens)
    parser.add_argument("--concurrency", type=_parse_positive, default=LlmperfLoad.concurrency)
    parser.add_argument(
        "--requests", type=_parse_positive, default=LlmperfLoad.requests, help="results that one call counts"
    )
    parser.add_argument("--temperature", type=float, default=LlmperfLoad.temperature)
    parser.add_argument("--seed", type=int, default=None, help="sent to the servers with each request")
    parser.add_argument(
        "--timeout-s", type=_parse_positive, default=LlmperfLoad.timeout_s, help="after which a call starts no request"
    )
    parser.add_argument(
        "--source", type=Path, default=Path(read_variable("LLMPERF_SOURCE", ".")), help="checkout of llmperf"
    )
    parser.add_argument(
        "--python",
        type=Path,
        default=Path(read_variable("LLMPERF_PYTHON", sys.executable)),
        help="Python with its packages",
    )
    parser.add_argument(
        "--home", type=Path, default=Path(read_variable("LLMPERF_HOME", ".")), help="folder that holds the tokenizer's"
    )
    parser.add_argument("--defer", action="store_true", help=f"end with 0, and write the exit code into {OUTCOME_FILE}")
    return parser


def _parse_positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("it must be at least 1")
    return value


def _parse_server(argument: str) -> LlmperfServer:
    name, separator, url = argument.partition("=")
    if not separator or not name or "/" in name or not url.startswith(("http://", "https://")):
        raise BenchError(f"{argument!r} is no server", change="say --server NAME=http://HOST:PORT")
    return LlmperfServer(name=name, url=url)


def _build_load(options: argparse.Namespace) -> LlmperfLoad:
    return LlmperfLoad(
        model=options.model, input_tokens=options.input_tokens, output_tokens=options.output_tokens,
        temperature=options.temperature, seed=options.seed, concurrency=options.concurrency,
        requests=options.requests, timeout_s=options.timeout_s,
    )  # fmt: skip


def _build_tool(options: argparse.Namespace) -> LlmperfTool:
    # absolute: the tool runs in a folder of its own; a link is kept, since a venv's Python is one
    return LlmperfTool(source=options.source.absolute(), python=options.python.absolute(), home=options.home.absolute())


def _print_progress(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _raise_interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(
        signal.SIGTERM, _raise_interrupt
    )  # a container's first process ignores a signal that it has no handler for
    sys.exit(main())
