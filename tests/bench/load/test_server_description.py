"""The description of a server that counts its tokens on /metrics."""

from __future__ import annotations

import uvloop
from independent_server import MODEL
from measured import arm
from running import QUICK, serving

from tandem.bench.load.server_description import ServerDescription, describe_server


def test_a_description_has_counters_and_the_only_model():
    async def describe() -> ServerDescription:
        async with serving([QUICK], ()) as (server,):
            url = f"http://127.0.0.1:{server.port}"
            return await describe_server(arm("server", url=url, model=""), extras={"token_ids"})

    description = uvloop.run(describe())

    assert (description.model, description.counters) == (MODEL, ("generation_tokens",))
    assert (description.token_ids, description.logprobs) == (True, None)
    assert description.taken_fields == (
        "max_tokens",
        "temperature",
        "seed",
        "stream_options",
        "continuous_usage_stats",
        "return_token_ids",
    )
