"""Which restart commands the command line takes, and whose they are."""

from __future__ import annotations

import pytest
from bench_cli import run_flags

from tandem.cli.bench_settings import parse_restarts
from tandem.errors import InputError

NAMES = ("base", "spec")
COMMAND = "systemctl restart vllm"


def parse_words(*words: str) -> dict[str, str]:
    return parse_restarts(run_flags("--out", "x", *words), NAMES)


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        (["--starts=6"], "1, or more with a command"),
        (["--restart=./b"], "2 or more: with 1 the command"),
        (["--starts=6", "--restart=bsae=./b"], "a server of base, spec"),
        (["--starts=6", "--restart=./b", "--rounds=5"], "1 to 5, the number of rounds"),
        (["--starts=6", "--restart=./b", "--duration=1m"], "need rounds"),
        (["--starts=6", "--restart=./a", "--restart=./b"], "two --restart for all arms"),
    ],
)
def test_restarts_that_cannot_be_done_are_refused(words, allowed):
    with pytest.raises(InputError, match=allowed):
        parse_words(*words)


@pytest.mark.parametrize(
    ("words", "commands"),
    [
        ([COMMAND], {"base": COMMAND, "spec": COMMAND}),
        (["spec=a=1 b"], {"spec": "a=1 b"}),
        ([COMMAND, "spec=./b"], {"base": COMMAND, "spec": "./b"}),
        (["env A=1 ./b"], {"base": "env A=1 ./b", "spec": "env A=1 ./b"}),
    ],
)
def test_a_command_is_one_arms_or_that_of_all_others(words, commands):
    given = [part for word in words for part in ("--restart", word)]
    assert parse_words("--starts", "6", *given) == commands


def test_a_variable_in_place_of_a_name_is_explained():
    with pytest.raises(InputError, match="env NAME=VALUE COMMAND"):
        parse_words("--starts", "6", "--restart", "CUDA_VISIBLE_DEVICES=0 ./b")


def test_a_command_without_starts_is_told_how_many():
    with pytest.raises(InputError) as refusal:
        parse_words("--restart", "./b")
    assert "add --starts 6" in refusal.value.change
