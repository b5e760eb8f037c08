"""How a file is cut for S3: a part's size follows from the file's size alone, and a part is read, never held.

Invariant: the same file is always cut the same, so a second run knows the parts of the first.

Sources of the limits: S3 user guide, "Amazon S3 multipart upload limits" (10,000 parts; 5 MiB to 5 GiB each but the
last) and "Uploading objects" (5 TiB in all).
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from dataclasses import dataclass

MIB = 1 << 20
MIN_PART_BYTES = 16 * MIB  # what a kill can cost; 10,000 of them are 156 GiB
MAX_PARTS = 10_000
MAX_OBJECT_BYTES = 5 << 40  # bytes, 5 TiB


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """One part of a file: its number from 1, where it begins and its length, in bytes."""

    number: int
    offset: int
    length: int


def part_size(size: int) -> int:
    """Return the bytes of each part but the last: 16 MiB, or as many whole MiB as 10,000 parts demand."""
    return max(MIN_PART_BYTES, -(-size // (MAX_PARTS * MIB)) * MIB)


def split_parts(size: int) -> Iterator[FilePart]:
    """Yield the parts of a file of `size` bytes; an empty file has none."""
    length = part_size(size)
    for number, offset in enumerate(range(0, size, length), start=1):
        yield FilePart(number=number, offset=offset, length=min(length, size - offset))


class FileSpan(io.RawIOBase):
    """A stretch of an open file as a body to send: readable again from its start, and never in memory as a whole.

    Args:
        descriptor: of the file; many spans may share it.
        offset: where the stretch begins, in bytes.
        length: its bytes.
    """

    def __init__(self, descriptor: int, offset: int, length: int) -> None:
        super().__init__()
        self._descriptor, self._offset, self._length, self._position = descriptor, offset, length, 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the place in the stretch."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place in the stretch."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._length}[whence]
        self._position = start + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """Return up to `size` bytes, all that is left without it; nothing at the end.

        Raises:
            OSError: the file has become shorter, so that the length that was announced cannot be sent.
        """
        remaining = max(0, self._length - self._position)
        byte_count = remaining if size is None or size < 0 else min(size, remaining)
        piece = os.pread(self._descriptor, byte_count, self._offset + self._position)
        if byte_count and not piece:
            raise OSError("the file has become shorter while it was read")
        self._position += len(piece)
        return piece
