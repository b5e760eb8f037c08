"""One prompt of a suite: what is asked, and what its answer must be to count as content.

Invariant: a prompt is either one text or a conversation, never both; it is fixed when the suite is loaded, so that
every arm is asked the same bytes. A line of a suite's file is such a prompt: msgspec checks it by these types.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Text = Annotated[str, msgspec.Meta(pattern=r"\S")]
Hint = Literal["repeats", "json", "code", "to-limit"]
"""What the content check has to know of a prompt.

repeats: it asks for repetition, so a repeating answer is right. json: the answer must hold one JSON value that parses.
code: the answer is code or a machine's file: symbols and like lines are normal in it. to-limit: the answer is meant to
run into max_tokens, so an end by length is right.
"""


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: Text


class Prompt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing to ask.

    Args:
        id: unique in its suite; stands in every record.
        class_: the kind of content it asks for; figures are told per class.
        messages: a conversation that ends with the user, or None.
        prompt: one text, or None.
        system: goes before `prompt` as a message of its own; None for no system message at all.
        max_tokens: the most tokens its answer may have; None leaves it to the suite's default.
        check: what the content check has to know.
    """

    id: Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")]
    class_: Annotated[str, msgspec.Meta(pattern=r"\A(?!all\Z)[a-z0-9][a-z0-9-]{0,31}\Z")] = msgspec.field(name="class")
    messages: tuple[Message, ...] | None = None
    prompt: Text | None = None
    system: Text | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1, le=131_072)] | None = None
    check: frozenset[Hint] = frozenset()

    def __post_init__(self) -> None:
        """Refuse keys that do not belong together."""
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("exactly one of `prompt` and `messages` is needed")
        if self.messages is not None:
            roles = [message.role for message in self.messages]
            if self.system or "system" in roles[1:] or roles[-1:] != ["user"]:
                raise ValueError("`messages` ends with the user; a system message is its first, without `system`")

    def as_messages(self) -> tuple[dict[str, str], ...]:
        """Return what /v1/chat/completions is sent."""
        if self.messages is not None:
            return tuple({"role": message.role, "content": message.content} for message in self.messages)
        user_message = {"role": "user", "content": self.prompt or ""}
        return (user_message,) if self.system is None else ({"role": "system", "content": self.system}, user_message)

    def as_text(self) -> str:
        """Return what /v1/completions is sent: the contents alone, without any model's chat template."""
        return "\n\n".join(message["content"] for message in self.as_messages())

    @property
    def characters(self) -> int:
        """The length of all that is asked, in characters."""
        return sum(len(message["content"]) for message in self.as_messages())
