"""What a request says, byte for byte."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from measured import arm
from one_request import EVERYTHING, asking

from tandem.bench.load.completion_request import encode_body
from tandem.bench.plan.run_options import ApiName
from tandem.bench.records.manifest import ServerOffers


def sent(api: ApiName = "chat", **fields) -> Mapping:
    return json.loads(encode_body(asking(**fields), "small", api))


@pytest.mark.parametrize(
    ("url", "root"),
    [
        *((f"http://host:8000{end}", "http://host:8000") for end in ("", "/", "/v1", "/v1/")),
        ("https://host/team/v1", "https://host/team"),
    ],
)
def test_an_address_may_have_a_path_and_end_in_v1(url, root):
    assert arm("arm", url=url).root == root


@pytest.mark.parametrize(
    ("url", "root", "api_root"),
    [
        ("http://host:8000/v1/chat/completions", "http://host:8000", "http://host:8000/v1"),
        ("http://host:8000/v1/completions/", "http://host:8000", "http://host:8000/v1"),
        ("https://host/paas/v4/chat/completions", "https://host/paas/v4", "https://host/paas/v4"),
        ("https://host/team/v1", "https://host/team", "https://host/team/v1"),
    ],
)
def test_the_whole_url_says_where_the_api_is(url, root, api_root):
    entry = arm("arm", url=url)
    assert (entry.root, entry.api_root) == (root, api_root)


def test_a_plain_request_says_nothing_beyond_what_every_server_knows():
    common = {"model": "small", "max_tokens": 16, "temperature": 0.0, "stream": True}
    assert sent() == common | {"messages": [{"role": "user", "content": "count to ten"}]}
    assert sent("completions") == common | {"prompt": "count to ten"}


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"seed": 7}, {"seed": 7}),
        ({"thinking": False}, {"chat_template_kwargs": {"enable_thinking": False}}),
        ({"offers": ServerOffers(include_usage=True)}, {"stream_options": {"include_usage": True}}),
        ({"offers": ServerOffers(token_ids=True)}, {"return_token_ids": True}),
        ({"offers": ServerOffers(logprobs=True)}, {"logprobs": True, "top_logprobs": 2}),
        ({"offers": ServerOffers(continuous_usage=True)}, {}),
        ({"extra_body": {"top_p": 0.9, "stop": None}}, {"top_p": 0.9, "stop": None}),
        (
            {"thinking": False, "extra_body": {"chat_template_kwargs": {"tone": "dry"}}},
            {"chat_template_kwargs": {"enable_thinking": False, "tone": "dry"}},
        ),
    ],
)
def test_an_option_is_said_where_it_was_asked_for(fields, names):
    assert sent(**fields) == sent() | names


def test_a_field_left_out_is_in_no_request():
    assert "temperature" not in sent(left_out=("temperature",))


def test_completions_take_the_number_of_log_probabilities_and_no_template():
    body = sent("completions", offers=EVERYTHING, thinking=False)
    assert body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert (body["logprobs"], "top_logprobs" in body, "chat_template_kwargs" in body) == (
        2,
        False,
        False,
    )


def test_requests_of_two_arms_differ_in_the_model_alone():
    small, large = (
        encode_body(asking(offers=EVERYTHING), model, "chat") for model in ("small", "large")
    )
    assert large == small.replace(b"small", b"large")
