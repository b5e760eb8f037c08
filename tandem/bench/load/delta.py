"""The output in one choice of an event: text, reasoning, and arguments of tools.

Invariant: whatever a model wrote is found, in whichever part a server puts it, or its part is
named. An output that is lost would have no time: its first token would seem to come later, or
never.

Sources of the parts, read in November 2026: openai-python, types/chat/chat_completion_chunk.py
(content, refusal, tool_calls, function_call); vllm, entrypoints/openai protocol (reasoning,
formerly reasoning_content); sglang, srt/entrypoints/openai/protocol.py (parts of type thinking or
reasoning); ollama, openai/openai.go (reasoning); Mistral's parts of type thinking; litellm's
thinking_blocks; OpenRouter's reasoning_details; ai-gateway PR 1222 (reasoning_content as an object
with text); Bedrock's reasoningText; OpenAI's audio (transcript). Silent: Gemini's extra_content
(thought_signature); vllm's routed_experts; the channel of gpt-oss.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tandem.bench.load.event import encode_raw
from tandem.bench.records.record import ChunkKind

_REASONING_FIELDS = (
    "reasoning_content",
    "reasoning",
    "thinking",
    "reasoning_text",
    "thought",
    "thinking_blocks",
    "reasoning_details",
)
"""Fields of reasoning, the one that counts first: some gateways send the same text in two of
them."""

_TEXT_FIELDS = ("content", "text", "refusal", "output_text", "audio")
_CALL_FIELDS = ("tool_calls", "function_call")
_TEXT_KEYS = (
    "text",
    "content",
    "thinking",
    "reasoning",
    "reasoning_content",
    "reasoning_text",
    "reasoningText",
    "reasoningContent",
    "summary",
    "refusal",
    "output_text",
    "transcript",
    "value",
)
"""Keys of an object or a part under which its text stands."""

_CALL_KEYS = ("name", "arguments", "input", "parameters")
_CALL_PARTS = ("function", "custom")
_SILENT_KEYS = frozenset(
    {
        "role",
        "id",
        "index",
        "type",
        "object",
        "name",
        "signature",
        "data",
        "url",
        "format",
        "mime_type",
        "status",
        "created",
        "finish_reason",
        "native_finish_reason",
        "stop_reason",
        "matched_stop",
        "logprobs",
        "token_ids",
        "prompt_token_ids",
        "prompt_logprobs",
        "content_filter_results",
        "content_filter_offsets",
        "finish_details",
        "provider_specific_fields",
        "annotations",
        "expires_at",
        "encrypted_content",
        "redactedContent",
        "reasoning_signature",
        "thinking_signature",
        "reasoning_opaque",
        "error",
        "function",
        "custom",
        "model",
        "system_fingerprint",
        "service_tier",
        "provider",
        "extra_content",
        "routed_experts",
        "channel",
    }
)
"""Keys that hold no output of the model, or whose output is read elsewhere."""

_KNOWN_CHOICE_KEYS = _SILENT_KEYS | {"delta", "message", "text"}
_MAX_DEPTH = 8  # deepest nesting of a part; a deeper one is no output of any server here


@dataclass(slots=True)
class ChoiceOutput:
    """What the model wrote in one choice of an event.

    Args:
        text: content, refusal and transcript.
        reasoning: as the server separates it.
        tool_calls: names and arguments of tools and functions, joined.
        unknown_parts: names of parts that hold text and are none of the known ones.
    """

    text: str = ""
    reasoning: str = ""
    tool_calls: str = ""
    unknown_parts: list[str] = field(default_factory=list)

    @property
    def kind(self) -> ChunkKind | None:
        """The kind of a chunk with this output; None if the model wrote nothing."""
        if self.text:
            return "text"
        if self.reasoning:
            return "reasoning"
        return "tool" if self.tool_calls else None

    def add(self, output: ChoiceOutput) -> None:
        """Append what another choice of the same event holds."""
        self.text += output.text
        self.reasoning += output.reasoning
        self.tool_calls += output.tool_calls

    def __bool__(self) -> bool:
        """Return whether the model wrote anything in a known part."""
        return bool(self.text or self.reasoning or self.tool_calls)


def read_output(choice: dict[str, Any], *, repeats_message: bool = False) -> ChoiceOutput:
    """Return what the model wrote in `choice`; never raises, whatever the choice holds.

    Args:
        choice: of an event.
        repeats_message: whether a `message` in place of a delta repeats what came in deltas.
            MiniMax ends its streams so (OpenBitFun PR 792). Beside a delta it always does
            (Perplexity).
    """
    output = ChoiceOutput()
    delta = choice.get("delta")
    if not isinstance(delta, dict) and not repeats_message:
        delta = choice.get("message")
    if isinstance(delta, dict):
        _read_delta(delta, output)
    if not output.text:
        _read_content(choice.get("text"), output)
    output.unknown_parts += [
        name
        for name, value in choice.items()
        if value and name not in _KNOWN_CHOICE_KEYS and _has_text(value)
    ]
    return output


def _read_delta(delta: dict[str, Any], output: ChoiceOutput) -> None:
    reasonings: dict[str, Any] = {}
    for name, value in delta.items():
        if not value or name in _SILENT_KEYS:
            continue  # most fields of most chunks
        if name in _TEXT_FIELDS:
            _read_content(value, output, where=name)
        elif name in _REASONING_FIELDS:
            reasonings[name] = value
        elif name in _CALL_FIELDS:
            output.tool_calls += "".join(_list_calls(value))
        elif _has_text(value):
            output.unknown_parts.append(f"delta.{name}")
    for name in _REASONING_FIELDS if reasonings else ():
        reasoning = _join_texts(reasonings.get(name))
        if reasoning:
            output.reasoning += reasoning
            break
        if _has_text(reasonings.get(name)):
            output.unknown_parts.append(f"delta.{name}")


def _read_content(content: Any, output: ChoiceOutput, *, where: str = "content") -> None:
    """Add a text, a part, or a list of parts."""
    if isinstance(content, str):
        output.text += content
        return
    parts = content if isinstance(content, list) else [content]
    for part in parts:
        if not isinstance(part, dict):
            output.text += part if isinstance(part, str) else ""
            continue
        type_ = str(part.get("type", ""))
        is_reasoning = any(word in type_ for word in ("think", "reason")) or any(
            name in part for name in _REASONING_FIELDS
        )
        text = _join_texts(part)
        calls = "".join(_list_calls(part))
        if text and is_reasoning:
            output.reasoning += text
        elif text:
            output.text += text
        elif calls:
            output.tool_calls += calls
        elif _has_text(part):
            output.unknown_parts.append(f"{where} of type {type_ or 'none'}")


def _join_texts(value: Any, depth: int = 0) -> str:
    """Return the text of a part: a string, an object with text, or a list of these."""
    if isinstance(value, str):
        return value
    if depth > _MAX_DEPTH:
        return ""
    if isinstance(value, list):
        return "".join(_join_texts(item, depth + 1) for item in value)
    if isinstance(value, dict):
        return "".join(_join_texts(value.get(key), depth + 1) for key in _TEXT_KEYS)
    return ""


def _list_calls(calls: Any) -> Iterator[str]:
    """Yield names and arguments of calls, as they come."""
    for call in calls if isinstance(calls, list) else [calls]:
        if not isinstance(call, dict):
            continue
        parts = [call[name] for name in _CALL_PARTS if isinstance(call.get(name), dict)]
        for part in parts or [call]:
            for key in _CALL_KEYS:
                value = part.get(key)
                if isinstance(value, str):
                    yield value
                elif value:
                    yield bytes(encode_raw(value)).decode()


def _has_text(value: Any, depth: int = 0) -> bool:
    """Return whether a value holds any text outside the silent keys."""
    if isinstance(value, str):
        return bool(value)
    if depth > _MAX_DEPTH:
        return False
    if isinstance(value, list):
        return any(_has_text(item, depth + 1) for item in value)
    if isinstance(value, dict):
        return any(
            name not in _SILENT_KEYS and _has_text(item, depth + 1) for name, item in value.items()
        )
    return False
