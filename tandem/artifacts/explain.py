"""Why two artifacts are not the same: the fields in which their keys differ, in the fields' own words.

Invariant: a word means one key or none; where it could mean several, or nothing, the nearest names are told
and nothing is guessed.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tandem.artifacts.fault import RefusedError, WorldError
from tandem.artifacts.log import say
from tandem.spec.artifact_key import KEY_VARIABLE, ArtifactKey, differences

if TYPE_CHECKING:
    from tandem.artifacts.contents import StoredSet

Differences = Mapping[str, tuple[object, object]]

NEAREST = 3  # names proposed for a word that is none
SHORTEST_DIGEST = 4  # characters; fewer are a typing error rather than a digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two keys.

    Args:
        name: the key's name, or a model's id@revision.
        fields: its plain fields.
        where: who says so: a variant, a file, an object.
        words: further words that mean it, such as experiment/variant.
    """

    name: str
    fields: Mapping[str, Any]
    where: str
    words: tuple[str, ...] = ()


def spelt(value: object) -> str:
    """Spell a value as YAML and JSON would, a word without quotes."""
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)


def reasons(found: Differences) -> list[str]:
    """Say each difference as an edit: `num_speculative_tokens 7 -> 5`."""
    return [f"{field} {spelt(one)} -> {spelt(other)}" for field, (one, other) in found.items()]


def key_name(fields: Mapping[str, Any]) -> str | None:
    """Return the name of the key with these fields; None where this release knows other fields."""
    try:
        return ArtifactKey.from_fields(fields).name
    except (ValueError, TypeError, AttributeError):  # fields of another release, or none of a key's at all
        return None


def nearest(name: str, fields: Mapping[str, Any], others: Iterable[Side]) -> tuple[Side, Differences] | None:
    """Return the key that differs from this one in the fewest fields, with what differs; None without others.

    Args:
        name: this key's own name, which is passed over.
        fields: its plain fields, told first in each pair.
        others: where to look.
    """
    ranked = [(differences(fields, other.fields), other) for other in others if other.name != name]
    if not ranked:
        return None
    found, other = min(ranked, key=lambda pair: (len(pair[0]), pair[1].name))
    return other, found


def resolve(word: str, known: Iterable[Side], stored: Callable[[], Iterable[Side]] = lambda: ()) -> Side:
    """Return the key that a word means.

    Args:
        word: a file or folder on disk, experiment/variant, a key's name, or the start of its name or digest.
        known: keys at hand.
        stored: the bucket's, asked only where the word is none of those.

    Raises:
        RefusedError: the word means nothing or several things; the nearest names are in it.
        WorldError: the bucket did not give what the word may mean.
    """
    first = list(known)
    if _is_path(word) and not any(word in (side.name, *side.words) for side in first):
        return on_disk(Path(word))
    if found := _meant(word, first):
        return found
    everywhere, fault = first, None
    try:
        for side in stored():
            everywhere.append(side)
    except WorldError as error:  # what was read before may be enough
        fault = error
    if found := _meant(word, everywhere):
        return found
    if fault is not None:
        raise fault
    names = [*dict.fromkeys(name for side in everywhere for name in (*side.words, side.name))]
    close = difflib.get_close_matches(word, names, n=NEAREST, cutoff=0.3) or names[:NEAREST]
    raise RefusedError(
        f"{word!r} is no variant, no key and no file", change=f"name one of: {', '.join(close) or 'there is none yet'}"
    )


def on_disk(path: Path) -> Side:
    """Read the key of a folder with a manifest, of a manifest, or of a file that holds a key's fields.

    Raises:
        RefusedError: there is none, or it cannot be read.
    """
    from tandem.artifacts.manifest import NAME, read_manifest  # noqa: PLC0415 - `tandem check` is not to wait for it

    file = path / NAME if path.is_dir() else path
    try:
        body = file.read_bytes()
    except OSError as error:
        raise RefusedError(
            f"no manifest can be read here ({error.strerror})", where=str(file),
            change="name a folder that holds one, a manifest, or a file with a key's fields",
        ) from None  # fmt: skip
    plain = _plain(body)
    if isinstance(plain, dict) and "schema_version" not in plain and (name := key_name(plain)):
        return Side(name=name, fields=plain, where=str(file))
    manifest = read_manifest(body, str(file))
    return Side(name=manifest.name, fields=manifest.fields, where=str(file))


def lines(one: Side, other: Side, width: int = 100) -> Iterator[str]:
    """Say for a person how two keys differ.

    Args:
        one, other: the keys.
        width: columns of the screen; values that do not fit beside each other stand below each other.
    """
    for mark, side in (("A", one), ("B", other)):
        yield f"{mark}  {side.name}"
        yield f"   {side.where}"
    found = differences(one.fields, other.fields)
    if not found:
        yield "the same artifact: every field of the key is equal"
        return
    told = {field: (spelt(a), spelt(b)) for field, (a, b) in found.items()}
    column = max(len(field) for field in ("field", *told)) + 2
    room = (width - column - 2) // 2
    second = max([1, *(len(a) for a, b in told.values() if max(len(a), len(b)) <= room)]) + 2
    yield f"{'field':<{column}}{'A':<{second}}B"
    for field, (a, b) in told.items():
        if max(len(a), len(b)) <= room:
            yield f"{field:<{column}}{a:<{second}}{b}"
        else:
            yield from (field, f"  A  {a}", f"  B  {b}")


def plain(one: Side, other: Side) -> dict[str, Any]:
    """Return the same as the plain values that --json prints."""
    found = differences(one.fields, other.fields)
    return {
        "a": {"name": one.name, "where": one.where},
        "b": {"name": other.name, "where": other.where},
        "same": not found,
        "differences": {field: {"a": a, "b": b} for field, (a, b) in found.items()},
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("a", metavar="A", help="a manifest, its folder, a file with a key's fields, or a stored key")
    parser.add_argument("b", metavar="B", nargs="?", help=f"the same; left out: the key in {KEY_VARIABLE}")
    parser.add_argument("--bucket", default=os.environ.get("TANDEM_BUCKET"), help="where stored keys are looked up")


def run(options: argparse.Namespace) -> int:
    """Log the differences of two keys.

    Raises:
        RefusedError: a word means nothing or several things.
    """
    own = list(of_variable())
    if options.b is None and not own:
        raise RefusedError("one key was named", change=f"name two, or set {KEY_VARIABLE}")

    def stored() -> Iterable[Side]:
        return _stored(options.bucket) if options.bucket else ()

    one = resolve(options.a, own, stored)
    other = own[0] if options.b is None else resolve(options.b, own, stored)
    told = plain(one, other)
    say("equal" if told["same"] else "different", **told)
    return 0


def of_variable() -> Iterator[Side]:
    """Yield the key that a pod carries, if this is one.

    Raises:
        RefusedError: what it carries is no key.
    """
    if KEY_VARIABLE in os.environ:
        from tandem.artifacts.asked import asked_key  # noqa: PLC0415 - as in `on_disk`

        key = asked_key()
        yield Side(name=key.name, fields=key.as_fields(), where=KEY_VARIABLE)


def _stored(bucket: str) -> Iterator[Side]:
    from tandem.artifacts.contents import contents  # noqa: PLC0415  # boto3, which two files on disk do not need
    from tandem.artifacts.store import open_store  # noqa: PLC0415

    yield from stored_sides(contents(open_store(bucket)), f"s3://{bucket}/")


def stored_sides(stored: Iterable[StoredSet], url: str) -> Iterator[Side]:
    """Yield the key of every stored artifact whose manifest can be read.

    Raises:
        WorldError: at the end, where S3 did not give one of them.
    """
    all_ = list(stored)
    for found in all_:
        if found.kind == "artifact" and found.manifest is not None:
            yield Side(name=found.name, fields=found.manifest.fields, where=f"{url}{found.manifest_key}")
    for found in all_:
        if isinstance(found.fault, WorldError):
            raise found.fault


def _meant(word: str, sides: Iterable[Side]) -> Side | None:
    """Return the one key that a word means among those given: by its full name, then by a start.

    Raises:
        RefusedError: it means several.
    """
    by_name: dict[str, Side] = {}
    for side in sides:
        by_name.setdefault(side.name, side)
        if word in (side.name, *side.words):
            return side
    started = [
        side
        for side in by_name.values()
        if side.name.startswith(word)
        or (len(word) >= SHORTEST_DIGEST and side.name.rpartition("-")[2].startswith(word))
    ]
    if len(started) > 1:
        names = ", ".join(sorted(side.name for side in started))
        raise RefusedError(f"{word!r} means {len(started)} keys", change=f"write more of one: {names}")
    return started[0] if started else None


def _is_path(word: str) -> bool:
    try:
        return Path(word).exists()
    except OSError:  # longer than a name can be, or behind a folder that may not be searched
        return False


def _plain(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None
