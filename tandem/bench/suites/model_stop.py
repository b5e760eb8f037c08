"""The content check of an answer, also of one that was forced on past the model's own stop.

Invariant: of a forced answer (`ignore_eos`) only the text before the model's own stop is checked,
since a model that must go on writes anything. Where nothing shows that stop, the answer is not
checked. A stop shows as its token, in the text or among the log-probabilities; an answer that the
server ended before its limit stopped at its end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from tandem.bench.records.finish_reason import is_limit_end
from tandem.bench.records.record import RequestRecord
from tandem.bench.suites.content import ContentWord, check_content
from tandem.bench.suites.prompt import Prompt

STOP_TOKENS: dict[str, str] = {
    "<|im_end|>": "Qwen2 to Qwen3, and other ChatML",
    "<|endoftext|>": "GPT-2, Qwen base models",
    "</s>": "Llama 2, Mistral",
    "<|eot_id|>": "Llama 3",
    "<|eom_id|>": "Llama 3, before a tool's answer",
    "<|end_of_text|>": "Llama 3 base models, Granite",
    "<|eot|>": "Llama 4",
    "<end_of_turn>": "Gemma 2 and 3",
    "<eos>": "Gemma base models",
    "<|end|>": "Phi-3 and 4",
    "<|return|>": "gpt-oss",
    "<\uff5cend\u2581of\u2581sentence\uff5c>": "DeepSeek",
}
"""Tokens by which a model ends its answer (`eos_token_id` of generation_config.json), and whose."""

_STOP = re.compile("|".join(map(re.escape, STOP_TOKENS)))


def check_answer(record: RequestRecord, prompt: Prompt, *, is_forced: bool) -> ContentWord | None:
    """Return the content check's word; None for a failed request or an unknown stop.

    Args:
        record: of the answer.
        prompt: of the answer.
        is_forced: whether the request forbade the model to stop.
    """
    if record.error:
        return None
    text: str | None = record.text
    finish_reason = record.finish_reason
    if is_forced and is_limit_end(finish_reason):
        text = cut_own_stop(record)
        finish_reason = "stop"
    if text is None and _is_empty(record):
        text = ""
    if text is None:
        return None
    return check_content(
        prompt,
        text,
        finish_reason,
        reasoning=record.reasoning,
        tool_calls=record.tool_calls,
    )


def _is_empty(record: RequestRecord) -> bool:
    """Return whether an answer has nothing, wherever the model stopped."""
    return not (record.text.strip() or record.reasoning or record.tool_calls)


def cut_own_stop(record: RequestRecord) -> str | None:
    """Return the text before the model's own stop; None where no stop shows."""
    match = _STOP.search(record.text)
    if match:
        return record.text[: match.start()]
    size = 0
    for token in _list_tokens(msgspec.json.decode(record.logprobs)):
        if token in STOP_TOKENS:
            return record.text[:size]
        size += len(token)
    return None


def _list_tokens(logprobs: Any) -> Iterator[str]:
    """Yield the tokens of log-probabilities, of chat's list or of the columns of completions."""
    entries: Iterable[Any] = ()
    if isinstance(logprobs, list):
        entries = (entry.get("token") for entry in logprobs if isinstance(entry, dict))
    elif isinstance(logprobs, dict) and isinstance(logprobs.get("tokens"), list):
        entries = logprobs["tokens"]
    yield from (entry for entry in entries if isinstance(entry, str))
