"""One prompt of a suite: its messages, and the hints for its content check.

Invariant: a prompt is either one text or a conversation, never both; it does not change after the
suite is loaded, so every arm gets the same bytes. A line of a suite's file is one prompt: msgspec
checks the line by these types.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

ID_PATTERN = r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z"
CLASS_PATTERN = r"\A(?!all\Z)[a-z0-9][a-z0-9-]{0,31}\Z"
MAX_TOKENS_LIMITS = (1, 131_072)

Text = Annotated[str, msgspec.Meta(pattern=r"\S")]
TokenLimit = Annotated[int, msgspec.Meta(ge=MAX_TOKENS_LIMITS[0], le=MAX_TOKENS_LIMITS[1])]
Hint = Literal["repeats", "json", "code", "to-limit"]
"""Hint of a prompt for the content check.

repeats: the prompt requests repetition, so a repeating answer is right. json: the answer must have
a valid JSON object or array. code: the answer is code or a machine's file, so symbols and similar
lines are normal. to-limit: the answer should reach max_tokens, so an end by length is right.
"""


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: Text


class Prompt(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One prompt.

    Args:
        id: unique in its suite; every record has it.
        class_: kind of the requested content; figures are by class.
        messages: a conversation that ends with the user, or None.
        prompt: one text, or None.
        system: system message before `prompt`; None for no system message.
        max_tokens: most tokens of the answer; None for the suite's default.
        check: hints for the content check.
    """

    id: Annotated[str, msgspec.Meta(pattern=ID_PATTERN)]
    class_: Annotated[str, msgspec.Meta(pattern=CLASS_PATTERN)] = msgspec.field(name="class")
    messages: tuple[Message, ...] | None = None
    prompt: Text | None = None
    system: Text | None = None
    max_tokens: TokenLimit | None = None
    check: frozenset[Hint] = frozenset()

    def __post_init__(self) -> None:
        """Refuse conflicting keys."""
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("exactly one of `prompt` and `messages` is needed")
        if self.messages is not None:
            roles = [message.role for message in self.messages]
            if self.system or "system" in roles[1:] or roles[-1:] != ["user"]:
                raise ValueError(
                    "`messages` ends with the user; a system message is its first, without `system`"
                )

    def as_messages(self) -> tuple[dict[str, str], ...]:
        """Return the messages for /v1/chat/completions."""
        if self.messages is not None:
            return tuple(
                {"role": message.role, "content": message.content} for message in self.messages
            )
        user_message = {"role": "user", "content": self.prompt or ""}
        if self.system is None:
            return (user_message,)
        return {"role": "system", "content": self.system}, user_message

    def as_text(self) -> str:
        """Return the text for /v1/completions: contents only, without a chat template."""
        return "\n\n".join(message["content"] for message in self.as_messages())

    @property
    def characters(self) -> int:
        """The length of all messages, in characters."""
        return sum(len(message["content"]) for message in self.as_messages())
