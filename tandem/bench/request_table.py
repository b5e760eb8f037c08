"""What is judged: one row a request, as columns; made from the records of a run and nothing else.

Invariant: every record is here, failed ones too; a figure that a record cannot have is NaN; names are codes into
tuples of names, so that a hundred thousand requests are a few megabytes. Outputs stay in the file: a digest tells
which are equal, and `read_outputs` reads those that are asked for. The order of the lines decides no code: what is
resampled
or summed in the order of codes is the same whichever request ended first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from tandem.bench import counters, manifest
from tandem.bench.columns import BoolArray, IntArray, RecordFields
from tandem.bench.fault import BenchError
from tandem.bench.folder import RECORDS_FILE
from tandem.bench.manifest import RunManifest
from tandem.bench.quantiles import Values
from tandem.bench.record import (
    JSON_NULL,
    MetricRecord,
    RawChunkRecord,
    RequestRecord,
    SmallNumber,
    TornLine,
)
from tandem.bench.record_blocks import RecordBlock, RecordsRange, RecordTypes, read_blocks
from tandem.bench.request_metrics import compute_column_metrics
from tandem.bench.schedule import CONTROL_SUFFIX, LoadLevel

Digests = NDArray[np.uint64]
UNKNOWN = -1
"""The code of a placement or start that nobody recorded."""

NO_DIGEST = np.uint64(0)
"""The digest of what is not there, such as the ids of a server that gives none."""


class _VerdictRecord(RawChunkRecord, frozen=True, kw_only=True, gc=False):
    """The fields that a verdict needs, with the chunks as text."""

    suite: str
    prompt_id: str
    repeat: SmallNumber = 0
    finish_reason: str | None = None
    text: str = ""
    reasoning: str | None = None
    token_ids: msgspec.Raw = JSON_NULL
    placement: str | None = None
    start: str | None = None


class _VerdictRecordWithChunks(MetricRecord, frozen=True, kw_only=True, gc=False):
    """The same with the chunks."""

    suite: str
    prompt_id: str
    repeat: SmallNumber = 0
    finish_reason: str | None = None
    text: str = ""
    reasoning: str | None = None
    token_ids: msgspec.Raw = JSON_NULL
    placement: str | None = None
    start: str | None = None


class PromptKey(NamedTuple):
    """What names a prompt over suites."""

    suite: str
    prompt_id: str


@dataclass(frozen=True, kw_only=True)
class RequestTable:
    """All requests of a run, in the order of the file. Columns have one value a request.

    Args:
        folder: of the run.
        run: its manifest.
        arms: names: the baseline, its variants, then its control where there is one.
        classes, loads, prompts, starts, placements: what their codes mean.
        arm, class_, load, prompt, start, placement: codes; start and placement may be UNKNOWN.
        round, slot, repeat: as in the records.
        start_s, end_s: absolute, on the monotonic clock of the records.
        figures: by metric of the catalogue that one request can have; NaN where a record has none.
        tokens: completion tokens as the server counted; NaN where unknown.
        errors, contents: words of Record.error and of the suite's content check. error, content: their codes, UNKNOWN
            where there was no error, and where nothing was checked.
        failed: which have an error.
        hit_token_limit: which ended because of max_tokens (finish_reason length).
        output, ids: digests of text with reasoning, and of token ids; NO_DIGEST where there is none.
        line_offsets: where in the file each line begins, in bytes.
        torn_lines: a last line that was cut, and is no row.
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
    torn_lines: tuple[TornLine, ...] = ()

    @property
    def baseline(self) -> str:
        """The arm that others are held against."""
        return self.arms[0]

    @property
    def variants(self) -> tuple[str, ...]:
        """The arms that are held against it, its own control left out."""
        return tuple(arm for arm in self.arms[1:] if arm != self.control)

    @property
    def control(self) -> str | None:
        """The baseline asked once more as its own control; None where the run has none."""
        name = f"{self.baseline}{CONTROL_SUFFIX}"
        return name if name in self.arms else None

    def control_round_mask(self) -> BoolArray:
        """Return which requests stand in rounds in which the control was asked, and no variant."""
        if self.control is None:
            return np.zeros(len(self), bool)
        variants = np.isin(self.arm, [self.arms.index(name) for name in self.variants])
        mask: BoolArray = np.isin(self.round, self.round[self.arm_mask(self.control)]) & ~np.isin(
            self.round, self.round[variants]
        )
        return mask

    def arm_mask(self, arm: str) -> BoolArray:
        """Return which requests an arm was asked."""
        mask: BoolArray = self.arm == self.arms.index(arm)
        return mask

    def __len__(self) -> int:
        """How many requests there are."""
        return len(self.arm)


class RequestOutput(NamedTuple):
    """What one request was answered."""

    text: str
    reasoning: str | None
    token_ids: tuple[int, ...] | None
    logprobs: Any


def read_request_table(folder: Path) -> RequestTable:
    """Read a run.

    Raises:
        BenchError: a file is missing, or a line is not what it must be; it is named.
    """
    run = manifest.read_manifest(folder)
    path = folder / RECORDS_FILE
    parts, torn_lines = [], []
    try:
        for block in read_blocks(
            RecordsRange(path, 0, path.stat().st_size), RecordTypes(_VerdictRecord, _VerdictRecordWithChunks)
        ):
            parts.append(_build_columns(block))  # so that no more than one block's texts are held
            torn_lines += [block.torn] if block.torn else []
    except OSError as error:
        raise BenchError(
            f"the records cannot be read: {error.strerror or error}",
            where=str(path),
            change="name the folder that a run wrote, and see that its files may be read",
        ) from error
    return _join_blocks(folder, run, parts, tuple(torn_lines))


def read_outputs(table: RequestTable, rows: Sequence[int]) -> Iterator[RequestOutput]:
    """Yield what was answered to the requests named, in the order asked.

    Raises:
        BenchError: the file changed since it was read.
    """
    decoder = msgspec.json.Decoder(RequestRecord)
    path = table.folder / RECORDS_FILE
    with path.open("rb") as file:
        for row in rows:
            file.seek(int(table.line_offsets[row]))
            try:
                record = decoder.decode(file.readline())
            except msgspec.DecodeError as error:
                raise BenchError(
                    f"the records changed while they were read: {error}", where=str(path), change="report again"
                ) from error
            logprobs = msgspec.json.decode(record.logprobs)
            yield RequestOutput(record.text, record.reasoning, record.token_ids, logprobs)


_COPY_FIELDS = (
    "arm", "class_", "suite", "prompt_id", "concurrency", "rate_per_s", "round", "slot", "repeat", "placement", "start",
    "error", "content",
)  # fmt: skip


class _RequestColumns(NamedTuple):
    """One block without its texts."""

    fields: dict[str, Sequence[Any]]
    numbers: dict[str, Values]
    figures: Mapping[str, Values]
    flags: dict[str, BoolArray]
    digests: dict[str, Digests]
    line_offsets: IntArray


def _build_columns(block: RecordBlock) -> _RequestColumns:
    fields = block.fields
    metrics = compute_column_metrics(fields, block.chunks)
    start_s = np.fromiter(fields["start_s"], float)
    return _RequestColumns(
        fields={name: fields[name] for name in _COPY_FIELDS},
        numbers={
            "start_s": start_s,
            "end_s": start_s + np.fromiter(fields["end_s"], float),
            "tokens": metrics.values["completion_tokens"],
        },
        figures=metrics.values,
        flags={
            "failed": metrics.failure_mask,
            "cut": np.array([reason == "length" for reason in fields["finish_reason"]], bool),
        },
        digests={
            "output": _hash_texts(_encode_texts(fields)),
            "ids": _hash_texts([b"" if ids == JSON_NULL else bytes(ids) for ids in fields["token_ids"]]),
        },
        line_offsets=block.line_offsets,
    )


def _encode_texts(fields: RecordFields) -> list[bytes]:
    return [
        text.encode() if reasoning is None else f"{reasoning}\0{text}".encode()
        for text, reasoning in zip(fields["text"], fields["reasoning"], strict=True)
    ]


def _hash_texts(texts: Sequence[bytes]) -> Digests:
    """Return 64 bits of each; NO_DIGEST of an empty one."""
    digests = [hashlib.blake2b(text, digest_size=8).digest() if text else bytes(8) for text in texts]
    return np.frombuffer(b"".join(digests), np.uint64)


def _join_blocks(
    folder: Path, run: RunManifest, parts: Sequence[_RequestColumns], torn_lines: tuple[TornLine, ...]
) -> RequestTable:
    """Return all blocks end to end, names as codes."""
    fields = {name: [value for part in parts for value in part.fields[name]] for name in _COPY_FIELDS}
    arm_names = [arm.name for arm in sorted(run.arms, key=lambda arm: arm.role != "baseline")]
    arms, arm = _encode_names(
        fields["arm"], [*arm_names, f"{arm_names[0]}{CONTROL_SUFFIX}"] if arm_names else [], arm_names
    )
    classes, class_ = _encode_names(fields["class_"], [name for suite in run.suites for name in suite.classes])
    loads, load = _encode_names(list(zip(fields["concurrency"], fields["rate_per_s"], strict=True)), [])
    prompts, prompt = _encode_names(list(zip(fields["suite"], fields["prompt_id"], strict=True)), [])
    starts, start = _encode_names(_find_starts(folder, fields), [])
    placements, placement = _encode_names(fields["placement"], [])
    errors, error = _encode_names(fields["error"], [])
    contents, content = _encode_names(fields["content"], [])

    def join_column(group: str, name: str, kind: type) -> NDArray[Any]:
        values = [getattr(part, group)[name] for part in parts]
        return np.concatenate(values) if values else np.empty(0, kind)

    return RequestTable(
        folder=folder, run=run, arms=arms, classes=classes,
        loads=tuple(LoadLevel(concurrency=number, rate_per_s=rate) for number, rate in loads),
        prompts=tuple(PromptKey(*key) for key in prompts), starts=starts, placements=placements,
        errors=errors, contents=contents, error=error, content=content,
        arm=arm, class_=class_, load=load, prompt=prompt, start=start, placement=placement,
        round=np.array(fields["round"], np.intp), slot=np.array(fields["slot"], np.intp),
        repeat=np.array(fields["repeat"], np.intp), start_s=join_column("numbers", "start_s", float),
        end_s=join_column("numbers", "end_s", float), tokens=join_column("numbers", "tokens", float),
        figures={name: join_column("figures", name, float) for name in (parts[0].figures if parts else ())},
        failed=join_column("flags", "failed", bool), hit_token_limit=join_column("flags", "cut", bool),
        output=join_column("digests", "output", np.uint64), ids=join_column("digests", "ids", np.uint64),
        line_offsets=np.concatenate([part.line_offsets for part in parts]) if parts else np.empty(0, np.intp),
        torn_lines=torn_lines,
    )  # fmt: skip


def _encode_names(
    names: Sequence[Any], first_names: Sequence[Any], required_names: Sequence[Any] = ()
) -> tuple[tuple[Any, ...], IntArray]:
    """Return the names that occur, `first_names` in their order, the others sorted behind them, and the code of each.

    Those of `required_names`, part of `first_names`, need not occur: an arm without a record is still the baseline, or
    a variant.
    """
    present_names, leading_names = {*names, *required_names}, dict.fromkeys(first_names)
    other_names = sorted(
        (name for name in present_names if name is not None and name not in leading_names), key=_sort_key
    )
    ordered_names = (*(name for name in leading_names if name in present_names), *other_names)
    codes = {name: code for code, name in enumerate(ordered_names)} | {None: UNKNOWN}
    return ordered_names, np.array([codes[name] for name in names], np.intp)


def _sort_key(name: Any) -> Any:
    """Return what a name is sorted by; in a pair what is not known comes last."""
    return [(part is None, part) for part in name] if isinstance(name, tuple) else name


def _find_starts(folder: Path, fields: Mapping[str, Sequence[Any]]) -> list[str | None]:
    """Return which start of its server each request met: as recorded, else when its process began by its own page."""
    process_starts: dict[tuple[Any, ...], str] = {}
    for scrape in counters.read_scrapes(folder / counters.FILE):
        if scrape.counters and "began_s" in scrape.counters:
            key = (scrape.arm, scrape.class_, scrape.concurrency, scrape.rate_per_s, scrape.round, scrape.slot)
            process_starts[key] = f"{scrape.counters['began_s']:.2f}"
    keys = zip(*(fields[name] for name in ("arm", "class_", "concurrency", "rate_per_s", "round", "slot")), strict=True)
    return [
        start
        or process_starts.get(key)
        or process_starts.get((key[0], None, *key[2:]))  # a turn of mixed classes has no class
        for start, key in zip(fields["start"], keys, strict=True)
    ]
