"""The header of a safetensors file: which tensors it holds, and how long the file must be.

Invariant: a file that was cut off, or that something was appended to, is told from its header alone.

Source of the form: huggingface/safetensors README, "Format": 8 bytes of little-endian length, that many bytes of
JSON, then the tensors' bytes without holes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tandem.artifacts.fault import RefusedError

_LENGTH = 8
_MOST = 100_000_000  # bytes of JSON, the format's own limit


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
        RefusedError: it is no safetensors file, or is cut off or too long.
    """
    change = "copy it again from its source"
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH), "little")
        if size < _LENGTH or length > min(_MOST, size - _LENGTH):
            raise RefusedError(
                f"no safetensors file, or cut off within its header ({size} bytes)", where=str(path), change=change
            )
        try:
            found = _parse(file.read(length))
        except (KeyError, TypeError, ValueError):
            raise RefusedError("its header is no safetensors header", where=str(path), change=change) from None
    whole = _LENGTH + length + found.size
    if whole != size:
        raise RefusedError(
            f"cut off or damaged: its header asks for {whole} bytes, it has {size}", where=str(path), change=change
        )
    return TensorFile(tensors=found.tensors, size=whole)


def _parse(header: bytes) -> TensorFile:
    plain = json.loads(header)
    plain.pop("__metadata__", None)
    ends = [0]
    for tensor in plain.values():
        start, end = tensor["data_offsets"]
        if not 0 <= start <= end:
            raise ValueError("data_offsets")
        ends.append(end)
    return TensorFile(tensors=frozenset(plain), size=max(ends))
