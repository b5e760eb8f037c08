"""What a server offers, and what is said of one that cannot be measured."""

from __future__ import annotations

import pytest
from independent_server import MODEL, Schedule, Server
from one_request import EVERYTHING, run

from tandem.bench.client import CompletionClient
from tandem.bench.fault import BenchError, ExternalBenchError
from tandem.bench.manifest import ServerOffers
from tandem.bench.probe import ProbeResult, probe_server

CARDS = [
    {"id": "big", "root": "/models/big"},
    {"id": MODEL, "root": "/models/independent"},
    {"id": "other-name", "root": "/models/independent"},
]


def found(
    *, refused: tuple[str, ...] = (), asked: dict | None = None, fault: str | None = None, **fields
) -> ProbeResult:
    """Probe a server that refuses some fields; `fields` are the server's, or the address's."""
    own = {name: fields.pop(name) for name in ("models", "health") if name in fields}

    async def what(client: CompletionClient, server: Server) -> ProbeResult:
        server.refused_fields = refused
        for name, value in own.items():
            setattr(server, name, value)
        return await probe_server(client, client.server, **(asked or {}))

    return run(what, Schedule(fault=fault, ttft_ms=1, step_ms=1), **fields)


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_a_server_that_takes_everything_offers_everything(api: str) -> None:
    assert found(api=api).offers == EVERYTHING


@pytest.mark.parametrize(
    ("refused", "offers"),
    [
        (("return_token_ids",), ServerOffers(include_usage=True, continuous_usage=True, logprobs=True)),
        (("logprobs",), ServerOffers(include_usage=True, continuous_usage=True, token_ids=True)),
        (("continuous_usage_stats",), ServerOffers(include_usage=True, token_ids=True, logprobs=True)),
        (("stream_options",), ServerOffers(token_ids=True, logprobs=True)),
        (("stream_options", "return_token_ids", "logprobs"), ServerOffers()),
    ],
)
def test_what_a_server_refuses_it_does_not_offer(refused: tuple[str, ...], offers: ServerOffers) -> None:
    assert found(refused=refused).offers == offers


def test_running_usage_is_not_tried_where_usage_is_refused() -> None:
    asked = []

    async def what(client: CompletionClient, server: Server) -> None:
        server.refused_fields = ("stream_options",)
        await probe_server(client, client.server)
        asked.extend(truth["body"].get("stream_options") for truth in server.posted)

    run(what)

    assert asked.count({"include_usage": True}) == 1


def test_what_a_server_takes_and_does_not_give_it_does_not_offer() -> None:
    assert found(fault="no_usage").offers == ServerOffers(token_ids=True, logprobs=True)


def test_the_servers_version_and_models_are_found() -> None:
    came = found(models=CARDS)

    assert (came.version, came.model_ids) == ("0.0.1", ("big", MODEL, "other-name"))


def test_the_names_of_the_same_root_are_the_models_names() -> None:
    assert found(models=CARDS).models == {MODEL, "other-name", "/models/independent"}


def test_without_a_list_the_name_that_was_answered_is_the_models() -> None:
    came = found(models=[], fault="wrong_model")

    assert (came.models, came.model_ids) == ({MODEL, "another"}, ())


def test_a_server_without_a_page_of_models_is_probed_all_the_same() -> None:
    came = found(health=404)

    assert (came.offers, came.version, came.model_ids) == (EVERYTHING, None, ())


def test_the_probe_asks_for_few_tokens() -> None:
    asked = []

    async def what(client: CompletionClient, server: Server) -> None:
        await probe_server(client, client.server)
        asked.extend(truth["body"]["max_tokens"] for truth in server.posted)

    run(what)

    assert asked == [8]


@pytest.mark.parametrize(
    ("asked", "field", "value"),
    [
        ({"thinking": False}, "chat_template_kwargs", {"enable_thinking": False}),
        ({"ignore_eos": True}, "ignore_eos", True),
        ({"seed": 7}, "seed", 7),
    ],
)
def test_the_probe_asks_as_the_run_will(asked: dict, field: str, value: object) -> None:
    async def what(client: CompletionClient, server: Server) -> object:
        await probe_server(client, client.server, **asked)
        return server.posted[0]["body"][field]

    assert run(what) == value


@pytest.mark.parametrize("asked", [{"thinking": False}, {"ignore_eos": True}, {"seed": 7}])
def test_a_server_that_refuses_what_the_run_needs_is_a_fault_that_names_it(asked: dict) -> None:
    field = {"thinking": "chat_template_kwargs"}.get(*[name for name in asked] * 2)  # noqa: C416

    with pytest.raises(BenchError, match=f"refuses a plain streaming request .*{field}.*leave out what it names"):
        found(asked=asked, refused=(field,))


def test_a_model_that_is_not_there_is_a_fault_that_lists_those_that_are() -> None:
    with pytest.raises(BenchError, match="the server has no model small; name its model: big, independent, other-name"):
        found(model="small", models=CARDS)


def test_a_long_list_of_models_is_cut() -> None:
    with pytest.raises(BenchError, match="m19 and 5 more"):
        found(model="small", models=[{"id": f"m{number}"} for number in range(25)])


def test_a_server_that_answers_as_another_model_than_it_lists_is_a_fault() -> None:
    with pytest.raises(
        BenchError, match=r"has another model than independent .*answers as another.*; name its model: ind"
    ):
        found(fault="wrong_model")


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            {"url": "http://127.0.0.1:9"},
            "nothing answers .*Connection refused.*; start the server or correct its address",
        ),
        ({"health": 503}, "is not ready .*status_503.*; wait until its /health answers 200"),
        ({"fault": "status"}, "is not ready .*no more room in the queue"),
        ({"fault": "html"}, "no OpenAI-compatible streaming server.*Sign in.*; correct the address; .*login page"),
        ({"fault": "json"}, "no OpenAI-compatible streaming server .*the answer came whole instead of as a stream"),
        ({"fault": "empty_json"}, "no OpenAI-compatible streaming server .*an event has no choices"),
        ({"fault": "not_http"}, "speaks no HTTP"),
        ({"fault": "drop"}, "a tiny request failed .*closed.*; look into the server's log"),
        ({"fault": "error"}, "a tiny request failed .*engine died"),
    ],
)
def test_a_server_that_cannot_be_measured_is_the_worlds_fault_and_says_what_to_do(fields: dict, sentence: str) -> None:
    with pytest.raises(ExternalBenchError, match=f"^arm=http://.*{sentence}"):
        found(**fields)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"health": 401}, "wants another API key .*status_401.*; export its key"),
        ({"fault": "redirect"}, "points elsewhere .*/elsewhere/.*; give the address it points to"),
    ],
)
def test_a_server_that_was_named_wrongly_is_a_fault_of_the_input(fields: dict, sentence: str) -> None:
    with pytest.raises(BenchError, match=sentence) as caught:
        found(**fields)

    assert caught.value.exit_code == 2
