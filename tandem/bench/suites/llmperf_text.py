"""The eighth case of the post's sample: llmperf's own text, read from its checkout and never stored here.

Invariant: the same checkout gives the same two prompts; without a checkout the suite says that they are left out.

What llmperf does (src/llmperf/utils.py, `randomly_sample_sonnet_lines_prompt`, commit f1d6bed): it puts an instruction
to stream random lines for so many tokens, and to send no end token, before lines of its text in a random order, until
the whole has the asked number of tokens of its own tokenizer. `WRAPPING` does the same in other words, in 28 of those
tokens to its 27. One thing differs: the lines are taken in the file's order, so that every arm and every round is
asked the same.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from tandem.bench.suites.fault import SuiteError, SuiteFault
from tandem.bench.suites.prompt import Prompt

WRAPPING = (
    "Keep sending lines of this text, picked at random, 600 tokens in all. Never end your answer early:\n\n"
)  # fmt: skip
TEXT = Path("src/llmperf/sonnet.txt")
KNOWN_SHA256 = "a4fef83b31e3769bc1c8e9b795a5e442929ea101c54d4e00c93516179f9ad2e0"  # of TEXT at commit f1d6bed
# 64 tokens of llmperf's tokenizer, counted once on the known text: nothing here needs a tokenizer to load a suite
BARE_CHARACTERS = 210
WRAPPED_CHARACTERS = 121

OMISSION_NOTE = (
    "the sample's eighth case, llmperf's own text, is left out: it is read from a checkout of ray-project/llmperf, "
    "--llmperf-source DIR"
)


def read_llmperf_prompts(source: Path) -> tuple[Prompt, Prompt]:
    """Return llmperf's own text, bare and wrapped, sized as llmperf would.

    Args:
        source: a checkout of ray-project/llmperf.

    Raises:
        SuiteError: the checkout does not hold the text, or holds another one than the sizes were counted on.
    """
    text = _read_text(source)
    return (
        _build_prompt("sample-verse", "sample", text[:BARE_CHARACTERS], repeats=False),
        _build_prompt("sample-verse-wrapped", "sample-wrapped", WRAPPING + text[:WRAPPED_CHARACTERS], repeats=True),
    )


def _build_prompt(prompt_id: str, class_: str, text: str, *, repeats: bool) -> Prompt:
    return Prompt(
        id=prompt_id, class_=class_, prompt=text, max_tokens=600,
        check=frozenset({"repeats", "to-limit"} if repeats else {"to-limit"}),
    )  # fmt: skip


def _read_text(source: Path) -> str:
    path = source / TEXT
    requirement = "a checkout of ray-project/llmperf at commit f1d6bed"
    try:
        content = path.read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise SuiteError(
            [SuiteFault(where=str(path), problem=f"cannot be read: {reason}", allowed=requirement,
                   change="name the checkout's top folder by --llmperf-source, or leave the option out")]
        ) from None  # fmt: skip
    digest = hashlib.sha256(content).hexdigest()
    if digest != KNOWN_SHA256:
        raise SuiteError(
            [SuiteFault(where=str(path), problem=f"SHA-256 is {digest}", allowed=f"{KNOWN_SHA256}, {requirement}",
                   change="run `git checkout -- src/llmperf/sonnet.txt` there: the post's own script overwrites it")]
        )  # fmt: skip
    return content.decode()
