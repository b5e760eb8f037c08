"""The simulator's own tokenizer: one token is a word with the space before it, a piece of a long one, or a sign.

Invariant: the pieces of a text joined are the text; a piece has one id, in every process and on every day. It is no
real model's tokenizer, and counts are not to be compared with one's.
"""

from __future__ import annotations

import re
import zlib

END_ID = 0  # the token with which an answer ends by itself
THINK_ID, END_THINK_ID = 1, 2  # <think> and </think>
_PIECE = re.compile(r"\s?\w{1,12}|\s?[^\w\s]|\s+")
_FIRST_ID, _ID_COUNT = 16, 150_000  # ids below are special; about as many as the vocabularies of Qwen3


def split_pieces(text: str) -> list[str]:
    """Cut a text into its tokens."""
    return _PIECE.findall(text)


def token_id(piece: str) -> int:
    """Return the id of a piece; two pieces share one by chance once in 150,000 pairs."""
    return _FIRST_ID + zlib.crc32(piece.encode()) % _ID_COUNT


def token_ids(text: str) -> list[int]:
    """Return the ids of a text's tokens."""
    return [token_id(piece) for piece in split_pieces(text)]
