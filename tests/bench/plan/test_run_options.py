"""Options in Python: what they refuse, that they stay as they are, and that flags give the same."""

from __future__ import annotations

import copy
import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from bench_cli import run_flags
from planned import suite_file

from tandem.bench.plan.run_options import RunOptions
from tandem.bench.plan.settings import RunSettings, complete_options
from tandem.cli.bench_settings import build_settings
from tandem.cli.selection import Selection
from tandem.errors import InputError

SERVERS = {"plain": "http://h:1", "draft": "http://h:2"}
ARMS = ("--baseline", "plain=http://h:1", "--variant", "draft=http://h:2", "--model", "m")
SELECTION = Selection(environments=Path("environments"), experiments=Path("experiments"))
DRAWN_FIELDS = ("created_utc", "clock", "host", "flags")


def make_options(**options: Any) -> RunOptions:
    return RunOptions(**{"servers": SERVERS, "model": "m", **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"servers": ["http://h:1"]}, "servers: ['http://h:1']; allowed: name of each server to"),
        ({"servers": {"a#2": "http://h:1"}}, "servers: 'a#2'; allowed: up to 63 letters"),
        ({"servers": {"a": "http://user:word@h:1"}}, "servers['a']: 'http://user:word@h:1'"),
        ({"model": {"other": "m"}}, "model: {'other': 'm'}; allowed: one for all servers"),
        ({"api_key": {"draft": "se cret"}}, "api_key: its value is not shown; allowed: a key of"),
        ({"headers": {"draft": {"a b": "secret"}}}, "headers: its value is not shown; allowed: a"),
        (
            {"extra_body": {"seed": 1}},
            "extra_body: {'seed': 1}; allowed: 'seed' is set by Tandem: set it with --seed",
        ),
        ({"headers": {"x-tries": 1}}, "headers: its value is not shown; allowed: the value of"),
        ({"extra_body": {1: 2}}, "extra_body: {1: 2}; allowed: the name of a field is a text"),
        ({"leave_out": "seed"}, "leave_out: 'seed'; allowed: a list of fields"),
        (
            {"ignore_eos": True, "leave_out": ("max_tokens",)},
            "leave_out: ('max_tokens',); allowed: no",
        ),
        (
            {"headers": "x-key: secret"},
            "headers: its value is not shown; allowed: a mapping of names",
        ),
        ({"size": "small"}, "size: 'small'; allowed: 'quick', 'default', 'full'"),
        ({"suites": "real"}, "suites: 'real'; allowed: a tuple of texts"),
        ({"repeats": 0}, "repeats: 0; allowed: a whole number from 1 to 1000000"),
        ({"thinking": 1}, "thinking: 1; allowed: None, True, False"),
        ({"temperature": None}, "temperature: None; allowed: a number from 0 to 2"),
        ({"record": ("tokens",)}, "record: 'tokens'; allowed: token_ids, logprobs"),
        ({"concurrency": 4}, "concurrency: 4; allowed: a tuple of whole numbers from 1 to 4096"),
        ({"rate_per_s": (float("nan"),)}, "rate_per_s: nan; allowed: a number from 0.000001 to 1"),
        (
            {"concurrency": (4,), "rate_per_s": (1.0,)},
            "rate_per_s: (1.0,); allowed: concurrency or",
        ),
        ({"knee": True}, "goodput: {}; allowed: a limit beside knee=True"),
        (
            {"knee": True, "goodput": {"ttft_ms": 1}, "rounds": 4},
            "rounds: 4; allowed: None beside knee=True",
        ),
        (
            {"knee": True, "goodput": {"ttft_ms": 1}, "restart": "x"},
            "restart: 'x'; allowed: {} beside knee=True",
        ),
        ({"restart_limit_s": 60}, "restart_limit_s: 60; allowed: a time beside restart"),
        ({"timeouts": {"gap": 1.0}}, "timeouts['gap']: 1.0; allowed: a number above 0 of conn"),
        ({"goodput": {"ttft_ms": 0}}, "goodput['ttft_ms']: 0; allowed: a number above 0 of ttft"),
        ({"placement": {"other": "x"}}, "placement['other']: 'x'; allowed: a server of plain, dr"),
        ({"prompt_column": ""}, "prompt_column: ''; allowed: the name of a column or key"),
        ({"synthetic": "64"}, "synthetic: '64'; allowed: IN/OUT in tokens, as 512/128"),
        ({"synthetic": "64/131073"}, "synthetic: '64/131073'; allowed: IN/OUT in tokens"),
    ],
    ids=lambda value: " ".join(map(str, value.items())) if isinstance(value, dict) else "",
)
def test_a_bad_option_is_refused_with_what_is_allowed(options, message):
    with pytest.raises(InputError) as fault:
        make_options(**options)
    assert str(fault.value).startswith(f"RunOptions.{message}")


def list_settings(settings: RunSettings) -> dict[str, Any]:
    """The settings of a run without what differs between two runs of the same flags."""
    manifest = msgspec.to_builtins(settings.manifest)
    fields = {name: value for name, value in manifest.items() if name not in DRAWN_FIELDS}
    return fields | {
        name: getattr(settings, name) for name in RunSettings.__slots__ if name != "manifest"
    }


@pytest.mark.parametrize(
    ("options", "flags"),
    [
        (
            {
                "model": {"plain": "m", "draft": "n"},
                "headers": {"version": "2"},
                "extra_body": {"top_p": 0.9},
                "leave_out": ("seed",),
                "ignore_eos": True,
                "speculates": {"draft": 3},
            },
            (
                *("--model", "draft=n", "--header", "version:2", "--extra-body", '{"top_p": 0.9}'),
                *("--leave-out", "seed", "--ignore-eos", "--speculates", "draft=3"),
            ),
        ),
        (
            {
                "headers": {"draft": {"version": "2=:3"}},
                "extra_body": {"draft": {"stop": ["="]}},
                "leave_out": {"draft": ("seed",)},
                "speculates": {"draft": None},
            },
            (
                *("--header", "draft=version:2=:3", "--extra-body", 'draft={"stop": ["="]}'),
                *("--leave-out", "draft=seed", "--speculates", "draft"),
            ),
        ),
        ({"size": "quick"}, ("--quick",)),
        (
            {
                "suites": ("post", "real"),
                "classes": ("chat", "json"),
                "prompts_per_class": 2,
                "max_tokens": 16,
                "thinking": False,
                "record": ("token_ids", "logprobs"),
                "concurrency": [1, 8, 1],
                "rounds": 6,
                "control_rounds": 0,
                "mixed": True,
                "seed": 7,
            },
            (
                *("--suite", "post", "real", "--classes", "chat,json", "--prompts-per-class", "2"),
                *("--max-tokens", "16", "--thinking", "off", "--record", "token-ids,logprobs"),
                *("--concurrency", "1,8,1", "--rounds", "6", "--control-rounds", "0", "--mixed"),
                *("--seed", "7"),
            ),
        ),
        (
            {
                "api": "completions",
                "temperature": 1,
                "rate_per_s": (2, 0.5, 2),
                "duration_s": 90,
                "repeats": 2,
                "schedule": "simultaneous",
                "warm_up": 0,
                "timeouts": {"gap_s": 9.0},
                "goodput": {"ttft_ms": 500},
                "placement": {"draft": "second-half"},
                "price_usd_per_hour": 35.76,
            },
            (
                *("--api", "completions", "--temperature", "1", "--rate", "2,0.5"),
                *("--duration", "90s", "--repeats", "2", "--schedule", "simultaneous"),
                *("--warm-up", "0", "--timeouts", "gap:9", "--goodput", "ttft_ms:500"),
                *("--placement", "draft=second-half", "--price", "35.76"),
            ),
        ),
        (
            {"knee": True, "goodput_share": 0.9, "goodput": {"ttft_ms": 5}},
            ("--knee", "--goodput-share", "0.9", "--goodput", "ttft_ms:5"),
        ),
        ({"synthetic": "64/8", "sample": 4}, ("--synthetic", "64/8", "--sample", "4")),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_options_give_the_settings_of_their_flags(options, flags, root, monkeypatch):
    monkeypatch.chdir(root)
    from_options = list_settings(complete_options(make_options(**options)))
    from_flags = list_settings(build_settings(SELECTION, run_flags(*ARMS, *flags, "--out", "x")))

    assert from_options == from_flags
    assert from_options != list_settings(complete_options(make_options()))


def test_options_that_say_nothing_give_the_settings_of_no_flag(root, monkeypatch):
    monkeypatch.chdir(root)
    from_flags = list_settings(build_settings(SELECTION, run_flags(*ARMS, "--out", "x")))
    assert list_settings(complete_options(make_options())) == from_flags


def test_the_api_key_is_in_no_text_of_settings():
    options = make_options(api_key={"draft": "secret"}, headers={"plain": {"x-key": "hidden"}})
    settings = complete_options(options)
    assert settings.access["draft"].api_key == "secret"
    assert settings.access["plain"].headers == {"x-key": "hidden"}
    assert not {"secret", "hidden"} & set(re.findall(r"\w+", f"{options} {settings}"))


def test_a_suite_may_be_a_path(tmp_path):
    path = suite_file(tmp_path, {"own": ["say a", "say b"]})
    [suite] = complete_options(make_options(suites=(path,))).suites
    assert suite.classes == ("own",)


def test_options_of_a_file_read_it_as_their_flags_do(tmp_path):
    path = tmp_path / "tickets.csv"
    path.write_text("question,team\n" + "".join(f"Why {n}?,{n % 2}\n" for n in range(9)))
    words = {"prompt_column": "question", "class_field": "team", "turns": 2, "sample": 4, "seed": 3}
    flags = [part for name, value in words.items() for part in (f"--{name}", str(value))]
    flags = [part.replace("_", "-") for part in flags]

    options = make_options(suites=(path,), **words)

    [suite] = complete_options(options).suites
    from_flags = build_settings(
        SELECTION, run_flags(*ARMS, "--suite", str(path), *flags, "--out", "x")
    )
    assert from_flags.suites == (suite,)
    assert (len(suite.prompts), set(suite.classes)) == (4, {"0", "1"})


@pytest.mark.parametrize("option", ["prompt_column", "class_field", "turns", "sample"])
def test_an_option_of_a_file_needs_a_file(option):
    flag = f"--{option.replace('_', '-')} says something of a file, and --suite names none"
    for suites in ((), ("real",)):
        value = 4 if option in {"turns", "sample"} else "kind"
        with pytest.raises(InputError, match=flag):
            complete_options(make_options(suites=suites, **{option: value}))


def test_a_later_change_of_what_was_given_changes_no_option():
    servers = dict(SERVERS)
    options = make_options(servers=servers)
    servers["third"] = "http://h:3"
    assert dict(options.servers) == SERVERS


@pytest.mark.parametrize("name", ["servers", "timeouts", "goodput", "placement"])
def test_a_mapping_of_the_options_is_frozen(name):
    with pytest.raises(TypeError):
        getattr(make_options(), name)["other"] = 1


def test_options_can_be_sent_to_another_process():
    options = make_options(goodput={"ttft_ms": 500}, extra_body={"stop": ["a", {"b": "c"}]})
    assert copy.deepcopy(options) == options  # by what pickle writes


def test_a_changed_copy_is_checked_too():
    with pytest.raises(InputError, match=r"RunOptions\.rounds: 0"):
        dataclasses.replace(make_options(), rounds=0)


def test_a_number_of_numpy_can_be_stored():
    manifest = complete_options(make_options(price_usd_per_hour=np.float64(2.5))).manifest
    assert json.loads(msgspec.json.encode(manifest))["price_usd_per_hour"] == 2.5
