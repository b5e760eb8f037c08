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

from tandem.artifacts.explain import Side, key_name, lines, plain, resolve, stored_sides
from tandem.artifacts.fault import ArtifactError, RefusedError, WorldError
from tandem.commands import artifacts_report as report
from tandem.commands.outcome import Exit, print_json
from tandem.commands.recompile import MANIFESTS, manifests
from tandem.commands.scene import Scene, scene
from tandem.commands.selection import Selection
from tandem.spec.artifact_key import ArtifactKey
from tandem.spec.faults import Fault, SpecError
from tandem.spec.variant_key import artifact_key

if TYPE_CHECKING:
    from tandem.artifacts.contents import StoredSet
    from tandem.artifacts.store import Store

DAYS = 30


def add_verbs(parser: argparse.ArgumentParser, shared: argparse.ArgumentParser) -> None:
    """Declare the verbs and what each takes; `shared` has the options of every command."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")

    def verb(name: str, does: str) -> argparse.ArgumentParser:
        made = verbs.add_parser(name, help=does, description=does, epilog=parser.epilog, parents=[shared])
        made.add_argument("--env", required=True, metavar="NAME", help="the environment whose bucket it is")
        return made

    listing = verb("list", "show what is stored and what is missing, with size, age, cost and users")
    listing.add_argument("--strict", action="store_true", help="exit 1 when something needed is not whole")
    explain = verb("explain", "name the fields in which two artifacts differ")
    for side in ("a", "b"):
        explain.add_argument(
            side, metavar=side.upper(), help="experiment/variant, (start of) a name, digest, or folder"
        )
    collect = verb("collect", "delete what no experiment uses and is old; a dry run without --delete")
    collect.add_argument("--days", type=_days, default=DAYS, help=f"what was written since stays (default {DAYS})")
    collect.add_argument("--keep", action="append", default=[], metavar="NAME", help="in use all the same; repeatable")
    collect.add_argument("--delete", action="store_true", help="delete; without it only say what would go")
    adopt = verb("adopt", "take in an artifact that was compiled elsewhere")
    what = adopt.add_mutually_exclusive_group(required=True)
    what.add_argument("folder", type=Path, nargs="?", metavar="DIR", help="the artifact, as the runtime wrote it")
    what.add_argument("--refused", metavar="RUN", help="what an upload kept and refused, as its log names it")
    adopt.add_argument("--variant", required=True, metavar="EXPERIMENT/VARIANT", help="what it was compiled for")


def artifacts(chosen: Selection, options: argparse.Namespace) -> Exit:
    """Run one verb.

    Args:
        chosen: the folders of declared files.
        options: `verb`, `env` and the verb's own.

    Raises:
        SpecError: a declared file is refused.
    """
    act = {"list": _list, "explain": _explain, "collect": _collect, "adopt": _adopt}[options.verb]
    try:
        return act(scene(chosen, options.env), options)
    except ArtifactError as error:
        report.failed(error, as_json=chosen.as_json)
        return Exit(error.code)


def _print(told: Iterable[str]) -> None:
    for line in told:
        print(line)


def _days(text: str) -> int:
    if not text.isdecimal() or int(text) > 36_500:  # noqa: PLR2004 - a century
        raise argparse.ArgumentTypeError("a whole number of days, from 0 on")
    return int(text)


def _open(of: Scene) -> Store:
    from tandem.artifacts.store import open_store  # noqa: PLC0415 - boto3

    os.environ["AWS_DEFAULT_REGION"] = of.environment.region  # where boto3's own chain looks for it
    return open_store(of.bucket)


def _list(of: Scene, options: argparse.Namespace) -> Exit:
    from tandem.artifacts.contents import contents  # noqa: PLC0415 - boto3
    from tandem.artifacts.survey import survey  # noqa: PLC0415

    store = _open(of)
    stored = contents(store)
    listing = report.Listing(scene=of, rows=survey(of.needed, stored), now=store.now())
    if options.json:
        print_json(report.listing_plain(listing))
    else:
        _print(report.listing_lines(listing))
    unread = next((found.fault for found in stored if isinstance(found.fault, WorldError)), None)
    if unread is not None:
        report.told(unread)
        return Exit.WORLD_FAILED
    return Exit.STALE if options.strict and any(row.wanting for row in listing.rows) else Exit.DONE


def _explain(of: Scene, options: argparse.Namespace) -> Exit:
    known = [
        Side(name=need.name, fields=need.fields, where=report.used(need.used_by), words=need.used_by)
        for need in of.needed
        if need.kind == "artifact"
    ]

    def stored() -> Iterator[Side]:
        from tandem.artifacts.contents import contents  # noqa: PLC0415 - boto3, which two variants do not need

        store = _open(of)
        return stored_sides(contents(store), store.url(""))

    one, other = (resolve(word, known, stored) for word in (options.a, options.b))
    if options.json:
        print_json(plain(one, other))
    else:
        _print(lines(one, other))
    return Exit.DONE


def _collect(of: Scene, options: argparse.Namespace) -> Exit:
    if of.unread:
        raise SpecError(of.unread)
    rendered = _rendered(of, options.environments)
    from tandem.artifacts.collect import DELETED, carry_out, keeps_versions, plan  # noqa: PLC0415 - boto3
    from tandem.artifacts.contents import contents  # noqa: PLC0415

    store = _open(of)
    stored, now = contents(store, with_uploads=True), store.now()
    used = {need.name for need in of.needed} | _kept(options.keep, stored) | _served(rendered, stored)
    planned = plan(stored, used, now - timedelta(days=options.days))
    told = report.Collecting(scene=of, planned=planned, days=options.days, now=now, versions=keeps_versions(store))
    out = sys.stdout
    if not options.json:
        _print(report.plan_lines(told, delete=options.delete))
    done = []
    with contextlib.redirect_stdout(report.Progress()):  # of whoever waits for a lease
        for removal, outcome in carry_out(store, planned, used, told.cutoff) if options.delete else ():
            done.append((removal, outcome))
            if not options.json:
                print(f"{outcome}: {removal.found.prefix}", file=out, flush=True)
    freed = sum(removal.size for removal, outcome in done if outcome == DELETED)
    if options.json:
        print_json(report.collected_plain(told, done, freed, delete=options.delete))
    else:
        _print(report.end_lines(told, freed, delete=options.delete))
    unread = next((kept.fault for kept in planned.kept if kept.fault), None)
    if unread is not None:
        report.told(unread)
        return Exit.WORLD_FAILED
    return Exit.DONE


def _rendered(of: Scene, environments: Path) -> list[Mapping[str, Any]]:
    """Return the keys that the rendered servers of the bucket's environments carry: what may be running now.

    They are looked for in the working folder and beside the declared files, for a command that is run elsewhere.

    Raises:
        SpecError: a rendered file cannot be read.
    """
    mine = {of.environment.name, *of.sharing}
    places = {
        folder.joinpath(*place): keys
        for folder in (MANIFESTS, environments.parent / MANIFESTS)
        for place, keys in (manifests(folder).places if folder.is_dir() else {}).items()
        if place[0] in mine
    }
    broken = [folder for folder, keys in places.items() if isinstance(keys, str)]
    if broken:
        raise SpecError([_unreadable(folder) for folder in broken])
    return [fields for keys in places.values() if not isinstance(keys, str) for fields in keys.values()]


def _served(rendered: Iterable[Mapping[str, Any]], stored: Iterable[StoredSet]) -> set[str]:
    """Return the names of what rendered servers load, also where another release rendered them."""
    fields = list(rendered)
    served = {str(each[model]) for each in fields for model in ("target", "draft") if each.get(model)}
    served |= {name for each in fields if (name := key_name(each))}
    return served | {found.name for found in stored if found.manifest and found.manifest.fields in fields}


def _kept(names: Sequence[str], stored: Iterable[StoredSet]) -> set[str]:
    """Return the names to keep.

    Raises:
        RefusedError: one of them is the name of nothing stored, and so would keep nothing.
    """
    known = sorted(found.name for found in stored)
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=3, cutoff=0.3) or ["nothing is stored"]
            raise RefusedError(f"{name!r} is stored nowhere here", change=f"write one of: {', '.join(close)}")
    return set(names)


def _unreadable(folder: Path) -> Fault:
    return Fault(
        file=str(folder), path="", got="rendered servers that tell no artifact key",
        allowed="a tree that `tandem render` wrote",
        change="render again: until then nobody knows which artifacts its servers load",
    )  # fmt: skip


def _adopt(of: Scene, options: argparse.Namespace) -> Exit:
    key = _key_of(of, options.variant)
    from tandem.artifacts.adopt import adopt, adopt_refused  # noqa: PLC0415 - boto3

    with contextlib.redirect_stdout(report.Progress()):  # of the upload
        if options.refused is not None:
            done = adopt_refused(_open(of), options.refused, key)
        else:
            done = adopt(_open(of), options.folder, key)
    if options.json:
        print_json(report.adopted_plain(done, of))
    else:
        _print(report.adopted_lines(done, of))
    return Exit.DONE


def _key_of(of: Scene, word: str) -> ArtifactKey:
    """Return the key of a variant of this environment.

    Raises:
        RefusedError: the environment hosts no such variant.
    """
    keys = {
        f"{experiment.name}/{variant.name}": artifact_key(experiment, variant, of.catalogue)
        for experiment in of.hosted
        for variant in experiment.all_variants()
    }
    if word not in keys:
        close = difflib.get_close_matches(word, keys, n=3, cutoff=0.3) or sorted(keys)[:3]
        raise RefusedError(
            f"{of.environment.name} hosts no variant {word!r}", change=f"write one of: {', '.join(close)}"
        )
    return keys[word]
