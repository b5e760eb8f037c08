"""The edit of an experiment file after a sweep: the winner becomes a variant, and the sweep goes.

Invariant: every other line of the file stays as it is, comments included.
"""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Mapping

import yaml

from tandem.errors import InputError

COMMENT_COLUMNS = 96


def patch_experiment(text: str, name: str, winner: Mapping[str, str | int], note: str = "") -> str:
    """Return a unified diff of an experiment file, for `git apply` or `patch -p1`.

    Args:
        text: of the file, with a top-level `sweep`.
        name: path of the file in the repository.
        winner: name, draft and num_speculative_tokens of the variant to serve; empty for plain
            decoding.
        note: a comment above the variant; empty for none.

    Raises:
        InputError: the file has no sweep any more.
    """
    lines = text.splitlines(keepends=True)
    blocks = _find_blocks(text)
    if "sweep" not in blocks or "variants" not in blocks:
        change = "take the file of the commit that the sweep ran with"
        raise InputError("the file has no sweep any more", where=name, change=change)
    rows = [f"  # {line}\n" for line in textwrap.wrap(note, COMMENT_COLUMNS)]
    if winner:
        mode = yaml.safe_load(text)["sweep"]["mode"]  # the winner decodes as its sweep
        indent = "  - "
        for key, value in {"name": winner["name"], "mode": mode, **winner}.items():
            rows.append(f"{indent}{key}: {value}\n")
            indent = "    "

    first, last = blocks["sweep"]
    end = blocks["variants"][1]
    edits = [(first, last, []), (end, end, rows)]
    new_lines = list(lines)
    for start, stop, replacement in sorted(edits, key=lambda edit: edit[0], reverse=True):
        new_lines[start:stop] = replacement
    return "".join(difflib.unified_diff(lines, new_lines, f"a/{name}", f"b/{name}"))


def _find_blocks(text: str) -> dict[str, tuple[int, int]]:
    """Return the first line of each top-level key and the line behind its value."""
    lines = text.splitlines()
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    blocks: dict[str, tuple[int, int]] = {}
    if not isinstance(root, yaml.MappingNode):
        return blocks
    for key, value in root.value:
        first = key.start_mark.line
        end = value.end_mark.line + (value.end_mark.column > 0)
        while end > first + 1 and not lines[end - 1].partition("#")[0].strip():
            end -= 1
        blocks[key.value] = (first, end)
    return blocks
