"""All requests of a run as columns, a row a request: for summary, verdict and publishing.

Invariant: every complete line of records.jsonl is a row, also for a failed request; a figure that a
record cannot have is NaN; names are codes into tuples of names, so a hundred thousand requests need
a few megabytes. Outputs stay in the file: digests show equal outputs, and `read_outputs` reads
selected ones. The order of the lines decides no code, so resampling and sums in the order of codes
do not depend on the order in which requests ended.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from operator import attrgetter
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from tandem.bench.figures.columns import BoolArray, IntArray, collect_column
from tandem.bench.figures.quantiles import Values
from tandem.bench.figures.request_metrics import compute_request_metrics
from tandem.bench.load.clocks import ADJUSTMENT_S, compute_utc_s
from tandem.bench.load.finish_reason import is_limit_end
from tandem.bench.load.server_starts import ServerStarts, name_server
from tandem.bench.plan.schedule import CONTROL_SUFFIX, LoadLevel, TurnKey
from tandem.bench.records import counters, json_file, manifest
from tandem.bench.records.folder import RECORDS_FILE
from tandem.bench.records.manifest import RunManifest
from tandem.bench.records.record import RecordBlock, RequestRecord, read_blocks
from tandem.errors import InputError
from tandem.metrics import find_metric

Digests = NDArray[np.uint64]
UNKNOWN = -1  # the code of an unrecorded placement or start
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
Key = TypeVar("Key")
NewKey = TypeVar("NewKey")


class PromptKey(NamedTuple):
    """Key of a prompt across suites."""

    suite: str
    prompt_id: str


@dataclass(frozen=True)
class RowGroups(Generic[Key]):
    """Requests in groups, e.g. by turn or by load.

    Args:
        keys: one for each group.
        codes: of each request, the index of its key.
    """

    keys: Sequence[Key]
    codes: IntArray

    def rename(self, names: Iterable[NewKey]) -> RowGroups[NewKey]:
        """Return the groups under other names, one a present key; join those with equal names."""
        places: dict[NewKey, int] = {}
        codes = [places.setdefault(name, len(places)) for name in names]
        return RowGroups(list(places), np.array(codes, np.intp)[self.codes])

    def sum(self, column: NDArray[Any]) -> Values:
        """Return the sum of a column of requests for each group."""
        sums: Values = np.bincount(self.codes, column, minlength=len(self.keys)).astype(float)
        return sums

    def split(self, values: Values, rows: IntArray | None = None) -> Iterator[tuple[Key, Values]]:
        """Yield the values of each group, without NaN.

        Args:
            values: of the requests.
            rows: of each value, the row of its request; None if each request has one value.
        """
        codes = self.codes if rows is None else self.codes[rows]
        # numpy sorts 16 bits and fewer by radix
        small_codes = codes.astype(np.min_scalar_type(len(self.keys)))
        ends = np.cumsum(np.bincount(codes, minlength=len(self.keys)))
        parts = np.split(values[np.argsort(small_codes, kind="stable")], ends[:-1])
        yield from (
            (key, part[~np.isnan(part)]) for key, part in zip(self.keys, parts, strict=False)
        )


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
        good_mask = ~self.failed
        unknown_mask = np.zeros(len(self), bool)
        is_short = np.isin(self.raw_tokens if len(self.raw_tokens) else self.tokens, (0, 1))
        for name, limit in (self.run.goodput or {}).items():
            values = self.figures[name]
            is_within = values >= limit if find_metric(name).better == "higher" else values <= limit
            has_no_tpot = is_short & np.isnan(values) & (name in {"tpot_ms", "tpot_exact_ms"})
            good_mask &= is_within | has_no_tpot
            unknown_mask |= np.isnan(values) & ~has_no_tpot & ~self.failed
        return good_mask, unknown_mask

    @cached_property
    def turn_groups(self) -> RowGroups[TurnKey]:
        """The requests grouped by turn."""
        columns = np.stack([self.arm, self.class_, self.load, self.round, self.slot], axis=1)
        rows, codes = np.unique(columns, axis=0, return_inverse=True)
        turns = [
            TurnKey(
                self.arms[arm],
                self.classes[class_],
                load.concurrency,
                load.rate_per_s,
                round_,
                slot,
            )
            for arm, class_, load_code, round_, slot in rows.tolist()
            for load in (self.loads[load_code],)
        ]
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
        for column in ("arm", "class_", "placement", "start", "error", "content"):
            plural = _NAMES[column][0]
            # the last name is None, because the code UNKNOWN is -1
            names = np.array([*getattr(self, plural), None], object)
            arrays[column.rstrip("_")] = names[getattr(self, column)]
        for name in ("suite", "prompt_id"):
            texts = np.array([getattr(prompt, name) for prompt in self.prompts], object)
            arrays[name] = texts[self.prompt]
        for name in ("concurrency", "rate_per_s"):
            # None becomes NaN
            values = np.array([getattr(load, name) for load in self.loads], float)
            arrays[name] = values[self.load]
        for name in (
            "round",
            "slot",
            "repeat",
            "start_s",
            "end_s",
            "tokens",
            "failed",
            "hit_token_limit",
            "retried",
        ):
            arrays[name] = getattr(self, name)
        return arrays | dict(self.figures)

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
    """Return the requests of a run.

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
    torn_lines = list[str]()
    codes = {name: _number_names() for name in _NAMES}
    blocks: list[dict[str, dict[str, NDArray[Any]]]] = []
    row_count = 0
    part_counts = Counter[tuple[str, str]]()
    for block in read_blocks(folder / RECORDS_FILE, torn_lines.append):
        for record in block.records:
            part_counts.update((record.arm, part) for part in record.unknown_parts)
        blocks.append(_read_columns(block, codes, row_count))
        row_count += len(block.records)
    blocks = blocks or [_read_columns(RecordBlock([], 0, []), codes, 0)]
    groups: dict[str, Any] = {
        group: {
            name: np.concatenate([block[group][name] for block in blocks])
            for name in blocks[0][group]
        }
        for group in blocks[0]
    }
    columns = groups.pop("columns")
    arm_names = [arm.name for arm in sorted(run.arms, key=lambda arm: arm.role != "baseline")]
    first_names = {
        "arm": [*arm_names, *(f"{name}{CONTROL_SUFFIX}" for name in arm_names[:1])],
        "class_": [name for suite in run.suites for name in suite.classes],
    }
    names: dict[str, Any] = {}
    for name, (plural, _) in _NAMES.items():
        required_names = arm_names if name == "arm" else ()
        leading = first_names.get(name, ())
        names[plural], columns[name] = _sort_names(
            codes[name], columns[name], leading, required_names
        )
    names["loads"] = tuple(
        LoadLevel(concurrency=concurrency, rate_per_s=rate) for concurrency, rate in names["loads"]
    )
    names["prompts"] = tuple(PromptKey(*key) for key in names["prompts"])
    unknown_parts = tuple(
        (arm, part, number) for (arm, part), number in sorted(part_counts.items())
    )
    table = RequestTable(
        folder=folder,
        run=run,
        torn_lines=tuple(torn_lines),
        unknown_parts=unknown_parts,
        **groups,
        **names,
        **columns,
    )
    return _align_clocks(_add_process_starts(table))


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


def _read_columns(
    block: RecordBlock, codes: Mapping[str, dict[Any, int]], row_count: int
) -> dict[str, dict[str, NDArray[Any]]]:
    """Return the columns of one block; memory then holds the texts of only one block."""
    records = block.records
    metrics = compute_request_metrics(block.records)
    start_s = collect_column(records, "start_s")
    texts = (record.output for record in records)
    token_ids = (
        b"" if record.token_ids is None else msgspec.json.encode(record.token_ids)
        for record in records
    )
    columns: dict[str, NDArray[Any]] = {
        **{
            name: np.array(list(map(codes[name].__getitem__, map(key, records))), np.int32)
            for name, (_, key) in _NAMES.items()
        },
        **{name: collect_column(records, name, np.intp) for name in ("round", "slot", "repeat")},
        "start_s": start_s,
        "end_s": start_s + collect_column(records, "end_s"),
        "tokens": metrics.values["completion_tokens"],
        "raw_tokens": metrics.raw_completion_tokens,
        "failed": metrics.failure_mask,
        "hit_token_limit": np.array(
            [is_limit_end(record.finish_reason) for record in records], bool
        ),
        "retried": collect_column(records, "attempts") > 1,
        "reconnected": collect_column(records, "reconnected") > 0,
        "by_llmperf": np.array([record.generator == "llmperf" for record in records], bool),
        "output": hash_texts(map(str.encode, texts)),
        "ids": hash_texts(token_ids),
        "request_digest": hash_texts(record.request_id.encode() for record in records),
        "line_offsets": block.offset + np.cumsum([0, *block.sizes])[:-1],
        "line_ends": block.offset + np.cumsum(block.sizes, dtype=np.intp),
        "gaps_ms": metrics.gaps_ms,
        "gap_owners": (metrics.gap_owners + row_count).astype(np.int32),
    }
    return {"columns": columns, "figures": metrics.values, "suspects": metrics.suspects}


def _add_process_starts(table: RequestTable) -> RequestTable:
    """Return the table with the process starts of the server's page for records without a start.

    Arms whose address several servers answer have no start, whatever their records say.
    """
    scrapes = list(counters.read_scrapes(table.folder / counters.FILE))
    server_starts = ServerStarts()
    process_starts: dict[TurnKey, str] = {}
    for scrape in scrapes:
        start = server_starts.identify_start(scrape)
        if start is not None and scrape.began_s is not None:
            process_starts[scrape.turn] = start
    replicas = server_starts.replicas
    if process_starts and not (table.start != UNKNOWN).all():
        groups = table.turn_groups
        turn_starts = [
            process_starts.get(turn) or process_starts.get(turn.pool_classes())
            for turn in groups.keys
        ]
        starts, name_codes = encode_names([*table.starts, *turn_starts])
        places = np.where(table.start == UNKNOWN, len(table.starts) + groups.codes, table.start)
        table = replace(table, starts=starts, start=name_codes[places])
    if not replicas:
        return table
    arms = {arm: replicas[name_server(arm)] for arm in table.arms if name_server(arm) in replicas}
    is_replicated = np.isin(table.arm, [table.arms.index(arm) for arm in arms])
    return replace(
        table, start=np.where(is_replicated, UNKNOWN, table.start), replicas=tuple(arms.items())
    )


def encode_names(
    names: Iterable[Any], first_names: Sequence[Any] = (), required_names: Sequence[Any] = ()
) -> tuple[tuple[Any, ...], IntArray]:
    """Return the names and the code of each entry; arguments and order as for `_sort_names`."""
    codes = _number_names()
    return _sort_names(
        codes, np.array([codes[name] for name in names], np.int32), first_names, required_names
    )


def _number_names() -> defaultdict[Any, int]:
    """Return a mapping that gives each new name the next number."""
    return defaultdict(count().__next__)


def _sort_names(
    numbers: Mapping[Any, int],
    column: IntArray,
    first_names: Sequence[Any],
    required_names: Sequence[Any],
) -> tuple[tuple[Any, ...], IntArray]:
    """Return the names, `first_names` first and the others sorted, and the column of their codes.

    Names in `required_names`, a part of `first_names`, need no record: an arm without a record is
    still the baseline or a variant. None is no name: its code is UNKNOWN. In a tuple, None is
    sorted last.
    """
    leading_names = dict.fromkeys(
        name for name in first_names if name in numbers or name in required_names
    )
    others = [name for name in numbers if name is not None and name not in leading_names]
    others.sort(
        key=lambda name: (
            [(part is None, part) for part in name] if isinstance(name, tuple) else name
        )
    )
    names = (*leading_names, *others)
    places = {name: place for place, name in enumerate(names)}
    return names, np.array([places.get(name, UNKNOWN) for name in numbers], np.intp)[column]


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
