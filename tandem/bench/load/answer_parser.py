"""The parser of an answer's events: it collects what they hold, and judges nothing.

Invariant: nothing a server sends raises; the first fault is kept, and what follows is still read,
up to the end of a whole answer.

Whether its running usage or its token ids count the tokens of a chunk is known only at the end of
the stream; `list_chunks` decides.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from tandem.bench.load.delta import ChoiceOutput, read_output
from tandem.bench.load.event import (
    DONE,
    EventError,
    count_or_none,
    decode_event,
    describe_error,
    describe_error_event,
    find_error,
    read_event,
)
from tandem.bench.load.model_list import names_model
from tandem.bench.load.sse import ServerEvent
from tandem.bench.records.finish_reason import is_good_end, read_finish_reason
from tandem.bench.records.record import OUTPUT_KINDS, Chunk, ChunkKind

# outside of the events that are read as JSON, so that a long page takes no time
MAX_STRAY_LINES = 64
# names of parts that a record keeps, and characters of one
MAX_UNKNOWN_PARTS = 8
MAX_PART_NAME = 80
# an unknown field of an event stream, which the standard ignores
FIELD_LINE = re.compile(rb"[\w-]{1,40}(:|\Z)")


class _ChunkParts(NamedTuple):
    """What the event of a chunk holds.

    Args:
        at_s: seconds from the request's start.
        kind: None for a choice without output, end or role.
        running_tokens: `usage.completion_tokens` beside the choice; None without one.
        id_count: number of token ids; None without ids.
    """

    at_s: float
    kind: ChunkKind | None
    running_tokens: int | None = None
    id_count: int | None = None


@dataclass(slots=True)
class AnswerParser:
    """What the events of an answer held so far.

    Args:
        models: names the server may give its model; empty: any.

    Attributes:
        chunks: what each holds.
        outputs: what the model wrote in each event with a choice.
        usage: the last value of each field of the usages.
        choice_index: of the answer's choice: of the first that came.
        skipped_event: the first event that is no part of an answer.
        stray_text: the first text outside of the events, or in an event without choices.
    """

    models: Collection[str]
    chunks: list[_ChunkParts] = field(default_factory=list)
    outputs: list[ChoiceOutput] = field(default_factory=list)
    unknown_parts: set[str] = field(default_factory=set)
    ids: list[int] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)
    usage: dict[str, Any] = field(default_factory=dict)
    model: str | None = None
    choice_index: Any = None
    finish_reason: str | None = None
    writes_deltas: bool = False  # whether output came in a delta
    writes_reasoning: bool = False  # whether reasoning came
    writes_after_end: bool = False  # whether output came after a finish reason
    is_done: bool = False
    fault: EventError | None = None
    skipped_event: bytes = b""
    stray_text: bytes = b""

    def add_event(self, at_s: float, event: ServerEvent) -> None:
        """Add one event, but nothing after a whole answer; skip a bad one, keep the first fault."""
        if self.is_done and self.finish_reason is not None:
            return
        if not event.is_framed:
            self._read_unframed(event.data)
        elif event.is_error:
            self.fail(EventError("api_error", describe_error_event(event.data)))
        elif event.data.strip() == DONE:
            self.is_done = True
        else:
            try:
                self._read_message(at_s, event.data)
            except EventError as error:
                self.fail(error)

    def fail(self, fault: EventError) -> None:
        """Keep a fault, unless there is an earlier one."""
        self.fault = self.fault or fault

    def list_chunks(self) -> list[Chunk]:
        """Return each event with its tokens (None: unknown); one without either is a role."""
        chunks = []
        for chunk, tokens in zip(self.chunks, self._count_tokens(), strict=True):
            kind = chunk.kind or ("role" if tokens == 0 else "empty")
            if kind == "role" and tokens:
                kind = "empty"
            chunks.append(Chunk(chunk.at_s, kind, tokens))
        return chunks

    @property
    def is_lost(self) -> bool:
        """Whether text that is no answer explains an answer that no finish reason ends."""
        is_open = self.fault is None and self.finish_reason is None
        return bool(self.stray_text and self.chunks and is_open)

    @property
    def has_all_ids(self) -> bool:
        """Whether every event with output has its token ids."""
        return bool(self.ids) and all(chunk.id_count is not None for chunk in self._list_output())

    @property
    def has_running_usage(self) -> bool:
        """Whether the server counts in every chunk with output, from above 0, never falling."""
        counts = [chunk.running_tokens for chunk in self.chunks if chunk.running_tokens is not None]
        if not counts or counts[-1] == 0 or counts != sorted(counts):
            return False
        output_counts = [chunk.running_tokens for chunk in self._list_output()]
        if not all(output_counts):  # None or 0
            return False
        return len(output_counts) <= 1 or output_counts[0] != output_counts[-1]

    @property
    def running_total(self) -> int:
        """The highest running count, 0 without one."""
        return max((chunk.running_tokens or 0 for chunk in self.chunks), default=0)

    @property
    def usage_tokens(self) -> int | None:
        """Output tokens of the whole answer by the server's usage; None if it has no count."""
        return self._count_usage(self.usage)

    @property
    def least_tokens(self) -> int:
        """The tokens that the stream shows, not what the server claims."""
        if self.has_all_ids:
            return len(self.ids)
        return sum(chunk.bears_tokens for chunk in self.list_chunks())

    def _list_output(self) -> list[_ChunkParts]:
        """Return the chunks with output."""
        return [chunk for chunk in self.chunks if chunk.kind in OUTPUT_KINDS]

    def _count_tokens(self) -> list[int | None]:
        """Return the tokens of each chunk, by running usage or token ids."""
        contradicts_ids = self.has_all_ids and self.running_total != len(self.ids)
        if not self.has_running_usage or contradicts_ids:
            has_ids = self.has_all_ids
            return [chunk.id_count if has_ids else None for chunk in self.chunks]
        tokens: list[int | None] = []
        previous = 0
        for chunk in self.chunks:
            count = chunk.running_tokens
            tokens.append(None if count is None else count - previous)
            previous = count or previous
        return tokens

    def _count_usage(self, usage: dict[str, Any]) -> int | None:
        """Return the output tokens of a usage; None if it has no count.

        xAI counts reasoning beside `completion_tokens`, and only its total includes both
        (inspect_ai, issue 5528). Tokens that never came are no part of the answer's times.
        """
        count = count_or_none(usage.get("completion_tokens"))
        prompt = count_or_none(usage.get("prompt_tokens"))
        details = usage.get("completion_tokens_details")
        fields = details if isinstance(details, dict) else {}
        reasoning = count_or_none(fields.get("reasoning_tokens"))
        if not self.writes_reasoning or count is None or reasoning is None or prompt is None:
            return count
        is_beside = usage.get("total_tokens") == prompt + count + reasoning
        return count + reasoning if is_beside else count

    def _read_message(self, at_s: float, data: bytes) -> None:
        fields = read_event(data)
        self._check_model(fields.get("model"))
        choices = fields.get("choices")
        usage = fields.get("usage")
        if not isinstance(choices, list) and not isinstance(usage, dict):
            self._skip_event(data, fields)
            return

        usage_fields = usage if isinstance(usage, dict) else {}
        self.usage |= {key: value for key, value in usage_fields.items() if value is not None}
        entries = choices if isinstance(choices, list) else []
        own_choices = [choice for choice in entries if isinstance(choice, dict)]
        if own_choices:
            self._read_choices(at_s, own_choices, usage_fields)
        else:
            self.chunks.append(_ChunkParts(at_s, "usage"))

    def _read_choices(
        self, at_s: float, choices: list[dict[str, Any]], usage: dict[str, Any]
    ) -> None:
        """Read an event's choices: one is asked for; another is not of the answer, but named."""
        if self.choice_index is None:
            self.choice_index = choices[0].get("index") or 0
        written = ChoiceOutput()
        own_choices = []
        for choice in choices:
            self._check_end(choice)
            output = read_output(choice, repeats_message=self.writes_deltas)
            self._note_unknown_parts(output.unknown_parts)
            if (choice.get("index") or 0) == self.choice_index:
                own_choices.append(choice)
                written.add(output)
                self.writes_deltas |= isinstance(choice.get("delta"), dict) and bool(output)
            elif output:
                self._note_unknown_parts(["a second choice"])

        self.writes_reasoning |= bool(written.reasoning)
        self.writes_after_end |= self.finish_reason is not None and bool(written)
        self.outputs.append(written)
        reasons = [read_finish_reason(choice.get("finish_reason")) for choice in own_choices]
        finish = next((reason for reason in reversed(reasons) if reason), None)
        self.finish_reason = finish or self.finish_reason
        self.logprobs += [choice["logprobs"] for choice in own_choices if choice.get("logprobs")]
        self.chunks.append(
            _ChunkParts(
                at_s=at_s,
                kind=written.kind or _find_other_kind(own_choices, finish),
                running_tokens=self._count_usage(usage),
                id_count=self._add_ids(own_choices),
            )
        )

    def _add_ids(self, choices: list[dict[str, Any]]) -> int | None:
        """Keep the token ids of an event, if each of its choices has some; return how many."""
        ids = [_read_token_ids(choice) for choice in choices]
        if None in ids:
            return None
        event_ids = list(chain.from_iterable(filter(None, ids)))
        self.ids += event_ids
        return len(event_ids)

    def _check_end(self, choice: dict[str, Any]) -> None:
        """Keep a fault if the choice reports an error, or ends as no complete answer does."""
        reason = choice.get("finish_reason")
        error = find_error({"error": choice.get("error")})
        if error is None and isinstance(reason, dict):
            error = reason.get("message")
        words = "" if error is None else describe_error(error)
        word = read_finish_reason(reason)
        if word is not None and not is_good_end(word):
            detail = f"the server broke the answer off with finish_reason {word[:80]}"
            self.fail(EventError("api_error", f"{detail}: {words}" if words else detail))
        elif words:
            self.fail(EventError("api_error", words))

    def _read_unframed(self, lines: bytes) -> None:
        """Read what stands outside of the events: an error in JSON is one, other text may be."""
        is_json = False
        all_lines = lines.splitlines()
        first_lines = [line for line in all_lines[:MAX_STRAY_LINES] if line[:1] in {b"{", b"["}]
        for block in (lines, *first_lines):
            with contextlib.suppress(EventError):
                error = find_error(decode_event(block))
                is_json = True
                if error is not None:
                    self.fail(EventError("api_error", describe_error(error)))
        if not is_json:
            stray_lines = [line for line in all_lines if not FIELD_LINE.match(line)]
            self.stray_text = self.stray_text or b"".join(stray_lines[:1])

    def _skip_event(self, data: bytes, fields: dict[str, Any]) -> None:
        """Skip an event that is no part of an answer, such as a ping; name it if it holds text."""
        self.skipped_event = self.skipped_event or data
        output = read_output({"delta": fields})
        if output or output.unknown_parts:
            type_text = f" of type {fields['type']}" if fields.get("type") else ""
            self._note_unknown_parts([f"an event{type_text} without choices"])
            self.stray_text = self.stray_text or data

    def _note_unknown_parts(self, names: Iterable[str]) -> None:
        """Keep the names of the first few unknown parts; a server chooses their number."""
        for name in names:
            if len(self.unknown_parts) < MAX_UNKNOWN_PARTS:
                self.unknown_parts.add(name[:MAX_PART_NAME])

    def _check_model(self, name: Any) -> None:
        if self.model is not None or not isinstance(name, str) or not name:
            return
        self.model = name
        if self.models and not names_model(name, self.models):
            names = " or ".join(sorted(self.models))
            detail = f"the server answers as {name}, not as {names}"
            self.fail(EventError("wrong_model", detail))


def _find_other_kind(choices: list[dict[str, Any]], finish: str | None) -> ChunkKind | None:
    """Return the kind of an event without output; None if it has neither an end nor a role."""
    if finish:
        return "end"
    deltas = [choice.get("delta") for choice in choices]
    has_role = any(isinstance(delta, dict) and delta.get("role") for delta in deltas)
    return "role" if has_role else None


def _read_token_ids(choice: dict[str, Any]) -> list[int] | None:
    """Return the token ids of a choice; None if it has none, or some are no ids."""
    ids = choice.get("token_ids")
    if not isinstance(ids, list) or any(count_or_none(token_id) is None for token_id in ids):
        return None
    return list(map(int, ids))
