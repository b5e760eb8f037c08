"""What a server takes and offers, and what is said of one that cannot be measured."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
from itertools import pairwise

import pytest
from independent_server import MODEL, Schedule, Server
from measured import arm
from one_request import EVERYTHING, run
from running import until

from tandem.bench.load.client import CompletionClient
from tandem.bench.load.field_trial import LARGER_TOKENS, PROBE_TOKENS
from tandem.bench.load.probe import PLAIN_DRAFT, ProbeResult, probe_server
from tandem.bench.load.probe_fault import FAULTS
from tandem.bench.records.manifest import ServerOffers, Timeouts
from tandem.cli.bench_flags import RunFlags
from tandem.errors import ExternalError, InputError, SilentServerError

CARDS = [
    {"id": "big", "root": "/models/big"},
    {"id": MODEL, "root": "/models/independent"},
    {"id": "other-name", "root": "/models/independent"},
]


WANTED = ("token_ids", "logprobs")


def probe(
    *,
    draft: dict | None = None,
    options: dict | None = None,
    fault: str | None = None,
    server: dict | None = None,
    **fields,
) -> tuple[ProbeResult, list[dict]]:
    """Probe an independent server.

    Args:
        draft: fields of the run's requests.
        options: of the probe, beside every extra.
        fault: of the server's answers.
        server: attributes of the server.
        fields: of its address.

    Returns:
        the result, and the bodies that the server got.
    """

    async def ask(client: CompletionClient, served: Server) -> tuple[ProbeResult, list[dict]]:
        for name, value in (server or {}).items():
            setattr(served, name, value)
        request = dataclasses.replace(PLAIN_DRAFT, **(draft or {}))
        result = await probe_server(client, request, **({"extras": WANTED} | (options or {})))
        return result, [truth["body"] for truth in served.posted]

    return run(ask, Schedule(fault=fault, ttft_ms=1, step_ms=1, tokens=40), **fields)


@pytest.mark.parametrize(
    ("refused_fields", "offers"),
    [
        ((), EVERYTHING),
        (
            ("return_token_ids",),
            ServerOffers(include_usage=True, continuous_usage=True, logprobs=True),
        ),
        (
            ("continuous_usage_stats",),
            ServerOffers(include_usage=True, token_ids=True, logprobs=True),
        ),
        (("stream_options", "return_token_ids", "logprobs"), ServerOffers()),
        (("temperature", "seed"), EVERYTHING),
    ],
)
@pytest.mark.parametrize("status", [400, 500])
def test_a_field_that_is_refused_is_left_out_and_said(refused_fields, offers, status):
    server = {"refused_fields": refused_fields, "refusal_status": status}

    result, _ = probe(server=server, draft={"seed": 7})

    assert (result.arm.offers, result.arm.left_out) == (offers, refused_fields)
    said = [note for note in result.notes if f"status_{status}: unknown field" in note]
    assert len(said) == len(result.notes) == len(refused_fields)


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_a_server_that_takes_everything_is_asked_the_least_first(api):
    result, bodies = probe(api=api, draft={"seed": 7})

    assert result.arm.offers == EVERYTHING
    added = [sorted(body.keys() - before.keys()) for before, body in pairwise(bodies)]
    assert added == [
        ["seed", "temperature"],
        ["stream_options"],
        ["return_token_ids"],
        ["logprobs", "top_logprobs"] if api == "chat" else ["logprobs"],
    ]
    assert bodies[0].keys() - {"messages", "prompt"} == {"model", "max_tokens", "stream"}


def test_usage_that_is_taken_and_not_given_is_no_offer():
    result, _ = probe(fault="no_usage")
    assert result.arm.offers == ServerOffers(token_ids=True, logprobs=True)


def test_what_is_not_recorded_is_not_asked_for():
    _, bodies = probe(options={"extras": ()})
    assert not any({"logprobs", "return_token_ids"} & body.keys() for body in bodies)


def test_a_limit_that_is_refused_is_sent_by_another_name():
    result, bodies = probe(server={"refused_fields": ("max_tokens",)})

    assert result.arm.left_out == ("max_tokens",)
    assert (bodies[-1]["max_completion_tokens"], "max_tokens" in bodies[-1]) == (
        PROBE_TOKENS,
        False,
    )
    (note,) = result.notes
    assert note == (
        "arm refuses max_tokens (status_400: unknown field max_tokens); the run sends"
        " max_completion_tokens in its place"
    )


def test_a_limit_that_is_ignored_is_sent_by_another_name():
    result, _ = probe(server={"ignored_fields": ("max_tokens",)})
    assert result.arm.left_out == ("max_tokens",)


@pytest.mark.parametrize("ignored_fields", [(), ("max_completion_tokens",)])
def test_a_small_limit_that_is_refused_is_sent_larger(ignored_fields):
    result, bodies = probe(server={"least_tokens": 16, "ignored_fields": ignored_fields})

    is_other_name = not ignored_fields  # a small limit by another name comes first
    assert result.arm.left_out == (("max_tokens",) if is_other_name else ())
    assert bodies[-1].get("max_tokens") == (None if is_other_name else LARGER_TOKENS)


def test_a_server_that_ignores_the_limit_is_called_that():
    result, _ = probe(server={"ignored_fields": ("max_tokens", "max_completion_tokens")})

    assert result.arm.left_out == ()
    assert result.arm.offers == EVERYTHING  # its count is true
    (note,) = result.notes
    assert note == (
        "arm ignores max_tokens and max_completion_tokens: it gave 40 words where 8 tokens were"
        " allowed; set --max-tokens above its longest answer"
    )


@pytest.mark.parametrize(
    ("lethal_field", "advice"),
    [
        ("logprobs", "drop logprobs from --record"),
        ("stream_options", "add --leave-out stream_options continuous_usage_stats"),
    ],
)
def test_a_server_that_dies_is_named_with_the_last_fields(lethal_field, advice):
    with pytest.raises(
        ExternalError,
        match=rf"died of a request with {lethal_field}.*EngineCore.*; restart .* {advice}",
    ):
        probe(server={"lethal_field": lethal_field})


def test_no_field_is_blamed_for_answers_broken_off_anyway():
    async def ask(client: CompletionClient, served: Server) -> ProbeResult:
        async def break_off() -> None:
            await until(lambda: bool(served.posted and served.posted[0]["bursts"]))
            served.default = dataclasses.replace(served.default, fault="error")

        _, result = await asyncio.gather(break_off(), probe_server(client))
        return result

    result = run(ask, Schedule(ttft_ms=1, step_ms=1))

    assert result.arm.left_out == ()
    assert result.notes == ("arm broke off answers of the probe (api_error: engine died)",)


@pytest.mark.parametrize(("count", "is_asked"), [(8, True), (8.0, True), (9, False)])
def test_a_count_above_the_probes_limit_is_no_count(count, is_asked):
    events = [
        {"choices": [{"index": 0, "delta": {"content": "red"}, "finish_reason": "stop"}]},
        {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": count}},
    ]
    stream = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"

    async def ask(client: CompletionClient, _: Server) -> ProbeResult:
        return await probe_server(client)

    result = run(ask, Schedule(raw=(stream.encode().hex(),)))

    assert result.arm.offers.include_usage is is_asked
    assert [note for note in result.notes if "its usage is no count" in note] == list(result.notes)
    assert len(result.notes) == (not is_asked)


def test_running_usage_is_not_tried_where_usage_is_refused():
    _, bodies = probe(server={"refused_fields": ("stream_options",)})
    assert [body.get("stream_options") for body in bodies].count({"include_usage": True}) == 1


def test_the_servers_version_and_models_are_read():
    result, _ = probe(server={"models": CARDS})
    assert result.arm.server_version == "0.0.1"
    assert result.models == {MODEL, "other-name", "/models/independent"}  # those of one root


@pytest.mark.parametrize("models", [[], [{"id": MODEL}, {"id": "other"}]])
def test_an_alias_may_be_answered_by_the_backends_name(models):
    result, _ = probe(server={"models": models}, fault="wrong_model")

    assert result.models == {MODEL, "another"}
    assert result.notes == ("arm answers as another where independent is requested",)


def test_a_model_that_is_not_listed_is_asked_for():
    result, _ = probe(model="hidden", server={"models": CARDS})
    assert result.notes == ("arm does not list hidden, and answers as hidden",)


def test_a_server_without_a_page_of_models_is_probed():
    result, _ = probe(server={"health": 404})
    assert (result.arm.offers, result.arm.server_version) == (EVERYTHING, None)


def test_an_api_that_is_not_below_v1_is_looked_for():
    async def ask(client: CompletionClient, served: Server) -> tuple[ProbeResult, list[str]]:
        client.arm = arm("arm", url=f"http://127.0.0.1:{served.port}/api/v3", model=MODEL)
        served.api_root = "/api/v3"
        result = await probe_server(client)
        return result, [truth["path"] for truth in served.posted]

    result, paths = run(ask)

    assert result.arm.url.endswith("/api/v3/chat/completions")
    assert set(paths) == {"/api/v3/chat/completions"}


def test_a_wish_of_the_user_is_not_left_out():
    with pytest.raises(InputError, match=r"refuses chat_template_kwargs .*; drop --thinking"):
        probe(draft={"thinking": False}, server={"refused_fields": ("chat_template_kwargs",)})


@pytest.mark.parametrize(
    ("fields", "kind", "sentence"),
    [
        (
            {"model": "small"},
            InputError,
            "the server has no model small; name its model with --model: independent",
        ),
        (
            {"model": "", "server": {"models_page": ["*"]}},
            InputError,
            "the server lists no model; name its model with --model$",
        ),
        (
            {"fault": "wrong_model", "server": {"models": [*CARDS, {"id": "another"}]}},
            InputError,
            "another model than independent .*as another.*; name its model with --model; .* big, ind",
        ),
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
        ({"fault": "status"}, ExternalError, "is not ready .*no more room in the queue.*; wait "),
        (
            {"fault": "html"},
            ExternalError,
            "not an OpenAI-compatible .*server.*Sign in.*; check the address",
        ),
        ({"fault": "not_http"}, ExternalError, "does not speak HTTP"),
        (
            {"fault": "silent", "options": {"timeouts": Timeouts(first_token_s=0.1)}},
            ExternalError,
            "took too long .*first_token_timeout.*; .* allow more with --timeouts",
        ),
        (
            {"fault": "error"},
            ExternalError,
            "a plain request of a few tokens failed .*engine died",
        ),
        *(
            (
                {"server": {"refused_fields": ("stream",), "refusal_status": status}},
                InputError,
                sentence,
            )
            for status, sentence in (
                (
                    401,
                    "requires an API key .*; export its key, and give --api-key-env VAR .*--header",
                ),
                (
                    404,
                    "/v1 has no /chat/completions, or the server has no independent .*; correct --api or",
                ),
                (400, "refuses a plain streaming request .*unknown field stream"),
            )
        ),
    ],
)
def test_an_unmeasurable_server_is_named_with_what_to_do(fields, kind, sentence):
    with pytest.raises(kind, match=f"^arm=http://.*{sentence}"):
        probe(**fields)


@pytest.mark.parametrize(
    ("extra_body", "change"),
    [
        ({"top_p": 0.5, "min_p": 0.1}, "refuses min_p .*; drop min_p from --extra-body"),
        (
            {"chat_template_kwargs": {"enable_thinking": False}},
            "refuses chat_template_kwargs .*; drop it from --extra-body",
        ),
    ],
)
def test_a_field_of_the_user_that_is_refused_is_named(extra_body, change):
    refused = {"refused_fields": ("min_p", "ignore_eos", "chat_template_kwargs")}
    with pytest.raises(InputError, match=change):
        probe(extra_body=extra_body, server=refused)


def test_every_advice_names_flags_that_exist():
    flags = {f"--{entry.name.replace('_', '-')}" for entry in dataclasses.fields(RunFlags)}
    advices = [advice.change for advice in FAULTS]
    assert set(re.findall(r"--[a-z-]+", " ".join(advices))) <= flags


def test_a_limit_of_requests_is_waited_for():
    async def ask(client: CompletionClient, served: Server) -> list[float]:
        async def lift_limit() -> None:
            await until(lambda: bool(served.posted))
            served.default = Schedule(ttft_ms=1, step_ms=1)

        await asyncio.gather(lift_limit(), probe_server(client))
        return [truth["accepted_s"] for truth in served.posted]

    first_s, second_s, *_ = run(ask, Schedule(fault="status", status=429, retry_after="0.3"))

    assert 0.3 <= second_s - first_s < 1.0
