"""One prompt of a suite: what is asked, and what its answer must be to count as content.

Invariant: a prompt is either one text or a conversation, never both; it is fixed when the suite is loaded, so that
every arm is asked the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Hint = Literal["repeats", "json", "code", "to-limit"]
HINTS = get_args(Hint)
"""What the content check has to know of a prompt.

repeats: it asks for repetition, so a repeating answer is right. json: the answer must hold one JSON value that parses.
code: the answer is code or a machine's file: symbols and like lines are normal in it. to-limit: the answer is meant to
run into max_tokens, so an end by length is right.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One thing to ask.

    Args:
        id: unique in its suite; stands in every record.
        class_: the kind of content it asks for; figures are told per class.
        messages: a conversation of `{"role", "content"}`, or None.
        prompt: one text, or None.
        system: goes before `prompt` as a message of its own; None for no system message at all.
        max_tokens: the most tokens its answer may have; None leaves it to the suite's default.
        check: what the content check has to know (`HINTS`).
    """

    id: str
    class_: str
    messages: tuple[dict[str, str], ...] | None = None
    prompt: str | None = None
    system: str | None = None
    max_tokens: int | None = None
    check: frozenset[Hint] = frozenset()

    def as_messages(self) -> tuple[dict[str, str], ...]:
        """Return what /v1/chat/completions is sent."""
        if self.messages is not None:
            return tuple(dict(message) for message in self.messages)
        assert self.prompt is not None
        user_message = {"role": "user", "content": self.prompt}
        return (user_message,) if self.system is None else ({"role": "system", "content": self.system}, user_message)

    def as_text(self) -> str:
        """Return what /v1/completions is sent: the contents alone, without any model's chat template."""
        return "\n\n".join(message["content"] for message in self.as_messages())

    @property
    def characters(self) -> int:
        """The length of all that is asked, in characters."""
        return sum(len(message["content"]) for message in self.as_messages())
