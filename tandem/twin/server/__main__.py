"""`python -m tandem.twin.server --knobs FILE`: one twin in a process of its own, until it is told to end.

Invariant: what stands on standard output is one line, `ready URL`, when /health says 200; no traceback for what can be
foreseen, and the exit codes of `tandem.artifacts`: 0 told to end, 1 another artifact, 2 bad input, 3 the world failed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import uvloop

from tandem.artifacts.fault import ArtifactError
from tandem.spec.faults import SpecError
from tandem.twin.server.app import Server
from tandem.twin.server.knobs import Knobs, read_knobs
from tandem.twin.server.start import require_artifact
from tandem.twin.server.truth import TruthLog

BAD_INPUT, WORLD_FAILED = 2, 3
LAST_PORT = 65_535


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; the exit code."""
    options = _parser().parse_args(argv)
    try:
        knobs = read_knobs(options.knobs)
        if knobs.start.artifact is not None:
            require_artifact(knobs.start.artifact)
        log = TruthLog(knobs, options.log)
    except SpecError as error:
        return _fail(str(error), BAD_INPUT)
    except ArtifactError as error:
        return _fail(str(error), error.code)
    except OSError as error:
        return _fail(f"{options.log}: the log cannot be written: {error.strerror}; name another by --log", WORLD_FAILED)
    try:
        uvloop.run(_serve(knobs, log, options.port, with_parent=options.with_parent))
    except OSError as error:
        return _fail(f"port {options.port}: {error.strerror or error}; name another by --port", WORLD_FAILED)
    return 0


def _parser() -> argparse.ArgumentParser:
    what = "one twin of a vLLM server, in a process of its own"
    parser = argparse.ArgumentParser(prog="python -m tandem.twin.server", description=what)
    parser.add_argument("--knobs", type=Path, required=True, metavar="FILE", help="YAML of knobs")
    parser.add_argument("--port", type=_port, default=0, metavar="P", help="on 127.0.0.1; a free one by default")
    parser.add_argument("--log", type=Path, metavar="FILE", help="truth log, JSON lines; appended to")
    parser.add_argument("--with-parent", action="store_true", help="end when standard input ends")
    return parser


def _port(text: str) -> int:
    """Read a port; argparse tells what is no number, too."""
    port = int(text)
    if not 0 <= port <= LAST_PORT:
        raise argparse.ArgumentTypeError(f"{port} is no port: 0 to {LAST_PORT}")
    return port


def _fail(sentence: str, code: int) -> int:
    sys.stderr.write(f"error: {sentence}\n")
    return code


async def _serve(knobs: Knobs, log: TruthLog, port: int, *, with_parent: bool) -> None:
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    if with_parent:
        loop.add_reader(sys.stdin.fileno(), _end_with_parent, told)
    server = Server(knobs, log)
    await server.start(port)
    ready = asyncio.create_task(server.wait_ready())
    ready.add_done_callback(lambda _: print(f"ready {server.url}", flush=True))
    await told.wait()
    await server.stop()
    log.close()


def _end_with_parent(told: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 1):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        told.set()


if __name__ == "__main__":
    sys.exit(main())
