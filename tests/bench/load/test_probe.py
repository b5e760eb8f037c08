"""What a server offers, and what is said of one that cannot be measured."""

from __future__ import annotations

import json

import pytest
from independent_server import MODEL, Schedule, Server
from one_request import EVERYTHING, run

from tandem.bench.load.client import CompletionClient
from tandem.bench.load.probe import ProbeResult, probe_server
from tandem.bench.records.manifest import ServerOffers
from tandem.errors import ExternalError, InputError, SilentServerError

CARDS = [
    {"id": "big", "root": "/models/big"},
    {"id": MODEL, "root": "/models/independent"},
    {"id": "other-name", "root": "/models/independent"},
]


def found(
    *, refused: tuple[str, ...] = (), asked: dict | None = None, fault: str | None = None, **fields
) -> tuple[ProbeResult, list[dict]]:
    """Probe a server that refuses some fields; `fields` are the server's, or the address's; with
    the bodies it got."""
    own = {name: fields.pop(name) for name in ("models", "health") if name in fields}

    async def what(client: CompletionClient, server: Server) -> tuple[ProbeResult, list[dict]]:
        server.refused_fields = refused
        for name, value in own.items():
            setattr(server, name, value)
        result = await probe_server(client, **(asked or {}))
        return result, [truth["body"] for truth in server.posted]

    return run(what, Schedule(fault=fault, ttft_ms=1, step_ms=1), **fields)


@pytest.mark.parametrize(
    ("fields", "offers"),
    [
        ({"api": "chat"}, EVERYTHING),
        ({"api": "completions"}, EVERYTHING),
        (
            {"refused": ("return_token_ids",)},
            ServerOffers(include_usage=True, continuous_usage=True, logprobs=True),
        ),
        (
            {"refused": ("logprobs",)},
            ServerOffers(include_usage=True, continuous_usage=True, token_ids=True),
        ),
        (
            {"refused": ("continuous_usage_stats",)},
            ServerOffers(include_usage=True, token_ids=True, logprobs=True),
        ),
        ({"refused": ("stream_options",)}, ServerOffers(token_ids=True, logprobs=True)),
        ({"refused": ("stream_options", "return_token_ids", "logprobs")}, ServerOffers()),
        ({"fault": "no_usage"}, ServerOffers(token_ids=True, logprobs=True)),  # taken and not given
    ],
)
def test_a_server_offers_what_stood_in_its_answer(fields, offers):
    assert found(**fields)[0].arm.offers == offers


@pytest.mark.parametrize(("count", "is_asked"), [(8, True), (8.0, True), (9, False)])
def test_a_count_above_the_probes_limit_is_no_count(count, is_asked):
    events = [
        {"choices": [{"index": 0, "delta": {"content": "red"}, "finish_reason": "stop"}]},
        {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": count}},
    ]
    stream = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"

    async def probe(client: CompletionClient, _: Server) -> ProbeResult:
        return await probe_server(client)

    result = run(probe, Schedule(raw=(stream.encode().hex(),)))

    assert result.arm.offers.include_usage is is_asked
    assert [note for note in result.notes if "its usage is no count" in note] == list(result.notes)
    assert len(result.notes) == (not is_asked)


def test_running_usage_is_not_tried_where_usage_is_refused():
    _, bodies = found(refused=("stream_options",))
    assert [body.get("stream_options") for body in bodies].count({"include_usage": True}) == 1


def test_the_servers_version_and_models_are_found():
    result, bodies = found(models=CARDS)
    assert result.arm.server_version == "0.0.1"
    assert result.models == {MODEL, "other-name", "/models/independent"}  # those of one root
    assert [body["max_tokens"] for body in bodies] == [8]


def test_without_a_list_the_answer_names_the_model():
    result, _ = found(models=[], fault="wrong_model")
    assert result.models == {MODEL, "another"}


def test_a_server_without_a_page_of_models_is_probed():
    result, _ = found(health=404)
    assert (result.arm.offers, result.arm.server_version) == (EVERYTHING, None)


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        ({"thinking": False}, "chat_template_kwargs", {"enable_thinking": False}),
        ({"seed": 7}, "seed", 7),
    ],
)
def test_the_probe_names_a_field_that_is_refused(options, field, value):
    assert found(asked=options)[1][0][field] == value
    with pytest.raises(
        InputError,
        match=f"refuses a plain streaming request .*{field}.*leave out the field that it names",
    ):
        found(asked=options, refused=(field,))


@pytest.mark.parametrize(
    ("fields", "kind", "sentence"),
    [
        (
            {"model": "small", "models": CARDS},
            InputError,
            "the server has no model small; name its model: big, independent, other-name",
        ),
        (
            {"fault": "wrong_model"},
            InputError,
            "another model than independent .*as another.*; name its model: ind",
        ),
        ({"health": 401}, InputError, "requires an API key .*status_401.*; export its key"),
        (
            {"fault": "redirect"},
            InputError,
            "redirects .*/elsewhere/.*; use the address that it redirects to",
        ),
        (
            {"url": "http://127.0.0.1:9"},
            SilentServerError,
            "nothing answers .*Connection refused.*; start the server or correct its address",
        ),
        (
            {"health": 503},
            ExternalError,
            "is not ready .*status_503.*; wait until its /health answers 200",
        ),
        ({"fault": "status"}, ExternalError, "is not ready .*no more room in the queue"),
        (
            {"fault": "html"},
            ExternalError,
            "not an OpenAI-compatible .*server.*Sign in.*; check the address",
        ),
        ({"fault": "json"}, ExternalError, "not an OpenAI-compatible .*server .*came whole"),
        (
            {"fault": "empty_json"},
            ExternalError,
            "not an OpenAI-compatible .*server .*an event has no choices",
        ),
        ({"fault": "not_http"}, ExternalError, "does not speak HTTP"),
        (
            {"fault": "drop"},
            ExternalError,
            "a small test request failed .*closed.*; check the server's log",
        ),
        ({"fault": "error"}, ExternalError, "a small test request failed .*engine died"),
    ],
)
def test_an_unmeasurable_server_is_named_with_what_to_do(fields, kind, sentence):
    with pytest.raises(kind, match=f"^arm=http://.*{sentence}"):
        found(**fields)
