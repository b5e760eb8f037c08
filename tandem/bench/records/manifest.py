"""The manifest of a run: its settings, servers and measuring machine.

Invariant: the manifest is written completely or not at all; it has every fact that a reader needs
and a record lacks. SCHEMA rises by the rule of the records' schema.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from tandem.bench.plan.restart_options import MAX_STARTS
from tandem.bench.plan.run_options import GOODPUT_METRICS, ApiName, ScheduleName
from tandem.bench.plan.schedule import control_numbers
from tandem.bench.plan.server_access import IGNORE_EOS
from tandem.bench.records import json_file
from tandem.bench.records.json_file import DECODE_ERRORS
from tandem.errors import InputError, convert_os_errors

SCHEMA = 2
FILE = "manifest.json"
UNNAMED_METHOD = "not named"
ENDPOINT_PATHS = ("/chat/completions", "/completions")

RoundCount = Annotated[int, msgspec.Meta(ge=0, le=2**24)]
ControlRoundCount = Annotated[int, msgspec.Meta(ge=0, le=1000)]  # as --control-rounds takes
"""Limits: more rounds than any run has, and few enough to number each."""

GoodputMetric = Annotated[str, msgspec.Meta(pattern=rf"\A({'|'.join(GOODPUT_METRICS)})\Z")]


class ServerOffers(msgspec.Struct, frozen=True, kw_only=True):
    """Extras that a server accepted in the probe."""

    include_usage: bool = False
    continuous_usage: bool = False
    token_ids: bool = False
    logprobs: bool = False


class Speculation(msgspec.Struct, frozen=True, kw_only=True):
    """Known settings of an arm's speculation; `method` None is plain decoding.

    `method` is UNNAMED_METHOD where the user says only that the server speculates.
    """

    method: str | None
    num_speculative_tokens: int | None = None


class ManifestArm(msgspec.Struct, frozen=True, kw_only=True):
    """One server. An unknown value is None.

    Args:
        name: the NAME given on the command line.
        role: baseline, or a variant of it.
        url: of the server as the user gave it: its root, with or without "/v1" and "/", or the
            whole URL of an endpoint.
        model: the requested model; before the probe, empty for the only one that it lists.
        artifact_key: key of the compiled artifact that the server runs.
        image: container image, by digest.
        server_version, owned_by, server_header: from /version, /v1/models and the Server header.
        simulated: whether the server announced that it is simulated; None before the probe, and for
            a server of LLMPerf that did not list its models.
        runtime: nxdi-v0, nxdi-v1 or native, from the environment; decides how the counters are
            read.
        speculation: None if unknown; never guessed.
        offers: result of the probe.
        placement: the server's part of a host, from --placement at the last start of the run; each
            record has its own.
        headers: names of the HTTP headers that it alone is sent, never their values.
        extra_body: fields that its requests have besides those of every server.
        left_out: names of fields that its requests do not have.
    """

    name: str
    role: Literal["baseline", "variant"]
    url: str
    model: str
    artifact_key: str | None = None
    image: str | None = None
    server_version: str | None = None
    owned_by: str | None = None
    server_header: str | None = None
    simulated: bool | None = None
    runtime: str | None = None
    speculation: Speculation | None = None
    offers: ServerOffers = ServerOffers()
    placement: str | None = None
    headers: tuple[str, ...] = ()
    extra_body: dict[str, Any] = {}
    left_out: tuple[str, ...] = ()

    @property
    def speculates(self) -> bool:
        """Whether it is said to speculate."""
        return self.speculation is not None and self.speculation.method is not None

    @property
    def api_root(self) -> str:
        """The address of the API: what stands before /chat/completions and /models.

        The whole URL of an endpoint says it, so an API need not be below /v1. Any other URL is the
        root of a server with its API there.
        """
        address = self.url.rstrip("/")
        for path in ENDPOINT_PATHS:
            if address.endswith(path):
                return address.removesuffix(path).rstrip("/")
        return address.removesuffix("/v1").rstrip("/") + "/v1"

    @property
    def root(self) -> str:
        """The address before /v1, where /health, /version and /metrics are."""
        return self.api_root.removesuffix("/v1").rstrip("/")


class SuiteEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One suite.

    Args:
        name: of the suite.
        sha256: of the prompts that were sent, as `tandem.bench.suites.suite.content_hash` has it.
        prompts: number of them.
        classes: of them, in their order.
        file_sha256: of the bytes of a file of one's own; None for a suite of Tandem's.
    """

    name: str
    sha256: str
    prompts: int
    classes: tuple[str, ...]
    file_sha256: str | None = None


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Time limits of one request, in seconds; each has its own error word.

    Args:
        connect_s: until the connection is open (name, TCP, TLS); the other limits start after it.
        first_token_s: from the request's bytes to the first event that bears tokens.
        gap_s: longest silence after the first token; comment lines do not end a silence.
        whole_s: from the request's bytes to the end of the stream.
    """

    connect_s: float = 10.0
    first_token_s: float = 120.0
    gap_s: float = 60.0
    whole_s: float = 600.0


class ClockReading(msgspec.Struct, frozen=True, kw_only=True):
    """The clock of the records, and the same moment on it and on the calendar."""

    source: str
    resolution_s: float
    monotonic_s: float
    utc: str


class HostInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The measuring machine.

    Loads are one-minute averages; cpu_busy is the busy share of all CPUs, 0 to 1; client_cpu is the
    number of CPUs used by the measuring process; the lags are delays of its event loop, and the
    possible error of chunks' times.
    """

    cpus: int
    python: str
    load_1m_start: float | None = None
    load_1m_end: float | None = None
    cpu_busy: float | None = None
    client_cpu: float | None = None
    lag_p50_s: float | None = None
    lag_p99_s: float | None = None
    lag_max_s: float | None = None


class PlanTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Planned work of the run; `requests` is None if time limits the run.

    `requests_per_round` counts all arms; None if a round has no fixed number. A control round has
    two arms.
    """

    requests: int | None
    requests_per_round: int | None = None


class WarmUpEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Warm-up requests of an arm; `stable` is None if their number was fixed.

    `request_s` is the mean duration of a good request of full length, in seconds; None if none was.
    """

    requests: int
    failed: int = 0
    stable: bool | None = None
    duration_s: float | None = None
    request_s: float | None = None


EndReason = Literal["done", "interrupted", "failed", "duration", "paused"]


class RunEnd(msgspec.Struct, frozen=True, kw_only=True):
    """End of the run; absent while live or after a kill. `paused`: rounds are still to measure."""

    reason: EndReason
    utc: str


class RunManifest(msgspec.Struct, frozen=True, kw_only=True):
    """One run.

    `goodput` has the limit of each metric for goodput_per_s, in that metric's unit; `rounds` is 0
    if time limits the run; `rounds` excludes `control_rounds`, and `control_round_numbers` returns
    the numbers of those; `starts` is the number of starts of each server with a restart command, of
    which `restarts.jsonl` has a line for each after the first; `mixed` says that a turn has all
    classes; `goodput_share` is the share of requests that must keep `goodput` in a search for the
    knee, None in other runs; `resumed` has one clock for each --resume; `notes` are sentences for a
    reader of the figures. `simulated` says whether an arm is simulated; None if no arm is and an
    arm is unknown. `flags` has the options of the first command, each with its values.
    `environment` and `experiment` are the declared ones of the servers, `instance_type` that of the
    environment's nodes; None if the user gave addresses of servers. `run` is the given id of the
    run, e.g. by `tandem run`; None without one. `show_prompts` says whether a verdict shows texts
    of suites that are files.
    """

    schema: int
    generator: Literal["tandem", "llmperf"] = "tandem"
    version: str
    created_utc: str
    run: str | None = None
    environment: str | None = None
    experiment: str | None = None
    instance_type: str | None = None
    simulated: bool | None
    arms: Annotated[tuple[ManifestArm, ...], msgspec.Meta(min_length=1)]
    suites: tuple[SuiteEntry, ...]
    show_prompts: bool = True
    schedule: ScheduleName
    seed: int
    api: ApiName
    thinking: bool | None = None
    temperature: float = 0.0
    max_tokens: int | None = None
    concurrency: tuple[int, ...] = ()
    rates_per_s: tuple[float, ...] = ()
    rounds: RoundCount
    control_rounds: ControlRoundCount = 0
    starts: Annotated[int, msgspec.Meta(ge=1, le=MAX_STARTS)] = 1
    repeats: int = 1
    prompts_per_class: int | None = None
    mixed: bool = False
    goodput_share: float | None = None
    duration_s: float | None = None
    time_outs: Timeouts | None = None
    clock: ClockReading
    host: HostInfo
    plan: PlanTotals
    goodput: dict[GoodputMetric, float] | None = None
    price_usd_per_hour: float | None = None
    warm_up: dict[str, WarmUpEntry] = {}
    resumed: tuple[ClockReading, ...] = ()
    flags: dict[str, tuple[str, ...]] = {}
    notes: tuple[str, ...] = ()
    ended: RunEnd | None = None

    @property
    def hidden_suites(self) -> frozenset[str]:
        """The names of the suites whose prompts and answers no verdict shows."""
        if self.show_prompts:
            return frozenset()
        return frozenset(suite.name for suite in self.suites if suite.file_sha256)

    @property
    def forces_lengths(self) -> bool:
        """Whether answers went on to their most tokens, past the model's own stop."""
        return any(arm.extra_body.get(IGNORE_EOS) for arm in self.arms)


def read_manifest(folder: Path) -> RunManifest:
    """Read the manifest of `folder`.

    Raises:
        InputError: there is no manifest, the file is no manifest or has another schema, or its
            start is no valid time.
    """
    path = folder / FILE
    with convert_os_errors(
        "the manifest cannot be read", path, "name the folder that `tandem bench run --out` wrote"
    ):
        text = path.read_bytes()
    json_file.require_schema(text, SCHEMA, label="the manifest", where=str(path))
    try:
        manifest = msgspec.json.decode(text, type=RunManifest)
    except DECODE_ERRORS as error:
        raise InputError(
            f"this is no manifest: {error}", where=str(path), change="restore it from a copy"
        ) from error
    parse_moment(manifest.created_utc, str(path))
    return manifest


def control_round_numbers(manifest: RunManifest) -> frozenset[int]:
    """Return the numbers of a run's control rounds, which measure the baseline against itself."""
    rounds = None if manifest.duration_s is not None else manifest.rounds
    return frozenset(control_numbers(rounds, manifest.control_rounds))


def run_id(manifest: RunManifest) -> str:
    """Return the name of a run among runs of many machines, e.g. in a bucket.

    The name is the run's given id. Without an id, the name depends only on values that no resume
    changes, so a resumed run keeps its name; two runs share a name only if they began in the same
    millisecond, at the same moment of the same clock, against the same servers, with the same seed.

    Raises:
        InputError: created_utc is no valid time.
    """
    if manifest.run is not None:
        return manifest.run
    start = parse_moment(manifest.created_utc)
    parts = (
        manifest.created_utc,
        manifest.clock,
        [(arm.name, arm.url) for arm in manifest.arms],
        manifest.seed,
    )
    return f"{start:%Y%m%dT%H%M%SZ}-{hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:8]}"


def parse_moment(utc: str, where: str = FILE) -> dt.datetime:
    """Return a time of the manifest `where`, in UTC; a time without a zone is UTC.

    Raises:
        InputError: the text is no valid time.
    """
    try:
        parsed_moment = dt.datetime.fromisoformat(utc)
        return (
            parsed_moment if parsed_moment.tzinfo else parsed_moment.replace(tzinfo=dt.UTC)
        ).astimezone(dt.UTC)
    except (ValueError, OverflowError) as error:
        problem = f"{utc!r} is no moment such as 2026-11-21T08:30:00+00:00"
        raise InputError(problem, where=where, change="restore the manifest from a copy") from error


def read_clock() -> ClockReading:
    """Return the records' clock, with the current time on it and on the calendar."""
    info = time.get_clock_info("monotonic")
    now_s = time.monotonic()
    resolution_s = info.resolution
    return ClockReading(
        source=info.implementation, resolution_s=resolution_s, monotonic_s=now_s, utc=utc_now()
    )


def utc_now() -> str:
    """Return the current time as ISO 8601 in UTC, to the millisecond."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")


def write_manifest(folder: Path, manifest: RunManifest) -> None:
    """Write the manifest of `folder`: a reader sees the complete old or the complete new file.

    Raises:
        ExternalError: the folder cannot be written to.
    """
    json_file.save_json(folder / FILE, manifest, label="the manifest")
