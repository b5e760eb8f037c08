"""Each word of the content check, on both sides of its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tandem.bench.suites.content import check_content
from tandem.bench.suites.prompt import Hint, Prompt
from tandem.bench.suites.suite import load_suite

# texts by language and kind
ANSWERS = json.loads((Path(__file__).parent / "answers.json").read_text())


def asked(*hints: Hint, prompt: str = "Tell me about it.") -> Prompt:
    return Prompt(id="p", class_="c", prompt=prompt, check=frozenset(hints))


def word(
    text: str, *hints: Hint, finish_reason: str = "stop", prompt: str = "Tell me about it."
) -> str:
    return check_content(asked(*hints, prompt=prompt), text, finish_reason)


PROSE, FORMS, CODE, LOOPS = (ANSWERS[kind] for kind in ("prose", "forms", "code", "loops"))
ENGLISH = PROSE["english"]
UNPARSED = "title: Lentil soup\nservings: 4"
LETTER = "I'm sorry, but I cannot help with the move on Saturday, my back is still bad."
PLACES = "".join(
    f"Then I went to the {place} and I looked at the sea and I thought of home. "
    for place in "abcdefghij"
)
CASES = {
    # text, hints, finish reason, word
    "one word": ("Yes", (), "stop", "ok"),
    "nothing": ("", (), "stop", "empty"),
    "white space": (" \n\t ", (), "stop", "empty"),
    "empty thinking": ("<think>\n\n</think>\n\n", (), "stop", "empty"),
    "an end by length": (ENGLISH, (), "length", "truncated"),
    "an end by length that was meant": (ENGLISH, ("to-limit",), "length", "ok"),
    "thinking that never closed": ("<think>First I have to find out", (), "length", "truncated"),
    "no JSON elsewhere": (UNPARSED, (), "stop", "ok"),
    "a caveat before a long answer": (
        f"I'm afraid I can't access live timetables. {ENGLISH} {FORMS['steps']}",
        (),
        "stop",
        "ok",
    ),
    "a passage that was left again": (
        f"{LOOPS['sentence'][0]}{LOOPS['sentence'][1] * LOOPS['sentence'][2]} {ENGLISH}",
        (),
        "stop",
        "ok",
    ),
    "a loop with small changes": (PLACES * 2, (), "stop", "loop"),
    "like lines in code": (
        "def fill(values, port):\n" + "    values.append(read(port))\n" * 12,
        ("code",),
        "stop",
        "ok",
    ),
    "one line without end in code": (
        "def count(total):\n" + "    total = total + 1\n" * 100,
        ("code",),
        "stop",
        "loop",
    ),
    "a matrix of zeros": (
        "grid = [\n" + "    [0, 0, 0, 0, 0, 0, 0, 0],\n" * 12,
        ("code",),
        "stop",
        "ok",
    ),
}


def broken(text: str) -> str:
    """Put a replacement character behind every 20 characters."""
    return "".join(f"{text[start : start + 20]}\ufffd" for start in range(0, len(text), 20))


def listed(texts: list[str], hints: tuple[Hint, ...], expected: str) -> dict[str, tuple]:
    return {f"{expected}: {text}": (text, hints, "stop", expected) for text in texts}


CASES |= listed([*PROSE.values(), *FORMS.values()], (), "ok") | listed(
    list(CODE.values()), ("code",), "ok"
)
CASES |= listed(ANSWERS["refusals"], (), "refusal") | listed(ANSWERS["no_refusals"], (), "ok")
CASES |= listed(
    [
        f"This should do:\n\n```\n{code}\n```\n\nCall it once at the start."
        for code in CODE.values()
    ],
    (),
    "ok",
)
CASES |= listed(
    [
        '{"title": "Lentil soup", "steps": ["Rinse',
        '[{"n": 1}, {"n": 2},',
        '```json\n{"a": {"b": 1}',
    ],
    ("json",),
    "truncated",
)
CASES |= listed(
    [
        '{"title": "Lentil soup", "servings": 4}',
        "[1, 2, 3]",
        '```json\n{"a": [1, 2]}\n```',
        'Here is the object:\n\n{"a": null}\n\nTell me if you need more.',
        'As asked [see below], the object is {"a": "}"}',
        '<think>\nWhich keys? {"a"\n</think>\n{"a": 1}',
    ],
    ("json",),
    "ok",
)
CASES |= listed(
    ["{'a': 1}", '{"a": 1,}', '{"a": NaN}', "{a: 1}", UNPARSED, '{"a": 01}'], ("json",), "garbage"
)
for begin, unit, times in LOOPS.values():
    CASES |= listed([begin + unit * times], (), "loop") | listed([begin + unit * 2], (), "ok")
    CASES[f"asked for: {unit}"] = (begin + unit * times, ("repeats",), "stop", "ok")
    cut_text = (begin + unit * (times + 1))[: -max(1, len(unit) // 3)]
    CASES[f"cut inside a word: {unit}"] = (cut_text, (), "length", "loop")
for text in ANSWERS["garbage"].values():
    CASES |= listed([text], (), "garbage")
    CASES[f"at max_tokens: {text}"] = (text, (), "length", "garbage")
    CASES[f"repetition: {text}"] = (text, ("repeats", "to-limit"), "stop", "garbage")
for text in ANSWERS["garbage_of_machines"].values():
    CASES[f"code: {text}"] = (text, ("code",), "stop", "garbage")
for text in PROSE.values():
    CASES |= listed([broken(text)], (), "garbage")
    CASES[f"cut sign: {text}"] = (f"{text}\ufffd", ("to-limit",), "length", "ok")


@pytest.mark.parametrize("case", CASES.values(), ids=[name[:40] for name in CASES])
def test_an_answer_gets_its_word(case):
    text, hints, finish_reason, expected = case
    assert word(text, *hints, finish_reason=finish_reason) == expected


def test_prompts_of_the_suite_are_neither_garbage_nor_loops():
    words = {
        prompt.id: check_content(asked("code"), prompt.as_text(), "stop")
        for prompt in load_suite("real").prompts
    }
    assert set(words.values()) <= {"ok", "refusal"}, words


def test_thinking_that_took_all_the_tokens_is_truncated():
    assert check_content(asked(), "", "length", reasoning="First I have to") == "truncated"


def test_declining_is_content_where_the_prompt_asked_for_it():
    assert word(LETTER) == "refusal"
    assert word(LETTER, prompt="Write a note in which I decline to help with a move.") == "ok"


@pytest.mark.parametrize(
    ("tool_calls", "expected_word"),
    [('find{"place":"Lisbon","days":[1,2,3]}', "ok"), ("\ufffd" * 40, "garbage"), (None, "empty")],
)
def test_calls_of_tools_are_content_where_there_is_no_text(tool_calls, expected_word):
    assert check_content(asked(), "", "tool_calls", tool_calls=tool_calls) == expected_word
