"""What is judged: one row a request, as columns; made from the records of a run and nothing else.

Invariant: every record is here, failed ones too; a figure that a record cannot have is NaN; names are codes into
tuples of names, so that a hundred thousand requests are a few megabytes. Outputs stay in the file: a digest tells
which are equal, and `outputs` reads those that are asked for. The order of the lines decides no code: what is resampled
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
from tandem.bench.columns import Fields, Mask, Whole
from tandem.bench.derive import figures
from tandem.bench.fault import BenchError
from tandem.bench.folder import RECORDS
from tandem.bench.judge.form import CONTROL, Load
from tandem.bench.manifest import Manifest
from tandem.bench.quantiles import Values
from tandem.bench.reading import Block, Form, Part, blocks
from tandem.bench.record import NULL, Measured, Number, Record, Torn, Unparsed

Digests = NDArray[np.uint64]
UNKNOWN = -1
"""The code of a placement or start that nobody recorded."""

NO_DIGEST = np.uint64(0)
"""The digest of what is not there, such as the ids of a server that gives none."""


class _Seen(Unparsed, frozen=True, kw_only=True, gc=False):
    """The fields that a verdict needs, with the chunks as text."""

    suite: str
    prompt_id: str
    repeat: Number = 0
    finish_reason: str | None = None
    text: str = ""
    reasoning: str | None = None
    token_ids: msgspec.Raw = NULL
    placement: str | None = None
    start: str | None = None


class _SeenWhole(Measured, frozen=True, kw_only=True, gc=False):
    """The same with the chunks."""

    suite: str
    prompt_id: str
    repeat: Number = 0
    finish_reason: str | None = None
    text: str = ""
    reasoning: str | None = None
    token_ids: msgspec.Raw = NULL
    placement: str | None = None
    start: str | None = None


class Prompt(NamedTuple):
    """What names a prompt over suites."""

    suite: str
    prompt_id: str


@dataclass(frozen=True, kw_only=True)
class Observations:
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
        cut: which ended because of max_tokens (finish_reason length).
        output, ids: digests of text with reasoning, and of token ids; NO_DIGEST where there is none.
        at: where in the file each line begins, in bytes.
        torn: a last line that was cut, and is no row.
    """

    folder: Path
    run: Manifest
    arms: tuple[str, ...]
    classes: tuple[str, ...]
    loads: tuple[Load, ...]
    prompts: tuple[Prompt, ...]
    starts: tuple[str, ...]
    placements: tuple[str, ...]
    errors: tuple[str, ...]
    contents: tuple[str, ...]
    arm: Whole
    class_: Whole
    load: Whole
    prompt: Whole
    start: Whole
    placement: Whole
    round: Whole
    slot: Whole
    repeat: Whole
    start_s: Values
    end_s: Values
    figures: Mapping[str, Values]
    tokens: Values
    error: Whole
    content: Whole
    failed: Mask
    cut: Mask
    output: Digests
    ids: Digests
    at: Whole
    torn: tuple[Torn, ...] = ()

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
        name = f"{self.baseline}{CONTROL}"
        return name if name in self.arms else None

    def in_control_rounds(self) -> Mask:
        """Return which requests stand in rounds in which the control was asked, and no variant."""
        if self.control is None:
            return np.zeros(len(self), bool)
        variants = np.isin(self.arm, [self.arms.index(name) for name in self.variants])
        mask: Mask = np.isin(self.round, self.round[self.of_arm(self.control)]) & ~np.isin(
            self.round, self.round[variants]
        )
        return mask

    def of_arm(self, arm: str) -> Mask:
        """Return which requests an arm was asked."""
        mask: Mask = self.arm == self.arms.index(arm)
        return mask

    def __len__(self) -> int:
        """How many requests there are."""
        return len(self.arm)


class Output(NamedTuple):
    """What one request was answered."""

    text: str
    reasoning: str | None
    token_ids: tuple[int, ...] | None
    logprobs: Any


def observe(folder: Path) -> Observations:
    """Read a run.

    Raises:
        BenchError: a file is missing, or a line is not what it must be; it is named.
    """
    run = manifest.read(folder)
    path = folder / RECORDS
    parts, torn = [], []
    try:
        for block in blocks(Part(path, 0, path.stat().st_size), Form(_Seen, _SeenWhole)):
            parts.append(_columns(block))  # so that no more than one block's texts are held
            torn += [block.torn] if block.torn else []
    except OSError as error:
        raise BenchError(
            f"the records cannot be read: {error.strerror or error}",
            where=str(path),
            change="name the folder that a run wrote, and see that its files may be read",
        ) from error
    return _joined(folder, run, parts, tuple(torn))


def outputs(seen: Observations, rows: Sequence[int]) -> Iterator[Output]:
    """Yield what was answered to the requests named, in the order asked.

    Raises:
        BenchError: the file changed since it was read.
    """
    decoder = msgspec.json.Decoder(Record)
    path = seen.folder / RECORDS
    with path.open("rb") as file:
        for row in rows:
            file.seek(int(seen.at[row]))
            try:
                record = decoder.decode(file.readline())
            except msgspec.DecodeError as error:
                raise BenchError(
                    f"the records changed while they were read: {error}", where=str(path), change="report again"
                ) from error
            logprobs = msgspec.json.decode(record.logprobs)
            yield Output(record.text, record.reasoning, record.token_ids, logprobs)


_COPIED = (
    "arm", "class_", "suite", "prompt_id", "concurrency", "rate_per_s", "round", "slot", "repeat", "placement", "start",
    "error", "content",
)  # fmt: skip


class _Columns(NamedTuple):
    """One block without its texts."""

    told: dict[str, Sequence[Any]]
    numbers: dict[str, Values]
    figures: Mapping[str, Values]
    flags: dict[str, Mask]
    digests: dict[str, Digests]
    at: Whole


def _columns(block: Block) -> _Columns:
    told = block.told
    found = figures(told, block.chunks)
    start_s = np.fromiter(told["start_s"], float)
    return _Columns(
        told={name: told[name] for name in _COPIED},
        numbers={
            "start_s": start_s,
            "end_s": start_s + np.fromiter(told["end_s"], float),
            "tokens": found.values["completion_tokens"],
        },
        figures=found.values,
        flags={
            "failed": found.failed,
            "cut": np.array([reason == "length" for reason in told["finish_reason"]], bool),
        },
        digests={
            "output": _digests(_texts(told)),
            "ids": _digests([b"" if ids == NULL else bytes(ids) for ids in told["token_ids"]]),
        },
        at=block.at,
    )


def _texts(told: Fields) -> list[bytes]:
    return [
        text.encode() if reasoning is None else f"{reasoning}\0{text}".encode()
        for text, reasoning in zip(told["text"], told["reasoning"], strict=True)
    ]


def _digests(texts: Sequence[bytes]) -> Digests:
    """Return 64 bits of each; NO_DIGEST of an empty one."""
    made = [hashlib.blake2b(text, digest_size=8).digest() if text else bytes(8) for text in texts]
    return np.frombuffer(b"".join(made), np.uint64)


def _joined(folder: Path, run: Manifest, parts: Sequence[_Columns], torn: tuple[Torn, ...]) -> Observations:
    """Return all blocks end to end, names as codes."""
    told = {name: [value for part in parts for value in part.told[name]] for name in _COPIED}
    stated = [arm.name for arm in sorted(run.arms, key=lambda arm: arm.role != "baseline")]
    arms, arm = _coded(told["arm"], [*stated, f"{stated[0]}{CONTROL}"] if stated else [], stated)
    classes, class_ = _coded(told["class_"], [name for suite in run.suites for name in suite.classes])
    loads, load = _coded(list(zip(told["concurrency"], told["rate_per_s"], strict=True)), [])
    prompts, prompt = _coded(list(zip(told["suite"], told["prompt_id"], strict=True)), [])
    starts, start = _coded(_starts(folder, told), [])
    placements, placement = _coded(told["placement"], [])
    errors, error = _coded(told["error"], [])
    contents, content = _coded(told["content"], [])

    def column(of: str, name: str, kind: type) -> NDArray[Any]:
        values = [getattr(part, of)[name] for part in parts]
        return np.concatenate(values) if values else np.empty(0, kind)

    return Observations(
        folder=folder, run=run, arms=arms, classes=classes,
        loads=tuple(Load(concurrency=number, rate_per_s=rate) for number, rate in loads),
        prompts=tuple(Prompt(*key) for key in prompts), starts=starts, placements=placements,
        errors=errors, contents=contents, error=error, content=content,
        arm=arm, class_=class_, load=load, prompt=prompt, start=start, placement=placement,
        round=np.array(told["round"], np.intp), slot=np.array(told["slot"], np.intp),
        repeat=np.array(told["repeat"], np.intp), start_s=column("numbers", "start_s", float),
        end_s=column("numbers", "end_s", float), tokens=column("numbers", "tokens", float),
        figures={name: column("figures", name, float) for name in (parts[0].figures if parts else ())},
        failed=column("flags", "failed", bool), cut=column("flags", "cut", bool),
        output=column("digests", "output", np.uint64), ids=column("digests", "ids", np.uint64),
        at=np.concatenate([part.at for part in parts]) if parts else np.empty(0, np.intp),
        torn=torn,
    )  # fmt: skip


def _coded(names: Sequence[Any], first: Sequence[Any], always: Sequence[Any] = ()) -> tuple[tuple[Any, ...], Whole]:
    """Return the names that occur, those of `first` in its order and others behind it, sorted, and the code of each.

    Those of `always`, part of `first`, need not occur: an arm without a record is still the baseline, or a variant.
    """
    seen, stated = {*names, *always}, dict.fromkeys(first)
    others = sorted((name for name in seen if name is not None and name not in stated), key=_rank)
    known = (*(name for name in stated if name in seen), *others)
    codes = {name: code for code, name in enumerate(known)} | {None: UNKNOWN}
    return known, np.array([codes[name] for name in names], np.intp)


def _rank(name: Any) -> Any:
    """Return what a name is sorted by; in a pair what is not known comes last."""
    return [(part is None, part) for part in name] if isinstance(name, tuple) else name


def _starts(folder: Path, told: Mapping[str, Sequence[Any]]) -> list[str | None]:
    """Return which start of its server each request met: as recorded, else when its process began by its own page."""
    began: dict[tuple[Any, ...], str] = {}
    for scrape in counters.read_scrapes(folder / counters.FILE):
        if scrape.counters and "began_s" in scrape.counters:
            key = (scrape.arm, scrape.class_, scrape.concurrency, scrape.rate_per_s, scrape.round, scrape.slot)
            began[key] = f"{scrape.counters['began_s']:.2f}"
    keys = zip(*(told[name] for name in ("arm", "class_", "concurrency", "rate_per_s", "round", "slot")), strict=True)
    return [
        start or began.get(key) or began.get((key[0], None, *key[2:]))  # a turn of mixed classes has no class
        for start, key in zip(told["start"], keys, strict=True)
    ]
