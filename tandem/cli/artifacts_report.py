"""What the commands of a bucket say: to a person in rows, to a program as plain values.

Invariant: money is shown only where the environment has a price, with the price and its date; what
must be typed stands on a line of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tandem.artifacts.explain import KeySide, describe_differences
from tandem.artifacts.files import format_bytes
from tandem.artifacts.manifest import Manifest, files_prefix
from tandem.cli.bucket_context import BucketContext
from tandem.cli.console import VerbatimText, format_count, print_line, print_rows
from tandem.declarations.artifact_key import ArtifactKey, compare_key_fields

if TYPE_CHECKING:
    from tandem.artifacts.gc import GcPlan, SetRemoval
    from tandem.artifacts.survey import SurveyRow

GIB = 1 << 30
DAY_S = 86_400


def print_listing(context: BucketContext, rows: Sequence[SurveyRow], now: datetime) -> None:
    """Say what is stored and what is missing; `now` is S3's time, from which ages are counted."""
    needed_rows = [row for row in rows if row.used_by]
    present = sum(row.state == "present" for row in needed_rows)
    verb = "need" if context.sharing else "needs"
    print_line(
        f"s3://{context.bucket}: {present} of the {len(needed_rows)} that {context.subject} {verb}"
        " are present"
    )
    sections: dict[str, list[SurveyRow]] = {"models": [], "artifacts": [], "not needed": []}
    for row in rows:
        title = f"{row.kind}s" if row.used_by else "not needed"
        sections[title].append(row)
    for title, section in sections.items():
        if section:
            print_line(title)
        for row in section:
            print_rows(_list_survey_rows(row, context, now))
    size = sum(row.size for row in rows)
    print_line(f"stored: {format_bytes(size)}{_format_cost(size, context, with_price=True)}")
    for place in dict.fromkeys(fault.file for fault in context.unread):
        print_line(f"not counted, because it is refused: {place} (tandem check)")
    commands: dict[str, None] = {}
    for row in needed_rows:
        commands |= dict.fromkeys(row.commands)
    if commands:
        print_line("to make what is missing, in this order:")
    for command in commands:
        print(f"  {command}")


def _list_survey_rows(
    row: SurveyRow, context: BucketContext, now: datetime
) -> Iterator[tuple[str, str]]:
    yield row.state, VerbatimText(row.name)
    parts = []
    if row.written is not None:
        days = max((now - row.written).days, 0)  # S3's clock may be ahead of this machine's
        age = format_count(days, "day")
        parts = [f"{format_bytes(row.size)}, {age} old{_format_cost(row.size, context)}"]
    if row.used_by:
        parts.append(format_users(row.used_by))
    for line in (", ".join(parts), ", ".join(row.why)):
        if line:
            yield "", line


def listing_as_dict(
    context: BucketContext, rows: Sequence[SurveyRow], now: datetime
) -> dict[str, Any]:
    """Return the same as the plain values that --json prints."""
    price = context.environment.artifacts
    size = sum(row.size for row in rows)
    return {
        "bucket": context.bucket,
        "environments": [context.environment.name, *context.sharing],
        "uncounted": [fault.as_dict() for fault in context.unread],
        "usd_per_gb_month": price.usd_per_gb_month,
        "usd_per_gb_month_date": price.usd_per_gb_month_date,
        "size": size,
        "usd_per_month": _compute_usd_month(size, context),
        "rows": [_row_as_dict(row, context, now) for row in rows],
    }


def _row_as_dict(row: SurveyRow, context: BucketContext, now: datetime) -> dict[str, Any]:
    age_s = (now - row.written).total_seconds() if row.written else None
    return {
        **asdict(row),
        "written": row.written.isoformat() if row.written else None,
        "age_days": None if age_s is None else round(age_s / DAY_S, 2),
        "usd_per_month": _compute_usd_month(row.size, context),
    }


def list_differences(first_side: KeySide, second_side: KeySide) -> Iterator[str]:
    """Yield for a person how two keys differ, from the first to the second."""
    for mark, side in (("A", first_side), ("B", second_side)):
        yield from (f"{mark}  {side.name}", f"   {side.where}")
    differences = describe_differences(compare_key_fields(first_side.fields, second_side.fields))
    yield from differences or ["the same artifact: every field of the key is equal"]


def differences_as_dict(first_side: KeySide, second_side: KeySide) -> dict[str, Any]:
    """Return the same as the plain values that --json prints."""
    differences = compare_key_fields(first_side.fields, second_side.fields)
    return {
        "a": {"name": first_side.name, "where": first_side.where},
        "b": {"name": second_side.name, "where": second_side.where},
        "same": not differences,
        "differences": {field: {"a": a, "b": b} for field, (a, b) in differences.items()},
    }


def print_heading(context: BucketContext, days: int) -> None:
    """Say what may go."""
    verb = "do" if context.sharing else "does"
    age = format_count(days, "day")
    print_line(f"s3://{context.bucket}: what {context.subject} {verb} not use, older than {age}")


def print_removal(row: dict[str, Any]) -> None:
    """Say what becomes of one set, in the form of `removal_as_dict`."""
    print_line(f"{row['outcome']}: {row['prefix']}")
    print_rows([(f"{row['what']}, {format_bytes(row['size'])}",)], indent=4)


def print_summary(
    context: BucketContext, plan: GcPlan, size: int, *, versions: bool, delete: bool
) -> None:
    """Print what stays, how much goes, and when; with `versions`, a delete leaves old ones."""
    artifacts = context.environment.artifacts
    cost = _format_cost(size, context, with_price=True)
    for stored_set, reason in plan.retentions:
        print_line(f"kept, although unused: {stored_set.prefix}")
        print_rows([(f"{format_bytes(stored_set.size)}, {reason}",)], indent=4)
    print_line(f"{'freed' if delete else 'would free'} {format_bytes(size)}{cost}")
    if versions and plan.removals:
        end = f"for {artifacts.noncurrent_days} days more (artifacts.noncurrent_days)"
        end = end if artifacts.existing_bucket is None else "until its lifecycle rules remove them"
        print_line(f"the bucket keeps versions: they are paid {end}")
    if not delete:
        print_line(
            "a server that runs from other files is not seen: keep what it loads by --keep NAME"
        )
        print_line("nothing was deleted; --delete does it")


def removal_as_dict(removal: SetRemoval, outcome: str, context: BucketContext) -> dict[str, Any]:
    """Return one set that goes as the plain values that --json prints."""
    return {
        "prefix": removal.stored_set.prefix,
        "what": removal.description,
        "size": removal.size,
        "objects": len(removal.objects),
        "uploads": len(removal.uploads),
        "usd_per_month": _compute_usd_month(removal.size, context),
        "outcome": outcome,
    }


def gc_as_dict(
    context: BucketContext, plan: GcPlan, rows: list[dict[str, Any]], size: int
) -> dict[str, Any]:
    """Return all that a gc did as the plain values that --json prints."""
    return {
        "bucket": context.bucket,
        "environments": [context.environment.name, *context.sharing],
        "removals": rows,
        "kept": [
            {"prefix": stored_set.prefix, "size": stored_set.size, "why": reason}
            for stored_set, reason in plan.retentions
        ],
        "size": size,
        "usd_per_month": _compute_usd_month(size, context),
    }


def print_import(
    manifest: Manifest, key: ArtifactKey, context: BucketContext, *, is_new: bool
) -> None:
    """Say what became of an artifact that was to be taken in; `manifest` is what is stored now."""
    files = f"{format_count(len(manifest.files), 'file')}, {format_bytes(manifest.size)}"
    rows: list[str] = [
        VerbatimText(f"{files}, in s3://{context.bucket}/{files_prefix(key.prefix, manifest)}/")
    ]
    print_line(f"{'imported' if is_new else 'present, left alone'}: {key.name}")
    if is_new:
        rows += [f"unproven: {sentence}" for sentence in manifest.made["unproven"]]
    print_rows([row] for row in rows)


def import_as_dict(
    manifest: Manifest, key: ArtifactKey, context: BucketContext, *, is_new: bool
) -> dict[str, Any]:
    """Return the same as the plain values that --json prints."""
    place = {"bucket": context.bucket, "name": key.name, "prefix": key.prefix}
    return {
        **place,
        "taken": is_new,
        "files": len(manifest.files),
        "size": manifest.size,
        "made": manifest.made,
    }


def format_users(users: tuple[str, ...]) -> str:
    """Name who uses something."""
    return f"used by {', '.join(users)}"


def _compute_usd_month(size: int, context: BucketContext) -> float | None:
    price = context.environment.artifacts.usd_per_gb_month
    return None if price is None else size / GIB * price


def _format_cost(size: int, context: BucketContext, *, with_price: bool = False) -> str:
    """Return a cost, with its price and date where wanted; empty without a price."""
    artifacts = context.environment.artifacts
    usd = _compute_usd_month(size, context)
    if usd is None:
        return ""
    cost = f", {usd:.2f} USD a month"
    if not with_price:
        return cost
    date = f"your figure of {artifacts.usd_per_gb_month_date}"
    return f"{cost} at {artifacts.usd_per_gb_month} a GB ({date})"
