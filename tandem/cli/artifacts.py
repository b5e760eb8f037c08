"""`tandem artifacts list|explain|gc|import|stage-task|stage-suite`: what a bucket holds.

Invariant: what is in use comes from the declared files of every environment that names the same
bucket, and from what is rendered; where one of these files cannot be read, nothing is deleted.
boto3 is loaded by these commands alone, and when they run.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Group, Parameter

from tandem.artifacts.explain import (
    KeySide,
    build_name_error,
    compute_key_name,
    resolve_key,
)
from tandem.cli import artifacts_report as report
from tandem.cli.bucket_context import BucketContext, load_bucket_context
from tandem.cli.console import print_fault, print_json, print_result
from tandem.cli.flags import EnvironmentName, Whole, require_range, require_single
from tandem.cli.recompile import MANIFESTS, read_manifests
from tandem.cli.selection import DEFAULTS, Selection
from tandem.cli.suite_lines import NO_SUITE_FLAGS, SuiteFlags, draft_suite_lines
from tandem.declarations.artifact_key import ArtifactKey
from tandem.declarations.faults import SpecError, SpecFault
from tandem.declarations.suite_limit import read_suite_file
from tandem.errors import ExitCode, InputError

if TYPE_CHECKING:
    from tandem.artifacts.inventory import StoredSet
    from tandem.artifacts.store import ObjectStore

DEFAULT_DAYS = 30
MAX_DAYS = 36_500  # a century

app = App(name="artifacts")
SOURCE = Group("Source", validator=require_single, sort_key=0)


@app.command(name="list")
def list_artifacts(
    *, env: EnvironmentName, strict: bool = False, selection: Selection = DEFAULTS
) -> ExitCode:
    """List what is stored and what is missing, with size, age, cost and users.

    Args:
        env: the environment
        strict: exit 1 if something needed is missing or damaged
    """
    from tandem.artifacts.inventory import find_read_fault, read_inventory  # noqa: PLC0415 - boto3
    from tandem.artifacts.survey import survey_bucket  # noqa: PLC0415

    context = load_bucket_context(selection, env)
    store = _open_store(context)
    stored_sets = read_inventory(store)
    rows = survey_bucket(context.bucket, context.needs, stored_sets)
    now = store.now()
    is_short = any(row.used_by and row.state != "present" for row in rows)
    code = ExitCode.STALE if strict and is_short else ExitCode.DONE
    if fault := find_read_fault(stored_sets):
        code = print_fault(fault)
    if selection.as_json:
        print_json(report.listing_as_dict(context, rows, now), code)
    else:
        report.print_listing(context, rows, now)
    return code


@app.command
def explain(
    a: str, b: str, /, *, env: EnvironmentName, selection: Selection = DEFAULTS
) -> ExitCode:
    """Name the fields in which two artifacts differ.

    Args:
        a: EXPERIMENT/VARIANT, a name or its start, a digest, or a folder
        b: the other artifact
        env: the environment
    """
    context = load_bucket_context(selection, env)
    variant_sides = []
    for need in context.needs:
        if need.kind == "artifact":
            users = report.format_users(need.used_by)
            side = KeySide(name=need.name, fields=need.fields, where=users, aliases=need.used_by)
            variant_sides.append(side)

    def list_stored_sides() -> Iterator[KeySide]:
        from tandem.artifacts.inventory import (  # noqa: PLC0415 - boto3, which two variants do not need
            list_artifact_sides,
            read_inventory,
        )

        store = _open_store(context)
        return list_artifact_sides(read_inventory(store), store.url(""))

    first_side = resolve_key(a, variant_sides, list_stored_sides)
    second_side = resolve_key(b, variant_sides, list_stored_sides)
    lines = report.list_differences(first_side, second_side)
    return print_result(
        report.differences_as_dict(first_side, second_side), lines, as_json=selection.as_json
    )


@app.command(name="gc")
def collect_garbage(
    *,
    env: EnvironmentName,
    days: Annotated[Whole, Parameter(validator=require_range(0, MAX_DAYS, "days"))] = DEFAULT_DAYS,
    keep: Annotated[tuple[str, ...], Parameter(metavar="NAME")] = (),
    delete: bool = False,
    selection: Selection = DEFAULTS,
) -> ExitCode:
    """Delete old artifacts that no experiment uses; without --delete, a dry run.

    Args:
        env: the environment
        days: keep what is younger than this
        keep: keep this artifact or model too; repeatable
        delete: delete; without it, only list what would be deleted

    Raises:
        SpecError: a file that may say what is used cannot be read.
    """
    context = load_bucket_context(selection, env)
    if context.unread:
        raise SpecError(context.unread)
    rendered_keys = _read_rendered_keys(context, selection.environments)
    from tandem.artifacts.gc import (  # noqa: PLC0415 - boto3
        REMOVAL_RESULTS,
        execute_plan,
        has_versioning,
        plan_removals,
    )
    from tandem.artifacts.inventory import find_read_fault, read_inventory  # noqa: PLC0415

    store = _open_store(context)
    stored_sets = read_inventory(store, with_uploads=True)
    now = store.now()
    used_names = {need.name for need in context.needs} | _find_served_names(
        rendered_keys, stored_sets
    )
    used_names |= _require_stored_names(keep, stored_sets)
    cutoff = now - timedelta(days=days)
    versions = has_versioning(store)
    plan = plan_removals(stored_sets, used_names, cutoff)
    outcomes = execute_plan(store, plan, used_names, cutoff, delete=delete)
    rows = []
    if not selection.as_json:
        report.print_heading(context, days)
    while True:
        with contextlib.redirect_stdout(sys.stderr):  # what is logged of the holder of a lease
            removal, outcome = next(outcomes, (None, ""))
        if removal is None:
            break
        rows.append(report.removal_as_dict(removal, outcome, context))
        if not selection.as_json:
            report.print_removal(rows[-1])
    size = sum(row["size"] for row in rows if row["outcome"] in REMOVAL_RESULTS)
    fault = find_read_fault(stored_set for stored_set, _ in plan.retentions)
    code = print_fault(fault) if fault else ExitCode.DONE
    if selection.as_json:
        settings = {"cutoff": cutoff.isoformat(), "dry_run": not delete, "versions_kept": versions}
        print_json(report.gc_as_dict(context, plan, rows, size) | settings, code)
    else:
        report.print_summary(context, plan, size, versions=versions, delete=delete)
    return code


@app.command(name="import")
def import_compiled(
    folder: Annotated[Path | None, Parameter(metavar="DIR", group=SOURCE)] = None,
    /,
    *,
    env: EnvironmentName,
    refused: Annotated[str | None, Parameter(metavar="RUN", group=SOURCE)] = None,
    variant: Annotated[str, Parameter(metavar="EXPERIMENT/VARIANT")],
    selection: Selection = DEFAULTS,
) -> ExitCode:
    """Import an artifact that was compiled elsewhere.

    Args:
        folder: the artifact, as the runtime wrote it
        env: the environment
        refused: an upload that was refused and kept, as its log names it
        variant: the variant that it was compiled for
    """
    context = load_bucket_context(selection, env)
    key = _find_variant_key(context, variant)
    from tandem.artifacts.artifact_import import import_artifact  # noqa: PLC0415 - boto3

    with contextlib.redirect_stdout(sys.stderr):  # of the upload
        source = str(refused) if folder is None else folder
        manifest, is_new = import_artifact(_open_store(context), source, key)
    if selection.as_json:
        print_json(report.import_as_dict(manifest, key, context, is_new=is_new))
    else:
        report.print_import(manifest, key, context, is_new=is_new)
    return ExitCode.DONE


@app.command
def stage_task(
    folder: Annotated[Path, Parameter(metavar="DIR")],
    /,
    *,
    env: EnvironmentName,
    selection: Selection = DEFAULTS,
) -> ExitCode:
    """Store a task set, with which runs compare output quality.

    Args:
        folder: folder named after the task, with items.jsonl, or with the YAML and data files of
            an lm-eval task
        env: the environment
    """
    context = load_bucket_context(selection, env)
    from tandem.artifacts.task_sets import store_task_set  # noqa: PLC0415 - boto3
    from tandem.bench.suites.task_items import ITEMS_FILE, load_items  # noqa: PLC0415 - aiohttp

    if (items := folder / ITEMS_FILE).exists():
        load_items(items)  # refuses a bad line now, not after the rounds
    elif not any(folder.glob("*.yaml")):
        change = (
            f"put {ITEMS_FILE}, or the YAML of a task of lm-eval,"
            " into the folder of the task's name"
        )
        raise InputError("the folder holds no task", where=str(folder), change=change)
    store = _open_store(context)
    name = folder.resolve().name
    sha256, key = store_task_set(store, folder.resolve())
    lines = [f"{name} is stored: {store.url(key)}", "write into the experiment file:", "quality:"]
    lines += [
        f"  - name: {name}",
        f"    sha256: {sha256}",
        "then deploy or sync, as after every edit of it",
    ]
    return print_result(
        {"name": name, "sha256": sha256, "url": store.url(key)}, lines, as_json=selection.as_json
    )


@app.command
def stage_suite(
    file: Annotated[Path, Parameter(metavar="FILE")],
    /,
    *,
    env: EnvironmentName,
    flags: SuiteFlags = NO_SUITE_FLAGS,
    selection: Selection = DEFAULTS,
) -> ExitCode:
    """Store a file of prompts of your own, which an experiment then names as a suite.

    Args:
        file: in any form of docs/suites.md, at most 64 MiB
        env: the environment
    """
    context = load_bucket_context(selection, env)
    from tandem.artifacts.suite_store import store_suite  # noqa: PLC0415 - boto3

    content = read_suite_file(file)
    lines = draft_suite_lines(file, content, flags, selection)
    store = _open_store(context)
    sha256, key = store_suite(store, file.name, content)
    url = store.url(key)
    text = [
        f"{file.name} is stored: {url}",
        "write into the experiment file:",
        *lines,
        "then deploy or sync, as after every edit of it",
    ]
    result = {"name": file.name, "sha256": sha256, "url": url, "lines": lines}
    return print_result(result, text, as_json=selection.as_json)


def _open_store(context: BucketContext) -> ObjectStore:
    """Return the bucket, once the credentials are known to be of the environment's account.

    Raises:
        TandemError: they are not, in words for a person; the store's own are for a pod.
    """
    from tandem.artifacts.store import open_store  # noqa: PLC0415 - boto3
    from tandem.ops.account import require_account  # noqa: PLC0415

    require_account(context.environment)
    # where boto3's own chain looks for it
    os.environ["AWS_DEFAULT_REGION"] = context.environment.region
    return open_store(context.bucket)


def _read_rendered_keys(context: BucketContext, environments: Path) -> list[Mapping[str, Any]]:
    """Return the keys of the rendered servers of the bucket's environments: what may run now.

    The search covers the working folder and the folder of the declared files, for a command that
    runs elsewhere.

    Raises:
        SpecError: a rendered file cannot be read.
    """
    environment_names = {context.environment.name, *context.sharing}
    rendered_keys: list[Mapping[str, Any]] = []
    faults = []
    for folder in {MANIFESTS.resolve(), (environments.parent / MANIFESTS).resolve()}:
        places = read_manifests(folder).places if folder.is_dir() else {}
        for place, keys in places.items():
            if place[0] not in environment_names:
                continue
            if isinstance(keys, str):
                faults.append(_build_manifest_fault(folder.joinpath(*place)))
            else:
                rendered_keys += keys.values()
    if faults:
        raise SpecError(faults)
    return rendered_keys


def _build_manifest_fault(folder: Path) -> SpecFault:
    return SpecFault(
        file=str(folder),
        path="",
        got="the artifact keys of rendered servers cannot be read",
        allowed="a tree that `tandem render` wrote",
        change="render again: until then it is unknown which artifacts its servers load",
    )


def _find_served_names(
    rendered_keys: Sequence[Mapping[str, Any]], stored_sets: Iterable[StoredSet]
) -> set[str]:
    """Return the names of what rendered servers load, also where another release rendered them."""
    names = set()
    for fields in rendered_keys:
        names |= {fields.get("target"), fields.get("draft"), compute_key_name(fields)}
    for stored_set in stored_sets:
        if stored_set.manifest and stored_set.manifest.fields in rendered_keys:
            names.add(stored_set.name)
    return {str(name) for name in names if name}


def _require_stored_names(names: Sequence[str], stored_sets: Iterable[StoredSet]) -> set[str]:
    """Return the names to keep.

    Raises:
        InputError: one of them is the name of nothing stored, and so would keep nothing.
    """
    stored_names = sorted(stored_set.name for stored_set in stored_sets)
    for name in set(names) - set(stored_names):
        raise build_name_error(f"{name!r} is stored nowhere here", name, stored_names)
    return set(names)


def _find_variant_key(context: BucketContext, word: str) -> ArtifactKey:
    """Return the key of a variant of this environment.

    Raises:
        InputError: the environment hosts no such variant.
    """
    users = []
    for need in context.needs:
        if need.kind == "artifact":
            # a colon stands in the name of a user of another environment
            users += [user for user in need.used_by if ":" not in user]
            if word in users:
                return ArtifactKey.from_fields(need.fields)
    problem = f"{context.environment.name} hosts no variant {word!r}"
    raise build_name_error(problem, word, sorted(users))
