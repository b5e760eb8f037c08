"""Each word of the content check, on both sides of its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tandem.bench.suites.content import CONTENT_WORDS, check_content
from tandem.bench.suites.prompt import Hint, Prompt
from tandem.bench.suites.suite import load_suite

ANSWERS = json.loads((Path(__file__).parent / "answers.json").read_text())  # texts by language and kind


def asked(*hints: Hint, prompt: str = "Tell me about it.") -> Prompt:
    return Prompt(id="p", class_="c", prompt=prompt, check=frozenset(hints))


def word(text: str, *hints: Hint, finish_reason: str = "stop", prompt: str = "Tell me about it.") -> str:
    return check_content(asked(*hints, prompt=prompt), text, finish_reason)


# ok


@pytest.mark.parametrize("name", ANSWERS["prose"])
def test_prose_of_any_language_is_content(name: str) -> None:
    assert word(ANSWERS["prose"][name]) == "ok"


@pytest.mark.parametrize("name", ANSWERS["forms"])
def test_lists_tables_poems_and_mixed_answers_are_content(name: str) -> None:
    assert word(ANSWERS["forms"][name]) == "ok"


@pytest.mark.parametrize("name", ANSWERS["code"])
def test_code_is_content_where_code_was_asked_for(name: str) -> None:
    assert word(ANSWERS["code"][name], "code") == "ok"


@pytest.mark.parametrize("name", ANSWERS["code"])
def test_fenced_code_inside_an_explanation_is_content(name: str) -> None:
    text = f"This should do what you want:\n\n```\n{ANSWERS['code'][name]}\n```\n\nCall it once at the start."

    assert word(text) == "ok"


@pytest.mark.parametrize("prompt", load_suite("real").prompts, ids=lambda prompt: prompt.id)
def test_what_people_wrote_for_the_suite_is_no_garbage_and_no_loop(prompt: Prompt) -> None:
    answer = prompt.as_text()

    assert check_content(asked("code"), answer, "stop") in {"ok", "refusal"}


def test_an_answer_of_one_word_is_content() -> None:
    assert word("Yes") == "ok"


def test_the_same_answer_always_gets_the_same_word() -> None:
    text = ANSWERS["prose"]["english"]

    assert {word(text) for _ in range(3)} == {"ok"}


def test_every_word_given_has_its_definition() -> None:
    assert set(CONTENT_WORDS) == {"ok", "empty", "truncated", "refusal", "loop", "garbage"}


# empty


@pytest.mark.parametrize("text", ["", " \n\t ", "<think>\n\n</think>\n\n"])
def test_white_space_alone_is_empty(text: str) -> None:
    assert word(text) == "empty"


# truncated


def test_an_end_by_length_is_truncated() -> None:
    assert word(ANSWERS["prose"]["english"], finish_reason="length") == "truncated"


def test_an_end_by_length_is_right_where_the_answer_was_meant_to_run_so_far() -> None:
    assert word(ANSWERS["prose"]["english"], "to-limit", finish_reason="length") == "ok"


def test_thinking_that_took_all_the_tokens_is_truncated() -> None:
    assert check_content(asked(), "", "length", reasoning="First I have to") == "truncated"


def test_thinking_that_never_closed_is_truncated() -> None:
    assert word("<think>First I have to find out", finish_reason="length") == "truncated"


@pytest.mark.parametrize(
    "text", ['{"title": "Lentil soup", "steps": ["Rinse', '[{"n": 1}, {"n": 2},', '```json\n{"a": {"b": 1}']
)
def test_json_that_stops_inside_its_value_is_truncated(text: str) -> None:
    assert word(text, "json") == "truncated"


# json


@pytest.mark.parametrize(
    "text",
    [
        '{"title": "Lentil soup", "servings": 4}',
        "[1, 2, 3]",
        '```json\n{"a": [1, 2]}\n```',
        'Here is the object:\n\n{"a": null}\n\nTell me if you need more.',
        'As asked [see below], the object is {"a": "}"}',
        '<think>\nWhich keys? {"a"\n</think>\n{"a": 1}',
    ],
)
def test_json_is_content_bare_fenced_or_between_words(text: str) -> None:
    assert word(text, "json") == "ok"


@pytest.mark.parametrize(
    "text", ["{'a': 1}", '{"a": 1,}', '{"a": NaN}', "{a: 1}", "title: Lentil soup\nservings: 4", '{"a": 01}']
)
def test_what_is_not_json_is_garbage_where_json_was_asked_for(text: str) -> None:
    assert word(text, "json") == "garbage"


def test_what_is_not_json_is_content_elsewhere() -> None:
    assert word("title: Lentil soup\nservings: 4") == "ok"


# refusal


@pytest.mark.parametrize("text", ANSWERS["refusals"])
def test_an_answer_that_begins_by_declining_is_a_refusal(text: str) -> None:
    assert word(text) == "refusal"


@pytest.mark.parametrize("text", ANSWERS["no_refusals"])
def test_a_refusal_that_is_quoted_or_told_of_is_content(text: str) -> None:
    assert word(text) == "ok"


def test_declining_is_content_where_the_prompt_asked_for_it() -> None:
    letter = "I'm sorry, but I cannot help with the move on Saturday, my back is still bad."

    assert word(letter) == "refusal"
    assert word(letter, prompt="Write a note in which I decline to help with a move.") == "ok"


def test_a_long_answer_that_begins_with_a_caveat_is_content() -> None:
    text = f"I'm afraid I can't access live timetables. {ANSWERS['prose']['english']} {ANSWERS['forms']['steps']}"

    assert len(text) > 700
    assert word(text) == "ok"


# loop


@pytest.mark.parametrize("name", ANSWERS["loops"])
def test_an_end_that_repeats_itself_is_a_loop(name: str) -> None:
    begin, unit, times = ANSWERS["loops"][name]

    assert word(begin + unit * times) == "loop"


@pytest.mark.parametrize("name", ANSWERS["loops"])
def test_a_loop_that_max_tokens_cut_inside_a_word_is_a_loop(name: str) -> None:
    begin, unit, times = ANSWERS["loops"][name]

    assert word((begin + unit * (times + 1))[: -max(1, len(unit) // 3)], finish_reason="length") == "loop"


@pytest.mark.parametrize("name", ANSWERS["loops"])
def test_the_same_text_is_content_where_repetition_was_asked_for(name: str) -> None:
    begin, unit, times = ANSWERS["loops"][name]

    assert word(begin + unit * times, "repeats") == "ok"


@pytest.mark.parametrize("name", ANSWERS["loops"])
def test_saying_it_twice_is_no_loop(name: str) -> None:
    begin, unit, _ = ANSWERS["loops"][name]

    assert word(begin + unit * 2) == "ok"


def test_a_passage_that_was_left_again_is_no_loop() -> None:
    begin, unit, times = ANSWERS["loops"]["sentence"]

    assert word(f"{begin}{unit * times} {ANSWERS['prose']['english']}") == "ok"


def test_a_loop_with_small_changes_is_a_loop() -> None:
    lines = [f"Then I went to the {place} and I looked at the sea and I thought of home. " for place in "abcdefghij"]

    assert word("".join(lines) * 2) == "loop"


def test_like_lines_are_content_in_code() -> None:
    lines = "".join("    values.append(read(port))\n" for _ in range(12))

    assert word(f"def fill(values, port):\n{lines}", "code") == "ok"


def test_the_same_line_without_end_is_a_loop_even_in_code() -> None:
    lines = "".join("    total = total + 1\n" for _ in range(100))

    assert word(f"def count(total):\n{lines}", "code") == "loop"


def test_a_matrix_of_zeros_is_content_in_code() -> None:
    assert word("grid = [\n" + "    [0, 0, 0, 0, 0, 0, 0, 0],\n" * 12, "code") == "ok"


# garbage


@pytest.mark.parametrize("name", ANSWERS["garbage"])
def test_what_a_broken_draft_or_artifact_sends_is_garbage(name: str) -> None:
    assert word(ANSWERS["garbage"][name]) == "garbage"


@pytest.mark.parametrize("name", ANSWERS["garbage"])
def test_garbage_that_ran_into_max_tokens_is_garbage(name: str) -> None:
    assert word(ANSWERS["garbage"][name], finish_reason="length") == "garbage"


@pytest.mark.parametrize("name", ANSWERS["garbage_of_machines"])
def test_garbage_is_garbage_also_where_code_was_asked_for(name: str) -> None:
    assert word(ANSWERS["garbage_of_machines"][name], "code") == "garbage"


@pytest.mark.parametrize("name", ANSWERS["garbage"])
def test_garbage_is_garbage_also_where_repetition_was_asked_for(name: str) -> None:
    assert word(ANSWERS["garbage"][name], "repeats", "to-limit") == "garbage"


@pytest.mark.parametrize("language", ANSWERS["prose"])
def test_replacement_characters_all_over_a_text_are_garbage(language: str) -> None:
    text = ANSWERS["prose"][language]
    broken = "".join(f"{text[start : start + 20]}\ufffd" for start in range(0, len(text), 20))

    assert word(broken) == "garbage"


@pytest.mark.parametrize("language", ANSWERS["prose"])
def test_one_replacement_character_at_a_cut_end_is_none(language: str) -> None:
    assert word(f"{ANSWERS['prose'][language]}\ufffd", "to-limit", finish_reason="length") == "ok"
