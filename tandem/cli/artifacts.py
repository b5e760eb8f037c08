"""`tandem artifacts list|explain|collect|adopt`: what an environment's bucket holds, for who has the files at hand.

Invariant: what is in use comes from the declared files of every environment that names the same bucket, and from
what is rendered; where one of these files cannot be read, nothing is deleted. boto3 is loaded by these commands
alone, and when they run.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tandem.artifacts.explain import (
    KeySide,
    compute_key_name,
    format_differences,
    list_artifact_sides,
    resolve_key,
    serialize_differences,
)
from tandem.cli import artifacts_report as report
from tandem.cli.bucket_context import BucketContext, load_bucket_context
from tandem.cli.outcome import print_error, print_json
from tandem.cli.recompile import MANIFESTS, read_manifests
from tandem.cli.selection import Selection
from tandem.errors import ExitCode, ExternalError, InputError, TandemError
from tandem.spec.artifact_key import ArtifactKey
from tandem.spec.faults import SpecError, SpecFault
from tandem.spec.variant_key import compute_artifact_key

if TYPE_CHECKING:
    from tandem.artifacts.inventory import StoredSet
    from tandem.artifacts.store import ObjectStore

DEFAULT_DAYS = 30


def add_verbs(parser: argparse.ArgumentParser, shared: argparse.ArgumentParser) -> None:
    """Declare the verbs and what each takes; `shared` has the options of every command."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")

    def add_verb(name: str, description: str) -> argparse.ArgumentParser:
        verb_parser = verbs.add_parser(
            name, help=description, description=description, epilog=parser.epilog, parents=[shared]
        )
        verb_parser.add_argument("--env", required=True, metavar="NAME", help="the environment whose bucket it is")
        return verb_parser

    listing = add_verb("list", "show what is stored and what is missing, with size, age, cost and users")
    listing.add_argument("--strict", action="store_true", help="exit 1 when something needed is not whole")
    explain = add_verb("explain", "name the fields in which two artifacts differ")
    for side in ("a", "b"):
        explain.add_argument(
            side, metavar=side.upper(), help="experiment/variant, (start of) a name, digest, or folder"
        )
    collect = add_verb("collect", "delete what no experiment uses and is old; a dry run without --delete")
    collect.add_argument(
        "--days", type=_parse_days, default=DEFAULT_DAYS, help=f"what was written since stays (default {DEFAULT_DAYS})"
    )
    collect.add_argument("--keep", action="append", default=[], metavar="NAME", help="in use all the same; repeatable")
    collect.add_argument("--delete", action="store_true", help="delete; without it only say what would go")
    adopt = add_verb("adopt", "take in an artifact that was compiled elsewhere")
    source_group = adopt.add_mutually_exclusive_group(required=True)
    source_group.add_argument(
        "folder", type=Path, nargs="?", metavar="DIR", help="the artifact, as the runtime wrote it"
    )
    source_group.add_argument("--refused", metavar="RUN", help="what an upload kept and refused, as its log names it")
    adopt.add_argument("--variant", required=True, metavar="EXPERIMENT/VARIANT", help="what it was compiled for")


def artifacts(selection: Selection, options: argparse.Namespace) -> ExitCode:
    """Run one verb.

    Args:
        selection: the folders of declared files.
        options: `verb`, `env` and the verb's own.

    Raises:
        SpecError: a declared file is refused.
    """
    run_verb = {
        "list": _list_artifacts,
        "explain": _explain_difference,
        "collect": _collect_garbage,
        "adopt": _import_artifact,
    }[options.verb]
    try:
        return run_verb(load_bucket_context(selection, options.env), options)
    except SpecError:
        raise  # told by the program, with every fault of the file
    except TandemError as error:
        report.report_error(error, as_json=selection.as_json)
        return ExitCode(error.exit_code)


def _print_lines(text_lines: Iterable[str]) -> None:
    for line in text_lines:
        print(line)


def _parse_days(text: str) -> int:
    if not text.isdecimal() or int(text) > 36_500:  # noqa: PLR2004 - a century
        raise argparse.ArgumentTypeError("a whole number of days, from 0 on")
    return int(text)


def _open_store(context: BucketContext) -> ObjectStore:
    from tandem.artifacts.store import open_store  # noqa: PLC0415 - boto3

    os.environ["AWS_DEFAULT_REGION"] = context.environment.region  # where boto3's own chain looks for it
    return open_store(context.bucket)


def _list_artifacts(context: BucketContext, options: argparse.Namespace) -> ExitCode:
    from tandem.artifacts.inventory import read_inventory  # noqa: PLC0415 - boto3
    from tandem.artifacts.survey import survey_bucket  # noqa: PLC0415

    store = _open_store(context)
    stored_sets = read_inventory(store)
    listing = report.ArtifactListing(context=context, rows=survey_bucket(context.needs, stored_sets), now=store.now())
    if options.json:
        print_json(report.listing_as_dict(listing))
    else:
        _print_lines(report.format_listing(listing))
    read_fault = next(
        (stored_set.fault for stored_set in stored_sets if isinstance(stored_set.fault, ExternalError)), None
    )
    if read_fault is not None:
        print_error(read_fault)
        return ExitCode.EXTERNAL_FAILURE
    return ExitCode.STALE if options.strict and any(row.is_unavailable for row in listing.rows) else ExitCode.DONE


def _explain_difference(context: BucketContext, options: argparse.Namespace) -> ExitCode:
    variant_sides = [
        KeySide(name=need.name, fields=need.fields, where=report.format_users(need.used_by), aliases=need.used_by)
        for need in context.needs
        if need.kind == "artifact"
    ]

    def list_stored_sides() -> Iterator[KeySide]:
        from tandem.artifacts.inventory import read_inventory  # noqa: PLC0415 - boto3, which two variants do not need

        store = _open_store(context)
        return list_artifact_sides(read_inventory(store), store.url(""))

    first_side, second_side = (resolve_key(word, variant_sides, list_stored_sides) for word in (options.a, options.b))
    if options.json:
        print_json(serialize_differences(first_side, second_side))
    else:
        _print_lines(format_differences(first_side, second_side))
    return ExitCode.DONE


def _collect_garbage(context: BucketContext, options: argparse.Namespace) -> ExitCode:
    if context.unread:
        raise SpecError(context.unread)
    rendered_keys = _read_rendered_keys(context, options.environments)
    from tandem.artifacts.gc import DELETION_RESULT, execute_plan, has_versioning, plan_removals  # noqa: PLC0415 - boto3
    from tandem.artifacts.inventory import read_inventory  # noqa: PLC0415

    store = _open_store(context)
    stored_sets, now = read_inventory(store, with_uploads=True), store.now()
    used_names = (
        {need.name for need in context.needs}
        | _require_stored_names(options.keep, stored_sets)
        | _find_served_names(rendered_keys, stored_sets)
    )
    gc_plan = plan_removals(stored_sets, used_names, now - timedelta(days=options.days))
    gc_report = report.GcReport(
        context=context, plan=gc_plan, days=options.days, now=now, versions=has_versioning(store)
    )
    stdout = sys.stdout
    if not options.json:
        _print_lines(report.format_plan(gc_report, delete=options.delete))
    outcomes = []
    with contextlib.redirect_stdout(report.ProgressPrinter()):  # of whoever waits for a lease
        for removal, outcome in execute_plan(store, gc_plan, used_names, gc_report.cutoff) if options.delete else ():
            outcomes.append((removal, outcome))
            if not options.json:
                print(f"{outcome}: {removal.stored_set.prefix}", file=stdout, flush=True)
    freed = sum(removal.size for removal, outcome in outcomes if outcome == DELETION_RESULT)
    if options.json:
        print_json(report.gc_as_dict(gc_report, outcomes, freed, delete=options.delete))
    else:
        _print_lines(report.format_summary(gc_report, freed, delete=options.delete))
    read_fault = next((entry.fault for entry in gc_plan.retentions if entry.fault), None)
    if read_fault is not None:
        print_error(read_fault)
        return ExitCode.EXTERNAL_FAILURE
    return ExitCode.DONE


def _read_rendered_keys(context: BucketContext, environments: Path) -> list[Mapping[str, Any]]:
    """Return the keys that the rendered servers of the bucket's environments carry: what may be running now.

    They are looked for in the working folder and beside the declared files, for a command that is run elsewhere.

    Raises:
        SpecError: a rendered file cannot be read.
    """
    environment_names = {context.environment.name, *context.sharing}
    places = {
        folder.joinpath(*place): keys
        for folder in (MANIFESTS, environments.parent / MANIFESTS)
        for place, keys in (read_manifests(folder).places if folder.is_dir() else {}).items()
        if place[0] in environment_names
    }
    unreadable_folders = [folder for folder, keys in places.items() if isinstance(keys, str)]
    if unreadable_folders:
        raise SpecError([_build_unreadable_fault(folder) for folder in unreadable_folders])
    return [fields for keys in places.values() if not isinstance(keys, str) for fields in keys.values()]


def _find_served_names(rendered_keys: Iterable[Mapping[str, Any]], stored_sets: Iterable[StoredSet]) -> set[str]:
    """Return the names of what rendered servers load, also where another release rendered them."""
    fields = list(rendered_keys)
    names = {str(key_fields[model]) for key_fields in fields for model in ("target", "draft") if key_fields.get(model)}
    names |= {name for key_fields in fields if (name := compute_key_name(key_fields))}
    return names | {
        stored_set.name for stored_set in stored_sets if stored_set.manifest and stored_set.manifest.fields in fields
    }


def _require_stored_names(names: Sequence[str], stored_sets: Iterable[StoredSet]) -> set[str]:
    """Return the names to keep.

    Raises:
        InputError: one of them is the name of nothing stored, and so would keep nothing.
    """
    stored_names = sorted(stored_set.name for stored_set in stored_sets)
    for name in names:
        if name not in stored_names:
            suggestions = difflib.get_close_matches(name, stored_names, n=3, cutoff=0.3) or ["nothing is stored"]
            raise InputError(f"{name!r} is stored nowhere here", change=f"write one of: {', '.join(suggestions)}")
    return set(names)


def _build_unreadable_fault(folder: Path) -> SpecFault:
    return SpecFault(
        file=str(folder), path="", got="rendered servers that tell no artifact key",
        allowed="a tree that `tandem render` wrote",
        change="render again: until then nobody knows which artifacts its servers load",
    )  # fmt: skip


def _import_artifact(context: BucketContext, options: argparse.Namespace) -> ExitCode:
    key = _find_variant_key(context, options.variant)
    from tandem.artifacts.artifact_import import import_artifact, import_rejection  # noqa: PLC0415 - boto3

    with contextlib.redirect_stdout(report.ProgressPrinter()):  # of the upload
        if options.refused is not None:
            import_result = import_rejection(_open_store(context), options.refused, key)
        else:
            import_result = import_artifact(_open_store(context), options.folder, key)
    if options.json:
        print_json(report.import_as_dict(import_result, context))
    else:
        _print_lines(report.format_import(import_result, context))
    return ExitCode.DONE


def _find_variant_key(context: BucketContext, word: str) -> ArtifactKey:
    """Return the key of a variant of this environment.

    Raises:
        InputError: the environment hosts no such variant.
    """
    keys = {
        f"{experiment.name}/{variant.name}": compute_artifact_key(experiment, variant, context.catalogue)
        for experiment in context.experiments
        for variant in experiment.all_variants()
    }
    if word not in keys:
        suggestions = difflib.get_close_matches(word, keys, n=3, cutoff=0.3) or sorted(keys)[:3]
        raise InputError(
            f"{context.environment.name} hosts no variant {word!r}", change=f"write one of: {', '.join(suggestions)}"
        )
    return keys[word]
