"""What the commands of a bucket say: to a person in at most 100 columns, to a program as plain values.

Invariant: money is shown only where the environment has a price, with the price and its date; what must be typed
stands on a line of its own.
"""

from __future__ import annotations

import io
import json
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from tandem.artifacts.fault import ArtifactError
from tandem.commands.outcome import counted, print_json
from tandem.commands.recompile_report import WIDTH, wrapped
from tandem.commands.scene import Scene
from tandem.shell_command import quote_command

if TYPE_CHECKING:
    from tandem.artifacts.adopt import Adopted
    from tandem.artifacts.collect import Plan, Removal
    from tandem.artifacts.survey import Row

GIB = 1 << 30
DAY_S = 86_400
CENT = 0.01
BELOW = " " * 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What `list` found.

    Args:
        scene: the environment and who shares its bucket.
        rows: of `tandem.artifacts.survey`.
        now: S3's time, from which ages are counted.
    """

    scene: Scene
    rows: tuple[Row, ...]
    now: datetime


def failed(error: ArtifactError, *, as_json: bool) -> None:
    """Print a fault of the bucket or of an artifact."""
    if as_json:
        print_json({"error": {"what": error.what, "where": error.where, "change": error.change},
                    "exit_code": error.code})  # fmt: skip
        return
    told(error)


def told(error: ArtifactError) -> None:
    """Print a fault on standard error, beside whatever else was found."""
    where = f"{error.where}: " if error.where else ""
    print(f"error: {where}{error.what.rstrip()}\n  change   {error.change}", file=sys.stderr)


def listing_lines(listing: Listing) -> Iterator[str]:
    """Say what is stored and what is missing."""
    scene, rows = listing.scene, listing.rows
    needed = [row for row in rows if row.used_by]
    present = sum(row.state == "present" for row in needed)
    yield f"s3://{scene.bucket}: {present} of the {len(needed)} that {_users(scene)} {_verb(scene, 'need')} are present"
    sections = {
        "models": [row for row in needed if row.kind == "model"],
        "artifacts": [row for row in needed if row.kind == "artifact"],
        "needed by nobody": [row for row in rows if not row.used_by],
    }
    for title, section in sections.items():
        yield from [title] if section else []
        yield from (line for row in section for line in _row(row, listing))
    size = sum(row.size for row in rows)
    yield f"stored: {_gib(size)}{_money(size, scene)}"
    yield from _uncounted(scene)
    commands = [command for row in needed for command in _commands(row, scene.bucket)]
    yield from ["to make what is not there, in this order:"] if commands else []
    yield from (f"  {command}" for command in dict.fromkeys(commands))


def listing_plain(listing: Listing) -> dict[str, Any]:
    """Return the same as the plain values that --json prints."""
    scene, price = listing.scene, listing.scene.environment.artifacts
    size = sum(row.size for row in listing.rows)
    return {
        "bucket": scene.bucket,
        "environments": [scene.environment.name, *scene.sharing],
        "uncounted": [fault.as_dict() for fault in scene.unread],
        "usd_per_gb_month": price.usd_per_gb_month,
        "usd_per_gb_month_date": price.usd_per_gb_month_date,
        "size": size,
        "usd_per_month": _usd(size, scene),
        "rows": [_plain_row(row, listing) for row in listing.rows],
    }


class Progress(io.TextIOBase):
    """Takes the log lines that pods write, and tells them on standard error in short."""

    def write(self, text: str) -> int:
        """Tell the lines of `text`."""
        for line in text.splitlines():
            print(_short(line), file=sys.stderr, flush=True)
        return len(text)


def _short(line: str) -> str:
    try:
        said = json.loads(line)
        size = f", {_gib(said['size'])}" if "size" in said else ""
        holder = f", held by {said['holder']} until {said.get('until')}" if "holder" in said else ""
        return f"{said['event']}: {said.get('object', said.get('file', ''))}{size}{holder}"
    except (ValueError, KeyError, TypeError):
        return line


@dataclass(frozen=True, slots=True, kw_only=True)
class Collecting:
    """What `collect` found.

    Args:
        scene: the environment and who shares its bucket.
        planned: what may go and what stays.
        days: how old a thing must be.
        now: S3's time, from which ages are counted.
        versions: whether a delete leaves old versions; None for unknown.
    """

    scene: Scene
    planned: Plan
    days: int
    now: datetime
    versions: bool | None

    @property
    def cutoff(self) -> datetime:
        """Return the time since which things are young."""
        return self.now - timedelta(days=self.days)


def plan_lines(of: Collecting, *, delete: bool) -> Iterator[str]:
    """Say what goes and what stays."""
    scene = of.scene
    whose = f"{_users(scene)} {_verb(scene, 'do')} not use"
    yield f"s3://{scene.bucket}: what {whose}, older than {counted(of.days, 'day')}"
    if not of.planned.removals:
        yield "nothing to delete"
    else:
        yield "deleting" if delete else "would delete"
    for removal in of.planned.removals:
        parts = [removal.what, _gib(removal.size), _age(removal.found.written, of.now)]
        yield f"  {removal.found.name}"
        yield from wrapped("    ", parts, "    ")
    if of.planned.kept:
        yield "kept, though nobody uses it"
    for kept in of.planned.kept:
        yield f"  {kept.found.name}"
        yield from wrapped("    ", [_gib(kept.found.size), *kept.why.split(", ")], "    ")


def end_lines(of: Collecting, freed: int, *, delete: bool) -> Iterator[str]:
    """Say how much goes, and when that is really so."""
    size = freed if delete else of.planned.size
    if of.planned.removals:
        yield f"{'freed' if delete else 'would free'} {_gib(size)}{_money(size, of.scene)}"
        yield from _version_lines(of)
    if of.planned.removals and not delete:
        yield "a server that runs from other files is not seen: keep what it loads by --keep NAME"
        yield "nothing was deleted; --delete does it"


def collected_plain(of: Collecting, done: Iterable[tuple[Removal, str]], freed: int, *, delete: bool) -> dict[str, Any]:
    """Return the same as the plain values that --json prints."""
    told = done if delete else [(removal, "would delete") for removal in of.planned.removals]
    return {
        "bucket": of.scene.bucket,
        "environments": [of.scene.environment.name, *of.scene.sharing],
        "cutoff": of.cutoff.isoformat(),
        "dry_run": not delete,
        "removals": [_plain_removal(removal, of.scene) | {"outcome": outcome} for removal, outcome in told],
        "kept": [{"prefix": each.found.prefix, "size": each.found.size, "why": each.why} for each in of.planned.kept],
        "size": freed if delete else of.planned.size,
        "usd_per_month": _usd(freed if delete else of.planned.size, of.scene),
        "versions_kept": of.versions,
    }


def adopted_lines(done: Adopted, scene: Scene) -> Iterator[str]:
    """Say what became of an artifact that was to be taken in."""
    where = f"s3://{scene.bucket}/{done.prefix}/"
    files = f"{counted(len(done.manifest.files), 'file')}, {_gib(done.manifest.size)}"
    if not done.taken:
        yield f"present, left alone: {done.name}"
        yield from wrapped("  ", [files, f"made by {done.manifest.made.get('run', 'somebody')}", where], "  ")
        return
    yield f"adopted: {done.name}"
    yield from wrapped("  ", [files, f"in {where}{done.manifest.folder}/"], "  ")
    for sentence in done.manifest.made["unproven"]:
        yield from textwrap.wrap(f"unproven: {sentence}", WIDTH, initial_indent="  ", subsequent_indent="    ")


def adopted_plain(done: Adopted, scene: Scene) -> dict[str, Any]:
    """Return the same as the plain values that --json prints."""
    return {
        "bucket": scene.bucket, "name": done.name, "prefix": done.prefix, "taken": done.taken,
        "files": len(done.manifest.files), "size": done.manifest.size, "made": done.manifest.made,
    }  # fmt: skip


def _version_lines(of: Collecting) -> Iterator[str]:
    """Say when the bytes of what is deleted stop being paid for."""
    artifacts = of.scene.environment.artifacts
    if of.versions is False:
        return
    start = "if the bucket keeps versions, they are" if of.versions is None else "the bucket keeps versions: they are"
    if artifacts.existing_bucket is None:
        yield f"{start} paid for {artifacts.noncurrent_days} days more (artifacts.noncurrent_days)"
    else:
        yield f"{start} paid for until its own lifecycle rules remove them"


def _plain_removal(removal: Removal, scene: Scene) -> dict[str, Any]:
    return {
        "prefix": removal.found.prefix, "what": removal.what, "size": removal.size, "objects": len(removal.keys),
        "uploads": len(removal.uploads), "usd_per_month": _usd(removal.size, scene),
    }  # fmt: skip


def _row(row: Row, listing: Listing) -> Iterator[str]:
    yield f"  {row.state:<8}  {row.name}"
    parts = []
    if row.written is not None:
        parts = [_gib(row.size), _age(row.written, listing.now), *_per_month(row.size, listing.scene)]
    parts += [used(row.used_by)] if row.used_by else []
    yield from wrapped(BELOW, parts, BELOW)
    yield from phrases(row.why)


def phrases(why: tuple[str, ...]) -> Iterator[str]:
    """Yield phrases with commas between; one that ends in a colon is a line of its own."""
    heads = [phrase for phrase in why if phrase.endswith(":")]
    yield from (f"{BELOW}{head}" for head in heads)
    rest = [phrase for phrase in why if phrase not in heads]
    if any(len(BELOW) + len(phrase) > WIDTH for phrase in rest):
        yield from textwrap.wrap(
            ", ".join(rest), WIDTH, initial_indent=BELOW, subsequent_indent=BELOW, break_long_words=False
        )
    elif rest:
        yield from wrapped(BELOW, rest, BELOW)


def _plain_row(row: Row, listing: Listing) -> dict[str, Any]:
    age = (listing.now - row.written).total_seconds() / DAY_S if row.written else None
    return {
        "kind": row.kind, "name": row.name, "prefix": row.prefix, "state": row.state, "used_by": list(row.used_by),
        "size": row.size, "written": row.written.isoformat() if row.written else None,
        "age_days": None if age is None else round(age, 2), "usd_per_month": _usd(row.size, listing.scene),
        "why": list(row.why), "commands": _commands(row, listing.scene.bucket),
    }  # fmt: skip


def _commands(row: Row, bucket: str) -> list[str]:
    """Return what makes a needed set, in order; nothing while somebody makes it."""
    if not row.command or row.being_made:
        return []
    if row.state == "damaged":
        return [quote_command("aws", "s3", "rm", f"s3://{bucket}/{row.prefix}/tandem-manifest.json"), row.command]
    return [row.command]


def _uncounted(scene: Scene) -> Iterator[str]:
    for place in dict.fromkeys(fault.file for fault in scene.unread):
        yield f"not counted, for it is refused: {place} (tandem check)"


def _verb(scene: Scene, verb: str) -> str:
    return verb if scene.sharing else {"need": "needs", "do": "does"}[verb]


def _users(scene: Scene) -> str:
    return " and ".join([scene.environment.name, *scene.sharing])


def used(users: tuple[str, ...]) -> str:
    """Name who uses something: a variant that is alone, an experiment with the number of its variants."""
    by_experiment: dict[str, list[str]] = {}
    for user in users:
        by_experiment.setdefault(user.rpartition("/")[0], []).append(user)
    told = (all_[0] if len(all_) == 1 else f"{name} ({len(all_)} variants)" for name, all_ in by_experiment.items())
    return f"used by {', '.join(told)}"


def _gib(size: int) -> str:
    """Spell a size: GiB, and smaller units where it is nothing in GiB."""
    for unit, each in (("GiB", GIB), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= each / 10:
            return f"{size / each:.1f} {unit}"
    return f"{size} bytes"


def _age(written: datetime, now: datetime) -> str:
    seconds = max(0.0, (now - written).total_seconds())
    if seconds >= DAY_S:
        return f"{counted(int(seconds // DAY_S), 'day')} old"
    return f"{counted(int(seconds // 3600), 'hour')} old" if seconds >= 3600 else "written within the hour"  # noqa: PLR2004


def _usd(size: int, scene: Scene) -> float | None:
    price = scene.environment.artifacts.usd_per_gb_month
    return None if price is None else size / GIB * price


def _per_month(size: int, scene: Scene) -> list[str]:
    usd = _usd(size, scene)
    if usd is None:
        return []
    return [f"{usd:.2f} USD a month" if usd >= CENT or not usd else "under 0.01 USD a month"]


def _money(size: int, scene: Scene) -> str:
    """Return a cost with its price and the price's date; nothing where the environment has none."""
    artifacts = scene.environment.artifacts
    price = f"at {artifacts.usd_per_gb_month} a GB (your figure of {artifacts.usd_per_gb_month_date})"
    return "".join(f", {each} {price}" for each in _per_month(size, scene))
