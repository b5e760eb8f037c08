"""A request's body, as vLLM reads it, or the error with which vLLM refuses it.

Invariant: what vLLM accepts and the simulator does not know is passed over, as there; what the simulator cannot do
(more than one choice, several prompts at once) is refused, never half done.

Source of statuses and fields: vllm 0.9.1 and 0.32.0, entrypoints/openai (protocol, serving and exception handlers).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from tandem.simulator.settings import SimulatorSettings
from tandem.simulator.tokenizer import split_pieces

ApiName = Literal["chat", "completions"]

COMPLETIONS_MAX_TOKENS = 16  # vLLM's default of /v1/completions; chat's is all the room there is
_ROLE_TOKENS = 4  # of the chat template, each message; the simulator's own template
_EMPTY_THOUGHT_TOKENS = 4  # tokens of an empty thought, which a template writes where thinking is off (Qwen3)


class VllmApiError(Exception):
    """vLLM answers this with an error.

    Args:
        status: HTTP's. kind: vLLM's word for it. param: the field at fault. retry_after_s: of its header.
    """

    def __init__(
        self, message: str, *, status: int = 400, kind: str = "BadRequestError", param: str = "",
        retry_after_s: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.message, self.status, self.kind, self.param = message, status, kind, param or None
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One request that can be answered.

    Args:
        text: the prompt as one text, roles left out. prompt_pieces: its tokens, with those of the chat template.
        max_tokens: None for as many as there is room. temperature: 0 for greedy. seed: None for none.
        logprobs: None for none, else how many alternatives of each token.
        include_usage, include_continuous_usage: whether asked for at the end, with each chunk.
    """

    api: ApiName
    model: str
    text: str
    prompt_pieces: tuple[str, ...]
    max_tokens: int | None
    temperature: float
    seed: int | None
    stop: tuple[str, ...]
    ignore_eos: bool
    thinking: bool
    stream: bool
    include_usage: bool
    include_continuous_usage: bool
    return_token_ids: bool
    logprobs: int | None

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return len(self.prompt_pieces)


def read_generation_request(body: bytes, api: ApiName, settings: SimulatorSettings) -> GenerationRequest:
    """Read a request.

    Raises:
        RefusedError: it cannot be answered.
    """
    fields = _parse_body(body)
    model = fields.get("model") or settings.model
    if model != settings.model:
        message = f"The model `{model}` does not exist. Valid aliases: {settings.model}."
        raise VllmApiError(message, status=404, kind="NotFoundError", param="model")
    if _read_number(fields, "n", int, 1) != 1 or _read_number(fields, "best_of", int, 1) != 1:
        raise VllmApiError("the simulator gives one choice: n must be 1", param="n")
    options = fields.get("stream_options") or {}
    if options and not fields.get("stream"):
        raise VllmApiError("Stream options can only be defined when `stream=True`.", param="stream_options")
    thinking = (
        bool((fields.get("chat_template_kwargs") or {}).get("enable_thinking", settings.thinking)) and api == "chat"
    )
    text, prompt_pieces = _read_chat_prompt(fields, thinking=thinking) if api == "chat" else _read_plain_prompt(fields)
    include_usage = bool(options.get("include_usage"))
    generation_request = GenerationRequest(
        api=api,
        model=str(model),
        text=text,
        prompt_pieces=tuple(prompt_pieces),
        max_tokens=_read_max_tokens(fields, api),
        temperature=float(_read_number(fields, "temperature", float, 1.0)),
        seed=_read_number(fields, "seed", int, None),
        stop=_read_stop_strings(fields),
        ignore_eos=bool(fields.get("ignore_eos")),
        thinking=thinking,
        stream=bool(fields.get("stream")),
        include_usage=include_usage,
        include_continuous_usage=include_usage and bool(options.get("continuous_usage_stats")),
        return_token_ids=bool(fields.get("return_token_ids")) and settings.runtime != "nxdi-v0",
        logprobs=_read_logprobs(fields, api),
    )
    _check_limits(generation_request, settings)
    return generation_request


def _parse_body(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except ValueError as error:
        raise VllmApiError(f"1 validation error: JSON decode error: {error}", kind="Bad Request") from None
    if not isinstance(fields, dict):
        raise VllmApiError("1 validation error: the body is no JSON object", kind="Bad Request")
    return fields


def _read_number(fields: dict[str, Any], name: str, number_type: type, default: Any) -> Any:
    value = fields.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | number_type):
        raise VllmApiError(f"1 validation error: {name}: {value!r} is no number", kind="Bad Request", param=name)
    return value


def _read_max_tokens(fields: dict[str, Any], api: ApiName) -> int | None:
    completion_limit = _read_number(fields, "max_completion_tokens", int, None) if api == "chat" else None
    default = None if api == "chat" else COMPLETIONS_MAX_TOKENS
    max_tokens: int | None = (
        completion_limit if completion_limit is not None else _read_number(fields, "max_tokens", int, default)
    )
    if max_tokens is not None and max_tokens < 1:
        raise VllmApiError(f"max_tokens must be at least 1, got {max_tokens}.", param="max_tokens")
    return max_tokens


def _read_stop_strings(fields: dict[str, Any]) -> tuple[str, ...]:
    stop = fields.get("stop") or []
    stops = [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or not all(isinstance(text, str) and text for text in stops):
        raise VllmApiError("1 validation error: stop: texts are expected", kind="Bad Request", param="stop")
    return tuple(stops)


def _read_logprobs(fields: dict[str, Any], api: ApiName) -> int | None:
    if api == "completions":
        count: int | None = _read_number(fields, "logprobs", int, None)
        return count
    return int(_read_number(fields, "top_logprobs", int, 0)) if fields.get("logprobs") else None


def _read_chat_prompt(fields: dict[str, Any], *, thinking: bool) -> tuple[str, list[str]]:
    messages = fields.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(item, dict) for item in messages):
        raise VllmApiError("1 validation error: messages: a list of messages is expected", kind="Bad Request",
                           param="messages")  # fmt: skip
    texts = [_message_text(message) for message in messages]
    prompt_pieces = [piece for text in texts for piece in split_pieces(text)]
    prompt_pieces += ["<role>"] * _ROLE_TOKENS * (len(messages) + 1) + ["<thought>"] * (
        0 if thinking else _EMPTY_THOUGHT_TOKENS
    )
    return "\n".join(texts), prompt_pieces


def _message_text(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _read_plain_prompt(fields: dict[str, Any]) -> tuple[str, list[str]]:
    prompt = fields.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str):
        raise VllmApiError("1 validation error: prompt: one text is expected", kind="Bad Request", param="prompt")
    return prompt, split_pieces(prompt) or [""]


def _check_limits(generation_request: GenerationRequest, settings: SimulatorSettings) -> None:
    if generation_request.temperature < 0:
        raise VllmApiError(
            f"temperature must be non-negative, got {generation_request.temperature}.", param="temperature"
        )
    if (generation_request.max_tokens or 1) > settings.max_model_len:
        message = (
            f"max_tokens={generation_request.max_tokens} cannot be greater than max_model_len={settings.max_model_len}."
        )
        raise VllmApiError(message, param="max_tokens")
    total_tokens = generation_request.prompt_tokens + (generation_request.max_tokens or 1)
    if total_tokens > settings.max_model_len:
        raise VllmApiError(
            f"This model's maximum context length is {settings.max_model_len} tokens. However, you requested "
            f"{total_tokens} tokens ({generation_request.prompt_tokens} in the prompt, "
            f"{generation_request.max_tokens or 1} in the completion). "
            "Please reduce the length of the prompt or the completion.",
            param="input_tokens",
        )
