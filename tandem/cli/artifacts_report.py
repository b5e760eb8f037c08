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

from tandem.cli.bucket_context import BucketContext
from tandem.cli.outcome import format_count, print_error, print_json
from tandem.cli.recompile_report import WIDTH, wrap_parts
from tandem.errors import TandemError
from tandem.shell_command import quote_command

if TYPE_CHECKING:
    from tandem.artifacts.artifact_import import ImportResult
    from tandem.artifacts.gc import GcPlan, SetRemoval
    from tandem.artifacts.survey import SurveyRow

GIB = 1 << 30
DAY_S = 86_400
CENT_USD = 0.01
INDENT = " " * 12


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


def report_error(error: TandemError, *, as_json: bool) -> None:
    """Print a fault of the bucket or of an artifact."""
    if as_json:
        print_json({"error": error.as_dict(), "exit_code": error.exit_code})
        return
    print_error(error)


def format_listing(listing: ArtifactListing) -> Iterator[str]:
    """Say what is stored and what is missing."""
    context, rows = listing.context, listing.rows
    needed_rows = [row for row in rows if row.used_by]
    present = sum(row.state == "present" for row in needed_rows)
    yield (
        f"s3://{context.bucket}: {present} of the {len(needed_rows)} that {_format_environments(context)} "
        f"{_conjugate_verb(context, 'need')} are present"
    )
    sections = {
        "models": [row for row in needed_rows if row.kind == "model"],
        "artifacts": [row for row in needed_rows if row.kind == "artifact"],
        "needed by nobody": [row for row in rows if not row.used_by],
    }
    for title, section in sections.items():
        yield from [title] if section else []
        yield from (line for row in section for line in _format_row(row, listing))
    size = sum(row.size for row in rows)
    yield f"stored: {_format_size(size)}{_format_cost(size, context)}"
    yield from _list_unread_files(context)
    commands = [command for row in needed_rows for command in _build_survey_commands(row, context.bucket)]
    yield from ["to make what is not there, in this order:"] if commands else []
    yield from (f"  {command}" for command in dict.fromkeys(commands))


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
        size = f", {_format_size(event['size'])}" if "size" in event else ""
        holder = f", held by {event['holder']} until {event.get('until')}" if "holder" in event else ""
        return f"{event['event']}: {event.get('object', event.get('file', ''))}{size}{holder}"
    except (ValueError, KeyError, TypeError):
        return line


@dataclass(frozen=True, slots=True, kw_only=True)
class GcReport:
    """What `collect` found.

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


def format_plan(report: GcReport, *, delete: bool) -> Iterator[str]:
    """Say what goes and what stays."""
    context = report.context
    whose = f"{_format_environments(context)} {_conjugate_verb(context, 'do')} not use"
    yield f"s3://{context.bucket}: what {whose}, older than {format_count(report.days, 'day')}"
    if not report.plan.removals:
        yield "nothing to delete"
    else:
        yield "deleting" if delete else "would delete"
    for removal in report.plan.removals:
        parts = [
            removal.description,
            _format_size(removal.size),
            _format_age(removal.stored_set.last_write_at, report.now),
        ]
        yield f"  {removal.stored_set.name}"
        yield from wrap_parts("    ", parts, "    ")
    if report.plan.retentions:
        yield "kept, though nobody uses it"
    for kept_set in report.plan.retentions:
        yield f"  {kept_set.stored_set.name}"
        yield from wrap_parts(
            "    ", [_format_size(kept_set.stored_set.size), *kept_set.explanation.split(", ")], "    "
        )


def format_summary(report: GcReport, freed_bytes: int, *, delete: bool) -> Iterator[str]:
    """Say how much goes, and when that is really so."""
    size = freed_bytes if delete else report.plan.size
    if report.plan.removals:
        yield f"{'freed' if delete else 'would free'} {_format_size(size)}{_format_cost(size, report.context)}"
        yield from _format_versions(report)
    if report.plan.removals and not delete:
        yield "a server that runs from other files is not seen: keep what it loads by --keep NAME"
        yield "nothing was deleted; --delete does it"


def gc_as_dict(
    report: GcReport, removal_outcomes: Iterable[tuple[SetRemoval, str]], freed_bytes: int, *, delete: bool
) -> dict[str, Any]:
    """Return the same as the plain values that --json prints."""
    outcomes = removal_outcomes if delete else [(removal, "would delete") for removal in report.plan.removals]
    return {
        "bucket": report.context.bucket,
        "environments": [report.context.environment.name, *report.context.sharing],
        "cutoff": report.cutoff.isoformat(),
        "dry_run": not delete,
        "removals": [_removal_as_dict(removal, report.context) | {"outcome": outcome} for removal, outcome in outcomes],
        "kept": [
            {"prefix": kept_set.stored_set.prefix, "size": kept_set.stored_set.size, "why": kept_set.explanation}
            for kept_set in report.plan.retentions
        ],
        "size": freed_bytes if delete else report.plan.size,
        "usd_per_month": _compute_usd_month(freed_bytes if delete else report.plan.size, report.context),
        "versions_kept": report.versions,
    }


def format_import(import_result: ImportResult, context: BucketContext) -> Iterator[str]:
    """Say what became of an artifact that was to be taken in."""
    location = f"s3://{context.bucket}/{import_result.prefix}/"
    files = f"{format_count(len(import_result.manifest.files), 'file')}, {_format_size(import_result.manifest.size)}"
    if not import_result.is_new:
        yield f"present, left alone: {import_result.name}"
        yield from wrap_parts(
            "  ", [files, f"made by {import_result.manifest.made.get('run', 'somebody')}", location], "  "
        )
        return
    yield f"adopted: {import_result.name}"
    yield from wrap_parts("  ", [files, f"in {location}{import_result.manifest.folder}/"], "  ")
    for sentence in import_result.manifest.made["unproven"]:
        yield from textwrap.wrap(f"unproven: {sentence}", WIDTH, initial_indent="  ", subsequent_indent="    ")


def import_as_dict(import_result: ImportResult, context: BucketContext) -> dict[str, Any]:
    """Return the same as the plain values that --json prints."""
    return {
        "bucket": context.bucket,
        "name": import_result.name,
        "prefix": import_result.prefix,
        "taken": import_result.is_new,
        "files": len(import_result.manifest.files),
        "size": import_result.manifest.size,
        "made": import_result.manifest.made,
    }


def _format_versions(report: GcReport) -> Iterator[str]:
    """Say when the bytes of what is deleted stop being paid for."""
    artifacts = report.context.environment.artifacts
    if report.versions is False:
        return
    start = (
        "if the bucket keeps versions, they are" if report.versions is None else "the bucket keeps versions: they are"
    )
    if artifacts.existing_bucket is None:
        yield f"{start} paid for {artifacts.noncurrent_days} days more (artifacts.noncurrent_days)"
    else:
        yield f"{start} paid for until its own lifecycle rules remove them"


def _removal_as_dict(removal: SetRemoval, context: BucketContext) -> dict[str, Any]:
    return {
        "prefix": removal.stored_set.prefix,
        "what": removal.description,
        "size": removal.size,
        "objects": len(removal.keys),
        "uploads": len(removal.uploads),
        "usd_per_month": _compute_usd_month(removal.size, context),
    }


def _format_row(row: SurveyRow, listing: ArtifactListing) -> Iterator[str]:
    yield f"  {row.state:<8}  {row.name}"
    parts = []
    if row.last_write_at is not None:
        parts = [
            _format_size(row.size),
            _format_age(row.last_write_at, listing.now),
            *_format_usd_month(row.size, listing.context),
        ]
    parts += [format_users(row.used_by)] if row.used_by else []
    yield from wrap_parts(INDENT, parts, INDENT)
    yield from format_phrases(row.why)


def format_phrases(reasons: tuple[str, ...]) -> Iterator[str]:
    """Yield phrases with commas between; one that ends in a colon is a line of its own."""
    heads = [phrase for phrase in reasons if phrase.endswith(":")]
    yield from (f"{INDENT}{head}" for head in heads)
    rest = [phrase for phrase in reasons if phrase not in heads]
    if any(len(INDENT) + len(phrase) > WIDTH for phrase in rest):
        yield from textwrap.wrap(
            ", ".join(rest), WIDTH, initial_indent=INDENT, subsequent_indent=INDENT, break_long_words=False
        )
    elif rest:
        yield from wrap_parts(INDENT, rest, INDENT)


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


def _list_unread_files(context: BucketContext) -> Iterator[str]:
    for place in dict.fromkeys(fault.file for fault in context.unread):
        yield f"not counted, for it is refused: {place} (tandem check)"


def _conjugate_verb(context: BucketContext, verb: str) -> str:
    return verb if context.sharing else {"need": "needs", "do": "does"}[verb]


def _format_environments(context: BucketContext) -> str:
    return " and ".join([context.environment.name, *context.sharing])


def format_users(users: tuple[str, ...]) -> str:
    """Name who uses something: a variant that is alone, an experiment with the number of its variants."""
    by_experiment: dict[str, list[str]] = {}
    for user in users:
        by_experiment.setdefault(user.rpartition("/")[0], []).append(user)
    user_texts = (
        all_[0] if len(all_) == 1 else f"{name} ({len(all_)} variants)" for name, all_ in by_experiment.items()
    )
    return f"used by {', '.join(user_texts)}"


def _format_size(size: int) -> str:
    """Spell a size: GiB, and smaller units where it is nothing in GiB."""
    for unit, unit_bytes in (("GiB", GIB), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= unit_bytes / 10:
            return f"{size / unit_bytes:.1f} {unit}"
    return f"{size} bytes"


def _format_age(write_time: datetime, now: datetime) -> str:
    seconds = max(0.0, (now - write_time).total_seconds())
    if seconds >= DAY_S:
        return f"{format_count(int(seconds // DAY_S), 'day')} old"
    return f"{format_count(int(seconds // 3600), 'hour')} old" if seconds >= 3600 else "written within the hour"  # noqa: PLR2004


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
