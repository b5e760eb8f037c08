"""What an edit compiles again: the artifact keys of two states of the declared files, held against each other.

Invariant: two files or folders are compared and nothing else: no git, no network, no clock. Equal means equal
in every field of the key, whichever release wrote them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from tandem.artifacts.explain import Differences, key_name
from tandem.commands.inputs import Inputs
from tandem.spec.artifact_key import KEY_ENTRY, KEY_VARIABLE, differences
from tandem.spec.catalogue import Catalogue
from tandem.spec.document import read_document
from tandem.spec.experiment import Experiment
from tandem.spec.faults import Fault, SpecError
from tandem.spec.graphs import graphs
from tandem.spec.record import parse
from tandem.spec.variant_key import artifact_key

MANIFESTS = Path("manifests")  # where `tandem render` writes by default
SERVERS, KEYS = "serve/serve.yaml", "storage/storage.yaml"  # below an experiment's folder there
REFUSED = "refused above"
BETWEEN = "\n---\n"
WRITTEN_NAME = re.compile(r"^metadata:\n(?:  .*\n)*?  name: ([a-z0-9-]+)$", re.MULTILINE)
WRITTEN_KEY = re.compile(rf"- name: {KEY_VARIABLE}\n +value: '(.*)'$", re.MULTILINE)  # of a release without key maps
WRITTEN_REFERENCE = re.compile(
    rf"- name: {KEY_VARIABLE}\n +valueFrom:\n +configMapKeyRef:\n +key: {re.escape(KEY_ENTRY)}\n +name: ([a-z0-9-]+)$",
    re.MULTILINE,
)
WRITTEN_FIELDS = re.compile(rf"^data:\n  {re.escape(KEY_ENTRY)}: '(.*)'$", re.MULTILINE)
UNREADABLE = "its manifest cannot be read: `tandem render` writes it again"
NO_KEYS = "rendered by a release that wrote no keys"

Verdict = Literal["same artifact", "recompiles", "new", "gone"]
Fields = Mapping[str, Any]
Place = tuple[str, str]  # environment, experiment; an empty environment is any

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The keys of every variant at one time.

    Args:
        where: the file or folder, for a person.
        places: place to variant to the plain fields of its key, or to why no key can be told.
        environments: those it speaks of; None for any.
        only: the one experiment it speaks of; None for any.
    """

    where: str
    places: Mapping[Place, Mapping[str, Fields] | str]
    environments: frozenset[str] | None = None
    only: str | None = None

    def of(self, place: Place) -> Mapping[str, Fields] | str | None:
        """Return what it knows of a place: None where it knows the environment, and nothing of the experiment."""
        environment, experiment = place
        if self.environments is not None and environment not in self.environments:
            return f"not in {self.where}" if environment else "hosted by no environment"
        return self.places.get(place, self.places.get(("", experiment)))

    def owners(self, environment: str) -> dict[str, str]:
        """Return key to the experiment/variant that has it, of all that share the environment's bucket."""
        return {
            identity(fields): f"{experiment}/{variant}"
            for (at, experiment), variants in self.places.items()
            if at in {environment, ""} and not isinstance(variants, str)
            for variant, fields in variants.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One variant before and after.

    Args:
        variant: its name.
        verdict: what the edit does to it.
        was, now: the artifact's name; None where there is none, or its fields are of another release.
        differing: the fields that changed, before and after.
        of: the variant that had this artifact before, where that is another one.
        graphs: what its artifact is made of; None where that is not known.
    """

    variant: str
    verdict: Verdict
    was: str | None = None
    now: str | None = None
    differing: Differences | None = None
    of: str | None = None
    graphs: int | None = None

    @property
    def compiles(self) -> bool:
        """Whether its artifact was nobody's before."""
        return self.verdict in {"recompiles", "new"} and self.of is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One experiment in one environment, before and after.

    Args:
        place: the environment (empty where none hosts it) and the experiment.
        changes: variant by variant.
        silent: why nothing could be compared.
    """

    place: Place
    changes: tuple[Change, ...] = ()
    silent: str | None = None

    @property
    def compiles(self) -> dict[str, int | None]:
        """The artifacts that nobody had before, each with the number of its graphs."""
        return {str(change.now): change.graphs for change in self.changes if change.compiles}

    @property
    def touched(self) -> bool:
        """Whether a variant has another artifact than before, or none."""
        return any(change.verdict != "same artifact" for change in self.changes)


def compare(before: State, inputs: Inputs) -> list[Comparison]:
    """Hold what is declared now against `before`, place by place; what is gone altogether comes last."""
    now = {place: keys for place, keys in declared(inputs).items() if before.only in {None, place[1]}}
    environments = {environment.name for environment in inputs.environments()}
    found = [_compared(place, before, after) for place, after in now.items()]
    gone = [place for place in before.places if place not in now and place[0] in environments]
    return found + [_compared(place, before, {}) for place in gone]


def declared(inputs: Inputs) -> dict[Place, Mapping[str, Fields] | str]:
    """Return the keys of everything declared, by where it is hosted; of what the rules refused the reason."""
    places = {
        (environment.name, experiment.name): experiment
        for environment in inputs.environments()
        for experiment in inputs.hosted(environment)
    }
    hosted = {experiment for _, experiment in places}
    alone = {
        ("", name): item.experiment
        for name, item in inputs.workspace.experiments.items()
        if item.experiment and name not in hosted
    }
    refused = {fault.file for fault in inputs.faults if fault.severity == "refusal"}
    files = {name: item.document.file for name, item in inputs.workspace.experiments.items()}
    return {
        place: REFUSED if files[experiment.name] in refused else keys_of(experiment, inputs.catalogue)
        for place, experiment in (places | alone).items()
    }


def keys_of(experiment: Experiment, catalogue: Catalogue) -> dict[str, Fields]:
    """Return variant to the plain fields of its key, of an experiment that has passed the rules."""
    return {
        variant.name: artifact_key(experiment, variant, catalogue).as_fields() for variant in experiment.all_variants()
    }


def state(path: Path, inputs: Inputs) -> State:
    """Read another state: a folder of manifests, a folder of experiment files, or one experiment file.

    Raises:
        SpecError: there is nothing of the kind, or a file of it is malformed.
    """
    if path.is_file():
        known = sorted(inputs.workspace.experiments)
        if path.stem not in known:
            raise SpecError([_unnamed(path, known)])
        return State(where=str(path), places=_experiments([path], inputs.catalogue), only=path.stem)
    files = sorted(path.glob("*.yaml"))
    if path.is_dir() and _trees(path):
        return manifests(path)
    if files:
        return State(where=str(path), places=_experiments(files, inputs.catalogue))
    raise SpecError([_nothing(path)])


def manifests(folder: Path) -> State:
    """Read the keys that rendered Deployments carry, below `folder` or in the tree of one environment."""
    places: dict[Place, Mapping[str, Fields] | str] = {}
    for tree in _trees(folder):
        for servers in sorted(tree.glob(f"*/{SERVERS}")):
            keys = servers.parent.parent / KEYS
            places[tree.name, servers.parent.parent.name] = _rendered(
                servers.read_text(errors="replace"), keys.read_text(errors="replace") if keys.exists() else ""
            )
    return State(where=str(folder), places=places, environments=frozenset(place[0] for place in places))


def _trees(folder: Path) -> list[Path]:
    """Return the trees of environments: those below the folder, or the folder itself."""
    below = sorted({path.parent.parent.parent for path in folder.glob(f"*/*/{SERVERS}")})
    return below or ([folder.resolve()] if any(folder.glob(f"*/{SERVERS}")) else [])


def _rendered(servers: str, storage: str) -> dict[str, Fields] | str:
    """Return Deployment to key, of those that carry one; in words why there is none."""
    fields_by_server: dict[str, Fields] = {}
    try:
        maps = dict(_key_map(document) for document in storage.split(BETWEEN) if KEY_ENTRY in document)
        for document in servers.split(BETWEEN):
            if KEY_VARIABLE in document:
                name, key = _quickly(document, maps) or _slowly(document, maps)
                fields_by_server[name] = dict(json.loads(key).items())  # whatever else it may be has none
    except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, StopIteration):
        return UNREADABLE
    return fields_by_server or NO_KEYS


def _key_map(document: str) -> tuple[str, str]:
    """Return name and fields of a ConfigMap, quickly where `tandem render` wrote it."""
    name, fields = WRITTEN_NAME.search(document), WRITTEN_FIELDS.search(document)
    if name and fields:
        return name[1], fields[1].replace("''", "'")
    body = yaml.load(document, Loader=_Loader)  # noqa: S506 - the safe one, in C
    return body["metadata"]["name"], body["data"][KEY_ENTRY]


def _quickly(document: str, maps: Mapping[str, str]) -> tuple[str, str] | None:
    """Return name and key where `tandem render` wrote them; parsing all of it would double the time of `check`."""
    name, reference = WRITTEN_NAME.search(document), WRITTEN_REFERENCE.search(document)
    if name and reference:
        return name[1], maps[reference[1]]
    key = WRITTEN_KEY.search(document)
    return (name[1], key[1].replace("''", "'")) if name and key else None


def _slowly(document: str, maps: Mapping[str, str]) -> tuple[str, str]:
    """Return name and key of a Deployment that another program has written again."""
    body = yaml.load(document, Loader=_Loader)  # noqa: S506 - the safe one, in C
    pod = body["spec"]["template"]["spec"]
    entries = (
        entry for part in ("initContainers", "containers") for each in pod.get(part, ()) for entry in each["env"]
    )
    carried = next(entry for entry in entries if entry["name"] == KEY_VARIABLE)
    if "value" in carried:
        return body["metadata"]["name"], carried["value"]
    return body["metadata"]["name"], maps[carried["valueFrom"]["configMapKeyRef"]["name"]]


def _experiments(files: list[Path], catalogue: Catalogue) -> dict[Place, Mapping[str, Fields] | str]:
    places: dict[Place, Mapping[str, Fields] | str] = {}
    for path in files:
        experiment = parse(Experiment, read_document(path), name=path.stem)
        strange = _unknown(experiment, catalogue)
        places["", experiment.name] = f"{path} names {strange}" if strange else keys_of(experiment, catalogue)
    return places


def _unknown(experiment: Experiment, catalogue: Catalogue) -> str | None:
    """Return what an experiment names that this release does not know, and a key cannot be told without."""
    runtime = catalogue.runtimes.get(experiment.runtime)
    if runtime is None or runtime.spelling is None:
        return f"the runtime {experiment.runtime}, which this release does not render"
    drafts = [variant.draft for variant in experiment.all_variants() if variant.draft]
    unknown = [model for model in (experiment.target, *drafts) if model not in catalogue.models]
    return f"the model {unknown[0]}, which this release does not know" if unknown else None


def _compared(place: Place, before: State, new: Mapping[str, Fields] | str) -> Comparison:
    old = before.of(place)
    for told in (new, old):
        if isinstance(told, str):
            return Comparison(place=place, silent=told)
    assert not isinstance(new, str)
    assert not isinstance(old, str)
    return Comparison(place=place, changes=tuple(_changes(old or {}, new, before.owners(place[0]))))


def _changes(old: Mapping[str, Fields], new: Mapping[str, Fields], owners: Mapping[str, str]) -> Iterator[Change]:
    """Yield what becomes of each variant; `owners` is who had an artifact before."""
    for variant, fields in new.items():
        before, now, of = old.get(variant), key_name(fields), owners.get(identity(fields))
        if before is None:
            yield Change(variant=variant, verdict="new", now=now, of=of, graphs=graphs(fields))
            continue
        found = differences(before, fields)
        yield Change(
            variant=variant, verdict="recompiles" if found else "same artifact", was=key_name(before), now=now,
            differing=found, of=of if found else None, graphs=graphs(fields),
        )  # fmt: skip
    for variant, fields in old.items():
        if variant not in new:
            yield Change(variant=variant, verdict="gone", was=key_name(fields))


def identity(fields: Fields) -> str:
    """Return what two keys share exactly when all their fields are equal, whichever release wrote them."""
    return json.dumps(fields, sort_keys=True)


def _unnamed(path: Path, known: list[str]) -> Fault:
    return Fault(
        file=str(path), path="", got=f"{path.stem}, the name of no declared experiment", allowed=", ".join(known),
        change="name the file after the experiment that it is to be compared with",
    )  # fmt: skip


def _nothing(path: Path) -> Fault:
    return Fault(
        file=str(path), path="", got="nothing to compare with" if path.exists() else "no such file or folder",
        allowed="an experiment file, a folder of them, or a folder that `tandem render` wrote",
        change="name one of these by --against",
    )  # fmt: skip
