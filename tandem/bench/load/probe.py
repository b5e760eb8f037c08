"""The probe: a test before the measurement of the extras that a server offers.

Invariant: an offered extra was in an answer, not in a list of versions; if a server cannot be
measured, the probe names the server and the remedy before the first measured request.

One tiny request uses all extras. If the server refuses the request (400, or FastAPI's 422), the
probe sends the same request without extras, then with one more each time, and omits each refused
extra. A server that accepts a field and ignores it offers nothing: only the answer counts.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from tandem.bench.load import answer
from tandem.bench.load.client import CompletionClient
from tandem.bench.load.completion_request import (
    API_PATHS,
    MODELS_PATH,
    NO_OFFERS,
    CompletionRequest,
)
from tandem.bench.load.event import DETAIL_CHARACTERS, EventError, format_bytes
from tandem.bench.load.reply import ServerReply, read_page
from tandem.bench.records.json_file import DECODE_ERRORS
from tandem.bench.records.manifest import ManifestArm, ServerOffers, Timeouts
from tandem.bench.records.record import JSON_NULL, RequestRecord
from tandem.bench.records.simulation import SIMULATED_HEADER, is_announced
from tandem.errors import ExternalError, InputError, SilentServerError, TandemError

# running usage needs usage: in this order
EXTRA_NAMES = ("include_usage", "continuous_usage", "token_ids", "logprobs")
ALL_OFFERS = ServerOffers(**dict.fromkeys(EXTRA_NAMES, True))
REFUSAL_WORDS = ("status_400", "status_422")
PAGE_ERROR_WORDS = ("status_404", "status_405", "status_501")
QUESTION = "Name three colours."
PROBE_TOKENS = 8
# error word, fault, problem, change: the first that fits
_NO_SERVER = "this is not an OpenAI-compatible streaming server"
_FAULTS: tuple[tuple[str, type[TandemError], str, str], ...] = (
    (
        "not_.*|no_choices|decode",
        ExternalError,
        _NO_SERVER,
        "check the address: is it a login page?",
    ),
    (
        "connect|connect_timeout",
        SilentServerError,
        "nothing answers",
        "start the server or correct its address",
    ),
    (
        "certificate",
        InputError,
        "TLS certificate verification failed",
        "trust the certificate, replace it, or use a host name that it covers",
    ),
    (
        "endless",
        ExternalError,
        "the server sends too much data",
        "check what runs at this address",
    ),
    (
        "status_40[13]",
        InputError,
        "the server requires an API key",
        "export its key, and give --api-key-env VAR (sent as a bearer token) or --header K:env:VAR",
    ),
    (
        "status_40[45]|status_501",
        InputError,
        "the server has no {path} or no {model}",
        "correct address, API or model",
    ),
    (
        "status_4(00|22)",
        InputError,
        "the server refuses a plain streaming request",
        "leave out the field that it names",
    ),
    (
        "wrong_model",
        InputError,
        "the server answers with another model than {model}",
        "name its model",
    ),
    ("status_3.*", InputError, "the server redirects", "use the address that it redirects to"),
    (
        "status_.*",
        ExternalError,
        "the server is not ready",
        "wait until its /health answers 200, then run again",
    ),
    (
        ".*",
        ExternalError,
        "a small test request failed",
        "check the server's log, then run again",
    ),
)


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Result of the probe.

    Args:
        arm: the arm with its server's facts, and the extras that were requested and present in the
            answer.
        models: the names the server may give the requested model, for `answer.parse_answer`.
        notes: sentences on what the run does without.
    """

    arm: ManifestArm
    models: frozenset[str]
    notes: tuple[str, ...] = ()


async def probe_server(
    client: CompletionClient, *, thinking: bool | None = None, seed: int | None = None
) -> ProbeResult:
    """Request a server's models, its version and one tiny answer with every extra.

    Args:
        client: an open client of the arm; the arm has no facts of its server yet.
        thinking, seed: values of the run; if the server refuses one, the probe raises.

    Raises:
        InputError: the server has no such model, or refuses a setting of the run.
        ExternalError: nothing answers, or the answer is not from such a server.
    """
    cards, page = await _read_model_cards(client)
    client.arm = arm = _choose_model(client.arm, cards)
    if cards and arm.model not in cards:
        problem = f"the server has no model {arm.model}"
        change = f"name its model: {', '.join(cards)}"
        raise InputError(problem, where=f"{arm.name}={arm.root}", change=change)

    names = _list_names(cards, arm.model)
    plain = CompletionRequest(
        f"probe-{uuid.uuid4().hex}",
        prompt=QUESTION,
        max_tokens=PROBE_TOKENS,
        thinking=thinking,
        seed=seed,
        extra_body=arm.extra_body,
        left_out=arm.left_out,
    )
    trial = await _try_extras(client, plain, names, tuple(cards))
    owner = cards.get(arm.model, {}).get("owned_by")
    owned_by = owner[:DETAIL_CHARACTERS] if isinstance(owner, str) and owner else None
    headers = (reply.headers.get(SIMULATED_HEADER) for reply in (page, trial.reply))
    probed_arm = msgspec.structs.replace(
        arm,
        offers=trial.confirm_offers(),
        server_version=await _read_version(client),
        owned_by=owned_by,
        simulated=is_announced(headers, owned_by),
        server_header=trial.reply.headers.get("Server", "")[:DETAIL_CHARACTERS] or None,
    )
    models = names or frozenset({arm.model, trial.answer.model or arm.model})
    notes = () if trial.has_true_count else (_describe_count(arm.name, trial.answer),)
    return ProbeResult(arm=probed_arm, models=models, notes=notes)


def _choose_model(arm: ManifestArm, cards: Mapping[str, Any]) -> ManifestArm:
    """Return an arm with its model: the named one, else the only one that the server lists.

    Raises:
        InputError: none is named, and the server does not list exactly one.
    """
    if arm.model:
        return arm
    if len(cards) == 1:
        return msgspec.structs.replace(arm, model=next(iter(cards)))
    problem = f"the server lists {len(cards)} models" if cards else "the server lists no model"
    change = f"name its model with --model{': ' * bool(cards)}{', '.join(cards)}"
    raise InputError(problem, where=f"{arm.name}={arm.root}", change=change)


def _list_names(cards: Mapping[str, dict[str, Any]], model: str) -> frozenset[str]:
    """Return the names that the server may give the model; empty if it lists no models."""
    if not cards:
        return frozenset()
    root = cards[model].get("root")
    # vLLM lists each served name as a model of the same root
    served_names = [name for name in cards if root is not None and cards[name].get("root") == root]
    roots = [root] if isinstance(root, str) else []
    return frozenset([model, *served_names, *roots])


async def _read_version(client: CompletionClient) -> str | None:
    """Return the server's version; None without that page."""
    reply = await client.get("/version")
    with contextlib.suppress(EventError):
        version = _decode_page(reply).get("version")
        return version if isinstance(version, str) else None
    return None


@dataclass(frozen=True, slots=True)
class _Trial:
    """A tiny request that the server answered.

    Args:
        offers: the extras that it requested.
        reply, answer: of the server.
    """

    offers: ServerOffers
    reply: ServerReply
    answer: RequestRecord

    @property
    def has_true_count(self) -> bool:
        """Whether the server did not count more tokens than the probe allowed."""
        count = self.answer.completion_tokens
        return self.answer.counted_by != "usage" or count is None or count <= PROBE_TOKENS

    def confirm_offers(self) -> ServerOffers:
        """Return the extras that were requested and are in the answer."""
        has_usage = self.offers.include_usage and self.answer.prompt_tokens is not None
        has_running_usage = self.offers.continuous_usage and answer.has_running_usage(self.reply)
        has_logprobs = bytes(self.answer.logprobs) != bytes(JSON_NULL)
        return ServerOffers(
            include_usage=self.has_true_count and has_usage,
            continuous_usage=self.has_true_count and has_running_usage,
            token_ids=self.offers.token_ids and self.answer.token_ids is not None,
            logprobs=self.offers.logprobs and has_logprobs,
        )


def _describe_count(name: str, server_answer: RequestRecord) -> str:
    return (
        f"{name} counted {server_answer.completion_tokens} tokens of an answer of at most"
        f" {PROBE_TOKENS}: its usage is no count, or it ignores max_tokens,"
        " so the run does not ask for usage"
    )


async def _try_extras(
    client: CompletionClient,
    plain: CompletionRequest,
    names: frozenset[str],
    model_ids: tuple[str, ...],
) -> _Trial:
    """Return the trial with all extras that the server accepts."""

    async def send_trial(offers: ServerOffers) -> _Trial | None:
        """Return the result of a request with `offers`; None if the server refuses them."""
        request = replace(plain, offers=offers)
        reply = await client.send_request(request, Timeouts())
        record = answer.parse_answer(reply, request, names)
        if record.error is None:
            return _Trial(offers, reply, record)
        if record.error in REFUSAL_WORDS and offers != NO_OFFERS:
            return None
        raise _probe_error(client, record.error, record.error_detail, model_ids)

    trial = await send_trial(ALL_OFFERS)
    if trial is not None:
        return trial
    trial = await send_trial(NO_OFFERS)
    assert trial is not None, "a refusal of the plain request is a fault"
    for extra in EXTRA_NAMES:
        if extra != "continuous_usage" or trial.offers.include_usage:
            offers = msgspec.structs.replace(trial.offers, **{extra: True})
            trial = await send_trial(offers) or trial
    return trial


async def _read_model_cards(
    client: CompletionClient,
) -> tuple[dict[str, dict[str, Any]], ServerReply]:
    """Return the models of /v1/models by name, none without that page, and the reply."""
    reply = await client.get(MODELS_PATH)
    if reply.error in PAGE_ERROR_WORDS:
        return {}, reply
    try:
        page = _decode_page(reply)
    except EventError as error:
        raise _probe_error(client, error.word, error.detail) from error
    entries = page["data"] if isinstance(page.get("data"), list) else []
    cards = [card for card in entries if isinstance(card, dict)]
    return {card["id"]: card for card in cards if isinstance(card.get("id"), str)}, reply


def _decode_page(reply: ServerReply) -> dict[str, Any]:
    """Return a page's JSON object.

    Raises:
        EventError: those of `read_page`; `not_sse` if the page is no JSON object.
    """
    body = read_page(reply)
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except DECODE_ERRORS as error:
        detail = f"{reply.url} is {reply.content_type or 'of no type'}: {format_bytes(body[:80])}"
        raise EventError("not_sse", detail) from error


def _probe_error(
    client: CompletionClient, word: str, detail: str | None, model_ids: tuple[str, ...] = ()
) -> TandemError:
    """Return the fault of a server that cannot be measured, with its remedy."""
    _, kind, problem, change = next(fault for fault in _FAULTS if re.fullmatch(fault[0], word))
    problem = problem.format(path=API_PATHS[client.api], model=client.arm.model)
    problem += f" ({word}: {detail})" if detail else f" ({word})"
    change += f": {', '.join(model_ids)}" if model_ids and change.endswith("model") else ""
    return kind(problem, where=f"{client.arm.name}={client.arm.root}", change=change)
