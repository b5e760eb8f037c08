"""A request's body, as vLLM reads it, or the error with which vLLM refuses it.

Invariant: what vLLM accepts and the twin does not know is passed over, as there; what the twin cannot do (more than one
choice, several prompts at once) is refused, never half done.

Source of statuses and fields: vllm 0.9.1 and 0.32.0, entrypoints/openai (protocol, serving and exception handlers).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from tandem.twin.server.knobs import Knobs
from tandem.twin.server.tokens import pieces

Api = Literal["chat", "completions"]

COMPLETIONS_MAX_TOKENS = 16  # vLLM's default of /v1/completions; chat's is all the room there is
_ROLE_TOKENS = 4  # of the chat template, each message; the twin's own template
_BARE_THOUGHT = 4  # tokens of an empty thought, which a template writes where thinking is off (Qwen3)


class RefusedError(Exception):
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
class Ask:
    """One request that can be answered.

    Args:
        text: the prompt as one text, roles left out. prompt_pieces: its tokens, with those of the chat template.
        max_tokens: None for as many as there is room. temperature: 0 for greedy. seed: None for none.
        logprobs: None for none, else how many alternatives of each token.
        usage, continuous_usage: whether asked for at the end, with each chunk.
    """

    api: Api
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
    usage: bool
    continuous_usage: bool
    token_ids: bool
    logprobs: int | None

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return len(self.prompt_pieces)


def read_ask(body: bytes, api: Api, knobs: Knobs) -> Ask:
    """Read a request.

    Raises:
        RefusedError: it cannot be answered.
    """
    said = _mapping(body)
    model = said.get("model") or knobs.model
    if model != knobs.model:
        message = f"The model `{model}` does not exist. Valid aliases: {knobs.model}."
        raise RefusedError(message, status=404, kind="NotFoundError", param="model")
    if _number(said, "n", int, 1) != 1 or _number(said, "best_of", int, 1) != 1:
        raise RefusedError("the twin gives one choice: n must be 1", param="n")
    options = said.get("stream_options") or {}
    if options and not said.get("stream"):
        raise RefusedError("Stream options can only be defined when `stream=True`.", param="stream_options")
    thinking = bool((said.get("chat_template_kwargs") or {}).get("enable_thinking", knobs.thinking)) and api == "chat"
    text, prompt = _chat_prompt(said, thinking=thinking) if api == "chat" else _plain_prompt(said)
    usage = bool(options.get("include_usage"))
    ask = Ask(
        api=api, model=str(model), text=text, prompt_pieces=tuple(prompt), max_tokens=_max_tokens(said, api),
        temperature=float(_number(said, "temperature", float, 1.0)), seed=_number(said, "seed", int, None),
        stop=_stop(said), ignore_eos=bool(said.get("ignore_eos")), thinking=thinking, stream=bool(said.get("stream")),
        usage=usage, continuous_usage=usage and bool(options.get("continuous_usage_stats")),
        token_ids=bool(said.get("return_token_ids")) and knobs.runtime != "nxdi-v0", logprobs=_logprobs(said, api),
    )  # fmt: skip
    _require_room(ask, knobs)
    return ask


def _mapping(body: bytes) -> dict[str, Any]:
    try:
        said = json.loads(body)
    except ValueError as error:
        raise RefusedError(f"1 validation error: JSON decode error: {error}", kind="Bad Request") from None
    if not isinstance(said, dict):
        raise RefusedError("1 validation error: the body is no JSON object", kind="Bad Request")
    return said


def _number(said: dict[str, Any], name: str, kind: type, default: Any) -> Any:
    value = said.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | kind):
        raise RefusedError(f"1 validation error: {name}: {value!r} is no number", kind="Bad Request", param=name)
    return value


def _max_tokens(said: dict[str, Any], api: Api) -> int | None:
    given = _number(said, "max_completion_tokens", int, None) if api == "chat" else None
    default = None if api == "chat" else COMPLETIONS_MAX_TOKENS
    most: int | None = given if given is not None else _number(said, "max_tokens", int, default)
    if most is not None and most < 1:
        raise RefusedError(f"max_tokens must be at least 1, got {most}.", param="max_tokens")
    return most


def _stop(said: dict[str, Any]) -> tuple[str, ...]:
    stop = said.get("stop") or []
    stops = [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or not all(isinstance(one, str) and one for one in stops):
        raise RefusedError("1 validation error: stop: texts are expected", kind="Bad Request", param="stop")
    return tuple(stops)


def _logprobs(said: dict[str, Any], api: Api) -> int | None:
    if api == "completions":
        given: int | None = _number(said, "logprobs", int, None)
        return given
    return int(_number(said, "top_logprobs", int, 0)) if said.get("logprobs") else None


def _chat_prompt(said: dict[str, Any], *, thinking: bool) -> tuple[str, list[str]]:
    messages = said.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(one, dict) for one in messages):
        raise RefusedError("1 validation error: messages: a list of messages is expected", kind="Bad Request",
                           param="messages")  # fmt: skip
    texts = [_content(message) for message in messages]
    prompt = [piece for text in texts for piece in pieces(text)]
    prompt += ["<role>"] * _ROLE_TOKENS * (len(messages) + 1) + ["<thought>"] * (0 if thinking else _BARE_THOUGHT)
    return "\n".join(texts), prompt


def _content(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _plain_prompt(said: dict[str, Any]) -> tuple[str, list[str]]:
    prompt = said.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str):
        raise RefusedError("1 validation error: prompt: one text is expected", kind="Bad Request", param="prompt")
    return prompt, pieces(prompt) or [""]


def _require_room(ask: Ask, knobs: Knobs) -> None:
    if ask.temperature < 0:
        raise RefusedError(f"temperature must be non-negative, got {ask.temperature}.", param="temperature")
    if (ask.max_tokens or 1) > knobs.max_model_len:
        message = f"max_tokens={ask.max_tokens} cannot be greater than max_model_len={knobs.max_model_len}."
        raise RefusedError(message, param="max_tokens")
    asked = ask.prompt_tokens + (ask.max_tokens or 1)
    if asked > knobs.max_model_len:
        raise RefusedError(
            f"This model's maximum context length is {knobs.max_model_len} tokens. However, you requested "
            f"{asked} tokens ({ask.prompt_tokens} in the prompt, {ask.max_tokens or 1} in the completion). "
            "Please reduce the length of the prompt or the completion.",
            param="input_tokens",
        )
