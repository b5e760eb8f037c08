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
from tandem.bench.answer import Answer
from tandem.bench.body import read_page
from tandem.bench.client import Client
from tandem.bench.event import DETAIL, EventError
from tandem.bench.fault import BenchError, WorldError
from tandem.bench.manifest import Offers
from tandem.bench.record import NULL
from tandem.bench.reply import Reply
from tandem.bench.simulation import read_announcement
from tandem.bench.wire import Ask, Server, TimeOuts

EVERYTHING = Offers(include_usage=True, continuous_usage=True, token_ids=True, logprobs=True)
NOTHING = Offers()
EXTRAS = ("include_usage", "continuous_usage", "token_ids", "logprobs")  # running usage needs usage: in this order
REFUSED = ("status_400", "status_422")
NO_KEY = ("status_401", "status_403")
NO_PAGE = ("status_404", "status_405", "status_501")
QUESTION = "Name three colours."
TOKENS = 8
LISTED_MOST = 20
CLOSES = (
    "its server closes the connection after a stream although it says keep-alive: a request that dies on a reused "
    "connection before any byte is asked again on a fresh one (reconnected in its record)"
)


@dataclass(frozen=True, slots=True)
class Found:
    """What the probe found.

    Args:
        offers: extras that were asked for and seen in the answer.
        version: what /version says; None where it says nothing.
        models: the names the server may give the model that was asked for, for `answer.read`.
        listed: every model that /v1/models lists.
        owned_by: who owns the model, as /v1/models says; None where it does not.
        server_header: what the Server header of the stream says; None where it has none.
        simulated: whether the server announces that it is simulated.
        notes: sentences on pages that were too long to be read, on connections that a server does not keep, and on a
            server that contradicts itself.
    """

    offers: Offers
    version: str | None
    models: frozenset[str]
    listed: tuple[str, ...]
    owned_by: str | None = None
    server_header: str | None = None
    simulated: bool = False
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> str:
        """What the server calls itself, each name with where it stands; nothing is concluded from it."""
        places = {"/version": self.version, "owned_by": self.owned_by, "Server": self.server_header}
        return ", ".join(f"{place} {name}" for place, name in places.items() if name is not None) or "nothing"


async def probe(
    client: Client, server: Server, *, thinking: bool | None = None, ignore_eos: bool = False, seed: int | None = None
) -> Found:
    """Ask `server` for its models, its version and one tiny request with every extra.

    Args:
        client: an open client of the server.
        server: the server.
        thinking, ignore_eos, seed: as the run will ask; a server that refuses one of them is a fault.

    Raises:
        BenchError: the server has no such model, or refuses what the run needs.
        WorldError: nothing answers, or what answers is no such server.
    """
    cards, page = await _cards(client, server)
    listed = tuple(card["id"] for card in cards)
    if listed and server.model not in listed:
        raise _no_such_model(server, listed)
    names = _names(cards, server.model) if listed else frozenset[str]()
    plain = Ask(
        f"probe-{uuid.uuid4().hex}", prompt=QUESTION, max_tokens=TOKENS,
        thinking=thinking, ignore_eos=ignore_eos, seed=seed,
    )  # fmt: skip
    trial = _Trial(client, server, plain, names, listed)
    offers, stream, seen = await trial.offers()
    named = names or frozenset({server.model, seen.model or server.model})
    reply, version, note = await _read_version(client)
    owned_by = _find_owner(cards, server.model)
    announcement = read_announcement((page.simulated, stream.simulated), owned_by)
    closes = CLOSES if stream.says_keep_alive and not reply.reused else None
    return Found(
        offers, version, named, listed, owned_by, stream.server_header, announcement.simulated,
        tuple(sentence for sentence in (note, closes, announcement.note) if sentence),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Trial:
    """Tiny requests to one server."""

    client: Client
    server: Server
    plain: Ask
    names: frozenset[str]
    listed: tuple[str, ...]

    async def offers(self) -> tuple[Offers, Reply, Answer]:
        """Return what the server offers, and its last answer."""
        everything = await self._try(EVERYTHING)
        if everything is not None:
            return _seen(EVERYTHING, *everything), *everything
        last = await self._try(NOTHING)
        assert last is not None, "a refusal of the plain request is a fault"
        taken = NOTHING
        for extra in EXTRAS:
            wanted = msgspec.structs.replace(taken, **{extra: True})
            if extra == "continuous_usage" and not taken.include_usage:
                continue
            came = await self._try(wanted)
            if came is not None:
                taken, last = wanted, came
        return _seen(taken, *last), *last

    async def _try(self, offers: Offers) -> tuple[Reply, Answer] | None:
        """Return what came of asking with `offers`; None where the server refuses them."""
        ask = replace(self.plain, offers=offers)
        reply = await self.client.ask(ask, TimeOuts())
        said = answer.read(reply, ask, self.names)
        if said.error is None:
            return reply, said
        if said.error in REFUSED and offers != NOTHING:
            return None
        raise _fault(self.server, said, self.listed)


def _seen(asked: Offers, reply: Reply, said: Answer) -> Offers:
    """Return what was asked for and stands in the answer."""
    return Offers(
        include_usage=asked.include_usage and said.prompt_tokens is not None,
        continuous_usage=asked.continuous_usage and answer.counts_as_it_goes(reply),
        token_ids=asked.token_ids and said.token_ids is not None,
        logprobs=asked.logprobs and bytes(said.logprobs) != bytes(NULL),
    )


async def _cards(client: Client, server: Server) -> tuple[list[dict[str, Any]], Reply]:
    """Return the models that /v1/models lists, none where the server has no such page, and its reply."""
    reply = await client.get("/v1/models")
    if reply.error in NO_PAGE:
        return [], reply
    if reply.error is not None:
        raise _fault(server, answer.read(reply, Ask("models")), ())
    try:
        page = _decode_page(reply)
    except EventError as bad:
        raise _fault(server, Answer(error=bad.word, error_detail=bad.detail), ()) from bad
    if not isinstance(page, dict):
        raise _no_such_server(server, f"/v1/models is {reply.content_type or 'of no type'}: {_start(reply)}")
    cards = page.get("data")
    return [card for card in cards if _has_id(card)] if isinstance(cards, list) else [], reply


def _has_id(card: Any) -> bool:
    return isinstance(card, dict) and isinstance(card.get("id"), str)


def _names(cards: list[dict[str, Any]], model: str) -> frozenset[str]:
    """Return `model`, its root, and every other name of the same root: vLLM lists each served name as a model."""
    root = next((card.get("root") for card in cards if card["id"] == model), None)
    same = {card["id"] for card in cards if root is not None and card.get("root") == root}
    return frozenset({model, *same, *([root] if isinstance(root, str) else [])})


def _find_owner(cards: list[dict[str, Any]], model: str) -> str | None:
    """Return `owned_by` of the model's card, as the server says it."""
    owner = next((card.get("owned_by") for card in cards if card["id"] == model), None)
    return owner[:DETAIL] if isinstance(owner, str) and owner else None


async def _read_version(client: Client) -> tuple[Reply, str | None, str | None]:
    """Return /version, what it says, and the sentence for a page that is too long; None for what is not there."""
    reply = await client.get("/version")
    try:
        page = _decode_page(reply)
    except EventError as bad:
        return reply, None, f"its version is not known: {bad.detail}" if bad.word == "endless" else None
    version = page.get("version") if isinstance(page, dict) else None
    return reply, version if isinstance(version, str) else None, None


def _decode_page(reply: Reply) -> Any:
    """Return a page's JSON, None for what is none.

    Raises:
        EventError: as `read_page` says.
    """
    page = read_page(reply)
    try:
        return msgspec.json.decode(page)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _start(reply: Reply) -> str:
    return repr(b"".join(piece for _, piece in reply.reads)[:80].decode(errors="replace"))


def _fault(server: Server, said: Answer, listed: tuple[str, ...]) -> BenchError:
    """Return the fault of a server that cannot be measured, with what to do."""
    word = str(said.error)
    if word in {"not_sse", "not_json", "no_choices", "decode"}:
        return _no_such_server(server, said.error_detail or word)
    advice = next(one for one in _ADVICE if word in one.words or word.startswith(one.begins))
    told = advice.problem.format(path=server.endpoint.removeprefix(server.root), model=server.model)
    shown = f"{word}: {said.error_detail}" if said.error_detail else word
    choice = _choice_of(listed) if advice.change.endswith("model") else ""
    return advice.kind(f"{told} ({shown})", where=_where(server), change=advice.change + choice)


@dataclass(frozen=True, slots=True)
class _Advice:
    kind: type[BenchError]
    problem: str
    change: str
    words: tuple[str, ...] = ()
    begins: tuple[str, ...] = ()


_ADVICE = (  # the first that fits counts
    _Advice(
        WorldError, "nothing answers",
        "start the server or correct its address, and see that this machine may reach it",
        words=("connect", "connect_timeout"),
    ),
    _Advice(
        BenchError, "no connection is made without a certificate that holds",
        "trust the certificate, replace it, or use the name that it holds",
        words=("certificate",),
    ),
    _Advice(
        WorldError, "the server sends more than such an answer holds",
        "see what answers at this address: another program or a proxy may",
        words=("endless",),
    ),
    _Advice(
        BenchError, "the server wants another API key than it was given",
        "export its key and name the variable by --api-key-env",
        words=NO_KEY,
    ),
    _Advice(
        BenchError, "the server knows no {path} or no model {model}", "correct the address, the API or the model",
        words=NO_PAGE,
    ),
    _Advice(
        BenchError, "the server refuses a plain streaming request",
        "leave out what it names: thinking, seed and ignore_eos are sent only where they are asked for",
        words=REFUSED,
    ),
    _Advice(BenchError, "the server has another model than {model}", "name its model", words=("wrong_model",)),
    _Advice(BenchError, "the server points elsewhere", "give the address it points to", begins=("status_3",)),
    _Advice(
        WorldError, "the server is not ready", "wait until its /health answers 200, then run again", begins=("status_",)
    ),
    _Advice(
        WorldError, "a tiny request failed", "look into the server's log, and run again once it answers", begins=("",)
    ),
)  # fmt: skip


def _no_such_server(server: Server, seen: str) -> WorldError:
    return WorldError(
        f"what answers is no OpenAI-compatible streaming server: {seen}",
        where=_where(server),
        change="correct the address; a login page or a proxy may stand before the server",
    )


def _no_such_model(server: Server, listed: tuple[str, ...]) -> BenchError:
    return BenchError(
        f"the server has no model {server.model}",
        where=_where(server),
        change=f"name its model{_choice_of(listed)}",
    )


def _choice_of(listed: tuple[str, ...]) -> str:
    if not listed:
        return ""
    more = f" and {len(listed) - LISTED_MOST} more" if len(listed) > LISTED_MOST else ""
    return f": {', '.join(listed[:LISTED_MOST])}{more}"


def _where(server: Server) -> str:
    return f"{server.name}={server.root}"
