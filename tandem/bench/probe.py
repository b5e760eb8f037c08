"""What a server offers, asked before anything is measured.

Invariant: what is offered has been seen in an answer, not read in a list of versions; a server that cannot be measured
is named here, with what to do, before the first request is counted.

All extras are asked for in one tiny request. Where the server refuses it (400, or 422 as FastAPI says it), the same
request is made without any, then with one more each time, and what is refused is left out. A server that takes a field
and does nothing with it offers nothing: only what stood in the answer counts.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from tandem.bench import answer
from tandem.bench.client import CompletionClient
from tandem.bench.completion_request import API_PATHS, NO_OFFERS, CompletionRequest
from tandem.bench.event import DETAIL_CHARACTERS, EventError, format_bytes
from tandem.bench.json_file import DECODE_ERRORS
from tandem.bench.manifest import ManifestArm, ServerOffers, Timeouts
from tandem.bench.record import JSON_NULL, RequestRecord
from tandem.bench.reply import ServerReply, read_page
from tandem.bench.simulation import SIMULATED_HEADER, is_announced
from tandem.errors import ExternalError, InputError, TandemError

EXTRA_NAMES = ("include_usage", "continuous_usage", "token_ids", "logprobs")  # running usage needs usage: in this order
ALL_OFFERS = ServerOffers(**dict.fromkeys(EXTRA_NAMES, True))
REFUSAL_WORDS = ("status_400", "status_422")
PAGE_ERROR_WORDS = ("status_404", "status_405", "status_501")
QUESTION = "Name three colours."
PROBE_TOKENS = 8
# error word, fault, problem, change: the first that fits
_NO_SERVER = "what answers is no OpenAI-compatible streaming server"
_FAULTS: tuple[tuple[str, type[TandemError], str, str], ...] = (
    ("not_.*|no_choices|decode", ExternalError, _NO_SERVER, "correct the address; is there a login page?"),
    ("connect|connect_timeout", ExternalError, "nothing answers", "start the server or correct its address"),
    ("certificate", InputError, "its certificate does not hold", "trust it, replace it, or use the name that it holds"),
    ("endless", ExternalError, "the server sends more than such an answer holds", "see what answers there"),
    ("status_40[13]", InputError, "the server wants another API key", "export its key and name it by --api-key-env"),
    ("status_40[45]|status_501", InputError, "the server has no {path} or no {model}", "correct address, API or model"),
    ("status_4(00|22)", InputError, "the server refuses a plain streaming request", "leave out what it names"),
    ("wrong_model", InputError, "the server has another model than {model}", "name its model"),
    ("status_3.*", InputError, "the server points elsewhere", "give the address it points to"),
    ("status_.*", ExternalError, "the server is not ready", "wait until its /health answers 200, then run again"),
    (".*", ExternalError, "a tiny request failed", "look into the server's log, and run again once it answers"),
)


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What the probe found.

    Args:
        arm: the arm with what its server says of itself, and the extras that were asked for and seen in the answer.
        models: the names the server may give the model that was asked for, for `answer.parse_answer`.
    """

    arm: ManifestArm
    models: frozenset[str]


async def probe_server(
    client: CompletionClient, *, thinking: bool | None = None, seed: int | None = None
) -> ProbeResult:
    """Ask a server for its models, its version and one tiny request with every extra.

    Args:
        client: an open client of the arm, as it is known without its server.
        thinking, seed: as the run will ask; a server that refuses one of them is a fault.

    Raises:
        InputError: the server has no such model, or refuses what the run needs.
        ExternalError: nothing answers, or what answers is no such server.
    """
    arm = client.arm
    cards, page = await _read_model_cards(client)
    model_ids = tuple(cards)
    if model_ids and arm.model not in model_ids:
        problem, change = f"the server has no model {arm.model}", f"name its model: {', '.join(model_ids)}"
        raise InputError(problem, where=f"{arm.name}={arm.root}", change=change)
    card = cards.get(arm.model, {})
    root, owner = card.get("root"), card.get("owned_by")
    owned_by = owner[:DETAIL_CHARACTERS] if isinstance(owner, str) and owner else None
    # vLLM lists each served name as a model of the same root
    served_names = {name for name in cards if root is not None and cards[name].get("root") == root}
    names = frozenset({arm.model, *served_names, *([root] if isinstance(root, str) else [])} if cards else ())
    plain = CompletionRequest(
        f"probe-{uuid.uuid4().hex}", prompt=QUESTION, max_tokens=PROBE_TOKENS, thinking=thinking, seed=seed
    )
    offers, stream, server_answer = await _try_offers(client, plain, names, model_ids)
    reply, version = await client.get("/version"), None
    with contextlib.suppress(EventError):
        version = _decode_page(reply).get("version")
    arm = msgspec.structs.replace(
        arm,
        offers=offers,
        server_version=version if isinstance(version, str) else None,
        owned_by=owned_by,
        simulated=is_announced((reply.headers.get(SIMULATED_HEADER) for reply in (page, stream)), owned_by),
        server_header=stream.headers.get("Server", "")[:DETAIL_CHARACTERS] or None,
    )
    return ProbeResult(arm=arm, models=names or frozenset({arm.model, server_answer.model or arm.model}))


async def _try_offers(
    client: CompletionClient, plain: CompletionRequest, names: frozenset[str], model_ids: tuple[str, ...]
) -> tuple[ServerOffers, ServerReply, RequestRecord]:
    """Return what the server offers, and its last answer."""

    async def send_trial(offers: ServerOffers) -> tuple[ServerOffers, ServerReply, RequestRecord] | None:
        """Return what came of asking with `offers`; None where the server refuses them."""
        request = replace(plain, offers=offers)
        reply = await client.send_request(request, Timeouts())
        server_answer = answer.parse_answer(reply, request, names)
        if server_answer.error is None:
            return offers, reply, server_answer
        if server_answer.error in REFUSAL_WORDS and offers != NO_OFFERS:
            return None
        raise _probe_error(client, server_answer.error, server_answer.error_detail, model_ids)

    trial = await send_trial(ALL_OFFERS)
    if trial is None:
        trial = await send_trial(NO_OFFERS)
        assert trial is not None, "a refusal of the plain request is a fault"
        for extra in EXTRA_NAMES:
            if extra != "continuous_usage" or trial[0].include_usage:
                trial = await send_trial(msgspec.structs.replace(trial[0], **{extra: True})) or trial
    offers, reply, server_answer = trial
    confirmed_offers = ServerOffers(
        include_usage=offers.include_usage and server_answer.prompt_tokens is not None,
        continuous_usage=offers.continuous_usage and answer.has_running_usage(reply),
        token_ids=offers.token_ids and server_answer.token_ids is not None,
        logprobs=offers.logprobs and bytes(server_answer.logprobs) != bytes(JSON_NULL),
    )
    return confirmed_offers, reply, server_answer


async def _read_model_cards(client: CompletionClient) -> tuple[dict[str, dict[str, Any]], ServerReply]:
    """Return by name the models that /v1/models lists, none where the server has no such page, and its reply."""
    reply = await client.get("/v1/models")
    if reply.error in PAGE_ERROR_WORDS:
        return {}, reply
    try:
        page = _decode_page(reply)
    except EventError as error:
        raise _probe_error(client, error.word, error.detail) from error
    cards = page["data"] if isinstance(page.get("data"), list) else []
    return {card["id"]: card for card in cards if isinstance(card, dict) and isinstance(card.get("id"), str)}, reply


def _decode_page(reply: ServerReply) -> dict[str, Any]:
    """Return a page's JSON object.

    Raises:
        EventError: as `read_page` says; `not_sse` for what is no JSON object.
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
    """Return the fault of a server that cannot be measured, with what to do."""
    _, kind, problem, change = next(fault for fault in _FAULTS if re.fullmatch(fault[0], word))
    problem = problem.format(path=API_PATHS[client.api], model=client.arm.model)
    problem += f" ({word}: {detail})" if detail else f" ({word})"
    change += f": {', '.join(model_ids)}" if model_ids and change.endswith("model") else ""
    return kind(problem, where=f"{client.arm.name}={client.arm.root}", change=change)
