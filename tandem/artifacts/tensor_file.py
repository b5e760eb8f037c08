"""The header of a safetensors file: which tensors it holds, and how long the file must be.

Invariant: a file that was cut off, or that something was appended to, is told from its header alone.

Source of the form: huggingface/safetensors README, "Format": 8 bytes of little-endian length, that many bytes of
JSON, then the tensors' bytes without holes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tandem.errors import InputError

_LENGTH_BYTES = 8
_MAX_HEADER_BYTES = 100_000_000  # bytes of JSON, the format's own limit


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFile:
    """What a header says.

    Args:
        tensors: their names.
        size: bytes that the whole file must have.
    """

    tensors: frozenset[str]
    size: int


def read_tensor_file(path: Path) -> TensorFile:
    """Read a header and hold the file's length against it.

    Raises:
        InputError: it is no safetensors file, or is cut off or too long.
    """
    change = "copy it again from its source"
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        if size < _LENGTH_BYTES or length > min(_MAX_HEADER_BYTES, size - _LENGTH_BYTES):
            raise InputError(
                f"no safetensors file, or cut off within its header ({size} bytes)", where=str(path), change=change
            )
        try:
            header = _parse_header(file.read(length))
        except (KeyError, TypeError, ValueError):
            raise InputError("its header is no safetensors header", where=str(path), change=change) from None
    total_bytes = _LENGTH_BYTES + length + header.size
    if total_bytes != size:
        raise InputError(
            f"cut off or damaged: its header asks for {total_bytes} bytes, it has {size}",
            where=str(path),
            change=change,
        )
    return TensorFile(tensors=header.tensors, size=total_bytes)


def _parse_header(header: bytes) -> TensorFile:
    header_fields = json.loads(header)
    header_fields.pop("__metadata__", None)
    end_offsets = [0]
    for tensor in header_fields.values():
        start, end = tensor["data_offsets"]
        if not 0 <= start <= end:
            raise ValueError("data_offsets")
        end_offsets.append(end)
    return TensorFile(tensors=frozenset(header_fields), size=max(end_offsets))
