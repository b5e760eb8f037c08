"""What a server offers, asked before anything is measured."""

from __future__ import annotations

from dataclasses import dataclass

from tandem.bench.client import Client
from tandem.bench.manifest import Offers
from tandem.bench.wire import Server


@dataclass(frozen=True, slots=True)
class Found:
    """What the probe found.

    Args:
        offers: extras that were asked for and seen in the answer.
        version: what /version says; None where it says nothing.
        models: the names the server may give the model that was asked for, for `answer.read`.
        listed: every model that /v1/models lists.
    """

    offers: Offers
    version: str | None
    models: frozenset[str]
    listed: tuple[str, ...]


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
    raise NotImplementedError
