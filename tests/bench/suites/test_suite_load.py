"""Which suite a name means, and when two suites are the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tandem.bench.suites.suite import SuiteError, load_suite, narrow_suites

FIRST = {"id": "a", "class": "chat", "prompt": "Wie heißt du?", "max_tokens": 40, "check": ["code", "repeats"]}
SECOND = {"id": "b", "class": "code", "prompt": "Say hello in C."}


def hash_of(folder: Path, *lines: str) -> str:
    path = folder / "mine.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return load_suite(path).sha256


@pytest.fixture
def plain(tmp_path: Path) -> str:
    return hash_of(tmp_path, json.dumps(FIRST), json.dumps(SECOND))


def test_the_spelling_of_a_file_does_not_change_the_hash(plain: str, tmp_path: Path) -> None:
    spelt = json.dumps(dict(reversed(FIRST.items())), ensure_ascii=False, separators=(" ,  ", "  :"))
    hints = json.dumps({**FIRST, "check": ["repeats", "code", "code"]})

    assert hash_of(tmp_path, spelt, "", json.dumps(SECOND)) == plain
    assert hash_of(tmp_path, hints, json.dumps(SECOND)) == plain


def test_a_prompt_and_the_same_prompt_as_one_message_have_one_hash(plain: str, tmp_path: Path) -> None:
    line = {"id": "b", "class": "code", "messages": [{"role": "user", "content": "Say hello in C."}]}

    assert hash_of(tmp_path, json.dumps(FIRST), json.dumps(line)) == plain


@pytest.mark.parametrize(
    "change",
    [
        {"id": "c"}, {"class": "talk"}, {"prompt": "Wie heißt du? "}, {"max_tokens": 41}, {"check": ["code"]},
        {"system": "Be brief."},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_whatever_changes_what_is_asked_or_judged_changes_the_hash(
    change: dict[str, object], plain: str, tmp_path: Path
) -> None:
    assert hash_of(tmp_path, json.dumps({**FIRST, **change}), json.dumps(SECOND)) != plain


def test_another_order_is_another_suite(plain: str, tmp_path: Path) -> None:
    assert hash_of(tmp_path, json.dumps(SECOND), json.dumps(FIRST)) != plain


def test_a_user_s_suite_has_its_file_s_name(tmp_path: Path) -> None:
    path = tmp_path / "real.jsonl"
    path.write_text(json.dumps(FIRST))

    assert load_suite(path).name == "real.jsonl"
    assert load_suite(str(path)).sha256 == load_suite(path).sha256


def test_classes_stand_in_the_order_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    lines = [
        {**FIRST, "id": str(number), "class": name} for number, name in enumerate(["zebra", "ant", "zebra", "bee"])
    ]
    path.write_text("\n".join(map(json.dumps, lines)))

    suite = load_suite(path)

    assert suite.classes == ("zebra", "ant", "bee")
    assert [prompt.id for prompt in suite.class_prompts("zebra")] == ["0", "2"]


def test_a_name_that_is_nearly_a_suite_s_is_answered_with_that_suite() -> None:
    with pytest.raises(SuiteError) as caught:
        load_suite("reel")

    assert "did you mean 'real'?" in str(caught.value)
    assert "post, real, or a file" in str(caught.value)


def test_an_unknown_name_is_answered_with_what_there_is() -> None:
    with pytest.raises(SuiteError, match=r"sharegpt: no suite and no file has this name; allowed: post, real, or"):
        load_suite("sharegpt")


def test_only_prompts_may_end_where_the_model_ends_them(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps(FIRST))

    assert [load_suite(suite).defaults.ignore_eos for suite in ("post", "real", path)] == [False] * 3


def test_named_classes_alone_are_asked_of_the_suites_that_have_them() -> None:
    suites = narrow_suites([load_suite("post"), load_suite("real")], ["json", "chat"])

    assert [(suite.name, suite.classes) for suite in suites] == [("real", ("json", "chat"))]


def test_a_suite_of_fewer_classes_has_another_hash() -> None:
    real = load_suite("real")

    assert real.select_classes(["json"]).sha256 != real.sha256 == real.select_classes(real.classes).sha256


def test_a_class_that_no_suite_has_is_named_with_the_nearest() -> None:
    with pytest.raises(SuiteError, match=r"(?s)no suite that is asked has a class 'jsn'.*did you mean 'json'"):
        narrow_suites([load_suite("real")], ["jsn"])
