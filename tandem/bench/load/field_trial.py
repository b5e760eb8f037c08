"""Tiny requests that find which fields a server takes: the least first, then one group more.

Invariant: a field is left out only if the same request without it was answered before and after. A
server that dies of a field is named with that field, and nothing more is sent to it.

The least request has the model, the prompt, `stream` and a limit of tokens. A server that refuses
`max_tokens` is sent `max_completion_tokens`, as OpenAI's models that think want it. Then come the
fields of sampling, those of usage, and last the extras that the run records. A refusal is any
failure: gateways answer an unknown field with 400, 422 or 500, or with an error in the stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from tandem.bench.load import answer
from tandem.bench.load.client import CompletionClient
from tandem.bench.load.completion_request import (
    LIMIT_FIELDS,
    NO_OFFERS,
    SETTING_FIELDS,
    TEMPLATE_FIELD,
    CompletionRequest,
)
from tandem.bench.load.loops import MAX_RETRY_AFTER_S
from tandem.bench.load.model_list import ModelList
from tandem.bench.load.probe_fault import build_probe_fault, name_server
from tandem.bench.load.reply import ServerReply
from tandem.bench.plan.server_access import IGNORE_EOS
from tandem.bench.records.manifest import ServerOffers, Timeouts
from tandem.bench.records.record import JSON_NULL, RequestRecord
from tandem.errors import ExternalError, InputError

PROBE_TOKENS = 8
LARGER_TOKENS = 64  # some servers refuse a limit of fewer than 16
OFFERS_BY_FIELD = {
    "stream_options": "include_usage",
    "continuous_usage_stats": "continuous_usage",
    "return_token_ids": "token_ids",
    "logprobs": "logprobs",
}
FIELD_GROUPS = (
    SETTING_FIELDS,
    ("stream_options", "continuous_usage_stats"),
    ("return_token_ids",),
    ("logprobs",),
)
"""In the order in which they are added: what no run can spare first, the most dangerous last."""

RECORD_WORDS = {"return_token_ids": "token-ids", "logprobs": "logprobs"}
_LIMIT_REFUSALS = ("status_400", "status_413", "status_422", "status_500")
_NO_REFUSALS = ("status_408", "status_429")
_MAX_ATTEMPTS = 3  # of a request that a limit of the server's rate refuses
_WAIT_S = 1.0  # where the refusal names no time


@dataclass(frozen=True, slots=True)
class RequestTrial:
    """A tiny request and its answer."""

    request: CompletionRequest
    reply: ServerReply
    answer: RequestRecord

    @property
    def word_count(self) -> int:
        """Words of the answer: each is at least one token."""
        return len(f"{self.answer.text} {self.answer.reasoning or ''}".split())

    @property
    def is_broken_off(self) -> bool:
        """Whether the answer began and failed: a field is refused before there is any output."""
        return self.answer.error is not None and any(
            chunk.bears_tokens for chunk in self.answer.chunks
        )

    @property
    def ignores_limit(self) -> bool:
        """Whether the answer is longer than the request allowed."""
        return self.word_count > self.request.max_tokens

    @property
    def has_true_count(self) -> bool:
        """Whether the server's count may be one: it is not above what the answer can have."""
        count = self.answer.completion_tokens
        if self.answer.counted_by != "usage" or count is None:
            return True
        return count <= self.request.max_tokens or (self.ignores_limit and count >= self.word_count)

    def confirm_offers(self) -> ServerOffers:
        """Return the extras that were requested and are in the answer."""
        offers = self.request.offers
        has_usage = offers.include_usage and self.answer.prompt_tokens is not None
        has_running_usage = offers.continuous_usage and answer.has_running_usage(self.reply)
        has_logprobs = bytes(self.answer.logprobs) != bytes(JSON_NULL)
        return ServerOffers(
            include_usage=self.has_true_count and has_usage,
            continuous_usage=self.has_true_count and has_running_usage,
            token_ids=offers.token_ids and self.answer.token_ids is not None,
            logprobs=offers.logprobs and has_logprobs,
        )

    def describe_error(self) -> str:
        """Return the error's word and the server's own words."""
        detail = self.answer.error_detail
        return f"{self.answer.error}: {detail}" if detail else str(self.answer.error)


@dataclass(slots=True)
class FieldTrials:
    """The trials of one server.

    Args:
        client: of the server.
        draft: the request as the run would send it, without extras.
        extras: that the run records, of `ServerOffers`.
        timeouts: of each request.
        models: that the server lists, for a fault.

    Attributes:
        refusals: what the server said to each field that it refuses.
        broken_answer: what it said when it broke off an answer, whatever the fields.
    """

    client: CompletionClient
    draft: CompletionRequest
    extras: Collection[str]
    timeouts: Timeouts
    models: ModelList
    refusals: dict[str, str] = field(default_factory=dict)
    broken_answer: str | None = None

    async def find_least(self) -> RequestTrial:
        """Return the answer to the least request.

        Raises:
            InputError: the server refuses a field that the user adds.
            TandemError: the server cannot be measured.
        """
        left_out = (*self.draft.left_out, *SETTING_FIELDS)
        request = replace(self.draft, left_out=left_out, offers=NO_OFFERS)
        trial = await self._find_limit(request)
        if trial.answer.error is None:
            return trial
        if self.draft.extra_body and trial.answer.error in _LIMIT_REFUSALS:
            await self._blame_extra_body(trial)
        raise self._build_fault(trial)

    async def _find_limit(self, request: CompletionRequest) -> RequestTrial:
        """Return the answer to a request with a limit that the server keeps to.

        Without one, return the first answer, else the refusal.
        """
        trial = await self._send(request)
        error = trial.answer.error
        if error not in {None, *_LIMIT_REFUSALS} or (error is None and not trial.ignores_limit):
            return trial
        answered_trials = [trial] if error is None else []
        for other_request in self._list_limits(request, is_refused=error is not None):
            # a server that ignores a name may seem to keep to a larger limit by it
            if any(other_request.left_out == known.request.left_out for known in answered_trials):
                continue
            other_trial = await self._send(other_request)
            if other_trial.answer.error is None:
                answered_trials.append(other_trial)
                if not other_trial.ignores_limit:
                    break
        best_trial = min(answered_trials, key=lambda known: known.ignores_limit, default=None)
        if best_trial is None:
            return trial
        self._note_limit(trial, best_trial.request)
        return best_trial

    async def _blame_extra_body(self, trial: RequestTrial) -> None:
        """Send the fields that the user adds one by one.

        Raises:
            InputError: the server answers without them, and refuses some.
        """
        bare_trial = await self._find_limit(replace(trial.request, extra_body={}))
        if bare_trial.answer.error is not None:
            return
        names = []
        for name, value in trial.request.extra_body.items():
            next_request = replace(bare_trial.request, extra_body={name: value})
            if (await self._send(next_request)).answer.error is not None:
                names.append(name)
        if names:
            problem = f"the server refuses {' and '.join(names)} ({trial.describe_error()})"
            flags = [
                "--ignore-eos" if name == IGNORE_EOS else f"{name} from --extra-body"
                for name in names
            ]
            change = f"drop {' and '.join(flags)}"
            raise InputError(problem, where=name_server(self.client.arm), change=change)

    async def add_fields(self, trial: RequestTrial) -> RequestTrial:
        """Return the answer to the fullest request that the server takes.

        Args:
            trial: the answer to the least request.

        Raises:
            ExternalError: the server dies of a field, or answers no more for another reason.
        """
        for group in FIELD_GROUPS:
            names = [name for name in group if self._is_wanted(name)]
            if names:
                trial = await self._add_group(trial, names)
        return trial

    async def _add_group(self, trial: RequestTrial, names: Sequence[str]) -> RequestTrial:
        whole_trial = await self._add_names(trial, names)
        if whole_trial is not None:
            return whole_trial
        for name in names:
            if name == "continuous_usage_stats" and "stream_options" in self.refusals:
                del self.refusals[name]  # it is a part of what is refused
                continue
            trial = await self._add_names(trial, [name]) or trial
        return trial

    async def _add_names(self, trial: RequestTrial, names: Sequence[str]) -> RequestTrial | None:
        """Return the answer to a request with more fields; None if the server refuses them.

        Raises:
            ExternalError: the server no longer answers the request without them.
        """
        fuller_trial = await self._send(_add_to_request(trial.request, names))
        error = fuller_trial.answer.error
        is_taken = error is None
        if error is not None and (not error.startswith("status_4") or error in _NO_REFUSALS):
            is_taken = not await self._has_life(trial, fuller_trial, names)
        if is_taken:
            for name in names:
                self.refusals.pop(name, None)
            return fuller_trial
        self.refusals |= dict.fromkeys(names, fuller_trial.describe_error())
        return None

    async def _has_life(
        self, trial: RequestTrial, failed_trial: RequestTrial, names: Sequence[str]
    ) -> bool:
        """Send again what was answered before the last fields came; return whether it is answered.

        It is not if the server breaks off both: then the fields are not to blame.

        Raises:
            ExternalError: it is not answered any more.
        """
        next_trial = await self._send(trial.request)
        if next_trial.answer.error is None:
            return True
        if next_trial.is_broken_off and failed_trial.is_broken_off:
            self.broken_answer = failed_trial.describe_error()
            return False
        if next_trial.answer.error in {"interrupted", "status_429"}:
            raise self._build_fault(next_trial)
        fields = " and ".join(names)
        problem = (
            f"the server died of a request with {fields} ({failed_trial.describe_error()}): the"
            f" same request without them was answered before, and is not now"
            f" ({next_trial.describe_error()})"
        )
        words = [RECORD_WORDS[name] for name in names if name in RECORD_WORDS]
        left_out = f"add --leave-out {' '.join(names)}"
        change = f"drop {words[0]} from --record" if words else left_out
        change = f"restart the server, then {change}"
        raise ExternalError(problem, where=name_server(self.client.arm), change=change)

    async def _send(self, request: CompletionRequest) -> RequestTrial:
        """Return the answer to a request; wait where the server limits their rate."""
        for number in range(_MAX_ATTEMPTS):
            reply = await self.client.send_request(request, self.timeouts)
            trial = RequestTrial(request, reply, answer.parse_answer(reply, request))
            if trial.answer.error != "status_429" or number == _MAX_ATTEMPTS - 1:
                break
            wait_s = _WAIT_S if reply.retry_after_s is None else reply.retry_after_s
            await asyncio.sleep(min(wait_s, MAX_RETRY_AFTER_S))
        return trial

    def _list_limits(
        self, request: CompletionRequest, *, is_refused: bool
    ) -> Iterator[CompletionRequest]:
        """Yield requests that limit the answer otherwise."""
        names = [name for name in LIMIT_FIELDS[self.client.api] if name not in request.left_out]
        limits = (PROBE_TOKENS, LARGER_TOKENS) if is_refused else (PROBE_TOKENS,)
        for max_tokens in limits:
            for place in range(len(names)):
                left_out = (*request.left_out, *names[:place])
                other_request = replace(request, max_tokens=max_tokens, left_out=left_out)
                if other_request != request:
                    yield other_request

    def _note_limit(self, trial: RequestTrial, request: CompletionRequest) -> None:
        """Note a limit that is refused or ignored, where the request has another."""
        words = trial.describe_error() if trial.answer.error else "it ignores it"
        for name in LIMIT_FIELDS[self.client.api]:
            if name in request.left_out and name not in trial.request.left_out:
                self.refusals[name] = words

    def _is_wanted(self, name: str) -> bool:
        """Return whether the run would send a field."""
        if name in self.draft.left_out or (name == "seed" and self.draft.seed is None):
            return False
        if name == TEMPLATE_FIELD:
            return self.draft.thinking is not None or TEMPLATE_FIELD in self.draft.extra_body
        if name == "continuous_usage_stats":
            return "stream_options" not in self.draft.left_out
        return name not in RECORD_WORDS or OFFERS_BY_FIELD[name] in self.extras

    def _build_fault(self, trial: RequestTrial) -> Exception:
        arm = self.client.arm
        word = str(trial.answer.error)
        return build_probe_fault(arm, self.client.api, word, trial.answer.error_detail, self.models)


def _add_to_request(request: CompletionRequest, names: Sequence[str]) -> CompletionRequest:
    """Return the request with more fields."""
    offers = {OFFERS_BY_FIELD[name]: True for name in names if name in OFFERS_BY_FIELD}
    left_out = tuple(name for name in request.left_out if name not in names)
    return replace(
        request, offers=msgspec.structs.replace(request.offers, **offers), left_out=left_out
    )
