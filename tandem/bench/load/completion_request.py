"""One request to a server, as sent over the wire.

Invariant: a request uses only extras that the server accepted in the probe; the same request makes
the same bytes, so the bodies for two arms differ only in the model's name and in the fields that
one of the servers refuses, or that the user adds for it or leaves out.

Fields of the body are OpenAI's, and three of vLLM: `stream_options.continuous_usage_stats`,
`return_token_ids`, `chat_template_kwargs`
(vllm/entrypoints/openai/{chat_completion,completion,engine}/protocol.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tandem.bench.plan.run_options import ApiName
from tandem.bench.records.manifest import ServerOffers

NO_OFFERS = ServerOffers()
TOP_LOGPROBS = 2  # alternatives per token
TEMPLATE_FIELD = "chat_template_kwargs"
API_PATHS: dict[ApiName, str] = {"chat": "/chat/completions", "completions": "/completions"}
MODELS_PATH = "/models"
LIMIT_FIELDS: dict[ApiName, tuple[str, ...]] = {
    "chat": ("max_tokens", "max_completion_tokens"),
    "completions": ("max_tokens",),
}
"""Names of the limit of tokens: the first that is not left out is sent."""

SETTING_FIELDS = ("temperature", "seed", TEMPLATE_FIELD)


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """One request.

    Args:
        request_id: sent as X-Request-Id.
        prompt: for the completions API; for the chat API without messages, one user message.
        messages: for the chat API.
        max_tokens: most output tokens.
        temperature: 0.0 is greedy.
        seed: the sampler's; None leaves it out.
        thinking: chat_template_kwargs.enable_thinking; None leaves it out.
        offers: extras to request: those the server accepted and the user wants.
        extra_body: further fields of the body, of this server alone.
        left_out: names of fields that this server is not sent.
    """

    request_id: str
    prompt: str
    messages: tuple[Mapping[str, Any], ...] | None = None
    max_tokens: int = 256
    temperature: float = 0.0
    seed: int | None = None
    thinking: bool | None = None
    offers: ServerOffers = NO_OFFERS
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


def encode_body(request: CompletionRequest, model: str, api: ApiName) -> bytes:
    """Return the JSON of the request."""
    is_chat = api == "chat"
    offers = request.offers
    template = _build_template(request, is_chat=is_chat)
    fields: dict[str, Any] = {"model": model}
    if is_chat:
        fields["messages"] = request.messages or [{"role": "user", "content": request.prompt}]
    else:
        fields["prompt"] = request.prompt
    usage = {"include_usage": True} if offers.include_usage else {}
    if usage and offers.continuous_usage and "continuous_usage_stats" not in request.left_out:
        usage["continuous_usage_stats"] = True
    limit_names = [name for name in LIMIT_FIELDS[api] if name not in request.left_out]
    fields |= dict.fromkeys(limit_names[:1], request.max_tokens)
    fields |= {
        "temperature": request.temperature,
        "stream": True,
        "seed": request.seed,
        TEMPLATE_FIELD: template or None,
        "stream_options": usage or None,
        "return_token_ids": offers.token_ids or None,
        "logprobs": (is_chat or TOP_LOGPROBS) if offers.logprobs else None,
        "top_logprobs": TOP_LOGPROBS if offers.logprobs and is_chat else None,
    }
    known_fields = {name: value for name, value in fields.items() if value is not None}
    extra_fields = {
        name: value for name, value in request.extra_body.items() if name != TEMPLATE_FIELD
    }
    body = known_fields | extra_fields
    return msgspec.json.encode(
        {name: value for name, value in body.items() if name not in request.left_out}
    )


def _build_template(request: CompletionRequest, *, is_chat: bool) -> dict[str, Any]:
    """Return the arguments of the chat template: the run's, and the server's own."""
    has_thinking = is_chat and request.thinking is not None
    thinking = {"enable_thinking": request.thinking} if has_thinking else {}
    return thinking | dict(request.extra_body.get(TEMPLATE_FIELD, {}))
