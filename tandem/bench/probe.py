"""What a server offers, asked before anything is measured.

Invariant: what is offered has been seen in an answer, not read in a list of versions; a server that cannot be measured
is named here, with what to do, before the first request is counted.

All extras are asked for in one tiny request. Where the server refuses it (400, or 422 as FastAPI says it), the same
request is made without any, then with one more each time, and what is refused is left out. A server that takes a field
and does nothing with it offers nothing: only what stood in the answer counts.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from tandem.bench import answer
from tandem.bench.answer import ServerAnswer
from tandem.bench.body import read_page
from tandem.bench.client import CompletionClient
from tandem.bench.completion_request import CompletionRequest, ModelServer
from tandem.bench.event import DETAIL_CHARACTERS, EventError
from tandem.bench.fault import BenchError, ExternalBenchError
from tandem.bench.manifest import ServerOffers, Timeouts
from tandem.bench.record import JSON_NULL
from tandem.bench.reply import ServerReply
from tandem.bench.simulation import read_announcement

ALL_OFFERS = ServerOffers(include_usage=True, continuous_usage=True, token_ids=True, logprobs=True)
NO_OFFERS = ServerOffers()
EXTRA_NAMES = ("include_usage", "continuous_usage", "token_ids", "logprobs")  # running usage needs usage: in this order
REFUSAL_WORDS = ("status_400", "status_422")
KEY_ERROR_WORDS = ("status_401", "status_403")
PAGE_ERROR_WORDS = ("status_404", "status_405", "status_501")
QUESTION = "Name three colours."
PROBE_TOKENS = 8
MAX_LISTED_MODELS = 20
CLOSE_NOTE = (
    "its server closes the connection after a stream although it says keep-alive: a request that dies on a reused "
    "connection before any byte is asked again on a fresh one (reconnected in its record)"
)


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What the probe found.

    Args:
        offers: extras that were asked for and seen in the answer.
        version: what /version says; None where it says nothing.
        models: the names the server may give the model that was asked for, for `answer.read`.
        model_ids: every model that /v1/models lists.
        owned_by: who owns the model, as /v1/models says; None where it does not.
        server_header: what the Server header of the stream says; None where it has none.
        is_simulator: whether the server announces that it is simulated.
        notes: sentences on pages that were too long to be read, on connections that a server does not keep, and on a
            server that contradicts itself.
    """

    offers: ServerOffers
    version: str | None
    models: frozenset[str]
    model_ids: tuple[str, ...]
    owned_by: str | None = None
    server_header: str | None = None
    is_simulator: bool = False
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> str:
        """What the server calls itself, each name with where it stands; nothing is concluded from it."""
        places = {"/version": self.version, "owned_by": self.owned_by, "Server": self.server_header}
        return ", ".join(f"{place} {name}" for place, name in places.items() if name is not None) or "nothing"


async def probe_server(
    client: CompletionClient,
    server: ModelServer,
    *,
    thinking: bool | None = None,
    ignore_eos: bool = False,
    seed: int | None = None,
) -> ProbeResult:
    """Ask `server` for its models, its version and one tiny request with every extra.

    Args:
        client: an open client of the server.
        server: the server.
        thinking, ignore_eos, seed: as the run will ask; a server that refuses one of them is a fault.

    Raises:
        BenchError: the server has no such model, or refuses what the run needs.
        ExternalBenchError: nothing answers, or what answers is no such server.
    """
    cards, page = await _read_model_cards(client, server)
    model_ids = tuple(card["id"] for card in cards)
    if model_ids and server.model not in model_ids:
        raise _no_model_error(server, model_ids)
    names = _model_names(cards, server.model) if model_ids else frozenset[str]()
    plain = CompletionRequest(
        f"probe-{uuid.uuid4().hex}", prompt=QUESTION, max_tokens=PROBE_TOKENS,
        thinking=thinking, ignore_eos=ignore_eos, seed=seed,
    )  # fmt: skip
    trial = _OfferTrial(client, server, plain, names, model_ids)
    offers, stream, server_answer = await trial.try_offers()
    allowed_models = names or frozenset({server.model, server_answer.model or server.model})
    reply, version, note = await _read_version(client)
    owned_by = _find_owner(cards, server.model)
    announcement = read_announcement((page.simulated_header, stream.simulated_header), owned_by)
    close_note = CLOSE_NOTE if stream.claims_keep_alive and not reply.had_open_connection else None
    return ProbeResult(
        offers, version, allowed_models, model_ids, owned_by, stream.server_header, announcement.is_simulator,
        tuple(sentence for sentence in (note, close_note, announcement.note) if sentence),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _OfferTrial:
    """Tiny requests to one server."""

    client: CompletionClient
    server: ModelServer
    plain: CompletionRequest
    names: frozenset[str]
    model_ids: tuple[str, ...]

    async def try_offers(self) -> tuple[ServerOffers, ServerReply, ServerAnswer]:
        """Return what the server offers, and its last answer."""
        full_result = await self._send_trial(ALL_OFFERS)
        if full_result is not None:
            return _confirm_offers(ALL_OFFERS, *full_result), *full_result
        last_result = await self._send_trial(NO_OFFERS)
        assert last_result is not None, "a refusal of the plain request is a fault"
        accepted_offers = NO_OFFERS
        for extra in EXTRA_NAMES:
            candidate = msgspec.structs.replace(accepted_offers, **{extra: True})
            if extra == "continuous_usage" and not accepted_offers.include_usage:
                continue
            trial_result = await self._send_trial(candidate)
            if trial_result is not None:
                accepted_offers, last_result = candidate, trial_result
        return _confirm_offers(accepted_offers, *last_result), *last_result

    async def _send_trial(self, offers: ServerOffers) -> tuple[ServerReply, ServerAnswer] | None:
        """Return what came of asking with `offers`; None where the server refuses them."""
        request = replace(self.plain, offers=offers)
        reply = await self.client.send_request(request, Timeouts())
        server_answer = answer.parse_answer(reply, request, self.names)
        if server_answer.error is None:
            return reply, server_answer
        if server_answer.error in REFUSAL_WORDS and offers != NO_OFFERS:
            return None
        raise _probe_error(self.server, server_answer, self.model_ids)


def _confirm_offers(offers: ServerOffers, reply: ServerReply, server_answer: ServerAnswer) -> ServerOffers:
    """Return what was asked for and stands in the answer."""
    return ServerOffers(
        include_usage=offers.include_usage and server_answer.prompt_tokens is not None,
        continuous_usage=offers.continuous_usage and answer.has_running_usage(reply),
        token_ids=offers.token_ids and server_answer.token_ids is not None,
        logprobs=offers.logprobs and bytes(server_answer.logprobs) != bytes(JSON_NULL),
    )


async def _read_model_cards(client: CompletionClient, server: ModelServer) -> tuple[list[dict[str, Any]], ServerReply]:
    """Return the models that /v1/models lists, none where the server has no such page, and its reply."""
    reply = await client.get("/v1/models")
    if reply.error in PAGE_ERROR_WORDS:
        return [], reply
    if reply.error is not None:
        raise _probe_error(server, answer.parse_answer(reply, CompletionRequest("models")), ())
    try:
        page = _decode_page(reply)
    except EventError as error:
        raise _probe_error(server, ServerAnswer(error=error.word, error_detail=error.detail), ()) from error
    if not isinstance(page, dict):
        start = repr(b"".join(piece for _, piece in reply.reads)[:80].decode(errors="replace"))
        raise _no_server_error(server, f"/v1/models is {reply.content_type or 'of no type'}: {start}")
    cards = page.get("data")
    card_list = cards if isinstance(cards, list) else []
    return [card for card in card_list if isinstance(card, dict) and isinstance(card.get("id"), str)], reply


def _model_names(cards: list[dict[str, Any]], model: str) -> frozenset[str]:
    """Return `model`, its root, and every other name of the same root: vLLM lists each served name as a model."""
    root = next((card.get("root") for card in cards if card["id"] == model), None)
    served_names = {card["id"] for card in cards if root is not None and card.get("root") == root}
    return frozenset({model, *served_names, *([root] if isinstance(root, str) else [])})


def _find_owner(cards: list[dict[str, Any]], model: str) -> str | None:
    """Return `owned_by` of the model's card, as the server says it."""
    owner = next((card.get("owned_by") for card in cards if card["id"] == model), None)
    return owner[:DETAIL_CHARACTERS] if isinstance(owner, str) and owner else None


async def _read_version(client: CompletionClient) -> tuple[ServerReply, str | None, str | None]:
    """Return /version, what it says, and the sentence for a page that is too long; None for what is not there."""
    reply = await client.get("/version")
    try:
        page = _decode_page(reply)
    except EventError as error:
        return reply, None, f"its version is not known: {error.detail}" if error.word == "endless" else None
    version = page.get("version") if isinstance(page, dict) else None
    return reply, version if isinstance(version, str) else None, None


def _decode_page(reply: ServerReply) -> Any:
    """Return a page's JSON, None for what is none.

    Raises:
        EventError: as `read_page` says.
    """
    page = read_page(reply)
    try:
        return msgspec.json.decode(page)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _probe_error(server: ModelServer, server_answer: ServerAnswer, model_ids: tuple[str, ...]) -> BenchError:
    """Return the fault of a server that cannot be measured, with what to do."""
    word = str(server_answer.error)
    if word in {"not_sse", "not_json", "no_choices", "decode"}:
        return _no_server_error(server, server_answer.error_detail or word)
    advice = next(
        candidate for candidate in _FAULT_ADVICE if word in candidate.words or word.startswith(candidate.prefix)
    )
    problem = advice.problem.format(path=server.endpoint.removeprefix(server.root), model=server.model)
    description = f"{word}: {server_answer.error_detail}" if server_answer.error_detail else word
    suggestion = _list_models(model_ids) if advice.change.endswith("model") else ""
    return advice.kind(f"{problem} ({description})", where=_server_label(server), change=advice.change + suggestion)


@dataclass(frozen=True, slots=True)
class _FaultAdvice:
    kind: type[BenchError]
    problem: str
    change: str
    words: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()


_FAULT_ADVICE = (  # the first that fits counts
    _FaultAdvice(
        ExternalBenchError,
        "nothing answers",
        "start the server or correct its address, and see that this machine may reach it",
        words=("connect", "connect_timeout"),
    ),
    _FaultAdvice(
        BenchError,
        "no connection is made without a certificate that holds",
        "trust the certificate, replace it, or use the name that it holds",
        words=("certificate",),
    ),
    _FaultAdvice(
        ExternalBenchError,
        "the server sends more than such an answer holds",
        "see what answers at this address: another program or a proxy may",
        words=("endless",),
    ),
    _FaultAdvice(
        BenchError,
        "the server wants another API key than it was given",
        "export its key and name the variable by --api-key-env",
        words=KEY_ERROR_WORDS,
    ),
    _FaultAdvice(
        BenchError,
        "the server knows no {path} or no model {model}",
        "correct the address, the API or the model",
        words=PAGE_ERROR_WORDS,
    ),
    _FaultAdvice(
        BenchError,
        "the server refuses a plain streaming request",
        "leave out what it names: thinking, seed and ignore_eos are sent only where they are asked for",
        words=REFUSAL_WORDS,
    ),
    _FaultAdvice(BenchError, "the server has another model than {model}", "name its model", words=("wrong_model",)),
    _FaultAdvice(BenchError, "the server points elsewhere", "give the address it points to", prefix=("status_3",)),
    _FaultAdvice(
        ExternalBenchError,
        "the server is not ready",
        "wait until its /health answers 200, then run again",
        prefix=("status_",),
    ),
    _FaultAdvice(
        ExternalBenchError,
        "a tiny request failed",
        "look into the server's log, and run again once it answers",
        prefix=("",),
    ),
)


def _no_server_error(server: ModelServer, evidence: str) -> ExternalBenchError:
    return ExternalBenchError(
        f"what answers is no OpenAI-compatible streaming server: {evidence}",
        where=_server_label(server),
        change="correct the address; a login page or a proxy may stand before the server",
    )


def _no_model_error(server: ModelServer, model_ids: tuple[str, ...]) -> BenchError:
    return BenchError(
        f"the server has no model {server.model}",
        where=_server_label(server),
        change=f"name its model{_list_models(model_ids)}",
    )


def _list_models(model_ids: tuple[str, ...]) -> str:
    if not model_ids:
        return ""
    more = f" and {len(model_ids) - MAX_LISTED_MODELS} more" if len(model_ids) > MAX_LISTED_MODELS else ""
    return f": {', '.join(model_ids[:MAX_LISTED_MODELS])}{more}"


def _server_label(server: ModelServer) -> str:
    return f"{server.name}={server.root}"
