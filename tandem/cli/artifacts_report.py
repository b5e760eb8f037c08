"""What the commands of a bucket say: to a person in rows, to a program as plain values.

Invariant: money is shown only where the environment has a price, with the price and its date; what must be typed
stands on a line of its own.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from tandem.cli.bucket_context import BucketContext
from tandem.cli.console import VerbatimText, format_count, print_line, print_rows
from tandem.shell_command import quote_command

if TYPE_CHECKING:
    from tandem.artifacts.artifact_import import ImportResult
    from tandem.artifacts.gc import GcPlan, SetRemoval
    from tandem.artifacts.survey import SurveyRow

GIB = 1 << 30
UNITS = (("GiB", GIB), ("MiB", 1 << 20), ("KiB", 1 << 10))
HOUR_S, DAY_S = 3600, 86_400
CENT_USD = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactListing:
    """What `list` found.

    Args:
        context: the environment and who shares its bucket.
        rows: of `tandem.artifacts.survey`.
        now: S3's time, from which ages are counted.
    """

    context: BucketContext
    rows: tuple[SurveyRow, ...]
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class GcReport:
    """What `gc` found.

    Args:
        context: the environment and who shares its bucket.
        plan: what may go and what stays.
        days: how old a thing must be.
        now: S3's time, from which ages are counted.
        versions: whether a delete leaves old versions; None for unknown.
    """

    context: BucketContext
    plan: GcPlan
    days: int
    now: datetime
    versions: bool | None

    @property
    def cutoff(self) -> datetime:
        """Return the time since which things are young."""
        return self.now - timedelta(days=self.days)


class ProgressPrinter(io.TextIOBase):
    """Takes the log lines that pods write, and tells them on standard error in short."""

    def write(self, text: str) -> int:
        """Tell the lines of `text`."""
        for line in text.splitlines():
            print(_shorten_log_line(line), file=sys.stderr, flush=True)
        return len(text)


def _shorten_log_line(line: str) -> str:
    try:
        event = json.loads(line)
        size = f", {format_size(event['size'])}" if "size" in event else ""
        holder = f", held by {event['holder']} until {event.get('until')}" if "holder" in event else ""
        return f"{event['event']}: {event.get('object', event.get('file', ''))}{size}{holder}"
    except (ValueError, KeyError, TypeError):
        return line


def print_listing(listing: ArtifactListing) -> None:
    """Say what is stored and what is missing."""
    context, rows = listing.context, listing.rows
    needed_rows = [row for row in rows if row.used_by]
    present, verb = sum(row.state == "present" for row in needed_rows), "need" if context.sharing else "needs"
    print_line(f"s3://{context.bucket}: {present} of the {len(needed_rows)} that {context.subject} {verb} are present")
    sections = {
        "models": [row for row in needed_rows if row.kind == "model"],
        "artifacts": [row for row in needed_rows if row.kind == "artifact"],
        "needed by nobody": [row for row in rows if not row.used_by],
    }
    for title, section in sections.items():
        if section:
            print_line(title)
        print_rows(line for row in section for line in _list_survey_rows(row, listing))
    size = sum(row.size for row in rows)
    print_line(f"stored: {format_size(size)}{_format_cost(size, context)}")
    for place in dict.fromkeys(fault.file for fault in context.unread):
        print_line(f"not counted, for it is refused: {place} (tandem check)")
    commands = [command for row in needed_rows for command in _build_survey_commands(row, context.bucket)]
    if commands:
        print_line("to make what is not there, in this order:")
    for command in dict.fromkeys(commands):
        print(f"  {command}")


def _list_survey_rows(row: SurveyRow, listing: ArtifactListing) -> Iterator[tuple[str, str]]:
    yield row.state, VerbatimText(row.name)
    parts = []
    if row.last_write_at is not None:
        parts = [format_size(row.size), _format_age(row.last_write_at, listing.now)]
        parts += _format_usd_month(row.size, listing.context)
    parts += [format_users(row.used_by)] if row.used_by else []
    if parts:
        yield "", ", ".join(parts)
    heads = [phrase for phrase in row.why if phrase.endswith(":")]  # a line of its own each
    yield from (("", head) for head in heads)
    reasons = ", ".join(phrase for phrase in row.why if phrase not in heads)
    if reasons:
        yield "", reasons


def listing_as_dict(listing: ArtifactListing) -> dict[str, Any]:
    """Return the same as the plain values that --json prints."""
    context, price = listing.context, listing.context.environment.artifacts
    size = sum(row.size for row in listing.rows)
    return {
        "bucket": context.bucket,
        "environments": [context.environment.name, *context.sharing],
        "uncounted": [fault.as_dict() for fault in context.unread],
        "usd_per_gb_month": price.usd_per_gb_month,
        "usd_per_gb_month_date": price.usd_per_gb_month_date,
        "size": size,
        "usd_per_month": _compute_usd_month(size, context),
        "rows": [_row_as_dict(row, listing) for row in listing.rows],
    }


def _row_as_dict(row: SurveyRow, listing: ArtifactListing) -> dict[str, Any]:
    age = (listing.now - row.last_write_at).total_seconds() / DAY_S if row.last_write_at else None
    return {
        "kind": row.kind,
        "name": row.name,
        "prefix": row.prefix,
        "state": row.state,
        "used_by": list(row.used_by),
        "size": row.size,
        "written": row.last_write_at.isoformat() if row.last_write_at else None,
        "age_days": None if age is None else round(age, 2),
        "usd_per_month": _compute_usd_month(row.size, listing.context),
        "why": list(row.why),
        "commands": _build_survey_commands(row, listing.context.bucket),
    }


def _build_survey_commands(row: SurveyRow, bucket: str) -> list[str]:
    """Return what makes a needed set, in order; nothing while somebody makes it."""
    if not row.command or row.is_in_progress:
        return []
    if row.state == "damaged":
        return [quote_command("aws", "s3", "rm", f"s3://{bucket}/{row.prefix}/tandem-manifest.json"), row.command]
    return [row.command]


def print_plan(report: GcReport, *, delete: bool) -> None:
    """Say what goes and what stays."""
    context, verb = report.context, "do" if report.context.sharing else "does"
    age = format_count(report.days, "day")
    print_line(f"s3://{context.bucket}: what {context.subject} {verb} not use, older than {age}")
    print_line("nothing to delete" if not report.plan.removals else "deleting" if delete else "would delete")
    for removal in report.plan.removals:
        stored_set = removal.stored_set
        parts = [removal.description, format_size(removal.size), _format_age(stored_set.last_write_at, report.now)]
        print_line(f"  {stored_set.name}")
        print_rows([(", ".join(parts),)], indent=4)
    if report.plan.retentions:
        print_line("kept, though nobody uses it")
    for retention in report.plan.retentions:
        text = f"{format_size(retention.stored_set.size)}, {retention.explanation}"
        print_line(f"  {retention.stored_set.name}")
        print_rows([(text,)], indent=4)


def print_summary(report: GcReport, freed_bytes: int, *, delete: bool) -> None:
    """Say how much goes, and when that is really so."""
    if not report.plan.removals:
        return
    size, artifacts = freed_bytes if delete else report.plan.size, report.context.environment.artifacts
    print_line(f"{'freed' if delete else 'would free'} {format_size(size)}{_format_cost(size, report.context)}")
    if report.versions is not False:
        condition = "the bucket keeps versions:" if report.versions else "if the bucket keeps versions,"
        end = f"for {artifacts.noncurrent_days} days more (artifacts.noncurrent_days)"
        end = end if artifacts.existing_bucket is None else "for until its own lifecycle rules remove them"
        print_line(f"{condition} they are paid {end}")
    if not delete:
        print_line("a server that runs from other files is not seen: keep what it loads by --keep NAME")
        print_line("nothing was deleted; --delete does it")


def gc_as_dict(
    report: GcReport, removal_outcomes: Iterable[tuple[SetRemoval, str]], freed_bytes: int, *, delete: bool
) -> dict[str, Any]:
    """Return the same as the plain values that --json prints."""
    outcomes = removal_outcomes if delete else [(removal, "would delete") for removal in report.plan.removals]
    size = freed_bytes if delete else report.plan.size
    return {
        "bucket": report.context.bucket,
        "environments": [report.context.environment.name, *report.context.sharing],
        "cutoff": report.cutoff.isoformat(),
        "dry_run": not delete,
        "removals": [_removal_as_dict(removal, report.context) | {"outcome": outcome} for removal, outcome in outcomes],
        "kept": [
            {"prefix": entry.stored_set.prefix, "size": entry.stored_set.size, "why": entry.explanation}
            for entry in report.plan.retentions
        ],
        "size": size,
        "usd_per_month": _compute_usd_month(size, report.context),
        "versions_kept": report.versions,
    }


def _removal_as_dict(removal: SetRemoval, context: BucketContext) -> dict[str, Any]:
    return {
        "prefix": removal.stored_set.prefix,
        "what": removal.description,
        "size": removal.size,
        "objects": len(removal.keys),
        "uploads": len(removal.uploads),
        "usd_per_month": _compute_usd_month(removal.size, context),
    }


def print_import(import_result: ImportResult, context: BucketContext) -> None:
    """Say what became of an artifact that was to be taken in."""
    manifest, location = import_result.manifest, f"s3://{context.bucket}/{import_result.key.prefix}/"
    files = f"{format_count(len(manifest.files), 'file')}, {format_size(manifest.size)}"
    if not import_result.is_new:
        print_line(f"present, left alone: {import_result.key.name}")
        rows = [f"{files}, made by {manifest.made.get('run', 'somebody')}", VerbatimText(location)]
    else:
        print_line(f"imported: {import_result.key.name}")
        rows = [VerbatimText(f"{files}, in {location}{manifest.folder}/")]
        rows += [f"unproven: {sentence}" for sentence in manifest.made["unproven"]]
    print_rows([row] for row in rows)


def import_as_dict(import_result: ImportResult, context: BucketContext) -> dict[str, Any]:
    """Return the same as the plain values that --json prints."""
    return {
        "bucket": context.bucket,
        "name": import_result.key.name,
        "prefix": import_result.key.prefix,
        "taken": import_result.is_new,
        "files": len(import_result.manifest.files),
        "size": import_result.manifest.size,
        "made": import_result.manifest.made,
    }


def format_users(users: tuple[str, ...]) -> str:
    """Name who uses something: a variant that is alone, an experiment with the number of its variants."""
    by_experiment: dict[str, list[str]] = {}
    for user in users:
        by_experiment.setdefault(user.rpartition("/")[0], []).append(user)
    texts = (
        group[0] if len(group) == 1 else f"{name} ({len(group)} variants)" for name, group in by_experiment.items()
    )
    return f"used by {', '.join(texts)}"


def format_size(size: int) -> str:
    """Spell a size: GiB, and smaller units where it is nothing in GiB."""
    for unit, unit_bytes in UNITS:
        if size >= unit_bytes / 10:
            return f"{size / unit_bytes:.1f} {unit}"
    return f"{size} bytes"


def _format_age(write_time: datetime, now: datetime) -> str:
    seconds = max(0.0, (now - write_time).total_seconds())
    if seconds >= DAY_S:
        return f"{format_count(int(seconds // DAY_S), 'day')} old"
    return f"{format_count(int(seconds // HOUR_S), 'hour')} old" if seconds >= HOUR_S else "written within the hour"


def _compute_usd_month(size: int, context: BucketContext) -> float | None:
    price = context.environment.artifacts.usd_per_gb_month
    return None if price is None else size / GIB * price


def _format_usd_month(size: int, context: BucketContext) -> list[str]:
    usd = _compute_usd_month(size, context)
    if usd is None:
        return []
    return [f"{usd:.2f} USD a month" if usd >= CENT_USD or not usd else "under 0.01 USD a month"]


def _format_cost(size: int, context: BucketContext) -> str:
    """Return a cost with its price and the price's date; nothing where the environment has none."""
    artifacts = context.environment.artifacts
    price = f"at {artifacts.usd_per_gb_month} a GB (your figure of {artifacts.usd_per_gb_month_date})"
    return "".join(f", {cost} {price}" for cost in _format_usd_month(size, context))
