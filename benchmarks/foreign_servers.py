"""Measure servers that share no code with Tandem by `tandem bench run`; `make others`.

llama.cpp's own server, plain and with n-gram drafts, xpyd-sim, mock-llm, fakellm, llmock, and a
litellm proxy in front of llmock run on loopback, 288 requests a run. The table gives each server's
own name, how many requests failed or were retried, and Tandem's TPOT next to the server's own log.
The program prints the table and writes it into docs/other-servers.md, between its two markers.

Exit codes: 0 done; 1 a request failed or is missing, or a TPOT is more than 2 % off the server's
log; 3 a server is not available or does not run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from bench_command import ROOT, BenchError, run_bench
from between_marks import write_between
from machine import describe_machine
from stream_recording import CHAT, record_stream, write_recording

from rehearsal.loopback import HOST, find_free_port
from tandem.bench.figures.request_metrics import RequestMetrics
from tandem.bench.plan.schedule import CONTROL_SUFFIX
from tandem.bench.records import manifest
from tandem.bench.records.folder import RECORDS_FILE
from tandem.bench.records.record import RequestRecord, read_records

HERE = ROOT / "benchmarks" / "foreign"
ENVIRONMENT = ROOT / ".venv-others"
BIN = ENVIRONMENT / "bin"
MOCK_LLM = ENVIRONMENT / "node_modules" / "@dwmkerr" / "mock-llm"
SUITE = ROOT / "benchmarks" / "real_prompts.jsonl"
# mock-llm refuses a question with quotation marks
COUNT = "Repeat: one two three one two three one two three"
COPY = 'Copy this JSON exactly: {"name": "Ada", "tags": ["one", "two", "one", "two", "one", "two"]}'
STREAMS = ROOT / "tests" / "bench" / "streams" / "foreign"
FIGURES = "make others"
PACKAGES = ("fakellm=", "litellm=", "llm-", "llmock=", "xllamacpp=", "xpyd")
PROMPTS = 16
REQUESTS = 288  # of each run: its prompts in all rounds, of all arms, control round included
LIMIT = 0.02  # of TPOT, against a server's own log
READY_S = 120.0
OK = 0
WRONG = 1
WORLD_FAILED = 3
_EVAL = re.compile(r"\|\s+eval time =\s*([\d.]+) ms /\s*(\d+) tokens")
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class ForeignError(RuntimeError):
    """A server is not available or does not run; the text says what to do."""


class ForeignServer(NamedTuple):
    """One server of another project.

    Args:
        name: the arm's.
        command: starts it, as in a shell. {port}, {host}, {folder} of the run, {bin} and {here} of
            this program's files stand for their values, in the variables too.
        log: file of its log in the run's folder; "" for what it prints.
        read_tpots_ms: reads the time per output token of each request, in order, from the server's
            own log; None if the server keeps no log.
        environment: variables; the name of a server that runs already stands for its address.
    """

    name: str
    command: str
    log: str = ""
    read_tpots_ms: Callable[[Path], list[float]] | None = None
    environment: Mapping[str, str] = {}


class Measurement(NamedTuple):
    """Servers that one run measures; REQUESTS is 16 prompts x (arms x rounds + 2 control).

    Args:
        name: of the run.
        servers: the baseline first.
        model: as they serve it.
        rounds: without the control round.
        concurrency: requests in flight.
        classes: of the suite; PROMPTS come from them in equal parts.
        question: the prompt of its recorded stream.
        behind: servers that the measured ones ask, and that are not measured.
    """

    name: str
    servers: tuple[ForeignServer, ...]
    model: str
    rounds: int
    concurrency: int
    classes: Sequence[str] = ("structured", "open-ended")
    question: str = COPY
    behind: tuple[ForeignServer, ...] = ()


def read_llama_cpp_log(path: Path) -> list[float]:
    """Return each request's TPOT in ms by llama.cpp's log: eval time over tokens but the first."""
    tpots_ms = []
    for eval_ms, tokens in _EVAL.findall(path.read_text(errors="replace")):
        later = int(tokens) - 1
        tpots_ms.append(float(eval_ms) / later if later else math.nan)
    return tpots_ms


def read_xpyd_sim_log(path: Path) -> list[float]:
    """Return each request's TPOT in ms by xpyd-sim's log; it waits before each token."""
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    return [
        entry["total_ms"] / entry["output_tokens"] if entry["output_tokens"] else math.nan
        for entry in entries
    ]


LLAMA_CPP = "{bin}/python {here}/llama_cpp_server.py {port}"
PLAIN = ForeignServer("plain", LLAMA_CPP, read_tpots_ms=read_llama_cpp_log)
NGRAM = ForeignServer("ngram", f"{LLAMA_CPP} ngram", read_tpots_ms=read_llama_cpp_log)
XPYD_SIM = ForeignServer(
    name="xpyd-sim",
    command="{bin}/xpyd-sim serve --model smollm2 --prefill-delay-ms 20"
    " --decode-delay-per-token-ms 10 --host {host} --port {port}"
    " --log-requests {folder}/requests.jsonl",
    log="requests.jsonl",
    read_tpots_ms=read_xpyd_sim_log,
)
MOCK_LLM_SERVER = ForeignServer(
    name="mock-llm",
    command="node {bin}/../node_modules/@dwmkerr/mock-llm/dist/main.js"
    " --config {here}/mock-llm.yaml",
    environment={"HOST": HOST, "PORT": "{port}"},
)
FAKELLM = ForeignServer(
    name="fakellm", command="{bin}/fakellm serve --port {port} --config {here}/fakellm.yaml"
)
LLMOCK = ForeignServer(
    name="llmock",
    command="{bin}/llmock serve --response-style varied --latency-ms 20 --stream-chunk-delay-ms 10"
    " --host {host} --port {port}",
)
LITELLM = ForeignServer(
    name="litellm",
    command="{bin}/litellm --config {here}/litellm.yaml --host {host} --port {port}",
    # its table of prices comes from the package, not from the network
    environment={"UPSTREAM": "{llmock}/v1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
)
MEASUREMENTS = (
    Measurement(
        name="llama-cpp",
        servers=(PLAIN, NGRAM),
        model="smollm2",
        rounds=8,
        concurrency=1,
    ),
    Measurement(name="xpyd-sim", servers=(XPYD_SIM,), model="smollm2", rounds=16, concurrency=4),
    Measurement(
        name="mock-llm",
        servers=(MOCK_LLM_SERVER,),
        model="gpt-5.2",
        rounds=16,
        concurrency=4,
        classes=("open-ended",),
        question=COUNT,
    ),
    Measurement(name="fakellm", servers=(FAKELLM,), model="gpt-4o", rounds=16, concurrency=4),
    Measurement(name="llmock", servers=(LLMOCK,), model="gpt-4o", rounds=16, concurrency=4),
    Measurement(
        name="litellm",
        servers=(LITELLM,),
        model="gpt-4o",
        rounds=16,
        concurrency=4,
        behind=(LLMOCK,),
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure or record; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build" / "others", help="where runs are kept"
    )
    parser.add_argument(
        "--record", action="store_true", help="record a stream of each: tests/bench/streams/foreign"
    )
    parser.add_argument(
        "--no-docs", action="store_true", help="leave docs/other-servers.md as it is"
    )
    options = parser.parse_args(argv)
    # so that servers are stopped on the way out
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(WORLD_FAILED))
    load = os.getloadavg()[0]
    folder: Path = options.out.resolve() / datetime.now(tz=UTC).strftime("%Y%m%dT%H%M%SZ")
    rows: list[Row] = []
    try:
        for measurement in MEASUREMENTS:
            if options.record:
                record_streams(measurement, folder / measurement.name)
            else:
                rows += measure(measurement, folder / measurement.name)
    except (ForeignError, BenchError) as fault:
        print(fault, file=sys.stderr)
        return WORLD_FAILED
    if options.record:
        return OK
    text = "\n".join(
        format_table(
            rows, ["python", "benchmarks/foreign_servers.py", *(argv or sys.argv[1:])], load
        )
    )
    print(text)
    if not options.no_docs:
        write_between(FIGURES, text)
    return OK if is_right(rows) else WRONG


@contextlib.contextmanager
def running(measurement: Measurement, folder: Path) -> Iterator[dict[str, str]]:
    """Start servers, wait until they answer, yield addresses of the measured ones, and stop them.

    Raises:
        ForeignError: a server does not answer; the end of its output is in the text.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        urls: dict[str, str] = {}
        for server in (*measurement.behind, *measurement.servers):
            urls[server.name] = stack.enter_context(_start(server, folder, urls))
        yield {server.name: urls[server.name] for server in measurement.servers}


@contextlib.contextmanager
def _start(server: ForeignServer, folder: Path, urls: Mapping[str, str]) -> Iterator[str]:
    port = find_free_port()
    programs = str(Path(sys.executable).parent)  # node is there
    places = {"port": port, "host": HOST, "folder": folder, "bin": BIN, "here": HERE, **urls}
    environment = {name: value.format(**places) for name, value in server.environment.items()}
    command = [sys.executable, str(HERE / "hold.py")]
    command += [word.format(**places) for word in shlex.split(server.command)]
    output = folder / f"{server.name}.log"
    with output.open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={"PATH": programs, "HOME": str(folder), **environment},
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the starter, which stops it in its own time
        )
    try:
        url = f"http://{HOST}:{port}"
        if not _is_ready(process, url):
            tail = output.read_text(errors="replace")[-2000:].strip()
            raise ForeignError(
                f"{server.name} does not answer; run `make others`, which installs it. It"
                f" printed:\n{tail}"
            )
        yield url
    finally:
        process.communicate()  # closes its input


def _is_ready(process: subprocess.Popen[bytes], url: str) -> bool:
    deadline_s = time.monotonic() + READY_S
    while process.poll() is None and time.monotonic() < deadline_s:
        with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            read_owner(url)
            return True
        time.sleep(0.2)
    return False


def read_owner(url: str) -> str | None:
    """Return `owned_by` of a server's first model; None if it lists no models.

    Raises:
        urllib.error.URLError: the server does not serve yet.
    """
    try:
        with _DIRECT.open(f"{url}/v1/models", timeout=5) as page:
            owner: str | None = json.load(page)["data"][0].get("owned_by")
    except urllib.error.HTTPError as refusal:
        if refusal.code != HTTPStatus.NOT_FOUND:
            raise
        return None
    return owner


class Row(NamedTuple):
    """Result of one server; TPOTs are mean ms over requests with one, None if not counted."""

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
        return (
            None
            if self.tpot_ms is None or self.logged_ms is None
            else self.tpot_ms / self.logged_ms - 1
        )

    @property
    def is_wrong(self) -> bool:
        """Whether a request failed or the TPOT is too far off."""
        return self.failed > 0 or abs(self.off or 0.0) > LIMIT

    def format_row(self) -> str:
        """Return the row of the table."""
        tpot = "no usage" if self.tpot_ms is None else f"{self.tpot_ms:.3f}"
        logged = "none" if self.logged_ms is None else f"{self.logged_ms:.3f}"
        off = "-" if self.off is None else f"{self.off:+.2%}"
        return (
            f"| {self.measurement} | {self.server} | {self.names} | {self.requests} "
            f"| {self.failed} | {self.reconnected} | {tpot}, {logged} | {off} |"
        )


def is_right(rows: Sequence[Row]) -> bool:
    """Return whether all runs have all requests, none failed, each TPOT near its server's own."""
    requests: Counter[str] = Counter()
    for row in rows:
        requests[row.measurement] += row.requests
    return set(requests.values()) == {REQUESTS} and not any(row.is_wrong for row in rows)


def measure(measurement: Measurement, folder: Path) -> list[Row]:
    """Run `tandem bench run` against the servers of one measurement.

    Raises:
        ForeignError: a server does not answer, or a log lacks requests.
        BenchError: the run did not come to its end.
    """
    flags = (
        f"--classes {','.join(measurement.classes)} --prompts-per-class"
        f" {PROMPTS // len(measurement.classes)} --rounds {measurement.rounds} --warm-up 4"
        f" --concurrency {measurement.concurrency} --max-tokens 16"
    )
    with running(measurement, folder) as urls:
        # its verdict does not matter here
        run_bench(urls, measurement.model, SUITE, folder / "run", flags)
    return read_rows(measurement, folder)


def read_rows(measurement: Measurement, folder: Path) -> list[Row]:
    """Read a row for each server from the folder of its run and from its own log.

    Raises:
        ForeignError: a log lacks requests.
    """
    arms = {arm.name: arm for arm in manifest.read_manifest(folder / "run").arms}
    records: dict[str, list[RequestRecord]] = {server.name: [] for server in measurement.servers}
    for record in read_records(folder / "run" / RECORDS_FILE):
        records[record.arm.removesuffix(CONTROL_SUFFIX)].append(record)
    rows = []
    for server in measurement.servers:
        own_records = records[server.name]
        row = Row(
            measurement=measurement.name,
            server=server.name,
            names=_list_names(arms[server.name]),
            requests=len(own_records),
            failed=sum(record.error is not None for record in own_records),
            reconnected=sum(record.reconnected for record in own_records),
            tpot_ms=_find_mean(RequestMetrics(own_records).tpot_ms),
            logged_ms=read_logged_ms(server, folder, len(own_records)),
        )
        rows.append(row)
    return rows


def _list_names(arm: manifest.ManifestArm) -> str:
    places = {"/version": arm.server_version, "owned_by": arm.owned_by, "Server": arm.server_header}
    return ", ".join(f"{place} `{name}`" for place, name in places.items() if name) or "nothing"


def read_logged_ms(server: ForeignServer, folder: Path, requests: int) -> float | None:
    """Return the mean of the log's last requests: the probe and the warm-up are before them.

    Raises:
        ForeignError: the log has fewer requests than were sent.
    """
    if server.read_tpots_ms is None:
        return None
    log = folder / (server.log or f"{server.name}.log")
    tpots_ms = server.read_tpots_ms(log)
    if len(tpots_ms) < requests:
        raise ForeignError(
            f"{log} holds {len(tpots_ms)} of {requests} requests: see how {server.name} writes it"
        )
    return _find_mean(tpots_ms[-requests:])


def _find_mean(values: Sequence[float]) -> float | None:
    finite = [float(value) for value in values if math.isfinite(value)]
    return fmean(finite) if finite else None


def format_table(rows: Sequence[Row], command: Sequence[str], load: float) -> list[str]:
    """Return the document's generated part; `load`: the machine's before the first server."""
    packages = read_versions(HERE / "requirements.txt", PACKAGES)
    version = json.loads((MOCK_LLM / "package.json").read_text())["version"]
    moment = datetime.now(tz=UTC).strftime("%Y-%m-%d %H:%M")
    return [
        (
            f"`{shlex.join(command)}`, {moment} UTC, {describe_machine()}, load {load:.1f};"
            f" {packages}, `@dwmkerr/mock-llm=={version}`."
        ),
        "",
        *format_rows(rows),
    ]


def read_versions(lock: Path, names: tuple[str, ...]) -> str:
    """Return the packages of a lock whose line begins with one of the names, with versions."""
    lines = lock.read_text().splitlines()
    return ", ".join(f"`{line.partition(' ')[0]}`" for line in lines if line.startswith(names))


def format_rows(rows: Sequence[Row]) -> list[str]:
    """Return the table of servers."""
    return [
        (
            "| run | server | says of itself | requests | failed | asked again | mean TPOT ms:"
            " Tandem, its own log | off |"
        ),
        "|---|---|---|---|---|---|---|---|",
        *(row.format_row() for row in rows),
        "",
    ]


def record_streams(measurement: Measurement, folder: Path) -> None:
    """Record one stream of each server, byte by byte, into tests/bench/streams/foreign.

    Raises:
        ForeignError: a server does not answer.
    """
    body = {
        "model": measurement.model,
        "messages": [{"role": "user", "content": measurement.question}],
        "max_tokens": 48,
        "temperature": 0.0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    STREAMS.mkdir(parents=True, exist_ok=True)
    with running(measurement, folder) as urls:
        for name, url in urls.items():
            owner = read_owner(url)
            lines = asyncio.run(record_stream(url, CHAT, body, name))
            own_name = f"{measurement.name}_{name}" if len(urls) > 1 else name
            path = STREAMS / f"{own_name.replace('-', '_')}.jsonl"
            write_recording(path, lines, server={"owned_by": owner}, model=measurement.model)
            print(f"{path.name}: {len(lines) - 1} reads", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
