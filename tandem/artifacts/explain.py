"""Differences between two artifacts: the fields in which their keys differ, by name.

Invariant: a word means one key or none; if it could mean several, or nothing, the error has the
nearest names and nothing is guessed.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem.artifacts.manifest import MANIFEST_NAME, parse_manifest
from tandem.declarations.artifact_key import ArtifactKey
from tandem.errors import InputError, convert_os_errors

Differences = Mapping[str, tuple[object, object]]


@dataclass(frozen=True, kw_only=True)
class KeySide:
    """One of the two keys.

    Args:
        name: the key's name, or a model's id@revision.
        fields: its plain fields.
        where: source of the key: a variant, a file, an object.
        aliases: further words for this key, such as experiment/variant.
    """

    name: str
    fields: Mapping[str, Any]
    where: str
    aliases: tuple[str, ...] = ()


def format_value(value: object) -> str:
    """Return a value as YAML or JSON text, a word without quotes."""
    if isinstance(value, str) and value:
        return value
    return json.dumps(value, ensure_ascii=False)


def describe_differences(differences: Differences) -> list[str]:
    """Return each difference as an edit: `num_speculative_tokens 7 -> 5`."""
    return [
        f"{field} {format_value(old)} -> {format_value(new)}"
        for field, (old, new) in differences.items()
    ]


def compute_key_name(fields: Mapping[str, Any]) -> str | None:
    """Return the name of the key with these fields; None if this release knows other fields."""
    try:
        return ArtifactKey.from_fields(fields).name
    except (ValueError, TypeError, AttributeError):  # fields of another release, or not of a key
        return None


def resolve_key(
    word: str,
    known_sides: Iterable[KeySide],
    read_stored_sides: Callable[[], Iterable[KeySide]] = lambda: (),
) -> KeySide:
    """Return the key that a word means.

    Args:
        word: a file or folder on disk, experiment/variant, a key's name, or the start of its name
            or digest.
        known_sides: keys at hand.
        read_stored_sides: returns the bucket's keys; called only if the word is none of the known
            ones.

    Raises:
        InputError: the word means nothing or several keys; the message has the nearest names.
        ExternalError: the bucket did not return every key that the word may mean.
    """
    sides = list(known_sides)
    is_path = os.access(word, os.F_OK)  # False for a word that is too long for a file name
    if is_path and not any(word in (side.name, *side.aliases) for side in sides):
        return read_key_side(Path(word))
    if match := _match_word(word, sides):
        return match
    sides += read_stored_sides()
    if match := _match_word(word, sides):
        return match
    names: dict[str, None] = {}
    for side in sides:
        names |= dict.fromkeys((*side.aliases, side.name))
    raise build_name_error(f"{word!r} is not a variant, a key or a file", word, list(names))


def build_name_error(problem: str, name: str, names: Sequence[str]) -> InputError:
    """Return the error for an unknown name, with the nearest existing names."""
    suggestions = difflib.get_close_matches(name, names, n=3, cutoff=0.3) or names[:3]
    return InputError(
        problem, change=f"name one of: {', '.join(suggestions) or 'there is none yet'}"
    )


def _match_word(word: str, sides: Iterable[KeySide]) -> KeySide | None:
    """Return the one given key that a word means: by the full name, then by its start.

    Raises:
        InputError: the word means several keys.
    """
    starts: dict[str, KeySide] = {}
    for side in sides:
        if word in (side.name, *side.aliases):
            return side
        # or its digest
        if side.name.startswith(word) or side.name.rpartition("-")[2].startswith(word):
            starts.setdefault(side.name, side)
    if len(starts) > 1:
        problem = f"{word!r} means {len(starts)} keys"
        raise InputError(problem, change=f"write more of one: {', '.join(sorted(starts))}")
    return next(iter(starts.values()), None)


def read_key_side(path: Path) -> KeySide:
    """Read the key of a folder with a manifest, of a manifest, or of a file with a key's fields.

    Raises:
        InputError: there is no key, or it cannot be read.
    """
    file = path / MANIFEST_NAME if path.is_dir() else path
    change = "name a folder that holds one, a manifest, or a file with a key's fields"
    with convert_os_errors("no manifest can be read here", file, change):
        body = file.read_bytes()
    with contextlib.suppress(ValueError):
        fields = json.loads(body)
        name = compute_key_name(fields)
        if name:
            return KeySide(name=name, fields=fields, where=str(file))
    manifest = parse_manifest(body, str(file))
    return KeySide(name=manifest.name, fields=manifest.fields, where=str(file))
