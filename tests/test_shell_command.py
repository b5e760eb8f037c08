"""Commands for people to paste: every word stays one word, and nothing else runs."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from tandem.shell_command import (
    REPLACEMENT,
    build_cdk_command,
    build_tandem_command,
    clean_text,
    quote_command,
)

HOSTILE = ("x; curl evil", "$(id)", "`id`", "it's", "*", "", "-rf")
CONTROLS = ("a\nid", "\x1b[2Jx", "a\x9b31mb", "a\u202eb")


@pytest.mark.parametrize("word", HOSTILE)
def test_a_real_shell_runs_nothing_of_a_word(word):
    command = quote_command("printf", "<%s>", "--", word)
    process = subprocess.run(
        ["/bin/sh", "-c", command], capture_output=True, text=True, check=True
    ).stdout
    assert process == f"<--><{word}>"


@pytest.mark.parametrize("word", CONTROLS)
def test_a_control_character_never_reaches_the_screen(word):
    command = quote_command("aws", word)
    assert command.isprintable()
    assert shlex.split(command) == ["aws", clean_text(word)]
    assert REPLACEMENT in command


def test_text_without_control_characters_stays_as_it_is():
    assert clean_text("run r-1 of ana: 3 / 2 Größe") == "run r-1 of ana: 3 / 2 Größe"


def test_a_plain_command_has_no_quotes():
    assert (
        build_tandem_command("artifacts list", "prod", "--json")
        == "tandem artifacts list --env prod --json"
    )


def test_stacks_are_no_pattern_of_the_shell():
    assert build_cdk_command("deploy", "prod") == "npx cdk deploy 'prod/*' -c env=prod"
    assert build_cdk_command("diff", "prod", "Fleet") == "npx cdk diff prod/Fleet -c env=prod"
