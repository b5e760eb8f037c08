"""The meaning of a reply: events, text, tokens, or the one word for what was wrong with it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import msgspec

from tandem.bench.record import NULL, Chunk
from tandem.bench.reply import Reply
from tandem.bench.wire import Ask


@dataclass(frozen=True, slots=True)
class Answer:
    """What a reply held; the fields are the record's of the same name, and go into it as they are."""

    chunks: tuple[Chunk, ...] = ()
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    counted_by: Literal["usage", "token_ids"] | None = None
    text: str = ""
    reasoning: str | None = None
    token_ids: tuple[int, ...] | None = None
    logprobs: msgspec.Raw = NULL
    model: str | None = None
    finish_reason: str | None = None
    error: str | None = None
    error_detail: str | None = None


def read(reply: Reply, ask: Ask, models: Collection[str] = ()) -> Answer:
    """Return what `reply` holds. Pure; never raises for what a server sent.

    Args:
        reply: a reply that has ended.
        ask: what was asked.
        models: names the server may give its model, `Found.models` of the probe; empty: any.
    """
    raise NotImplementedError
