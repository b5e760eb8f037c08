"""The suite `post`: the post's own prompts, the sample's kinds, and llmperf's wrapping."""

from __future__ import annotations

import hashlib
import re
from itertools import cycle, islice
from pathlib import Path

import pytest

from tandem.bench.suites import suite as suites
from tandem.bench.suites.suite import load_suite
from tandem.errors import InputError

POST = load_suite("post")
BY_ID = {prompt.id: prompt for prompt in POST.prompts}
TEXT = "".join(f"Line {number} of a text that a checkout brings along.\n" for number in range(40))


def checkout(folder: Path, text: str = TEXT) -> Path:
    path = folder / "src" / "llmperf" / "sonnet.txt"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return folder


@pytest.fixture
def source(tmp_path, monkeypatch):
    """Return a checkout whose text counts as the known one."""
    monkeypatch.setattr(suites, "LLMPERF_SHA256", hashlib.sha256(TEXT.encode()).hexdigest())
    return checkout(tmp_path)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("repeat", "Repeat the following line exactly 50 times"),
        ("open", "I believe the meaning of life is"),
    ],
)
def test_the_two_analysed_prompts_are_the_post_s_own_words(name, words):
    assert [prompt.as_text() for prompt in POST.class_prompts(name)] == [words]


@pytest.mark.parametrize(
    "prompt",
    [entry for entry in POST.prompts if entry.class_.endswith("-wrapped")],
    ids=lambda p: p.id,
)
def test_a_wrapped_prompt_is_an_instruction_and_one_repeated_line(prompt):
    bare = BY_ID[prompt.id.removesuffix("-wrapped")].as_text()
    line = f"{bare.partition(chr(10))[0]}\n"

    body = prompt.as_text().removeprefix(suites.WRAPPING)

    assert body != prompt.as_text()
    assert body == "".join(islice(cycle(line), len(body)))
    assert len(body) > len(line)


def test_without_a_checkout_the_eighth_case_is_missing_and_noted():
    assert [prompt.id for prompt in POST.prompts if "verse" in prompt.id] == []
    assert re.search("eighth case.*left out.*--llmperf-source", " ".join(POST.notes))


def test_with_a_checkout_the_eighth_case_is_llmperf_s_text(source):
    suite = load_suite("post", llmperf_source=source)
    bare, wrapped = (prompt for prompt in suite.prompts if "verse" in prompt.id)

    assert (bare.class_, wrapped.class_) == ("sample", "sample-wrapped")
    assert bare.as_text() == TEXT[:210]
    assert wrapped.as_text() == suites.WRAPPING + TEXT[:121]
    assert suite.notes == ()
    assert suite.sha256 != POST.sha256
    assert len(suite.class_prompts("sample")) == len(suite.class_prompts("sample-wrapped")) == 8


def test_a_wrong_or_overwritten_checkout_is_refused(tmp_path):
    with pytest.raises(
        InputError,
        match=r"sonnet\.txt: it cannot be read: No such file.*a checkout of ray-project/llm",
    ):
        load_suite("post", llmperf_source=tmp_path)
    with pytest.raises(
        InputError, match=r"SHA-256 is [0-9a-f]{64}.*git checkout -- src/llmperf/sonnet\.txt"
    ):
        load_suite("post", llmperf_source=checkout(tmp_path, "a\n" * 500))
