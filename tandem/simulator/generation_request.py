"""A request's body, read as vLLM reads it, or vLLM's error for it.

Invariant: fields that the simulator does not know are ignored, as in vLLM; a request that the
simulator cannot serve (more than one choice, several prompts at once) is refused, never half done.

Source of statuses and fields: vllm 0.9.1 and 0.32.0, entrypoints/openai (protocol, serving and
exception handlers).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from tandem.simulator.settings import SimulatorSettings
from tandem.simulator.text_generator import split_pieces

ApiName = Literal["chat", "completions"]

COMPLETIONS_MAX_TOKENS = 16  # vLLM's default of /v1/completions; for chat it is all remaining room
_ROLE_TOKENS = 4  # tokens for each message, by the simulator's own chat template
# tokens of an empty thought, which a template writes if thinking is off (Qwen3)
_EMPTY_THOUGHT_TOKENS = 4


@dataclass(eq=False)
class VllmApiError(Exception):
    """An error answer of vLLM.

    Args:
        message: text of the error.
        status: HTTP status.
        kind: vLLM's `type` of the error.
        param: the field at fault.
        retry_after_s: seconds in the Retry-After header; None for no header.
    """

    message: str
    status: int = 400
    kind: str = "BadRequestError"
    param: str | None = None
    retry_after_s: int | None = None


class GenerationRequest(msgspec.Struct, kw_only=True):
    """One valid request: the fields of its body that the simulator uses, and derived values.

    Args:
        max_tokens: None for all remaining room.
        temperature: 0 for greedy.
        seed: None for none.
        logprobs: None for none, else the number of alternatives for each token.
        api: of the request.
        text: the prompt as one text, without roles.
        prompt_pieces: tokens of the prompt, with those of the chat template.
    """

    model: str = ""
    messages: list[dict[str, Any]] = []
    prompt: str | list[str] | None = None
    n: int = 1
    best_of: int = 1
    stream: bool = False
    stream_options: dict[str, Any] = {}
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float = 1.0
    seed: int | None = None
    stop: str | list[str] = []
    ignore_eos: bool = False
    return_token_ids: bool = False
    logprobs: bool | int | None = None
    top_logprobs: int = 0
    chat_template_kwargs: dict[str, Any] = {}
    api: ApiName = msgspec.field(name="_api", default="chat")
    text: str = msgspec.field(name="_text", default="")
    prompt_pieces: tuple[str, ...] = msgspec.field(name="_prompt_pieces", default=())
    thinking: bool = msgspec.field(name="_thinking", default=False)

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return len(self.prompt_pieces)

    @property
    def include_usage(self) -> bool:
        """Whether the request wants usage at the end."""
        return bool(self.stream_options.get("include_usage"))

    @property
    def include_continuous_usage(self) -> bool:
        """Whether the request wants usage with each chunk."""
        return self.include_usage and bool(self.stream_options.get("continuous_usage_stats"))


def read_generation_request(
    body: bytes, api: ApiName, settings: SimulatorSettings
) -> GenerationRequest:
    """Read a request; a null in its body counts as an absent field.

    Raises:
        VllmApiError: vLLM or the simulator refuses the request.
    """
    try:
        fields = msgspec.json.decode(body)
        if isinstance(fields, dict):
            fields = {name: value for name, value in fields.items() if value is not None}
        request = msgspec.convert(fields, GenerationRequest)
    except msgspec.ValidationError as error:
        raise VllmApiError(f"1 validation error: {error}", kind="Bad Request") from None
    except msgspec.DecodeError as error:
        text = f"1 validation error: JSON decode error: {error}"
        raise VllmApiError(text, kind="Bad Request") from None
    request.api = api
    request.model = request.model or settings.model
    is_chat = api == "chat"
    if request.model != settings.model:
        message = f"The model `{request.model}` does not exist. Valid aliases: {settings.model}."
        raise VllmApiError(message, status=404, kind="NotFoundError", param="model")
    if (request.n, request.best_of) != (1, 1):
        raise VllmApiError("the simulator gives one choice: n must be 1", param="n")
    if request.stream_options and not request.stream:
        raise VllmApiError(
            "Stream options can only be defined when `stream=True`.", param="stream_options"
        )
    request.thinking = is_chat and bool(
        request.chat_template_kwargs.get("enable_thinking", settings.thinking)
    )
    request.text, pieces = _read_prompt(request)
    request.prompt_pieces = tuple(pieces)
    if is_chat and request.max_completion_tokens is not None:
        request.max_tokens = request.max_completion_tokens
    elif not is_chat and request.max_tokens is None:
        request.max_tokens = COMPLETIONS_MAX_TOKENS
    request.stop = [request.stop] if isinstance(request.stop, str) else request.stop
    request.return_token_ids &= settings.runtime != "nxdi-v0"
    logprobs = request.top_logprobs if is_chat and request.logprobs else request.logprobs
    request.logprobs = None if logprobs is None or logprobs is False else int(logprobs)
    _check_limits(request, settings.max_model_len)
    return request


def _read_prompt(request: GenerationRequest) -> tuple[str, list[str]]:
    """Return the prompt as one text, and its tokens with those of the chat template."""
    if request.api == "chat":
        if not request.messages:
            message = "1 validation error: messages: a list of messages is expected"
            raise VllmApiError(message, kind="Bad Request", param="messages")
        texts = [_read_message(message) for message in request.messages]
        pieces = []
        for text in texts:
            pieces += split_pieces(text)
        pieces += ["<role>"] * _ROLE_TOKENS * (len(texts) + 1)
        if not request.thinking:
            pieces += ["<thought>"] * _EMPTY_THOUGHT_TOKENS
        return "\n".join(texts), pieces
    prompt = request.prompt
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str):
        raise VllmApiError(
            "1 validation error: prompt: one text is expected", kind="Bad Request", param="prompt"
        )
    return prompt, split_pieces(prompt) or [""]


def _read_message(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _check_limits(request: GenerationRequest, max_length: int) -> None:
    max_tokens = request.max_tokens
    temperature = request.temperature
    prompt_tokens = request.prompt_tokens
    output_tokens = max_tokens or 1
    total = prompt_tokens + output_tokens
    if not all(request.stop):
        raise VllmApiError(
            "1 validation error: stop: texts are expected", kind="Bad Request", param="stop"
        )
    parts = f"({prompt_tokens} in the prompt, {output_tokens} in the completion)"
    length_text = (
        f"This model's maximum context length is {max_length} tokens. However, you requested"
        f" {total} tokens {parts}. Please reduce the length of the prompt or the completion."
    )
    too_many_text = f"max_tokens={max_tokens} cannot be greater than max_model_len={max_length}."
    for is_refused, param, message in (
        (
            max_tokens is not None and max_tokens < 1,
            "max_tokens",
            f"max_tokens must be at least 1, got {max_tokens}.",
        ),
        (temperature < 0, "temperature", f"temperature must be non-negative, got {temperature}."),
        (output_tokens > max_length, "max_tokens", too_many_text),
        (total > max_length, "input_tokens", length_text),
    ):
        if is_refused:
            raise VllmApiError(message, param=param)
