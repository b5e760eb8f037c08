"""How long the prompts of a suite are, against the longest that an experiment's servers take.

Invariant: a length says whether it is estimated or counted, and never shows a prompt's text. The
tokens of a chat template come on top of both: a prompt that is too long without them does not fit.

Source of the estimate: api-docs.deepseek.com, "Token & Token Usage", read 2026-11-29: an English
character is about 0.3 of a token, a Chinese one 0.6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tandem.bench.suites.suite import Suite
from tandem.errors import InputError

ASCII_TOKENS = 0.3  # of a character
OTHER_TOKENS = 0.6  # of a character of another script
ESTIMATED = "estimated at 0.3 tokens a character, 0.6 beyond ASCII, without the chat template"
COUNTED = "by the target's tokenizer, without the chat template"
SHOWN_PROMPTS = 10  # in a sentence
CountTokens = Callable[[str], int]


@dataclass(frozen=True, kw_only=True)
class PromptLength:
    """The length of one prompt.

    Args:
        place: where the prompt stands in its file, such as `line 37`.
        tokens: of all its messages.
    """

    place: str
    tokens: int


def estimate_tokens(text: str) -> int:
    """Return about how many tokens a text has."""
    ascii_characters = len(text.encode("ascii", "ignore"))
    other_characters = len(text) - ascii_characters
    return round(ASCII_TOKENS * ascii_characters + OTHER_TOKENS * other_characters)


def build_counter(tokenizer: bytes, where: str) -> CountTokens:
    """Return a function that counts the tokens of a text, without special tokens.

    Args:
        tokenizer: content of a `tokenizer.json`.
        where: its address, for an error.

    Raises:
        InputError: it is no tokenizer of the library `tokenizers`.
    """
    from tokenizers import Tokenizer  # noqa: PLC0415 - most commands count nothing

    try:
        library_tokenizer = Tokenizer.from_str(tokenizer.decode())
    except Exception as error:  # the library raises nothing more specific
        raise InputError(
            f"it is no tokenizer: {error}",
            where=where,
            change="stage the model again (docs/artifacts.md)",
        ) from error
    return lambda text: len(library_tokenizer.encode(text, add_special_tokens=False).ids)


def measure_prompts(suite: Suite, count_tokens: CountTokens) -> tuple[PromptLength, ...]:
    """Return the length of each prompt of a file, in order."""
    lengths = []
    for prompt in suite.prompts:
        tokens = sum(count_tokens(message["content"]) for message in prompt.as_messages())
        lengths.append(PromptLength(place=suite.places[prompt.id], tokens=tokens))
    return tuple(lengths)


def describe_long_prompts(lengths: Sequence[PromptLength], limit: int) -> str:
    """Return where the prompts above the limit stand, each with its tokens; empty for none.

    Args:
        lengths: of a file's prompts, counted or estimated.
        limit: the longest prompt of the experiment, in tokens.
    """
    long_prompts = [row for row in lengths if row.tokens > limit]
    if not long_prompts:
        return ""
    shown = [f"{row.place} has {row.tokens}" for row in long_prompts[:SHOWN_PROMPTS]]
    if len(long_prompts) > SHOWN_PROMPTS:
        shown.append(f"{len(long_prompts) - SHOWN_PROMPTS} more prompts are too long")
    return f"{', '.join(shown)}; max_prompt_tokens is {limit}"
