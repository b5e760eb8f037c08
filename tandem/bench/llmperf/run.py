"""Calls of the tool against several servers at the same moment, as the post drove its two.

Invariant: what a call left stands in its own folder and one line of calls.jsonl says how it ended; a call that
crashed, hung or left no file is told by that line and by nothing else, since the tool itself notes no such thing.

DIR holds `raw/<arm>/<call>/` (the tool's files as it wrote them, and output.txt, what it printed), calls.jsonl,
records.jsonl, manifest.json and ray.txt.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import os
import platform
import subprocess
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from tandem.bench import manifest as manifests
from tandem.bench.fault import BenchError, WorldError
from tandem.bench.llmperf import ray, results
from tandem.bench.llmperf.results import GENERATOR
from tandem.bench.llmperf.source import COMMIT, SCRIPT
from tandem.bench.llmperf.tool import REQUEST_LIMIT_S, Load, Tool
from tandem.bench.record import Writer
from tandem.bench.response_limits import PAGE_BYTES
from tandem.bench.simulation import HEADER, combine_simulated, read_announcement

START_S = 300.0  # of one call: to import, to connect, to have its workers started
POLL_S = 0.2
KILL_S = 5.0
ANNOUNCED_S = 5.0  # most that a server may take to list its models
KEY = "none"  # the tool refuses to start without one; servers that ask for none ignore it
RAW, CALLS, RECORDS, OUTPUT, RAY = "raw", "calls.jsonl", "records.jsonl", "output.txt", "ray.txt"
MOST_CHARACTERS = 500  # of a crash's last line

How = Literal["done", "crashed", "no_result", "timeout"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One server: the NAME of its arm, and its root's URL, with or without /v1."""

    name: str
    url: str

    @property
    def base(self) -> str:
        """Return what the tool is told."""
        return f"{self.url.rstrip('/').removesuffix('/v1')}/v1"


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """How one call against one server ended.

    Args:
        arm: name of the server.
        call: from 0.
        began_s: on the monotonic clock.
        seconds: until its process had ended.
        exit_code: None where it was ended from here.
        how: done; crashed: it failed; no_result: it ended well and left no file; timeout: it hung.
        asked: results that it was to count.
        counted: results in its file.
        errors: of those, how many it noted as failed.
        detail: the end of what a failed one printed.
    """

    arm: str
    call: int
    began_s: float
    seconds: float
    exit_code: int | None
    how: How
    asked: int
    counted: int
    errors: int
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Calls of one load against some servers.

    Args:
        servers: the arms; the first is the baseline.
        load: what each call is told.
        tool: what is run.
        out: a new folder.
        say: takes a line of progress.
    """

    servers: Sequence[Server]
    load: Load
    tool: Tool
    out: Path
    say: Callable[[str], None]

    def run(self, calls: int, most_s: float = math.inf) -> list[Call]:
        """Call the tool against all servers at once, one call after another, and write what came of it.

        Args:
            calls: how often.
            most_s: seconds after which no further call is begun.

        Raises:
            BenchError: the tool is not whole, the folder holds something, or a result file is not the tool's.
            WorldError: Ray did not start, or the disk failed. What was measured before is kept.
        """
        self.tool.require()
        _new(self.out)
        made = _manifest(self.servers, self.load, calls)
        manifests.write(self.out, made)
        ended: list[Call] = []
        reason: Literal["done", "failed"] = "failed"
        workers = self.load.concurrency * len(self.servers)
        try:
            with ray.running(self.tool, self.out / RAY, cpus=workers, say=self.say) as address:
                ends = time.monotonic() + most_s
                for number in range(calls):
                    if time.monotonic() >= ends:
                        self.say(f"{number} of {calls} calls were made in the time that was given")
                        break
                    ended += self._round(number, address)
            reason = "done"
        finally:
            manifests.write(self.out, msgspec.structs.replace(made, ended=manifests.Ended(reason=reason, utc=_utc())))
        return ended

    def _round(self, number: int, address: str) -> list[Call]:
        """Call the tool once against every server, all at the same moment."""
        load = self.load
        self.say(
            f"call {number}: {load.requests} requests at concurrency {load.concurrency} "
            f"to each of {len(self.servers)} servers"
        )
        began = time.monotonic()
        processes: dict[str, subprocess.Popen[bytes]] = {}
        try:
            for server in self.servers:
                processes[server.name] = self._start(server, number, address)
            ends = _wait(processes, began, START_S + load.timeout_s + REQUEST_LIMIT_S)
        finally:
            for process in processes.values():
                if process.poll() is None:
                    ray.end(process, grace_s=KILL_S)
        return [self._kept(server.name, number, began, *ends[server.name]) for server in self.servers]

    def _start(self, server: Server, number: int, address: str) -> subprocess.Popen[bytes]:
        folder = folder_of(self.out, server.name, number)
        folder.mkdir(parents=True)
        command = [str(self.tool.python), str(self.tool.source / SCRIPT), *self.load.arguments(folder.absolute())]
        more = {"OPENAI_API_BASE": server.base, "OPENAI_API_KEY": KEY, "RAY_ADDRESS": address}
        with (folder / OUTPUT).open("wb") as output:
            return subprocess.Popen(  # noqa: S603  # the tool's own program
                command, cwd=self.tool.home, env=self.tool.environment(more), stdin=subprocess.DEVNULL,
                stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def _kept(self, arm: str, number: int, began: float, code: int | None, seconds: float) -> Call:
        """Write the records of one call, and the line that says how it ended."""
        folder = folder_of(self.out, arm, number)
        found = results.read(folder)
        if found:
            with Writer(self.out / RECORDS) as records:
                for record in results.records(found, self.load, arm=arm, call=number, began_s=began):
                    records.write(record)
        how: How = "timeout" if code is None else "crashed" if code else "done" if found else "no_result"
        call = Call(
            arm=arm, call=number, began_s=began, seconds=round(seconds, 3), exit_code=code, how=how,
            asked=self.load.requests, counted=len(found.rows) if found else 0, errors=found.errors if found else 0,
            detail="" if how == "done" else _end_of(folder / OUTPUT),
        )  # fmt: skip
        _append(self.out / CALLS, call)
        self.say(f"  {arm}: {how}, {call.counted} of {call.asked} counted, {seconds:.0f} s {call.detail}".rstrip())
        return call


def calls_of(out: Path) -> list[Call]:
    """Return the lines of calls.jsonl.

    Raises:
        BenchError: it cannot be read.
    """
    try:
        return [msgspec.json.decode(line, type=Call) for line in (out / CALLS).read_bytes().splitlines()]
    except (OSError, msgspec.DecodeError) as error:
        raise BenchError(
            f"the calls cannot be read: {error}", where=str(out / CALLS), change="name a folder that the driver wrote"
        ) from error


def folder_of(out: Path, arm: str, call: int) -> Path:
    """Return where one call's files are."""
    return out / RAW / arm / str(call)


def _wait(
    processes: Mapping[str, subprocess.Popen[bytes]], began: float, limit_s: float
) -> dict[str, tuple[int | None, float]]:
    """Return exit code and seconds of each process; one that is still there at the limit is ended and has no code."""
    ends: dict[str, tuple[int | None, float]] = {}
    while len(ends) < len(processes):
        late = time.monotonic() > began + limit_s
        for name, process in processes.items():
            if name in ends:
                continue
            code = process.poll()
            if code is None and late:
                ray.end(process, grace_s=KILL_S)
            if code is not None or late:
                ends[name] = (code, time.monotonic() - began)
        time.sleep(POLL_S)
    return ends


def _end_of(output: Path) -> str:
    """Return the last line that was printed, of a traceback its error; neither Ray's log nor a progress bar."""
    text = output.read_text(errors="replace") if output.exists() else ""
    lines = [line.strip() for line in text.replace("\r", "\n").splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith(("[20", "\x1b", "(")) and "it/s]" not in line]
    return said[-1][:MOST_CHARACTERS] if said else ""


def _append(path: Path, call: Call) -> None:
    try:
        with path.open("ab") as file:
            file.write(msgspec.json.encode(call) + b"\n")
    except OSError as error:
        raise WorldError(
            f"it cannot be written: {error.strerror or error}", where=str(path), change="make room, and run again"
        ) from error


def _new(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        taken = any(out.iterdir())
    except OSError as error:
        raise BenchError(
            f"the folder cannot be made: {error.strerror or error}", where=str(out), change="name another by --out"
        ) from error
    if taken:
        raise BenchError("the folder is not empty", where=str(out), change="name a new folder by --out")


def _ask_simulated(server: Server) -> bool | None:
    """Return whether a server announces that it is simulated; None where it does not list its models."""
    try:
        with urllib.request.urlopen(f"{server.base}/models", timeout=ANNOUNCED_S) as answer:  # noqa: S310 - the user's
            cards = json.loads(answer.read(PAGE_BYTES))["data"]
            owners = [card.get("owned_by") for card in cards]
            return any(read_announcement((answer.headers.get(HEADER),), owner).simulated for owner in owners or [None])
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError, AttributeError):
        return None


def _manifest(servers: Sequence[Server], load: Load, calls: int) -> manifests.Manifest:
    announcements = [_ask_simulated(server) for server in servers]
    return manifests.Manifest(
        generator=GENERATOR, version=COMMIT, created_utc=_utc(),
        arms=tuple(
            manifests.Arm(
                name=server.name, role="variant" if index else "baseline", url=server.url, model=load.model,
                simulated=announcements[index],
            )
            for index, server in enumerate(servers)
        ),
        simulated=combine_simulated(announcements),
        suites=(), schedule="simultaneous", seed=load.seed or 0, api="chat", temperature=load.temperature or 0.0,
        max_tokens=load.output_tokens, concurrency=(load.concurrency,), rounds=calls,
        clock=manifests.Clock(
            source="monotonic", resolution_s=time.get_clock_info("monotonic").resolution,
            monotonic_s=time.monotonic(), utc=_utc(),
        ),
        host=manifests.Host(cpus=os.cpu_count() or 1, python=platform.python_version(), load_1m_start=_load_1m()),
        plan=manifests.Plan(requests=calls * load.requests * len(servers)),
    )  # fmt: skip


def _load_1m() -> float | None:
    with contextlib.suppress(OSError):
        return os.getloadavg()[0]
    return None


def _utc() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
