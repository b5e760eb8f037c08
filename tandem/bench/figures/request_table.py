"""All requests of a run as columns, a row a request: for summary, verdict and publishing.

Invariant: every complete line of records.jsonl is a row, also for a failed request; a figure that a
record cannot have is NaN; names are codes into tuples of names, so a hundred thousand requests need
a few megabytes. Outputs stay in the file: digests show equal outputs, and `read_outputs` reads
selected ones. The order of the lines decides no code, so resampling and sums in the order of codes
do not depend on the order in which requests ended.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from tandem.bench.figures.clocks import ADJUSTMENT_S, compute_utc_s
from tandem.bench.figures.columns import BoolArray, IntArray, collect_column
from tandem.bench.figures.goodput_limits import mask_limits
from tandem.bench.figures.quantiles import Values
from tandem.bench.figures.request_metrics import RequestMetrics
from tandem.bench.figures.row_groups import NO_NAME, NameCodes, RowGroups, encode_names
from tandem.bench.plan.schedule import CONTROL_SUFFIX, LoadLevel, TurnKey
from tandem.bench.records import counters, json_file, manifest
from tandem.bench.records.finish_reason import is_limit_end
from tandem.bench.records.folder import RECORDS_FILE
from tandem.bench.records.manifest import RunManifest
from tandem.bench.records.record import RecordBlock, RequestRecord, read_blocks
from tandem.bench.records.server_starts import ServerStarts, name_server
from tandem.errors import InputError

Digests = NDArray[np.uint64]
UNKNOWN = NO_NAME  # the code of an unrecorded placement or start
NO_DIGEST = np.uint64(0)  # of an absent value, such as the ids of a server that sends none

# column of codes: names, the name in a record
_NAMES: dict[str, tuple[str, Callable[[RequestRecord], Any]]] = {
    "arm": ("arms", attrgetter("arm")),
    "class_": ("classes", attrgetter("class_")),
    "load": ("loads", attrgetter("concurrency", "rate_per_s")),
    "prompt": ("prompts", attrgetter("suite", "prompt_id")),
    "start": ("starts", attrgetter("start")),
    "placement": ("placements", attrgetter("placement")),
    "error": ("errors", attrgetter("error")),
    "content": ("contents", attrgetter("content")),
}
_TEXT_ARRAYS = ("arm", "class_", "placement", "start", "error", "content")
_PLAIN_ARRAYS = (
    "round",
    "slot",
    "repeat",
    "start_s",
    "end_s",
    "tokens",
    "failed",
    "hit_token_limit",
    "retried",
)


class PromptKey(NamedTuple):
    """Key of a prompt across suites."""

    suite: str
    prompt_id: str


@dataclass(frozen=True, kw_only=True)
class RequestTable:
    """All requests of a run, in the order of the file. Columns have one value a request.

    Args:
        folder: of the run.
        run: its manifest.
        arms: names: the baseline, its variants, then its control if there is one.
        classes, loads, prompts, starts, placements: names of the codes.
        arm, class_, load, prompt, start, placement: codes; start and placement may be UNKNOWN.
        round, slot, repeat: as in the records.
        start_s, end_s: absolute, on the monotonic clock of the records.
        figures: by metric of the catalogue that one request can have; NaN if a record has none.
        tokens: completion tokens by the server's count; NaN if unknown, or if the record
            contradicts itself.
        errors, contents: words of RequestRecord.error and of the suite's content check.
        error, content: their codes, UNKNOWN without an error, or without a check.
        failed: whether the request has an error.
        hit_token_limit: whether the answer ended because of max_tokens, by its finish reason.
        output, ids: digests of all that the model wrote, and of token ids; NO_DIGEST if absent.
        line_offsets, line_ends: start and end of each line in the file, in bytes.
        torn_lines: a sentence about a torn last line, which is no row.
        raw_tokens: completion tokens of the record, contradicted or not.
        suspects: by word of request_metrics.SUSPECTS, whether the record has this contradiction.
        replicas: of arms whose address several servers answer, by arm, how that shows; their starts
            are UNKNOWN.
        unknown_parts: by arm and name of a part of the stream that Tandem does not know, the number
            of requests.
        is_measured: whether a figure has the request; none has a pilot's or a turn's warm-up.
        retried, reconnected: whether the request was sent again by a resumed run, or by the client.
        by_llmperf: whether llmperf measured the request.
        request_digest: of the request's id.
        gaps_ms, gap_owners: every gap between token-bearing chunks, and its row.
    """

    folder: Path
    run: RunManifest
    arms: tuple[str, ...]
    classes: tuple[str, ...]
    loads: tuple[LoadLevel, ...]
    prompts: tuple[PromptKey, ...]
    starts: tuple[str, ...]
    placements: tuple[str, ...]
    errors: tuple[str, ...]
    contents: tuple[str, ...]
    arm: IntArray
    class_: IntArray
    load: IntArray
    prompt: IntArray
    start: IntArray
    placement: IntArray
    round: IntArray
    slot: IntArray
    repeat: IntArray
    start_s: Values
    end_s: Values
    figures: Mapping[str, Values]
    tokens: Values
    error: IntArray
    content: IntArray
    failed: BoolArray
    hit_token_limit: BoolArray
    output: Digests
    ids: Digests
    line_offsets: IntArray
    line_ends: IntArray = field(default_factory=lambda: np.empty(0, np.intp))
    torn_lines: tuple[str, ...] = ()
    replicas: tuple[tuple[str, str], ...] = ()
    unknown_parts: tuple[tuple[str, str, int], ...] = ()
    raw_tokens: Values = field(default_factory=lambda: np.empty(0))
    suspects: Mapping[str, BoolArray] = field(default_factory=dict)
    is_measured: BoolArray = field(default_factory=lambda: np.empty(0, bool))
    retried: BoolArray = field(default_factory=lambda: np.empty(0, bool))
    reconnected: BoolArray = field(default_factory=lambda: np.empty(0, bool))
    by_llmperf: BoolArray = field(default_factory=lambda: np.empty(0, bool))
    request_digest: Digests = field(default_factory=lambda: np.empty(0, np.uint64))
    gaps_ms: Values = field(default_factory=lambda: np.empty(0))
    gap_owners: IntArray = field(default_factory=lambda: np.empty(0, np.intp))

    @property
    def baseline(self) -> str:
        """The arm with which the others are compared."""
        return self.arms[0]

    @property
    def variants(self) -> tuple[str, ...]:
        """The arms that are compared with the baseline, without its control."""
        return tuple(arm for arm in self.arms[1:] if arm != self.control)

    @property
    def control(self) -> str | None:
        """The baseline as its own control; None if the run has none."""
        name = f"{self.baseline}{CONTROL_SUFFIX}"
        return name if name in self.arms else None

    @property
    def dropped_counters(self) -> dict[str, str]:
        """Arms whose counters are dropped, with the reason: several servers at one address."""
        return {
            arm: f"several servers answer at its address: {reason}" for arm, reason in self.replicas
        }

    def control_round_mask(self) -> BoolArray:
        """Return the mask of requests in rounds with the control and no variant."""
        if self.control is None:
            return np.zeros(len(self), bool)
        variants = np.isin(self.arm, [self.arms.index(name) for name in self.variants])
        has_control = np.isin(self.round, self.round[self.arm_mask(self.control)])
        return has_control & ~np.isin(self.round, self.round[variants])

    def arm_mask(self, arm: str) -> BoolArray:
        """Return the mask of an arm's requests."""
        mask: BoolArray = self.arm == self.arms.index(arm)
        return mask

    def limit_masks(self) -> tuple[BoolArray, BoolArray]:
        """Return two masks: requests within all goodput limits, and good ones without a figure."""
        tokens = self.raw_tokens if len(self.raw_tokens) else self.tokens
        return mask_limits(self.run.goodput or {}, self.failed, self.figures, tokens)

    @cached_property
    def turn_groups(self) -> RowGroups[TurnKey]:
        """The requests grouped by turn."""
        columns = np.stack([self.arm, self.class_, self.load, self.round, self.slot], axis=1)
        rows, codes = np.unique(columns, axis=0, return_inverse=True)
        turns = []
        for arm, class_, load_code, round_, slot in rows.tolist():
            load = self.loads[load_code]
            place = (self.arms[arm], self.classes[class_], load.concurrency, load.rate_per_s)
            turns.append(TurnKey(*place, round_, slot))
        return RowGroups(turns, codes)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return named columns with one value a request, for numpy or a data frame.

        >>> arrays = read_request_table("monday").to_arrays()
        >>> is_variant = arrays["arm"] == "qwen-sd-vllm"
        >>> arrays["e2e_ms"][is_variant].mean().round()
        np.float64(1509.0)

        Returns:
            `arm`, `class`, `suite`, `prompt_id`, `placement`, `start`, `error` and `content`, which
            are texts or None; `concurrency` and `rate_per_s`, one of them NaN; `round`, `slot` and
            `repeat`; `start_s` and `end_s`, in seconds on the clock of the records; `tokens` of the
            output; `failed`, `hit_token_limit` and `retried`; and each figure of the catalogue that
            one request can have, in the unit of its name, or NaN.
        """
        arrays: dict[str, NDArray[Any]] = {}
        for column in _TEXT_ARRAYS:
            # the last name is None, because the code UNKNOWN is -1
            names = np.array([*getattr(self, _NAMES[column][0]), None], object)
            arrays[column.rstrip("_")] = names[getattr(self, column)]
        for name in PromptKey._fields:
            texts = np.array([getattr(prompt, name) for prompt in self.prompts], object)
            arrays[name] = texts[self.prompt]
        for name in LoadLevel.__struct_fields__:
            # None becomes NaN
            values = np.array([getattr(load, name) for load in self.loads], float)
            arrays[name] = values[self.load]
        return arrays | {name: getattr(self, name) for name in _PLAIN_ARRAYS} | dict(self.figures)

    def select(self, mask: BoolArray) -> RequestTable:
        """Return the requests in `mask`, with their gaps."""
        is_kept = mask[self.gap_owners]
        columns = dict[str, Any]()
        for name, values in vars(self).items():
            if isinstance(values, np.ndarray):
                columns[name] = values[is_kept if name.startswith("gap") else mask]
            elif isinstance(values, Mapping):
                columns[name] = {key: column[mask] for key, column in values.items()}
        columns["gap_owners"] = (np.cumsum(mask) - 1)[columns["gap_owners"]]
        return replace(self, **columns)

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self.arm)


def read_request_table(folder: Path | str) -> RequestTable:
    """Return the requests of a run, without those that are in no figure.

    >>> table = read_request_table("monday")
    >>> table.baseline, table.variants, len(table)
    ('qwen-vllm', ('qwen-sd-vllm',), 288)

    Args:
        folder: of the run.

    Raises:
        InputError: a file is missing or a line is invalid; the error names it.
    """
    folder = Path(folder)
    run = manifest.read_manifest(folder)
    torn_lines: list[str] = []
    rows = _RecordRows()
    for block in read_blocks(folder / RECORDS_FILE, torn_lines.append):
        rows.add(block)

    table = RequestTable(
        folder=folder,
        run=run,
        torn_lines=tuple(torn_lines),
        unknown_parts=rows.list_unknown_parts(),
        **rows.encode_names(run),
        **rows.join_columns(),
    )
    table = _align_clocks(_add_process_starts(table))
    return table if table.is_measured.all() else table.select(table.is_measured)


class _RecordRows:
    """Columns of the records so far; memory holds the texts of one block alone."""

    def __init__(self) -> None:
        self._names = {column: NameCodes() for column in _NAMES}
        self._blocks: list[dict[str, Any]] = []
        self._row_count = 0
        self._part_counts = Counter[tuple[str, str]]()
        self.add(RecordBlock([], 0, []))  # a run without a record has columns too

    def add(self, block: RecordBlock) -> None:
        """Append the records of a block."""
        for column, (_, key) in _NAMES.items():
            self._names[column].extend(map(key, block.records))
        for record in block.records:
            self._part_counts.update((record.arm, part) for part in record.unknown_parts)
        self._blocks.append(_read_columns(block, self._row_count))
        self._row_count += len(block.records)

    def join_columns(self) -> dict[str, Any]:
        """Return the columns of all blocks, without the codes of names."""
        return _concatenate(self._blocks)

    def list_unknown_parts(self) -> tuple[tuple[str, str, int], ...]:
        """Return arm, part and number of requests of each unknown part."""
        return tuple((*key, number) for key, number in sorted(self._part_counts.items()))

    def encode_names(self, run: RunManifest) -> dict[str, Any]:
        """Return each column of codes and its names, in the manifest's order where it has one."""
        arms = [arm.name for arm in sorted(run.arms, key=lambda arm: arm.role != "baseline")]
        class_names = [suite.classes for suite in run.suites]
        first_names = {
            "arm": [*arms, f"{arms[0]}{CONTROL_SUFFIX}"],
            "class_": list(chain.from_iterable(class_names)),
        }
        columns: dict[str, Any] = {}
        for column, (plural, _) in _NAMES.items():
            required_names = arms if column == "arm" else ()
            columns[plural], columns[column] = self._names[column].sort(
                first_names.get(column, ()), required_names
            )
        columns["loads"] = tuple(
            LoadLevel(concurrency=concurrency, rate_per_s=rate)
            for concurrency, rate in columns["loads"]
        )
        columns["prompts"] = tuple(map(PromptKey._make, columns["prompts"]))
        return columns


def _concatenate(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the columns of all parts, one after the other; also those of mappings in them."""
    columns: dict[str, Any] = {}
    for name, column in parts[0].items():
        values = [part[name] for part in parts]
        columns[name] = _concatenate(values) if isinstance(column, dict) else np.concatenate(values)
    return columns


def _read_columns(block: RecordBlock, row_count: int) -> dict[str, Any]:
    """Return the columns of one block, which begins after `row_count` rows."""
    records = block.records
    metrics = RequestMetrics(records)
    start_s = collect_column(records, "start_s")
    line_ends = block.offset + np.cumsum(block.sizes, dtype=np.intp)
    gaps_ms, gap_owners = metrics.list_gaps()
    hit_limit = [is_limit_end(record.finish_reason) for record in records]
    texts = (record.output.encode() for record in records)
    token_ids = (
        b"" if record.token_ids is None else msgspec.json.encode(record.token_ids)
        for record in records
    )
    return {
        "round": collect_column(records, "round", np.intp),
        "slot": collect_column(records, "slot", np.intp),
        "repeat": collect_column(records, "repeat", np.intp),
        "start_s": start_s,
        "end_s": start_s + collect_column(records, "end_s"),
        "figures": metrics.by_name(),
        "suspects": metrics.suspects,
        "tokens": metrics.completion_tokens,
        "raw_tokens": metrics.raw_tokens,
        "failed": metrics.failed,
        "hit_token_limit": np.array(hit_limit, bool),
        "is_measured": np.array([record.part is None for record in records], bool),
        "retried": collect_column(records, "attempts") > 1,
        "reconnected": collect_column(records, "reconnected") > 0,
        "by_llmperf": metrics.by_llmperf,
        "output": hash_texts(texts),
        "ids": hash_texts(token_ids),
        "request_digest": hash_texts(record.request_id.encode() for record in records),
        "line_offsets": line_ends - np.array(block.sizes, np.intp),
        "line_ends": line_ends,
        "gaps_ms": gaps_ms,
        "gap_owners": (gap_owners + row_count).astype(np.int32),
    }


def _align_clocks(table: RequestTable) -> RequestTable:
    """Return the table with all times on the run's first clock, whatever machine measured a part.

    Pods of several nodes may measure parts of one run: a drift over rounds is visible only on one
    clock.
    """
    run = table.run
    if not run.resumed:
        return table
    utc_s = compute_utc_s(run, table.start_s, table.end_s)
    shift_s = (
        utc_s
        - manifest.parse_moment(run.clock.utc).timestamp()
        + run.clock.monotonic_s
        - table.start_s
    )
    if np.abs(shift_s).max(initial=0.0) < ADJUSTMENT_S:
        return table
    run = msgspec.structs.replace(run, resumed=())
    return replace(table, run=run, start_s=table.start_s + shift_s, end_s=table.end_s + shift_s)


def _add_process_starts(table: RequestTable) -> RequestTable:
    """Return the table with the process starts of the server's page for records without a start.

    Arms whose address several servers answer have no start, whatever their records say.
    """
    server_starts = ServerStarts()
    process_starts: dict[TurnKey, str] = {}
    for scrape in counters.read_scrapes(table.folder / counters.FILE):
        start = server_starts.identify_start(scrape)
        if start is not None and scrape.began_s is not None:
            process_starts[scrape.turn] = start
    if process_starts:
        table = _fill_starts(table, process_starts)

    replicas = server_starts.replicas
    arms = {arm: replicas[name_server(arm)] for arm in table.arms if name_server(arm) in replicas}
    if not arms:
        return table
    is_replicated = np.isin(table.arm, [table.arms.index(arm) for arm in arms])
    start_codes = np.where(is_replicated, UNKNOWN, table.start)
    return replace(table, start=start_codes, replicas=tuple(arms.items()))


def _fill_starts(table: RequestTable, process_starts: Mapping[TurnKey, str]) -> RequestTable:
    """Return the table with the start of its turn for each record without one."""
    groups = table.turn_groups
    turn_starts = [
        process_starts.get(turn) or process_starts.get(turn.pool_classes()) for turn in groups.keys
    ]
    starts, codes = encode_names([*table.starts, *turn_starts])
    places = np.where(table.start == UNKNOWN, len(table.starts) + groups.codes, table.start)
    return replace(table, starts=starts, start=codes[places])


def hash_texts(texts: Iterable[bytes]) -> Digests:
    """Return a 64-bit digest of each text; NO_DIGEST for an empty text."""
    digests = [
        hashlib.blake2b(text, digest_size=8).digest() if text else bytes(8) for text in texts
    ]
    return np.frombuffer(b"".join(digests), np.uint64)


def read_outputs(table: RequestTable, rows: Sequence[int]) -> Iterator[RequestRecord]:
    """Yield the records of the given rows, in their order.

    Raises:
        InputError: the file changed after the table was read.
    """
    decoder = msgspec.json.Decoder(RequestRecord)
    with (table.folder / RECORDS_FILE).open("rb") as file:
        for row in rows:
            file.seek(int(table.line_offsets[row]))
            try:
                yield decoder.decode(file.readline())
            except json_file.DECODE_ERRORS as error:
                raise InputError(
                    "it changed meanwhile", where=file.name, change="read it again"
                ) from error
