"""Which suite a name means, and when two suites are the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest

from tandem.bench.suites.suite import BUILT_IN, load_suite, narrow_suites
from tandem.declarations.suite_file import BuiltInSuite
from tandem.errors import InputError

FIRST = {
    "id": "a",
    "class": "chat",
    "prompt": "Wie heißt du?",
    "max_tokens": 40,
    "check": ["code", "repeats"],
}
SECOND = {"id": "b", "class": "code", "prompt": "Say hello in C."}


def hash_of(folder: Path, *lines: str) -> str:
    path = folder / "mine.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return load_suite(path).sha256


@pytest.fixture
def plain(tmp_path):
    return hash_of(tmp_path, json.dumps(FIRST), json.dumps(SECOND))


def test_the_hash_is_of_content_and_order_not_of_spelling(plain, tmp_path):
    first = json.dumps(FIRST)
    second = json.dumps(SECOND)
    spelt = json.dumps(
        dict(reversed(FIRST.items())), ensure_ascii=False, separators=(" ,  ", "  :")
    )
    hints = json.dumps({**FIRST, "check": ["repeats", "code", "code"]})
    message = json.dumps(
        {"id": "b", "class": "code", "messages": [{"content": "Say hello in C.", "role": "user"}]}
    )

    assert hash_of(tmp_path, spelt, "", second) == plain
    assert hash_of(tmp_path, hints, second) == hash_of(tmp_path, first, message) == plain
    assert hash_of(tmp_path, second, first) != plain


@pytest.mark.parametrize(
    "change",
    [
        {"id": "c"},
        {"class": "talk"},
        {"prompt": "Wie heißt du? "},
        {"max_tokens": 41},
        {"check": ["code"]},
        {"system": "Be brief."},
    ],
    ids=lambda change: next(iter(change)),
)
def test_whatever_changes_what_is_asked_or_judged_changes_the_hash(change, plain, tmp_path):
    assert hash_of(tmp_path, json.dumps({**FIRST, **change}), json.dumps(SECOND)) != plain


def test_an_experiment_may_name_each_suite_of_tandem():
    assert get_args(BuiltInSuite) == tuple(BUILT_IN)


def test_no_two_suites_of_tandem_share_a_class():
    classes = [name for suite in BUILT_IN for name in load_suite(suite).classes]
    assert len(set(classes)) == len(classes)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("reel", "did you mean 'real'?"),
        ("sharegpt", "name one of these"),
        ("-", "name standard input by its path: /dev/stdin"),
    ],
)
def test_an_unknown_name_is_answered_with_what_there_is(name, words):
    with pytest.raises(InputError) as caught:
        load_suite(name)
    allowed = f"allowed: {', '.join(BUILT_IN)}, or a file"
    assert f"{name}: no suite and no file has this name; {allowed}" in str(caught.value)
    assert words in str(caught.value)


def test_named_classes_narrow_the_suites_and_change_their_hash():
    post = load_suite("post")
    real = load_suite("real")

    (narrowed,) = narrow_suites([post, real], ["json", "chat"])

    assert (narrowed.name, narrowed.classes) == ("real", ("json", "chat"))
    assert narrowed.sha256 != real.sha256 == real.select_classes(real.classes).sha256
    with pytest.raises(
        InputError, match=r"(?s)no selected suite has a class 'jsn'.*did you mean 'json'"
    ):
        narrow_suites([post, real], ["jsn"])
