"""A file of prompts in the forms that people have: what is sent of each, and how it is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tandem.bench.suites.file_options import FileOptions
from tandem.bench.suites.suite import Suite, read_suite
from tandem.errors import InputError


def read(content: str | bytes, name: str = "mine", **form: Any) -> Suite:
    body = content if isinstance(content, bytes) else content.encode()
    return read_suite(body, name=name, where=name, options=FileOptions(**form))


def lines(*rows: object) -> str:
    return "\n".join(map(json.dumps, rows)) + "\n"


def refusal(content: str | bytes, **form: Any) -> str:
    with pytest.raises(InputError) as caught:
        read(content, "mine", **form)
    assert caught.value.where == "mine"
    return f"{caught.value.problem}; {caught.value.change}"


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def answer(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


TALK = [user("Hi"), answer("Hello!"), user("Plan a trip")]
BATCH = {
    "custom_id": "request-1",
    "method": "POST",
    "url": "/v1/chat/completions",
    "body": {"model": "m", "messages": [user("Hi")], "max_tokens": 40},
}
# a file, and the id, the messages and max_tokens of its first prompt
FORMS: dict[str, tuple[str | bytes, str, list[dict[str, str]], int | None]] = {
    "prompt": (lines({"prompt": "Hi", "max_tokens": 40}), "line-1", [user("Hi")], 40),
    "vLLM": (lines({"prompt": "Hi", "output_tokens": 40.0}), "line-1", [user("Hi")], 40),
    "messages": (lines({"id": 7, "messages": TALK}), "7", TALK, None),
    "OpenAI batch": (lines(BATCH), "request-1", [user("Hi")], 40),
    "texts": ('["Hi", "Why?"]', "entry-1", [user("Hi")], None),
    "list a line": (f"{json.dumps(TALK)}\n{json.dumps(TALK)}\n", "line-1", TALK, None),
    "MT-Bench": (lines({"question_id": 81, "turns": ["Hi", "More"]}), "line-1", [user("Hi")], None),
    "text": ("\n Hi \r\nWhy?\r\n", "line-2", [user(" Hi ")], None),
    "byte order mark": (b"\xef\xbb\xbfna\xc3\xafve\n", "line-1", [user("naïve")], None),
    "parts": (
        lines({"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}),
        "line-1",
        [user("Hi")],
        None,
    ),
    "system": (
        lines({"prompt": "Hi", "system": "Be brief."}),
        "line-1",
        [{"role": "system", "content": "Be brief."}, user("Hi")],
        None,
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_content_tells_the_form(form):
    content, prompt_id, messages, max_tokens = FORMS[form]

    suite = read(content)

    prompt = suite.prompts[0]
    assert (prompt.id, list(prompt.as_messages()), prompt.max_tokens) == (
        prompt_id,
        messages,
        max_tokens,
    )
    assert suite.classes == ("prompts",)


SHAREGPT = [
    {"id": "a_0", "conversations": [("system", "Be brief."), ("human", "Hi"), ("gpt", "Hello!")]},
    {"id": "_b", "conversations": [("gpt", "..."), ("human", ""), ("human", "Why?")]},
    {"id": "c_0", "conversations": []},
    {"id": "d_0", "conversations": [("chatgpt", "only an answer")]},
    {"id": "e_0", "conversations": [("tool", "{}"), ("human", "Hi")]},
    {"id": "a_0", "conversations": [("user", "Hi"), ("bing", "Hello!"), ("user", "Plan")]},
]


def sharegpt(**layout: int) -> str:
    talks = [
        row
        | {"conversations": [{"from": role, "value": text} for role, text in row["conversations"]]}
        for row in SHAREGPT
    ]
    return json.dumps(talks, **layout)


def test_a_sharegpt_list_sends_the_first_turn_of_its_people():
    suite = read(sharegpt())

    assert [(prompt.id, list(prompt.as_messages())) for prompt in suite.prompts] == [
        ("a_0", [{"role": "system", "content": "Be brief."}, user("Hi")]),
        ("entry-2", [user("Why?")]),
        ("entry-6", [user("Hi")]),
    ]
    assert suite.notes == (
        "mine: conversations left out: 2 with no turn of the user, 1 with a turn of the role 'tool'",
    )


def test_later_turns_come_after_the_answers_of_the_file():
    suite = read(sharegpt(indent=1), turns=2)
    assert list(suite.prompts[-1].as_messages()) == [user("Hi"), answer("Hello!"), user("Plan")]


def test_a_recorded_answer_at_the_end_is_not_sent():
    recorded = lines({"messages": [*TALK, answer("Where to?")]})

    assert list(read(recorded).prompts[0].as_messages()) == [user("Hi")]
    assert list(read(recorded, turns=9).prompts[0].as_messages()) == TALK


def test_turns_that_change_nothing_are_said():
    note = "mine: no recorded conversation, so --turns changes nothing"
    assert read("Hi\nWhy?\n", turns=2).notes == (note,)
    assert read(lines({"id": "a", "class": "c", "messages": TALK}), turns=1).notes == (note,)


TABLE = 'id;question;kind\r\n1;"Say ""hi"";\nnow";QA\r\n\r\n2;Why?;Code gen\r\n'


def test_a_table_has_its_prompts_in_the_named_column():
    suite = read(TABLE, prompt_column="question", class_field="kind")

    assert [(prompt.id, prompt.class_, prompt.prompt) for prompt in suite.prompts] == [
        ("1", "qa", 'Say "hi";\nnow'),
        ("2", "code-gen", "Why?"),
    ]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_a_table_without_the_column_is_refused_with_its_columns(separator):
    content = TABLE.replace(";", separator)

    assert refusal(content) == (
        "the file is a table with the columns id, question, kind;"
        " name the column of the prompts: --prompt-column NAME"
    )
    assert "no column 'prompt'; its columns: id, question, kind" in refusal(
        content, prompt_column="prompt"
    )


# one fault each: the second row of a file, and words of its refusal
ROWS: dict[str, tuple[str, str]] = {
    "no JSON": ("{prompt: 1}", "line 2: JSON is malformed"),
    "other keys": (
        '{"question": "Hi", "answer": "Hello"}',
        "its keys: question, answer: name the prompt's key with --prompt-column NAME",
    ),
    "two prompts": (
        '{"prompt": "Hi", "messages": []}',
        "say which one, as in --prompt-column prompt",
    ),
    "null prompt": ('{"conversations": null}', "`conversations` is null: write a prompt"),
    "token ids": ('{"prompt": [1, 2]}', "turn 1 is no object with a role and a text"),
    "no tokens": (
        '{"prompt": "Hi", "max_tokens": 0}',
        "`max_tokens` is 0; allowed: a whole number from 1 to 131072",
    ),
    "tool": (
        '{"messages": [{"role": "tool", "content": "{}"}]}',
        "a turn of the role 'tool': allowed are system, user and assistant",
    ),
    "image": (
        '{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}',
        "turn 1 has a part that is no text",
    ),
}


@pytest.mark.parametrize("fault", ROWS)
def test_a_wrong_line_is_named_with_its_fix(fault):
    row, words = ROWS[fault]
    text = refusal(f'{{"prompt": "Hi"}}\n{row}\n')
    assert text.startswith("line 2: ")
    assert words in text


def test_the_same_fault_of_every_row_is_said_once():
    text = refusal(lines(*[{"question": "Hi"}] * 50))
    assert text.startswith("line 1: no `prompt`")
    assert "; all 50 rows are like it" in text
    assert "line 2" not in text


# whole files that are no list of prompts, and words of their refusal
FILES: dict[str, tuple[str | bytes, str]] = {
    "cut list": ('[{"prompt": "a"},\n{"prompt"', "line 2: Input data was truncated"),
    "one object": (
        '{"data":\n [{"prompt": "a"}]}',
        "the keys data; write its list alone: jq .data",
    ),
    "Latin 1": (b"one\nna\xefve\n", "line 2: not UTF-8; save it as UTF-8"),
    "gzip": (b"\x1f\x8b\x08", "compressed by gzip; unpack it"),
    "Parquet": (b"PAR1\x15", "a Parquet file; write it as JSON Lines"),
    "blank": (" \n\n", "the file has no prompt; name a file with prompts"),
    "only answers": (
        '[{"conversations": [{"from": "gpt", "value": "a"}]}]',
        "the file has no prompt; conversations left out: 1 with no turn of the user",
    ),
}


@pytest.mark.parametrize("content", FILES)
def test_a_file_without_prompts_is_refused_with_what_it_is(content):
    file, words = FILES[content]
    assert words in refusal(file)


def test_a_ragged_row_and_a_loose_quote_are_named_by_their_line():
    text = refusal('id,text\n1,"two\nlines"\n2,a,b\n3,"a" b\n4,\n', prompt_column="text")
    assert [line.partition(": ")[0] for line in text.splitlines()] == ["line 4", "line 5", "line 6"]
    assert "3 cells under 2 columns: quote a cell that has ','" in text
    assert "a quote inside a cell is written twice" in text
    assert "no `text`, or an empty one" in text


def test_a_class_is_told_apart_from_every_other():
    row = {"prompt": "Hi"}
    assert "no class under `kind`" in refusal(lines(row), class_field="kind")
    assert "which gives no class" in refusal(lines(row | {"kind": "All"}), class_field="kind")
    same = lines(row | {"kind": "a b"}, row | {"kind": "A-B"})
    assert "line 2: 'A-B' gives the class a-b as 'a b' does" in refusal(same, class_field="kind")
    many = lines(*[row | {"kind": number} for number in range(101)])
    assert "'kind' has 101 values; allowed: 100 classes" in refusal(many, class_field="kind")


def test_own_form_has_at_most_as_many_classes_as_any_other():
    rows = [{"id": f"p{number}", "class": f"c{number}", "prompt": "Hi"} for number in range(101)]
    assert "'class' has 101 values; allowed: 100 classes" in refusal(lines(*rows))


def test_keys_that_are_not_sent_are_said():
    suite = read(lines({"prompt": "Hi", "temperature": 1, "class": "chat"}))
    assert suite.notes == ("mine: not used of its rows: temperature, class",)


def test_a_sample_is_drawn_by_the_seed():
    numbers = "\n".join(map(str, range(100)))

    texts = [prompt.prompt for prompt in read(numbers, sample=10, seed=1).prompts]

    assert texts == [prompt.prompt for prompt in read(numbers, sample=10, seed=1).prompts]
    assert texts != [prompt.prompt for prompt in read(numbers, sample=10, seed=2).prompts]
    assert texts == sorted(set(texts), key=int)
    assert len(texts) == 10
    assert "a sample of 101 prompts from 100" in refusal(numbers, sample=101)
