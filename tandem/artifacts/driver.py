"""Runs the runtime's own compiler under one deadline, with retries by class of failure.

Invariant: what it calls compiled came from one attempt that began from a clean output and ended well; a failure
that would only come again is never tried twice, not even when the container is restarted, because one more try
can cost hours of a machine.

One file of the standard library alone, for Python 3.11 to 3.14: it is copied into the runtime's container, whose
image is not ours.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

DONE, BAD_INPUT, WORLD = 0, 2, 3
SCHEMA_VERSION = 1
GRACE_S = 300.0  # a server writes its caches when it ends
STOP_GRACE_S = 20.0  # of an attempt that is thrown away; kubelet's own patience is 30 s by default
HEARTBEAT_S = 60.0
LINGER_S = 10.0  # for what the program left behind
POLL_S = 0.2
ASK_S = 5.0  # between two questions to a server, and for its answer
LEAST_S = 60.0  # an attempt needs more time than this
ALMOST_FULL = 256 * 1024**2  # bytes: a compiler that fails with less on its disk failed of it
TAIL_LINES, LINE_BYTES = 40, 4096


@dataclass(frozen=True)
class Kind:
    """A class of failure.

    Args:
        name: as in outcome.json.
        tries: most attempts that end so; 0 for as many as `--attempts`.
        code: exit code of this program.
        change: what an operator does.
    """

    name: str
    tries: int
    code: int
    change: str


_AGAIN = "then delete this Job and create it again: a restart of this one does not try"
BAD_ARGUMENTS = Kind(
    "bad arguments", 1, BAD_INPUT,
    f"the program refuses what it is told; compare with the runtime's release, correct the experiment, {_AGAIN}",
)  # fmt: skip
DISK_FULL = Kind(
    "disk full", 1, WORLD, f"give the compile Job more ephemeral storage, or a node with a larger NVMe, {_AGAIN}",
)  # fmt: skip
OUT_OF_MEMORY = Kind(
    "out of memory", 1, WORLD, f"raise compile.memory_gib of the experiment, {_AGAIN}",
)  # fmt: skip
DEVICE_MEMORY = Kind(
    "device memory", 1, WORLD,
    "the model does not fit into the memory of the devices: lower serving.max_num_seqs or serving.max_model_len, or "
    "raise serving.tensor_parallel_size; all of these make another artifact",
)  # fmt: skip
COMPILER_ERROR = Kind(
    "compiler error", 1, WORLD,
    "the compiler cannot compile this graph, and would say so again: look its code up in the Neuron documents "
    "(compiler/error-codes) or the issues of aws-neuron/aws-neuron-sdk, change shapes or tuning of the experiment",
)  # fmt: skip
NO_DEVICE = Kind(
    "no device", 1, WORLD,
    f"check the claim's devices, the node's driver, and that nothing else runs on them, {_AGAIN}",
)  # fmt: skip
NOTHING_LEFT = Kind(
    "nothing left", 1, WORLD,
    "the program calls itself done and left nothing where it was told to: compare the artifact's folder in its "
    f"arguments and variables with --output, {_AGAIN}",
)  # fmt: skip
TRANSIENT = Kind("transient", 0, WORLD, f"it passes by itself on another try, and did not; {_AGAIN}")
UNKNOWN = Kind("unknown", 2, WORLD, f"read the lines above, {_AGAIN}")
DEADLINE = Kind("deadline", 1, WORLD, f"raise compile.deadline_hours of the experiment, {_AGAIN}")
STOPPED = Kind("stopped", 0, WORLD, "it was told to end; a restart begins again")
KINDS = {
    kind.name: kind
    for kind in (BAD_ARGUMENTS, DISK_FULL, OUT_OF_MEMORY, DEVICE_MEMORY, COMPILER_ERROR, NO_DEVICE, NOTHING_LEFT,
                 TRANSIENT, UNKNOWN, DEADLINE, STOPPED)
}  # fmt: skip


@dataclass(frozen=True)
class Sign:
    """What a line of a failed program shows.

    Args:
        kind: the class.
        pattern: regular expression, searched in each line.
        source: who says so.
    """

    kind: Kind
    pattern: str
    source: str


SIGNS_DATE = "2026-11-21"
# The first class that has a sign decides, whatever came first in the log: a compiler that is out of memory also calls
# itself broken, and every cause may end in the same status 70.
SIGNS = (
    Sign(BAD_ARGUMENTS, r"^\S.*: error: (unrecognized arguments|the following arguments are required|argument )",
         "Python's argparse, which both programs use"),
    Sign(BAD_ARGUMENTS, r"\bIncompatibleConfigError\b|cannot be larger than target_max_model_len",
         "NxD Inference v0.6.10598 models/config.py; vllm 0.9.1 vllm/config.py"),
    Sign(BAD_ARGUMENTS, r"^(\S*\.)?ValidationError: \d+ validation error",
         "pydantic, by which vLLM checks its settings"),
    Sign(DISK_FULL, r"No space left on device|Disk quota exceeded", "errno(3): ENOSPC, EDQUOT"),
    Sign(OUT_OF_MEMORY, r"\[F137\]", "neuronx-cc's own message for a part of it that was killed, always by SIGKILL"),
    Sign(OUT_OF_MEMORY, r"neuronx-cc (failed|compilation failed) with -9\b|Compile command returned: -9\b",
         "aws-neuron/aws-neuron-sdk issues 706 and 431"),
    Sign(OUT_OF_MEMORY, r"^(\S+: line \d+: +\d+ )?Killed\b", "aws-neuron/nki-samples issue 87; what a shell prints"),
    Sign(OUT_OF_MEMORY, r"\b\w*MemoryError\b|std::bad_alloc|[Cc]annot allocate memory|can't allocate memory",
         "Python, libstdc++, errno(3): ENOMEM, torch's DefaultCPUAllocator"),
    Sign(DEVICE_MEMORY, r"\bNCC_EOOM\d+|exceeds the high-bandwidth memory limit",
         "aws-neuron/aws-neuron-sdk compiler/error-codes/EOOM001.rst and EOOM002.rst"),
    Sign(COMPILER_ERROR, r"\bNCC_[A-Z]{3,5}\d{2,}", "aws-neuron/aws-neuron-sdk compiler/error-codes/index.rst"),
    Sign(COMPILER_ERROR, r"\[F13[49]\]", "aws-neuron/aws-neuron-sdk issues 1000 and 1365: neuronx-cc ended abnormally"),
    Sign(COMPILER_ERROR, r"\[[A-Z]{3}\d{3}\] +(Unhandled exception|Internal)|An Internal Compiler Error has occurred",
         "aws-neuron/aws-neuron-sdk issue 1023"),
    Sign(COMPILER_ERROR, r"Got a cached failed neff", "aws-neuron/aws-neuron-sdk neuron-caching.rst; issue 1023"),
    Sign(NO_DEVICE, r"Unable to determine Neuron Driver version|requires Neuron Driver version"
         r"|NeuronCore\(s\) not available|not compatible with the installed aws-neuron",
         "aws-neuron/aws-neuron-sdk neuron-runtime/nrt-troubleshoot.rst"),
    Sign(TRANSIENT, r"\btp_barrier\b|gloo/transport/tcp/pair\.cc.*Connection (closed|reset) by peer",
         "aws-neuron/aws-neuron-sdk issue 1369: one of many compilers ends with 70, the others lose their peer"),
)  # fmt: skip
_COMPILED_SIGNS = tuple((sign, re.compile(sign.pattern)) for sign in SIGNS)
# variables of the pod and of its neighbours, which no program here reads; a restart may see others
_PASSING = re.compile(
    r"^(HOSTNAME|PWD|OLDPWD|SHLVL|_|KUBERNETES_.*|.*_SERVICE_(HOST|PORT)(_.*)?|.*_PORT(_\d+_(TCP|UDP)(_\w+)?)?)$"
)


@dataclass(frozen=True)
class Graph:
    """One entry of a compiler's cache.

    Args:
        folder: where it lies.
        state: finished, failed or half.
        why: what is missing, for a person.
    """

    folder: Path
    state: str
    why: str


def graphs(folder: Path) -> Iterator[Graph]:
    """Yield every entry of the compiler caches below `folder`.

    Two layouts: `MODULE_*` with model.done and model.neff, or model.log where it failed (libneuronxla's cache, whose
    file names stand in the logs of huggingface/optimum-neuron issue 698 and aws-neuron-sdk issue 1023); and
    `compile_cache/<md5>` with graph_<md5>.neff and .compilation_complete, which is written last (the native plugin's:
    aws-neuron-sdk compilation_cache.md and issue 1368).
    """
    for parent, folders, _ in os.walk(folder):
        here = Path(parent)
        own = [name for name in folders if name.startswith("MODULE_") or here.name == "compile_cache"]
        for name in sorted(own):
            yield _xla_graph(here / name) if name.startswith("MODULE_") else _native_graph(here / name)
        folders[:] = [name for name in folders if name not in own]


def _xla_graph(folder: Path) -> Graph:
    if (folder / "model.done").exists():
        if _size(folder / "model.neff"):
            return Graph(folder, "finished", "")
        return Graph(folder, "half", "model.done without a model.neff")
    if (folder / "model.log").exists():
        return Graph(folder, "failed", "the compiler marked it as failed (model.log)")
    return Graph(folder, "half", "no model.done")


def _native_graph(folder: Path) -> Graph:
    mark = folder / ".compilation_complete"
    if not mark.exists():
        return Graph(folder, "half", "no .compilation_complete")
    sizes = {path.name: _size(path) for path in folder.glob("graph*.neff")}
    if not any(sizes.values()):
        return Graph(folder, "half", ".compilation_complete without a graph's .neff")
    said = re.search(r"^neff_size:(\d+)$", mark.read_text(errors="replace"), re.MULTILINE)
    if said and int(said[1]) not in sizes.values():
        return Graph(folder, "half", f"its .neff is to have {said[1]} bytes, and has {max(sizes.values())}")
    return Graph(folder, "finished", "")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


@dataclass
class Attempt:
    """One run of the program.

    `class` in the file; `exit` is its status, negative for a signal, None where nobody saw it.
    """

    kind: str
    exit: int | None
    seconds: float
    line: str

    def as_json(self) -> dict[str, Any]:
        """Return the mapping that outcome.json holds."""
        plain = asdict(self)
        return {"class": plain.pop("kind"), **plain}


@dataclass
class Outcome:
    """What outcome.json holds: it is written before an attempt begins and after it ends."""

    request: str
    result: str = "running"  # running, compiled, failed
    began: float = field(default_factory=time.time)  # of the first attempt: the deadline counts from here
    boot: str = ""
    attempts: list[Attempt] = field(default_factory=list)
    where: str = "device"
    unproven: list[str] = field(default_factory=list)
    tail: list[str] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        plain = {**asdict(self), "schema_version": SCHEMA_VERSION, "attempts": [one.as_json() for one in self.attempts]}
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(path.name + ".new")
        with fresh.open("w", encoding="utf-8") as file:
            json.dump(plain, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        fresh.chmod(0o666)
        fresh.replace(path)


def read_outcome(path: Path) -> Outcome | None:
    """Return what an earlier run wrote; None where there is nothing that can be read."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        attempts = [
            Attempt(one["class"], one["exit"], float(one["seconds"]), str(one["line"])) for one in plain["attempts"]
        ]
        return Outcome(
            request=str(plain["request"]), result=str(plain["result"]), began=float(plain["began"]),
            boot=str(plain["boot"]), attempts=attempts, where=str(plain["where"]),
            unproven=[str(sentence) for sentence in plain["unproven"]], tail=[str(line) for line in plain["tail"]],
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError):
        return None


def request_of(argv: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return one digest of what the program is asked: its arguments and the variables it may read."""
    kept = {name: value for name, value in environment.items() if not _PASSING.match(name)}
    return hashlib.sha256(json.dumps([list(argv), kept], sort_keys=True).encode()).hexdigest()


def say(event: str, *, level: str = "info", **details: Any) -> None:
    """Write one line of JSON, as all programs of the artifacts do."""
    at = datetime.now(tz=timezone.utc).isoformat(timespec="milliseconds")  # noqa: UP017 - one spelling for all versions
    sys.stdout.write(json.dumps({"at": at, "level": level, "event": event, **details}, default=str) + "\n")
    sys.stdout.flush()


class Lines:
    """What the program prints: passed on as it comes, searched for signs, its end kept."""

    def __init__(self) -> None:
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self.found: dict[int, str] = {}  # index in SIGNS -> the first line that has it
        self._rest = b""

    def take(self, piece: bytes) -> None:
        """Pass a piece on and read the lines that it completes."""
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        *whole, self._rest = re.split(rb"[\r\n]+", self._rest + piece)
        if len(self._rest) > LINE_BYTES:
            whole, self._rest = [*whole, self._rest], b""
        for line in whole:
            self._read(line)

    def end(self) -> None:
        """Read what has no end of line."""
        self._read(self._rest)
        self._rest = b""

    def _read(self, raw: bytes) -> None:
        line = raw[:LINE_BYTES].decode(errors="replace").rstrip()
        if not line:
            return
        self.tail.append(line)
        for index, (_, pattern) in enumerate(_COMPILED_SIGNS):
            if index not in self.found and pattern.search(line):
                self.found[index] = line


def classify(lines: Lines, status: int, *, oom_kills: int, free: int) -> tuple[Kind, str]:
    """Return the class of a failure and the line that shows it.

    Args:
        lines: what was printed.
        status: the program's, negative for a signal.
        oom_kills: processes of this container that the kernel killed for memory during the attempt.
        free: bytes left on the output's disk.
    """
    said = [(SIGNS[index].kind, line) for index, line in sorted(lines.found.items())]
    if said and said[0][0] in (BAD_ARGUMENTS, DISK_FULL):
        return said[0]
    if free < ALMOST_FULL:
        return DISK_FULL, f"{free} bytes are left on the disk of the output"
    if oom_kills:
        return OUT_OF_MEMORY, f"the kernel killed {oom_kills} process(es) of this container for memory"
    if status in (-signal.SIGKILL, 128 + signal.SIGKILL) and not (said and said[0][0] is OUT_OF_MEMORY):
        return OUT_OF_MEMORY, f"the program ended with status {status}: it was killed, as the kernel does for memory"
    if said:
        return said[0]
    return UNKNOWN, lines.tail[-1] if lines.tail else f"the program said nothing and ended with status {status}"


def oom_kills(events: Path) -> int:
    """Return how often the kernel killed in this container's control group; 0 where nobody counts."""
    try:
        found = re.search(r"^oom_kill (\d+)$", events.read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0


class Program:
    """The program in its own process group, and all that it starts."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.lines = Lines()
        self._process = subprocess.Popen(  # noqa: S603 - the rendered command is the purpose
            list(argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._pass_on, daemon=True)
        self._reader.start()

    def _pass_on(self) -> None:
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        while piece := os.read(pipe, 1 << 16):
            self.lines.take(piece)

    def status(self) -> int | None:
        """Return the exit status; None while it runs."""
        return self._process.poll()

    def wait(self, most_s: float) -> bool:
        """Wait for the end, so long at most; whether it came."""
        try:
            self._process.wait(most_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def ask_to_end(self, grace_s: float, *, all_of_it: bool) -> bool:
        """Send SIGTERM and wait; whether it ended.

        Args:
            grace_s: seconds to wait.
            all_of_it: to the whole group; else to the program, which ends its own workers in order.
        """
        if all_of_it:
            self._signal(signal.SIGTERM)
        else:
            self._process.terminate()
        return self.wait(grace_s)

    def clear(self) -> None:
        """Kill whatever is left, and read the last lines."""
        ends = time.monotonic() + (LINGER_S if self.status() is not None else 0)
        while time.monotonic() < ends and self._alive():
            time.sleep(POLL_S)
        self._signal(signal.SIGKILL)
        for pid in _descendants(os.getpid()):
            _kill(pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(LINGER_S)
        self.lines.end()

    def _alive(self) -> bool:
        try:
            os.killpg(self._process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            return


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def _descendants(ancestor: int) -> list[int]:
    """Return every process below `ancestor`, also those that left its group (Linux)."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            after_name = stat.read_text().rpartition(")")[2].split()
        except (OSError, UnicodeDecodeError):
            continue
        parents[int(stat.parent.name)] = int(after_name[1])
    found: list[int] = []
    front = [ancestor]
    while front:
        front = [pid for pid, parent in parents.items() if parent in front]
        found += front
    return found


def _adopt_orphans() -> None:
    """Become the parent of what the program leaves behind, as process 1 of a container is anyway (Linux)."""
    try:
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    except (OSError, AttributeError):
        return


@dataclass
class Driver:
    """One run: the options as given, and whether somebody asked it to end."""

    options: argparse.Namespace
    outcome: Outcome
    stopped: str = ""
    _last_beat: float = field(default_factory=time.monotonic)
    _last_question: float = 0.0
    _ask: urllib.request.OpenerDirector = field(
        default_factory=lambda: urllib.request.build_opener(urllib.request.ProxyHandler({}))
    )

    @property
    def left_s(self) -> float:
        """Return the seconds until the deadline, over all attempts and restarts."""
        return float(self.options.deadline_s) - max(0.0, time.time() - self.outcome.began)

    def run(self) -> int:
        """Try until it is compiled or another try would be in vain; the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._told_to_stop)
        while True:
            if self.left_s < min(LEAST_S, self.options.deadline_s / 2):
                return self._give_up(DEADLINE, f"{self.options.deadline_s:g} s are over")
            kind, line = self._attempt()
            if kind is None:
                return self._compiled()
            if kind is STOPPED:
                say("stopped", level="warning", line=line, change=STOPPED.change, exit_code=STOPPED.code)
                return STOPPED.code
            if not _another(self.outcome.attempts, self.options.attempts):
                return self._give_up(kind, line)
            say("trying again", level="warning", failure=kind.name, line=line, left_s=round(self.left_s))

    def _attempt(self) -> tuple[Kind | None, str]:
        """Run the program once from a clean start; the class of its failure, None for none."""
        clean(self.options, first=not self.outcome.attempts)
        counted = len([one for one in self.outcome.attempts if one.kind != STOPPED.name])
        say("compiling", attempt=counted + 1, attempts=self.options.attempts, left_s=round(self.left_s))
        began, killed = time.monotonic(), oom_kills(self.options.memory_events)
        self.outcome.result = "running"
        self.outcome.write(self.options.outcome)
        try:
            program = Program(self.options.program)
        except OSError as error:
            return self._noted(BAD_ARGUMENTS, f"{self.options.program[0]}: {error.strerror}", None, 0.0)
        kind, line = self._watch(program)
        program.clear()
        status, seconds = program.status(), time.monotonic() - began
        self.outcome.tail = list(program.lines.tail)
        if kind is None and not line:
            return self._noted(None, "", status, seconds)
        if kind is None:
            free = shutil.disk_usage(_existing(self.options.output)).free
            more_kills = oom_kills(self.options.memory_events) - killed
            kind, shown = classify(program.lines, status or 0, oom_kills=more_kills, free=free)
            line = shown if kind is not UNKNOWN else f"{line}: {shown}"
        return self._noted(kind, line, status, seconds)

    def _watch(self, program: Program) -> tuple[Kind | None, str]:
        """Wait for the end of an attempt: (None, "") if it went well, (None, why) where its log must tell the class."""
        healthy = self.options.until_healthy
        while True:
            status = program.status()
            if status is not None and healthy:
                return None, f"the server ended with status {status} before it was healthy"
            if status is not None:
                return self._judge(status)
            if self.stopped or self.left_s <= 0:
                program.ask_to_end(min(STOP_GRACE_S, self.options.grace_s), all_of_it=True)
                over = f"{self.options.deadline_s:g} s are over"
                return (STOPPED, f"{self.stopped} arrived") if self.stopped else (DEADLINE, over)
            if healthy and self._is_healthy(healthy):
                return self._end_server(program)
            self._beat()
            program.wait(POLL_S)

    def _judge(self, status: int) -> tuple[Kind | None, str]:
        """Judge a program that ended by itself, as `_watch` says it."""
        if status:
            return None, f"the program ended with status {status}"
        if not any(True for _ in _files(self.options.output)):
            return NOTHING_LEFT, f"the program ended well and left nothing in {self.options.output}"
        return None, ""

    def _end_server(self, program: Program) -> tuple[Kind | None, str]:
        """End a healthy server in its own order, so that it writes its caches."""
        say("healthy", url=self.options.until_healthy, grace_s=self.options.grace_s)
        if not program.ask_to_end(self.options.grace_s, all_of_it=False):
            self.outcome.unproven.append(
                f"the server was killed because it did not end within {self.options.grace_s:g} s of being asked to: "
                "what it writes at its end may be missing"
            )
            say("the server does not end", level="warning", grace_s=self.options.grace_s)
        if not any(graph.state == "finished" for graph in graphs(self.options.output)):
            return NOTHING_LEFT, f"the server was healthy and left no finished graph in {self.options.output}"
        return None, ""

    def _is_healthy(self, url: str) -> bool:
        if time.monotonic() - self._last_question < self.options.ask_s:
            return False
        self._last_question = time.monotonic()
        try:
            with self._ask.open(url, timeout=ASK_S) as answer:
                return int(answer.status) == 200  # noqa: PLR2004 - HTTP's own
        except (OSError, urllib.error.URLError, ValueError):
            return False

    def _beat(self) -> None:
        if time.monotonic() - self._last_beat < self.options.heartbeat_s:
            return
        self._last_beat = time.monotonic()
        say(
            "still compiling", seconds=round(self.options.deadline_s - self.left_s), left_s=round(self.left_s),
            output_bytes=sum(_size(path) for path in _files(self.options.output)),
            cache_bytes=sum(_size(path) for path in _files(self.options.cache)),
            finished_graphs=sum(graph.state == "finished" for graph in graphs(self.options.cache)),
        )  # fmt: skip

    def _noted(self, kind: Kind | None, line: str, status: int | None, seconds: float) -> tuple[Kind | None, str]:
        name = kind.name if kind else "compiled"
        self.outcome.attempts.append(Attempt(name, status, round(seconds, 1), line[:LINE_BYTES]))
        self.outcome.result = "failed" if kind else "compiled"
        self.outcome.write(self.options.outcome)
        if kind:
            say("attempt failed", level="warning", failure=name, exit=status, seconds=round(seconds, 1), line=line)
        return kind, line

    def _compiled(self) -> int:
        finish(self.options.output)
        size = sum(_size(path) for path in _files(self.options.output))
        say("compiled", seconds=round(time.time() - self.outcome.began), bytes=size, where=self.outcome.where,
            unproven=self.outcome.unproven)  # fmt: skip
        return DONE

    def _give_up(self, kind: Kind, line: str) -> int:
        if not self.outcome.attempts or self.outcome.attempts[-1].kind != kind.name:
            self.outcome.attempts.append(Attempt(kind.name, None, 0.0, line))
        self.outcome.result = "failed"
        self.outcome.write(self.options.outcome)
        return _tell(kind, line, len(self.outcome.attempts))

    def _told_to_stop(self, number: int, _frame: object) -> None:
        self.stopped = signal.Signals(number).name


def _another(attempts: Sequence[Attempt], most: int) -> bool:
    """Whether what failed so often and so may be tried once more."""
    counted = [one for one in attempts if one.kind != STOPPED.name]
    if not counted or len(counted) >= most:
        return not counted
    last = KINDS.get(counted[-1].kind, UNKNOWN)
    return not last.tries or sum(one.kind == last.name for one in counted) < last.tries


def _tell(kind: Kind, line: str, attempts: int) -> int:
    say(
        f"not compiled: {kind.name}", level="error", line=line, attempts=attempts, change=kind.change,
        exit_code=kind.code,
    )  # fmt: skip
    return kind.code


def clean(options: argparse.Namespace, *, first: bool) -> None:
    """Remove what an earlier attempt left and this one must not meet.

    A program's output is emptied. A server's output is its own cache: graphs that are finished are kept for a second
    attempt of the same request, all others go. Failed graphs go from every cache, or the compiler would repeat its
    verdict unasked; so do locks, for which a new compiler would wait for ever (nobody else compiles in this pod).
    """
    if first or not options.until_healthy:
        for path in options.output.glob("*") if options.output.is_dir() else ():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    options.output.mkdir(parents=True, exist_ok=True)
    for folder in {options.output, options.cache}:
        for graph in list(graphs(folder)):
            if graph.state != "finished":
                shutil.rmtree(graph.folder, ignore_errors=True)
        for lock in list(_locks(folder)):
            lock.unlink(missing_ok=True)


def finish(folder: Path) -> None:
    """Make the output one that another user's program can store.

    Libraries write temporary files that only their owner may read, and rename them; locks are those of a program
    that has ended. May be done twice.
    """
    for lock in list(_locks(folder)):
        lock.unlink(missing_ok=True)
    for parent, _, names in os.walk(folder):
        here = Path(parent)
        here.chmod(here.stat().st_mode | 0o755)
        for name in names:
            path = here / name
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | 0o644)


def _files(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder):
        yield from (Path(parent) / name for name in names)


def _locks(folder: Path) -> Iterator[Path]:
    return (path for path in _files(folder) if path.suffix == ".lock")


def _existing(folder: Path) -> Path:
    return folder if folder.exists() or folder == folder.parent else _existing(folder.parent)


def _boot() -> str:
    """Return the name of this start of the machine; empty where nobody says."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def resume(options: argparse.Namespace) -> Outcome:
    """Return the outcome to go on with: an earlier one of the same request, or a new one.

    An attempt that was begun and never ended, on a machine that did not restart, was killed together with this
    program: nothing but SIGKILL ends it unseen, and that is what the kernel sends to all of a container that is out
    of memory.
    """
    request = request_of(options.program, os.environ)
    before = read_outcome(options.outcome)
    if before is None or before.request != request:
        return fresh(options, request)
    if before.result == "running" and before.boot == _boot():
        line = "the container was killed in the middle of an attempt, which the kernel does for memory"
        before.attempts.append(Attempt(OUT_OF_MEMORY.name, None, 0.0, line))
        before.result = "failed"
        before.write(options.outcome)
    before.boot = _boot()
    return before


def fresh(options: argparse.Namespace, request: str) -> Outcome:
    """Return the outcome of a request that nobody has begun."""
    seen = "device" if any(Path("/dev").glob("neuron[0-9]*")) else "cpu"
    unproven = list(options.unproven)
    if seen == "cpu":
        unproven.append("it was compiled where no Neuron device was seen: that it loads on one is not shown")
    return Outcome(request=request, boot=_boot(), where=options.where or seen, unproven=unproven)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `compile`."""
    parser.add_argument("--skip-if", type=Path, help="do nothing if this file exists")
    parser.add_argument("--outcome", type=Path, required=True, help="file that says how it went")
    parser.add_argument("--output", type=Path, required=True, help="folder that the program fills")
    parser.add_argument("--cache", type=Path, required=True, help="folder of the compiler's cache")
    parser.add_argument("--deadline-s", type=float, required=True, help="seconds for all attempts together")
    parser.add_argument("--attempts", type=int, default=3, help="most attempts")
    parser.add_argument("--until-healthy", default="", help="URL: the program is a server, end it when this answers")
    parser.add_argument("--grace-s", type=float, default=GRACE_S, help="seconds for a healthy server to end in")
    parser.add_argument("--where", choices=("device", "cpu"), help="where it runs; left out: cpu without /dev/neuron*")
    parser.add_argument("--unproven", action="append", default=[], help="what of it nobody has shown; repeatable")
    parser.add_argument("--heartbeat-s", type=float, default=HEARTBEAT_S, help="seconds between two signs of life")
    parser.add_argument("--ask-s", type=float, default=ASK_S, help="seconds between two questions to the server")
    parser.add_argument(
        "--memory-events", type=Path, default=Path("/sys/fs/cgroup/memory.events"), help="the control group's counters"
    )
    parser.add_argument("program", nargs="+", help="after --: the program and its arguments")


def run(options: argparse.Namespace) -> int:
    """Compile once, or say why not; the exit code."""
    if options.skip_if and options.skip_if.exists():
        say("the artifact is there already", file=options.skip_if)
        return DONE
    try:
        return _run(options)
    except OSError as error:  # of our own files: the program's failures are classed
        kind = DISK_FULL if error.errno in (errno.ENOSPC, errno.EDQUOT) else UNKNOWN
        return _tell(kind, f"{error.filename or options.outcome}: {error.strerror or error}", 0)


def _run(options: argparse.Namespace) -> int:
    _adopt_orphans()
    outcome = resume(options)
    attempts = outcome.attempts
    if outcome.result == "compiled" and any(True for _ in _files(options.output)):
        finish(options.output)
        say("compiled already", outcome=options.outcome, where=outcome.where)
        return DONE
    if outcome.result == "compiled":  # and the output is gone: the disk is a new one
        outcome = fresh(options, outcome.request)
    elif attempts and attempts[-1].kind != STOPPED.name and not _another(attempts, options.attempts):
        return _tell(KINDS.get(attempts[-1].kind, UNKNOWN), attempts[-1].line, len(attempts))
    return Driver(options, outcome).run()


def main(argv: Sequence[str] | None = None) -> int:
    """Parse and run; the exit code."""
    parser = argparse.ArgumentParser(
        prog="driver.py", description=__doc__, epilog="exit codes: 0 compiled, or nothing to do; 2 bad input; 3 failed"
    )
    add_arguments(parser)
    return run(parser.parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
