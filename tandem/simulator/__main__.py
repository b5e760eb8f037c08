"""`python -m tandem.simulator --knobs FILE`: one simulator in its own process, until a signal.

Invariant: standard output has one line, `ready URL`, once /health returns 200; no traceback for a
foreseeable fault, and the usual exit codes: 0 ended by a signal or its parent, 2 bad input, 3 an
external failure.
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

from tandem.errors import ExitCode, TandemError
from tandem.simulator.server import SimulatorServer
from tandem.simulator.server_log import ServerLog
from tandem.simulator.settings import SimulatorSettings, read_settings


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM, SIGINT or, with --with-parent, stdin's end; return the exit code."""
    description = "one simulator of a vLLM server, in a process of its own"
    parser = argparse.ArgumentParser(prog="python -m tandem.simulator", description=description)
    parser.add_argument("--knobs", type=Path, required=True, metavar="FILE", help="YAML of knobs")
    parser.add_argument(
        "--port", type=int, default=0, metavar="P", help="on 127.0.0.1; a free one by default"
    )
    parser.add_argument(
        "--log", type=Path, metavar="FILE", help="truth log, JSON lines; appended to"
    )
    parser.add_argument("--with-parent", action="store_true", help="end when standard input ends")
    options = parser.parse_args(argv)
    if options.port not in range(65_536):
        parser.error(f"{options.port} is no port: 0 to 65535")
    problem = str(options.log)
    change = "name another by --log"
    try:
        settings = read_settings(options.knobs)
        log = ServerLog(settings, options.log)
        problem = f"port {options.port}"
        change = "name another by --port"
        uvloop.run(_run_server(settings, log, options.port, with_parent=options.with_parent))
    except TandemError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    except OSError as error:
        sys.stderr.write(f"error: {problem}: {error}; {change}\n")
        return ExitCode.EXTERNAL_FAILURE
    return ExitCode.DONE


async def _run_server(
    settings: SimulatorSettings, log: ServerLog, port: int, *, with_parent: bool
) -> None:
    loop = asyncio.get_running_loop()
    stop_event = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_event.set)
    if with_parent:
        loop.add_reader(sys.stdin.fileno(), _stop_with_parent, stop_event)
    server = SimulatorServer(settings, log)
    await server.start(port)
    ready = asyncio.create_task(server.wait_ready())
    ready.add_done_callback(lambda _: print(f"ready {server.url}", flush=True))
    await stop_event.wait()
    await server.stop()
    log.close()


def _stop_with_parent(stop_event: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 1):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        stop_event.set()


if __name__ == "__main__":
    sys.exit(main())
