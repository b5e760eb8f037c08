"""A request's body, as vLLM reads it, or the error with which vLLM refuses it.

Invariant: what vLLM accepts and the simulator does not know is passed over, as there; what the simulator cannot do
(more than one choice, several prompts at once) is refused, never half done.

Source of statuses and fields: vllm 0.9.1 and 0.32.0, entrypoints/openai (protocol, serving and exception handlers).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from tandem.simulator.settings import SimulatorSettings
from tandem.simulator.text_generator import split_pieces

ApiName = Literal["chat", "completions"]

COMPLETIONS_MAX_TOKENS = 16  # vLLM's default of /v1/completions; chat's is all the room there is
_ROLE_TOKENS = 4  # of the chat template, each message; the simulator's own template
_EMPTY_THOUGHT_TOKENS = 4  # tokens of an empty thought, which a template writes where thinking is off (Qwen3)


@dataclass(eq=False)
class VllmApiError(Exception):
    """vLLM answers this with an error.

    Args:
        message: what it says.
        status: HTTP's.
        kind: vLLM's word for it.
        param: the field at fault.
        retry_after_s: of its header.
    """

    message: str
    status: int = 400
    kind: str = "BadRequestError"
    param: str | None = None
    retry_after_s: int | None = None


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


class _RequestBody(msgspec.Struct):
    """The fields of a body that mean something here; a null is as good as a field left out."""

    model: str | None = None
    messages: list[dict[str, Any]] | None = None
    prompt: str | list[str] | None = None
    n: int | None = None
    best_of: int | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    ignore_eos: bool | None = None
    return_token_ids: bool | None = None
    logprobs: bool | int | None = None
    top_logprobs: int | None = None
    chat_template_kwargs: dict[str, Any] | None = None


def read_generation_request(body: bytes, api: ApiName, settings: SimulatorSettings) -> GenerationRequest:
    """Read a request.

    Raises:
        VllmApiError: it cannot be answered.
    """
    try:
        fields = msgspec.json.decode(body, type=_RequestBody)
    except msgspec.DecodeError as error:  # of which a ValidationError is one
        text = f"{error}" if isinstance(error, msgspec.ValidationError) else f"JSON decode error: {error}"
        raise VllmApiError(f"1 validation error: {text}", kind="Bad Request") from None
    model, is_chat = fields.model or settings.model, api == "chat"
    if model != settings.model:
        message = f"The model `{model}` does not exist. Valid aliases: {settings.model}."
        raise VllmApiError(message, status=404, kind="NotFoundError", param="model")
    if (fields.n or 1) != 1 or (fields.best_of or 1) != 1:
        raise VllmApiError("the simulator gives one choice: n must be 1", param="n")
    options = fields.stream_options or {}
    if options and not fields.stream:
        raise VllmApiError("Stream options can only be defined when `stream=True`.", param="stream_options")
    thinking = is_chat and bool((fields.chat_template_kwargs or {}).get("enable_thinking", settings.thinking))
    text, prompt_pieces = _read_prompt(fields, is_chat=is_chat, thinking=thinking)
    max_tokens = fields.max_tokens if is_chat or fields.max_tokens is not None else COMPLETIONS_MAX_TOKENS
    if is_chat and fields.max_completion_tokens is not None:
        max_tokens = fields.max_completion_tokens
    include_usage = bool(options.get("include_usage"))
    logprobs = (fields.top_logprobs or 0) if is_chat and fields.logprobs else fields.logprobs
    generation_request = GenerationRequest(
        api=api,
        model=model,
        text=text,
        prompt_pieces=tuple(prompt_pieces),
        max_tokens=max_tokens,
        temperature=1.0 if fields.temperature is None else fields.temperature,
        seed=fields.seed,
        stop=(fields.stop,) if isinstance(fields.stop, str) else tuple(fields.stop or ()),
        ignore_eos=bool(fields.ignore_eos),
        thinking=thinking,
        stream=bool(fields.stream),
        include_usage=include_usage,
        include_continuous_usage=include_usage and bool(options.get("continuous_usage_stats")),
        return_token_ids=bool(fields.return_token_ids) and settings.runtime != "nxdi-v0",
        logprobs=None if logprobs is None or logprobs is False else int(logprobs),
    )
    _check_limits(generation_request, settings.max_model_len)
    return generation_request


def _read_prompt(fields: _RequestBody, *, is_chat: bool, thinking: bool) -> tuple[str, list[str]]:
    """Return the prompt as one text, and its tokens with those of the chat template."""
    if is_chat:
        if not fields.messages:
            message = "1 validation error: messages: a list of messages is expected"
            raise VllmApiError(message, kind="Bad Request", param="messages")
        texts = [_read_message(message) for message in fields.messages]
        pieces = [piece for text in texts for piece in split_pieces(text)]
        pieces += ["<role>"] * _ROLE_TOKENS * (len(texts) + 1)
        return "\n".join(texts), pieces + ["<thought>"] * (0 if thinking else _EMPTY_THOUGHT_TOKENS)
    prompt = fields.prompt
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str):
        raise VllmApiError("1 validation error: prompt: one text is expected", kind="Bad Request", param="prompt")
    return prompt, split_pieces(prompt) or [""]


def _read_message(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _check_limits(request: GenerationRequest, max_length: int) -> None:
    max_tokens, temperature, prompt_tokens = request.max_tokens, request.temperature, request.prompt_tokens
    output_tokens = max_tokens or 1
    total = prompt_tokens + output_tokens
    if not all(request.stop):
        raise VllmApiError("1 validation error: stop: texts are expected", kind="Bad Request", param="stop")
    parts = f"({prompt_tokens} in the prompt, {output_tokens} in the completion)"
    length_text = (
        f"This model's maximum context length is {max_length} tokens. However, you requested {total} tokens {parts}. "
        "Please reduce the length of the prompt or the completion."
    )
    too_many_text = f"max_tokens={max_tokens} cannot be greater than max_model_len={max_length}."
    for is_refused, param, message in (
        (max_tokens is not None and max_tokens < 1, "max_tokens", f"max_tokens must be at least 1, got {max_tokens}."),
        (temperature < 0, "temperature", f"temperature must be non-negative, got {temperature}."),
        (output_tokens > max_length, "max_tokens", too_many_text),
        (total > max_length, "input_tokens", length_text),
    ):
        if is_refused:
            raise VllmApiError(message, param=param)
