"""Simultaneous calls of the tool against several servers, as in the post with its two servers.

Invariant: each call has its own folder for its files and one line in calls.jsonl for its end; only
this line shows a call that crashed, hung or left no file, because the tool does not record such
ends.

The output folder has `raw/<arm>/<call>/` (the tool's unchanged files, and output.txt with its
printed output), calls.jsonl, records.jsonl, manifest.json and ray.txt.
"""

from __future__ import annotations

import http.client
import json
import math
import subprocess
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from tandem.bench.llmperf import results
from tandem.bench.llmperf.source import COMMIT, SCRIPT
from tandem.bench.llmperf.tool import (
    MAX_CHARACTERS,
    REQUEST_LIMIT_S,
    LlmperfLoad,
    LlmperfTool,
    end_process,
    run_ray,
)
from tandem.bench.load.host import read_host
from tandem.bench.records import manifest
from tandem.bench.records.json_file import append_json, read_json_lines
from tandem.bench.records.record import RecordWriter
from tandem.bench.records.simulation import SIMULATED_HEADER, combine_simulated, is_announced
from tandem.errors import InputError, convert_os_errors

START_TIMEOUT_S = 300.0  # of one call: for imports, connection and start of its workers
POLL_S = 0.2
KILL_GRACE_S = 5.0
ANNOUNCEMENT_TIMEOUT_S = 5.0  # longest wait for a server's list of models
MODELS_PAGE_BYTES = 1 << 20  # limit of this list
API_KEY = "none"  # the tool refuses to start without a key; servers without keys ignore it
RAW = "raw"
CALLS = "calls.jsonl"
RECORDS = "records.jsonl"
OUTPUT = "output.txt"
RAY = "ray.txt"

CallOutcome = Literal["done", "crashed", "no_result", "timeout"]


class LlmperfCall(msgspec.Struct, frozen=True, kw_only=True):
    """End of one call against one server.

    Args:
        arm: name of the server.
        call: number of the call, from 0.
        began_s: start in seconds on the monotonic clock.
        seconds: until the end of its process.
        exit_code: None if this module ended the process.
        how: done; crashed: the tool failed; no_result: the tool succeeded but left no file;
            timeout: the tool hung.
        asked: planned number of results.
        counted: results in its file.
        errors: number of failed requests in `counted`.
        detail: last output line of a call that is not done.
    """

    arm: str
    call: int
    began_s: float
    seconds: float
    exit_code: int | None
    how: CallOutcome
    asked: int
    counted: int
    errors: int
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmperfSession:
    """Calls of one load against some servers.

    Args:
        arms: the servers; the first is the baseline.
        load: of each call.
        tool: to run.
        out: a new folder.
        say: takes a line of progress.
    """

    arms: Sequence[manifest.ManifestArm]
    load: LlmperfLoad
    tool: LlmperfTool
    out: Path
    say: Callable[[str], None]

    def run(self, call_count: int, max_s: float = math.inf) -> list[LlmperfCall]:
        """Call the tool against all servers at once, one call after another, and write the results.

        Args:
            call_count: number of calls.
            max_s: seconds after which no further call begins.

        Raises:
            InputError: the tool cannot be started, the folder is not empty, or a result file is not
                the tool's.
            ExternalError: Ray did not start, or the disk failed. Earlier results are kept.
        """
        with convert_os_errors("the folder cannot be made", self.out, "name another by --out"):
            self.out.mkdir(parents=True, exist_ok=True)
            has_files = any(self.out.iterdir())
        if has_files:
            raise InputError(
                "the folder is not empty", where=str(self.out), change="name a new folder by --out"
            )
        run_manifest = self._create_manifest(call_count)
        manifest.write_manifest(self.out, run_manifest)
        calls: list[LlmperfCall] = []
        reason: Literal["done", "failed"] = "failed"
        workers = self.load.concurrency * len(self.arms)
        try:
            with run_ray(self.tool, self.out / RAY, cpus=workers, say=self.say) as address:
                end_s = time.monotonic() + max_s
                for number in range(call_count):
                    if time.monotonic() >= end_s:
                        self.say(
                            f"{number} of {call_count} calls were made in the time that was given"
                        )
                        break
                    calls += self._run_round(number, address)
            reason = "done"
        finally:
            end = manifest.RunEnd(reason=reason, utc=manifest.utc_now())
            manifest.write_manifest(self.out, msgspec.structs.replace(run_manifest, ended=end))
        return calls

    def _create_manifest(self, call_count: int) -> manifest.RunManifest:
        load = self.load
        arms = [msgspec.structs.replace(arm, simulated=_ask_simulated(arm)) for arm in self.arms]
        return manifest.RunManifest(
            schema=manifest.SCHEMA,
            generator=results.GENERATOR,
            version=COMMIT,
            created_utc=manifest.utc_now(),
            arms=tuple(arms),
            simulated=combine_simulated(arm.simulated for arm in arms),
            suites=(),
            schedule="simultaneous",
            seed=load.seed or 0,
            api="chat",
            temperature=load.temperature or 0.0,
            max_tokens=load.output_tokens,
            concurrency=(load.concurrency,),
            rounds=call_count,
            clock=manifest.read_clock(),
            host=read_host(),
            plan=manifest.PlanTotals(requests=call_count * load.requests * len(arms)),
        )

    def _run_round(self, number: int, address: str) -> list[LlmperfCall]:
        """Call the tool once against every server at the same moment; end it at its limit."""
        load = self.load
        start_s = time.monotonic()
        counts = f"{load.requests} requests at concurrency {load.concurrency}"
        self.say(f"call {number}: {counts} to each of {len(self.arms)} servers")
        processes: dict[str, subprocess.Popen[bytes]] = {}
        try:
            for arm in self.arms:
                processes[arm.name] = self._start_call(arm, number, address)
            limit_s = start_s + START_TIMEOUT_S + load.timeout_s + REQUEST_LIMIT_S
            ends = _wait_for_ends(processes, start_s, limit_s)
        finally:
            for process in processes.values():
                if process.poll() is None:
                    end_process(process, grace_s=KILL_GRACE_S)
        return [self._record_call(arm.name, number, start_s, *ends[arm.name]) for arm in self.arms]

    def _start_call(
        self, arm: manifest.ManifestArm, number: int, address: str
    ) -> subprocess.Popen[bytes]:
        folder = call_folder(self.out, arm.name, number)
        folder.mkdir(parents=True)
        arguments = self.load.arguments(arm.model, folder.absolute())
        command = [str(self.tool.python), str(self.tool.source / SCRIPT), *arguments]
        variables = {
            "OPENAI_API_BASE": arm.api_root,
            "OPENAI_API_KEY": API_KEY,
            "RAY_ADDRESS": address,
        }
        return self.tool.start_process(command, folder / OUTPUT, variables)

    def _record_call(
        self, arm: str, number: int, start_s: float, code: int | None, seconds: float
    ) -> LlmperfCall:
        """Write the records of one call, and its line in calls.jsonl."""
        folder = call_folder(self.out, arm, number)
        call_results = results.read_results(folder)
        if call_results:
            with RecordWriter(self.out / RECORDS) as records:
                for record in results.build_records(
                    call_results, self.load, arm=arm, call=number, began_s=start_s
                ):
                    records.write(record)
        outcome: CallOutcome = "done" if call_results else "no_result"
        if code != 0:
            outcome = "timeout" if code is None else "crashed"
        call = LlmperfCall(
            arm=arm,
            call=number,
            began_s=start_s,
            seconds=round(seconds, 3),
            exit_code=code,
            how=outcome,
            asked=self.load.requests,
            counted=len(call_results.rows) if call_results else 0,
            errors=call_results.errors if call_results else 0,
            detail="" if outcome == "done" else _read_final_line(folder / OUTPUT),
        )
        append_json(self.out / CALLS, call, label="the line of a call")
        self.say(
            f"  {arm}: {outcome}, {call.counted} of {call.asked} counted, {seconds:.0f} s"
            f" {call.detail}".rstrip()
        )
        return call


def _wait_for_ends(
    processes: Mapping[str, subprocess.Popen[bytes]], start_s: float, limit_s: float
) -> dict[str, tuple[int | None, float]]:
    """Return exit code and seconds of each process; the code is None if it still runs at the end.

    Args:
        processes: by arm.
        start_s, limit_s: start of all, and end of the wait, on the monotonic clock.
    """
    ends: dict[str, tuple[int | None, float]] = {}
    while len(ends) < len(processes):
        is_late = time.monotonic() > limit_s
        for name in processes.keys() - ends.keys():
            code = processes[name].poll()
            if code is not None or is_late:
                ends[name] = code, time.monotonic() - start_s
        time.sleep(POLL_S)
    return ends


def read_calls(out: Path) -> list[LlmperfCall]:
    """Return the lines of calls.jsonl.

    Raises:
        InputError: the file cannot be read, or a line is invalid.
    """
    change = "name a folder that the driver wrote"
    return list(read_json_lines(out / CALLS, LlmperfCall, label="the calls", change=change))


def call_folder(out: Path, arm: str, call: int) -> Path:
    """Return the folder of one call's files."""
    return out / RAW / arm / str(call)


def _read_final_line(output: Path) -> str:
    """Return the output's last line, such as a traceback's error, without Ray's log and bars."""
    text = output.read_text(errors="replace") if output.exists() else ""
    lines = [line.strip() for line in text.replace("\r", "\n").splitlines() if line.strip()]
    output_lines = [
        line for line in lines if not line.startswith(("[20", "\x1b", "(")) and "it/s]" not in line
    ]
    return output_lines[-1][:MAX_CHARACTERS] if output_lines else ""


def _ask_simulated(arm: manifest.ManifestArm) -> bool | None:
    """Return whether a server says that it is simulated; None if it does not list its models."""
    try:
        with urllib.request.urlopen(  # noqa: S310 - the user's
            f"{arm.api_root}/models", timeout=ANNOUNCEMENT_TIMEOUT_S
        ) as answer:
            cards = json.loads(answer.read(MODELS_PAGE_BYTES))["data"]
            headers = (answer.headers.get(SIMULATED_HEADER),)
            owners = [card.get("owned_by") for card in cards]
            return any(is_announced(headers, owner) for owner in owners or [None])
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError, AttributeError):
        return None
