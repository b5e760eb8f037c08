"""Measure servers that share no code with Tandem, as `tandem bench run` measures any server; `make others`.

llama.cpp's own server, plain and with n-gram drafts, xpyd-sim and mock-llm run on loopback, 288 requests a run. The
table gives each server's own name, how many requests failed or were retried, and Tandem's TPOT next to the server's own
log. The program prints the table and writes it into docs/accuracy.md, between its two markers.

Exit codes: 0 done; 1 a request failed or is missing, or a TPOT is more than 2 % off the server's log; 3 a server is not
available or does not run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import shlex
import signal
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
from between_marks import write_between
from real import machine

from rehearsal.loopback import HOST, find_free_port
from tandem.bench import manifest
from tandem.bench.record import RequestRecord, read_records
from tandem.bench.request_metrics import compute_request_metrics
from tandem.bench.schedule import CONTROL_SUFFIX

ROOT = Path(__file__).resolve().parent.parent

HERE = ROOT / "benchmarks" / "foreign"
ENVIRONMENT = ROOT / ".venv-others"
COUNT = "Repeat: one two three one two three one two three"  # mock-llm refuses a question with quotation marks
COPY = 'Copy this JSON exactly: {"name": "Ada", "tags": ["one", "two", "one", "two", "one", "two"]}'
STREAMS = ROOT / "tests" / "bench" / "streams" / "foreign"
FIGURES = "make others"
PROMPTS = 16
REQUESTS = 288  # of each run: its prompts in all rounds, of all arms, control round included
LIMIT = 0.02  # of TPOT, against a server's own log
READY_S = 120.0
OK, WRONG, WORLD_FAILED = 0, 1, 3
_EVAL = re.compile(r"\|\s+eval time =\s*([\d.]+) ms /\s*(\d+) tokens")
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class ForeignError(RuntimeError):
    """A server is not available or does not run; the text says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignServer:
    """One server of another project.

    Args:
        name: the arm's.
        command: starts it; {port}, {folder}, {python} and {node} stand for their values.
        read_tpots_ms: reads the time per output token of each request, in order, from the server's own log; None if
            the server keeps no log.
        log: file of that log in the run's folder.
        environment: variables; {port} stands for the port.
    """

    name: str
    command: tuple[str, ...]
    log: str
    read_tpots_ms: Callable[[Path], list[float]] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Servers that one run measures; REQUESTS is 16 prompts x (arms x rounds + 2 control).

    Args:
        name: of the run.
        servers: the baseline first.
        model: as they serve it.
        rounds: without the control round.
        concurrency: requests in flight.
        classes: of the suite; PROMPTS come from them in equal parts.
        max_tokens: of an answer.
        question: the prompt of its recorded stream.
    """

    name: str
    servers: tuple[ForeignServer, ...]
    model: str
    rounds: int
    concurrency: int
    classes: Sequence[str] = ("structured", "open-ended")
    max_tokens: int = 16
    question: str = COPY


def read_llama_cpp_log(path: Path) -> list[float]:
    """Return each request's time per output token by llama.cpp's log, in ms: eval time over tokens but the first."""
    found = (_EVAL.search(line) for line in path.read_text(errors="replace").splitlines())
    timed = [(float(line[1]), int(line[2])) for line in found if line]
    return [eval_ms / (tokens - 1) if tokens > 1 else float("nan") for eval_ms, tokens in timed]


def read_xpyd_sim_log(path: Path) -> list[float]:
    """Return each request's time per output token by xpyd-sim's log, in ms; xpyd-sim waits before each token."""
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    return [entry["total_ms"] / entry["output_tokens"] if entry["output_tokens"] else float("nan") for entry in entries]


def _llama_cpp(name: str, *mode: str) -> ForeignServer:
    command = ("{python}", str(HERE / "llama_cpp_server.py"), "{port}", *mode)
    return ForeignServer(name=name, command=command, log=f"{name}.log", read_tpots_ms=read_llama_cpp_log)


MEASUREMENTS = (
    Measurement(
        name="llama-cpp", servers=(_llama_cpp("plain"), _llama_cpp("ngram", "ngram")), model="smollm2", rounds=8,
        concurrency=1,
    ),
    Measurement(
        name="xpyd-sim", model="smollm2", rounds=16, concurrency=4,
        servers=(ForeignServer(
            name="xpyd-sim", log="requests.jsonl", read_tpots_ms=read_xpyd_sim_log, command=(
                str(ENVIRONMENT / "bin" / "xpyd-sim"), "serve", "--host", HOST, "--port", "{port}",
                "--model", "smollm2", "--prefill-delay-ms", "20", "--decode-delay-per-token-ms", "10",
                "--log-requests", "{folder}/requests.jsonl",
            ),
        ),),
    ),
    Measurement(
        name="mock-llm", model="gpt-5.2", rounds=16, concurrency=4, classes=("open-ended",), question=COUNT,
        servers=(ForeignServer(
            name="mock-llm", log="mock-llm.log", environment={"HOST": HOST, "PORT": "{port}"}, command=(
                "{node}", str(ENVIRONMENT / "node_modules" / "@dwmkerr" / "mock-llm" / "dist" / "main.js"),
                "--config", str(HERE / "mock-llm.yaml"),
            ),
        ),),
    ),
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Measure every server, print and write the table."""
    options = _parse(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(WORLD_FAILED))  # so that servers are stopped on the way out
    load = os.getloadavg()[0]
    folder: Path = options.out / datetime.now(tz=UTC).strftime("%Y%m%dT%H%M%SZ")
    try:
        if options.record:
            record_streams(folder)
            return OK
        rows = [row for measurement in MEASUREMENTS for row in measure(measurement, folder / measurement.name)]
    except ForeignError as fault:
        print(fault, file=sys.stderr)
        return WORLD_FAILED
    text = "\n".join(section(rows, ["python", "benchmarks/foreign_servers.py", *(argv or sys.argv[1:])], load))
    print(text)
    if not options.no_docs:
        write_between(FIGURES, text)
    return OK if is_right(rows) else WRONG


def is_right(rows: Sequence[Row]) -> bool:
    """Return whether every run has all its requests, none failed, and every TPOT is near its server's own."""
    requests: Counter[str] = Counter()
    for row in rows:
        requests[row.measurement] += row.requests
    return set(requests.values()) == {REQUESTS} and not any(row.is_wrong for row in rows)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "others", help="where runs are kept")
    parser.add_argument(
        "--record", action="store_true", help="record one stream of each server: tests/bench/streams/foreign"
    )
    parser.add_argument("--no-docs", action="store_true", help="leave docs/accuracy.md as it is")
    return parser.parse_args(argv)


@contextlib.contextmanager
def running(servers: Sequence[ForeignServer], folder: Path) -> Iterator[dict[str, str]]:
    """Start servers, wait until they answer, yield their addresses by name, and stop them.

    Raises:
        ForeignError: a server does not answer; the end of its output is in the text.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        urls = {server.name: stack.enter_context(_started(server, folder)) for server in servers}
        yield urls


@contextlib.contextmanager
def _started(server: ForeignServer, folder: Path) -> Iterator[str]:
    places = {
        "port": str(find_free_port()), "folder": str(folder), "python": str(ENVIRONMENT / "bin" / "python"),
        "node": str(Path(sys.executable).parent / "node"),
    }  # fmt: skip
    printed = folder / f"{server.name}.log"
    command = [sys.executable, str(HERE / "hold.py"), *(word.format(**places) for word in server.command)]
    environment = {"PATH": str(Path(sys.executable).parent), "HOME": str(folder)}
    environment |= {name: value.format(**places) for name, value in server.environment.items()}
    with printed.open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the starter, which stops it in its own time
        )  # fmt: skip
    try:
        url = f"http://{HOST}:{places['port']}"
        _wait(server, process, url, printed)
        yield url
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()


def _wait(server: ForeignServer, process: subprocess.Popen[bytes], url: str, printed: Path) -> None:
    deadline = time.monotonic() + READY_S
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            _DIRECT.open(f"{url}/v1/models", timeout=5).close()
            return
        time.sleep(0.2)
    tail = printed.read_text(errors="replace")[-2000:].strip()
    raise ForeignError(f"{server.name} does not answer; run `make others`, which installs it. It printed:\n{tail}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Result of one server; TPOTs are means in ms over the requests that have one, None where nobody counts."""

    measurement: str
    server: str
    names: str
    requests: int
    failed: int
    reconnected: int
    tpot_ms: float | None
    logged_ms: float | None

    @property
    def off(self) -> float | None:
        """How far Tandem's TPOT is from the server's own; None without either."""
        return None if self.tpot_ms is None or self.logged_ms is None else self.tpot_ms / self.logged_ms - 1

    @property
    def is_wrong(self) -> bool:
        """Whether a request failed or the TPOT is too far off."""
        return self.failed > 0 or abs(self.off or 0.0) > LIMIT


def measure(measurement: Measurement, folder: Path) -> list[Row]:
    """Run `tandem bench run` against the servers of one measurement.

    Raises:
        ForeignError: a server does not answer, the run did not end, or a log lacks requests.
    """
    with running(measurement.servers, folder) as urls:
        base, *variants = (f"{name}={url}" for name, url in urls.items())
        command = [
            sys.executable, "-m", "tandem", "bench", "run", "--baseline", base,
            *(word for variant in variants for word in ("--variant", variant)), "--model", measurement.model,
            "--suite", str(ROOT / "benchmarks" / "real_prompts.jsonl"), "--classes", ",".join(measurement.classes),
            "--prompts-per-class", str(PROMPTS // len(measurement.classes)), "--rounds", str(measurement.rounds),
            "--warm-up", "4",
            "--concurrency", str(measurement.concurrency), "--max-tokens", str(measurement.max_tokens),
            "--out", str(folder / "run"),
        ]  # fmt: skip
        print(shlex.join(command), file=sys.stderr)
        subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)  # its verdict does not matter here
    if not (folder / "run" / "summary.json").exists():
        raise ForeignError(f"`tandem bench run` left no summary in {folder}; what it said stands above")
    return read_rows(measurement, folder)


def read_rows(measurement: Measurement, folder: Path) -> list[Row]:
    """Read a row for each server from the folder of its run and from its own log.

    Raises:
        ForeignError: a log lacks requests.
    """
    arms = {arm.name: arm for arm in manifest.read_manifest(folder / "run").arms}
    records: dict[str, list[RequestRecord]] = {server.name: [] for server in measurement.servers}
    for record in read_records(folder / "run" / "records.jsonl"):
        records[record.arm.removesuffix(CONTROL_SUFFIX)].append(record)
    return [
        Row(
            measurement=measurement.name,
            server=server.name,
            names=_names(arms[server.name]),
            requests=len(mine),
            failed=sum(record.error is not None for record in mine),
            reconnected=sum(one.reconnected for one in mine),
            tpot_ms=_mean(compute_request_metrics(mine).values["tpot_ms"]),
            logged_ms=read_logged_ms(server, folder, len(mine)),
        )
        for server in measurement.servers
        for mine in [records[server.name]]
    ]


def _names(arm: manifest.ManifestArm) -> str:
    places = {"/version": arm.server_version, "owned_by": arm.owned_by, "Server": arm.server_header}
    return ", ".join(f"{place} `{name}`" for place, name in places.items() if name) or "nothing"


def read_logged_ms(server: ForeignServer, folder: Path, requests: int) -> float | None:
    """Return the mean of the log's last requests: the probe and the warm-up are before them.

    Raises:
        ForeignError: the log has fewer requests than were sent.
    """
    if server.read_tpots_ms is None:
        return None
    tpots_ms = server.read_tpots_ms(folder / server.log)
    if len(tpots_ms) < requests:
        raise ForeignError(
            f"{folder / server.log} holds {len(tpots_ms)} of {requests} requests: see how {server.name} writes it"
        )
    return _mean(tpots_ms[-requests:])


def _mean(values: Sequence[float]) -> float | None:
    known = [float(value) for value in values if value == value]  # noqa: PLR0124  # NaN: no such figure
    return statistics.fmean(known) if known else None


def section(rows: Sequence[Row], command: Sequence[str], load: float) -> list[str]:
    """Return the generated part of the document; `load` is the machine's before the first server started."""
    packages = [line.partition(" ")[0] for line in (HERE / "requirements.txt").read_text().splitlines() if "==" in line]
    chosen = [name for name in packages if name.startswith(("xllamacpp", "xpyd", "llm-"))]
    npm = ENVIRONMENT / "node_modules" / "@dwmkerr" / "mock-llm" / "package.json"
    chosen.append(f"@dwmkerr/mock-llm=={json.loads(npm.read_text())['version']}")
    when = datetime.now(tz=UTC).isoformat(timespec="minutes")[:16].replace("T", " ")
    versions = ", ".join(f"`{name}`" for name in chosen)
    lines = [
        f"`{shlex.join(command)}`, {when} UTC, {machine()}, load {load:.1f}; {versions}.", "",
        (
            "| run | server | says of itself | requests | failed | asked again "
            "| mean TPOT ms: Tandem, its own log | off |"
        ),
        "|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    return lines + [_row_line(row) for row in rows] + [""]


def _row_line(row: Row) -> str:
    tpot = f"{row.tpot_ms:.3f}" if row.tpot_ms is not None else "no usage"
    logged = f"{row.logged_ms:.3f}" if row.logged_ms is not None else "none"
    off = f"{row.off:+.2%}" if row.off is not None else "-"
    return (
        f"| {row.measurement} | {row.server} | {row.names} | {row.requests} "
        f"| {row.failed} | {row.reconnected} | {tpot}, {logged} | {off} |"
    )


def record_streams(folder: Path) -> None:
    """Record one stream of each server, byte by byte, into tests/bench/streams/foreign.

    Raises:
        ForeignError: a server does not answer.
    """
    STREAMS.mkdir(parents=True, exist_ok=True)
    for measurement in MEASUREMENTS:
        with running(measurement.servers, folder / measurement.name) as urls:
            for server in measurement.servers:
                lines = asyncio.run(_record(urls[server.name], measurement))
                name = f"{measurement.name}_{server.name}" if len(measurement.servers) > 1 else measurement.name
                path = STREAMS / f"{name.replace('-', '_')}.jsonl"
                path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
                print(f"{path.name}: {len(lines) - 1} reads", file=sys.stderr)


async def _record(url: str, measurement: Measurement) -> list[dict[str, Any]]:
    body = {
        "model": measurement.model, "messages": [{"role": "user", "content": measurement.question}],
        "max_tokens": 48, "temperature": 0.0, "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip
    path = "/v1/chat/completions"
    async with aiohttp.ClientSession(read_bufsize=2**20) as session:
        async with session.get(f"{url}/v1/models") as page:
            cards = (await page.json(content_type=None))["data"]
        began = time.monotonic_ns()
        async with session.post(f"{url}{path}", json=body) as answer:
            headers_ns = time.monotonic_ns() - began
            reads = [
                {"t_ns": time.monotonic_ns() - began, "hex": piece.hex()} async for piece in answer.content.iter_any()
            ]
    head = {
        "request": {"method": "POST", "path": path, "body": body},
        "server": {"owned_by": cards[0].get("owned_by")},
        "model": measurement.model,
        "recorded_utc": datetime.now(tz=UTC).isoformat(timespec="seconds"),
        "status": answer.status,
        "headers": {name.lower(): value for name, value in answer.headers.items() if name.lower() != "date"},
        "headers_ns": headers_ns,
    }
    return [head, *reads]


if __name__ == "__main__":
    sys.exit(main())
