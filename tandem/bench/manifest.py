"""The manifest of a run: what was asked of which servers, and on which machine.

Invariant: written whole or not at all; everything a record does not say of itself and a reader needs stands here.
Raised as the records' schema is: schema 2 says whether servers are simulated, which an older reader would miss.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import time
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from tandem.bench import json_file
from tandem.bench.json_file import DECODE_ERRORS
from tandem.bench.schedule import control_numbers
from tandem.errors import InputError, convert_os_errors

SCHEMA = 2
FILE = "manifest.json"

RoundCount = Annotated[int, msgspec.Meta(ge=0, le=2**24)]
ControlRoundCount = Annotated[int, msgspec.Meta(ge=0, le=1000)]  # as --control-rounds takes
"""How many there may be: more than any run has, and few enough to number each."""


class ServerOffers(msgspec.Struct, frozen=True, kw_only=True):
    """What a server took when it was probed."""

    include_usage: bool = False
    continuous_usage: bool = False
    token_ids: bool = False
    logprobs: bool = False


class Speculation(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an arm's speculation; `method` None is plain decoding."""

    method: str | None
    num_speculative_tokens: int | None = None


class ManifestArm(msgspec.Struct, frozen=True, kw_only=True):
    """One server. What is not known is None.

    Args:
        name: the NAME given on the command line.
        role: baseline, or a variant of it.
        url: root of the server; "/v1" and "/" at its end are accepted.
        model: model asked for.
        artifact_key: key of the compiled artifact it serves.
        image: container image, by digest.
        server_version, owned_by, server_header: what /version, /v1/models and the Server header said of it.
        simulated: whether the server announced that it is simulated; None of an older run, where nobody asked.
        runtime: nxdi-v0, nxdi-v1 or native, as its environment declares it: how its counters are to be read.
        speculation: None where it is not known; it is never guessed.
        offers: what the probe found.
        placement: which part of a host it ran on, as --placement said at the last beginning; each record has its own.
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

    @property
    def root(self) -> str:
        """The address before /v1."""
        return self.url.rstrip("/").removesuffix("/v1").rstrip("/")


class SuiteEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One suite, by content: name, SHA-256 of its file, number of prompts, classes in their order."""

    name: str
    sha256: str
    prompts: int
    classes: tuple[str, ...]


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long one request may take, in seconds; each has its own error word.

    Args:
        connect_s: until the connection stands (name, TCP, TLS); the clock of the others starts after it.
        first_token_s: from the request's bytes to the first event that bears tokens.
        gap_s: after the first token, the longest silence; comment lines do not break it.
        whole_s: from the request's bytes to the end of the stream.
    """

    connect_s: float = 10.0
    first_token_s: float = 120.0
    gap_s: float = 60.0
    whole_s: float = 600.0


class ClockReading(msgspec.Struct, frozen=True, kw_only=True):
    """The clock of the records, and one moment on it and on the calendar."""

    source: str
    resolution_s: float
    monotonic_s: float
    utc: str


class HostInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The measuring machine.

    Loads are one-minute averages; cpu_busy is the share of all CPUs, 0 to 1; client_cpu what the measuring process
    took of one CPU; the lags are how much later than asked its event loop woke, which chunks' times may be off by.
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
    """What was to be done before it began; `requests` None where the clock decided.

    `requests_per_round` counts all arms; None where a round has no fixed number. A control round has two arms.
    """

    requests: int | None
    requests_per_round: int | None = None


class WarmUpEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked of an arm before the first record; `stable` None where a fixed number was asked."""

    requests: int
    failed: int = 0
    stable: bool | None = None
    duration_s: float | None = None


EndReason = Literal["done", "interrupted", "failed", "duration", "paused"]


class RunEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How the run ended; a run that is still going, or was killed, has none. `paused`: it has rounds to measure yet."""

    reason: EndReason
    utc: str


class RunManifest(msgspec.Struct, frozen=True, kw_only=True):
    """One run.

    `goodput` names the limit of each metric that goodput_per_s asks for, in that metric's unit; `rounds` is 0 while
    the clock decides; `control_rounds` are not among them, and `control_round_numbers` tells their numbers; `mixed`
    says that a turn
    held all classes; `resumed` has one clock for each --resume; `notes` are sentences that a reader of the figures must
    know. `simulated` says whether an arm is, and None that an older Tandem did not ask. `flags` holds the options of
    the command that began it, each with its values. `environment` and `experiment` are the declared ones whose servers
    were asked, `instance_type` that of the environment's nodes; None where servers were named by address. `run` is the
    id that the run was asked for by, as by `tandem run`; None where nobody gave it one.
    """

    schema: int = SCHEMA
    generator: Literal["tandem", "llmperf"] = "tandem"
    version: str
    created_utc: str
    run: str | None = None
    environment: str | None = None
    experiment: str | None = None
    instance_type: str | None = None
    simulated: bool | None = None
    arms: Annotated[tuple[ManifestArm, ...], msgspec.Meta(min_length=1)]
    suites: tuple[SuiteEntry, ...]
    schedule: Literal["interleaved", "simultaneous"]
    seed: int
    api: Literal["chat", "completions"]
    thinking: bool | None = None
    temperature: float = 0.0
    max_tokens: int | None = None
    concurrency: tuple[int, ...] = ()
    rate_per_s: float | None = None
    rounds: RoundCount
    control_rounds: ControlRoundCount = 0
    repeats: int = 1
    prompts_per_class: int | None = None
    mixed: bool = False
    duration_s: float | None = None
    time_outs: Timeouts | None = None
    clock: ClockReading
    host: HostInfo
    plan: PlanTotals
    goodput: dict[str, float] | None = None
    price_usd_per_hour: float | None = None
    warm_up: dict[str, WarmUpEntry] = {}
    resumed: tuple[ClockReading, ...] = ()
    flags: dict[str, tuple[str, ...]] = {}
    notes: tuple[str, ...] = ()
    ended: RunEnd | None = None


def read_manifest(folder: Path) -> RunManifest:
    """Read the manifest of `folder`.

    Raises:
        InputError: there is none, it is no manifest, its schema is newer than this version knows, or it began at no
            moment.
    """
    path = folder / FILE
    with convert_os_errors("the manifest cannot be read", path, "name the folder that `tandem bench run --out` wrote"):
        text = path.read_bytes()
    try:
        manifest = msgspec.json.decode(text, type=RunManifest)
    except DECODE_ERRORS as error:
        raise InputError(f"this is no manifest: {error}", where=str(path), change="restore it from a copy") from error
    if manifest.schema > SCHEMA:
        problem = f"the manifest has schema {manifest.schema}, and this Tandem knows up to {SCHEMA}"
        change = f"read it with Tandem {manifest.version}, which wrote it, or a newer one"
        raise InputError(problem, where=str(path), change=change)
    parse_moment(manifest.created_utc, str(path))
    return manifest


def control_round_numbers(manifest: RunManifest) -> frozenset[int]:
    """Return the numbers of a run's control rounds, in which its baseline was asked as its own variant."""
    rounds = None if manifest.duration_s is not None else manifest.rounds
    return frozenset(control_numbers(rounds, manifest.control_rounds))


def run_id(manifest: RunManifest) -> str:
    """Return the name of a run wherever runs of many machines lie together, such as a bucket.

    It is the id that the run was given. Without one it depends on nothing that a later part of the run changes, so a
    resumed run keeps its name; two runs share one only if they began in the same millisecond, at the same moment of the
    same clock, against the same servers.

    Raises:
        InputError: created_utc is no moment.
    """
    if manifest.run is not None:
        return manifest.run
    start = parse_moment(manifest.created_utc)
    parts = (manifest.created_utc, manifest.clock, [(arm.name, arm.url) for arm in manifest.arms], manifest.seed)
    return f"{start:%Y%m%dT%H%M%SZ}-{hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:8]}"


def parse_moment(utc: str, where: str = FILE) -> dt.datetime:
    """Return a moment of the manifest `where`, in UTC; one that names no zone is UTC.

    Raises:
        InputError: the text is no moment.
    """
    try:
        parsed_moment = dt.datetime.fromisoformat(utc)
        return (parsed_moment if parsed_moment.tzinfo else parsed_moment.replace(tzinfo=dt.UTC)).astimezone(dt.UTC)
    except (ValueError, OverflowError) as error:
        problem = f"{utc!r} is no moment such as 2026-11-21T08:30:00+00:00"
        raise InputError(problem, where=where, change="restore the manifest from a copy") from error


def read_clock() -> ClockReading:
    """Return the records' clock, and this moment on it and on the calendar."""
    info = time.get_clock_info("monotonic")
    now_s, resolution_s = time.monotonic(), info.resolution
    return ClockReading(source=info.implementation, resolution_s=resolution_s, monotonic_s=now_s, utc=utc_now())


def utc_now() -> str:
    """Return this moment as ISO 8601 in UTC, to the millisecond."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")


def write_manifest(folder: Path, manifest: RunManifest) -> None:
    """Write the manifest of `folder` whole: a reader sees the old one or the new one.

    Raises:
        ExternalError: the folder cannot be written to.
    """
    json_file.save_json(folder / FILE, manifest, label="the manifest")
