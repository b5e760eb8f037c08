"""The header of a safetensors file: the names of its tensors, and the file's length.

Invariant: the header alone shows that a file was cut off or got further bytes.

Source of the form: huggingface/safetensors README, "Format": 8 bytes of little-endian length, that
many bytes of JSON, then the tensors' bytes without holes.
"""

from __future__ import annotations

import json
from pathlib import Path

from tandem.errors import InputError

_LENGTH_BYTES = 8
_MAX_HEADER_BYTES = 100_000_000  # bytes of JSON, the format's own limit


def read_tensor_file(path: Path) -> frozenset[str]:
    """Return the names of the tensors in a file, if the file has the length of its header.

    Raises:
        InputError: the file is no safetensors file, or is cut off or too long.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        header = file.read(min(length, _MAX_HEADER_BYTES))
    try:
        tensors, end = _parse_header(header)
        right_size = _LENGTH_BYTES + length + end
        problem = f"cut off or damaged: its header asks for {right_size} bytes, it has {size}"
    except (KeyError, TypeError, ValueError, AttributeError):
        right_size = -1
        problem = f"no safetensors header, or cut off within it ({size} bytes)"
    if right_size != size:
        raise InputError(problem, where=str(path), change="copy it again from its source")
    return tensors


def _parse_header(header: bytes) -> tuple[frozenset[str], int]:
    """Return the names of the tensors, and the offset at which the last one ends."""
    fields = json.loads(header)
    fields.pop("__metadata__", None)
    offsets = [(0, 0), *(tensor["data_offsets"] for tensor in fields.values())]
    if not all(0 <= start <= end for start, end in offsets):
        raise ValueError("data_offsets")
    return frozenset(fields), max(end for _, end in offsets)
