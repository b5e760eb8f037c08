"""How an answer may end: the finish reasons that servers of this API give to a complete answer.

Invariant: an answer is complete only by a word of this table. Any other word is a failed answer: a
server that dies, is out of memory or gives up says so in a word of its own, and such an answer is
shorter, so it would look faster.

A word is compared without its case. `abort` and `error` of vLLM and SGLang, `timeout` and
`cancelled` of TensorRT-LLM, `insufficient_system_resource` of DeepSeek and the like are left out on
purpose.

All sources were read on 2026-11-28; the date or the commit is the source's own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

_OPENAI = "openai-python, types/chat/chat_completion_chunk.py, 2026-08-21"
_VLLM = "vllm 0.32.0, v1/engine/__init__.py FINISH_REASON_STRINGS"
_SGLANG = "sglang 004c82e0, srt/managers/schedule_batch.py FINISH_* and srt/entrypoints/openai"
_TGI = "text-generation-inference, router/src/lib.rs FinishReason, 2026-01-08"
_LLAMA = "llama.cpp 00efb3e1, tools/server/server-task.cpp to_json_oaicompat_chat_stream"
_OLLAMA = "ollama, llm/server.go DoneReason and openai/openai.go FinishChunk, 2026-08-21"
_MISTRAL = "Mistral API, ChatCompletionChoice.finish_reason, specification 1.0.0"
_TOGETHER = "together-python 0c625ea3, types/common.py FinishReason"
_ANTHROPIC = "Anthropic Messages API, stop_reason, as gateways pass it on"
_BEDROCK = "Amazon Bedrock API, Converse stopReason, as gateways pass it on"
_ZAI = (
    "Z.ai API, finish_reason of chat/completions (its network_error is left out); opencode PR 18814"
)
_COHERE = (
    "Cohere API, finish_reason COMPLETE, as gateways pass it on; ferro-labs/ai-gateway issue 142"
)
_GATEWAYS = "local servers and gateways, pi issue 2107, 2026-03-13"


class FinishWord(NamedTuple):
    """One word of a complete answer.

    Args:
        is_limit: whether the answer ended because it was as long as allowed.
        sources: which servers give it, and where that stands.
    """

    is_limit: bool
    sources: tuple[str, ...]


GOOD_ENDS: dict[str, FinishWord] = {
    "stop": FinishWord(
        is_limit=False, sources=(_OPENAI, _VLLM, _SGLANG, _TGI, _LLAMA, _OLLAMA, _MISTRAL)
    ),
    "length": FinishWord(
        is_limit=True, sources=(_OPENAI, _VLLM, _SGLANG, _TGI, _LLAMA, _OLLAMA, _MISTRAL)
    ),
    "tool_calls": FinishWord(
        is_limit=False, sources=(_OPENAI, _VLLM, _SGLANG, _LLAMA, _OLLAMA, _MISTRAL)
    ),
    "function_call": FinishWord(is_limit=False, sources=(_OPENAI,)),
    "content_filter": FinishWord(is_limit=False, sources=(_OPENAI,)),
    "repetition": FinishWord(is_limit=False, sources=(_VLLM,)),
    "eos_token": FinishWord(is_limit=False, sources=(_TGI,)),
    "stop_sequence": FinishWord(is_limit=False, sources=(_TGI, _ANTHROPIC)),
    "eos": FinishWord(is_limit=False, sources=(_TOGETHER,)),
    "model_length": FinishWord(is_limit=True, sources=(_MISTRAL,)),
    "end_turn": FinishWord(is_limit=False, sources=(_ANTHROPIC,)),
    "max_tokens": FinishWord(is_limit=True, sources=(_ANTHROPIC,)),
    "tool_use": FinishWord(is_limit=False, sources=(_ANTHROPIC,)),
    "refusal": FinishWord(is_limit=False, sources=(_ANTHROPIC,)),
    "model_context_window_exceeded": FinishWord(
        is_limit=True, sources=(_ANTHROPIC, _BEDROCK, _ZAI)
    ),
    "content_filtered": FinishWord(is_limit=False, sources=(_BEDROCK,)),
    "guardrail_intervened": FinishWord(is_limit=False, sources=(_BEDROCK,)),
    "sensitive": FinishWord(is_limit=False, sources=(_ZAI,)),
    "complete": FinishWord(is_limit=False, sources=(_COHERE,)),
    "end": FinishWord(is_limit=False, sources=(_GATEWAYS,)),
}
"""Every finish reason of a complete answer."""

_NO_END = frozenset({"", "null", "none"})
"""Texts that stand for the absent reason of a chunk before the last: text-generation-inference
sends an empty text in each chunk of /v1/completions, and some gateways write null as a text."""


def read_finish_reason(value: Any) -> str | None:
    """Return the word of a chunk's `finish_reason`; None if the chunk does not end the answer.

    Args:
        value: a text; or an object with `type`, as SGLang's own API has it; or None.
    """
    if isinstance(value, dict):
        value = value.get("type")
    if value is None:
        return None
    text = value if isinstance(value, str) else repr(value)
    return None if text.strip().casefold() in _NO_END else text


def is_good_end(word: str) -> bool:
    """Return whether an answer with this finish reason is complete."""
    return word.strip().casefold() in GOOD_ENDS


def is_limit_end(word: str | None) -> bool:
    """Return whether an answer ended because it was as long as allowed."""
    good_end = GOOD_ENDS.get((word or "").strip().casefold())
    return good_end is not None and good_end.is_limit
