"""What an edit compiles again: the artifact keys of two states of the declared files, held against each other.

Invariant: two files or folders are compared and nothing else: no git, no network, no clock. Equal means equal
in every field of the key, whichever release wrote them. An edit that compiles nothing is told in one line, and no
figure of a cost is Tandem's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml

from tandem.artifacts.explain import compute_key_name, format_value
from tandem.cli.console import format_count, print_line, print_rows
from tandem.cli.inputs import CommandInputs
from tandem.spec.artifact_key import KEY_ENTRY, KEY_VARIABLE, compare_key_fields
from tandem.spec.catalogue import Catalogue
from tandem.spec.document import read_document
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment
from tandem.spec.faults import SpecError, SpecFault
from tandem.spec.graph_count import count_graphs
from tandem.spec.record import parse_record
from tandem.spec.variant_key import compute_artifact_key

MANIFESTS = Path("manifests")  # where `tandem render` writes by default
SERVERS_FILE, KEYS_FILE = "serve/serve.yaml", "storage/storage.yaml"  # below an experiment's folder there
REFUSAL_TEXT = "refused above"
UNREADABLE = "its manifest cannot be read: `tandem render` writes it again"

Verdict = Literal["same artifact", "recompiles", "new", "gone"]
Number = TypeVar("Number", int, float)
KeyFields = Mapping[str, Any]
ExperimentPath = tuple[str, str]  # environment, experiment; an empty environment is any
PlaceKeys = Mapping[str, KeyFields] | str  # variant to the plain fields of its key, or why no key can be told

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySnapshot:
    """The keys of every variant at one time.

    Args:
        where: the file or folder, for a person.
        places: place to keys.
        only_experiment: the one experiment it speaks of; None for any.
    """

    where: str
    places: Mapping[ExperimentPath, PlaceKeys]
    only_experiment: str | None = None

    def find_keys(self, place: ExperimentPath) -> PlaceKeys:
        """Return what it knows of a place: nothing where it knows the environment and not the experiment."""
        environment, experiment = place
        if not {environment, ""} & {known_environment for known_environment, _ in self.places}:
            return f"not in {self.where}" if environment else "hosted by no environment"
        return self.places.get(place) or self.places.get(("", experiment)) or {}

    def owners(self, environment: str) -> dict[str, str]:
        """Return key to the experiment/variant that has it, of all that share the environment's bucket."""
        return {
            _serialize_key(fields): f"{experiment}/{variant}"
            for (place_environment, experiment), variants in self.places.items()
            if place_environment in {environment, ""} and not isinstance(variants, str)
            for variant, fields in variants.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantChange:
    """One variant before and after, as --json prints it.

    Args:
        variant: its name.
        verdict: what the edit does to it.
        compiles: whether its artifact was nobody's before.
        was, now: the artifact's name; None where there is none, or its fields are of another release.
        same_as: the variant that had this artifact before, where that is another one.
        graphs: what its artifact is made of; None where that is not known.
        differences: field to its value before (`was`) and after (`now`).
    """

    variant: str
    verdict: Verdict
    compiles: bool = False
    was: str | None = None
    now: str | None = None
    same_as: str | None = None
    graphs: int | None = None
    differences: Mapping[str, Mapping[str, object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyComparison:
    """One experiment in one environment, before and after, as --json prints it.

    Args:
        environment: None where none hosts it.
        experiment: its name.
        not_compared: why nothing could be compared.
        variants: variant by variant.
    """

    environment: str | None
    experiment: str
    not_compared: str | None = None
    variants: tuple[VariantChange, ...] = ()


def compare_experiment_keys(old_snapshot: KeySnapshot, inputs: CommandInputs) -> list[KeyComparison]:
    """Hold what is declared now against `old_snapshot`, place by place; what is gone altogether comes last."""
    only, declared_keys = old_snapshot.only_experiment, _compute_declared_keys(inputs)
    new_keys = {place: keys for place, keys in declared_keys.items() if only in {None, place[1]}}
    environments = {environment.name for environment in inputs.environments()}
    gone_places = [place for place in old_snapshot.places if place not in new_keys and place[0] in environments]
    comparisons = []
    for place, new in {**new_keys, **{place: {} for place in gone_places}}.items():
        old, reason, variants = old_snapshot.find_keys(place), None, tuple[VariantChange, ...]()
        if isinstance(new, str) or isinstance(old, str):
            reason = new if isinstance(new, str) else str(old)
        else:
            variants = tuple(_list_changes(old, new, old_snapshot.owners(place[0])))
        entry = KeyComparison(environment=place[0] or None, experiment=place[1], not_compared=reason, variants=variants)
        comparisons.append(entry)
    return comparisons


def _compute_declared_keys(inputs: CommandInputs) -> dict[ExperimentPath, PlaceKeys]:
    """Return the keys of everything declared, by where it is hosted; of what the rules refused the reason."""
    declarations = inputs.workspace.experiments
    places = [(host.name, entry.name) for host in inputs.environments() for entry in inputs.list_experiments(host)]
    hosted_names = {experiment for _, experiment in places}
    places += [("", name) for name in declarations if name not in hosted_names]
    refused_files = {fault.file for fault in inputs.faults if fault.severity == "refusal"}
    keys: dict[ExperimentPath, PlaceKeys] = {}
    for place in places:
        experiment, file = declarations[place[1]].record, declarations[place[1]].document.file
        is_legal = file not in refused_files
        keys[place] = _compute_variant_keys(experiment, inputs.catalogue) if is_legal else REFUSAL_TEXT
    return keys


def _compute_variant_keys(experiment: Experiment, catalogue: Catalogue) -> dict[str, KeyFields]:
    variants = experiment.all_variants()
    return {variant.name: compute_artifact_key(experiment, variant, catalogue).as_fields() for variant in variants}


def read_snapshot(path: Path, inputs: CommandInputs) -> KeySnapshot:
    """Read another state: a folder of manifests, a folder of experiment files, or one experiment file.

    Raises:
        SpecError: there is nothing of the kind, or a file of it is malformed.
    """
    if path.is_dir() and _find_trees(path):
        return read_manifests(path)
    files, names = [path] if path.is_file() else sorted(path.glob("*.yaml")), sorted(inputs.workspace.experiments)
    got = ""
    if path.is_file() and path.stem not in names:
        got, allowed = f"{path.stem}, the name of no declared experiment", ", ".join(names)
        change = "name the file after the experiment that it is to be compared with"
    elif not files:
        got = "nothing to compare with" if path.exists() else "no such file or folder"
        allowed = "an experiment file, a folder of them, or a folder that `tandem render` wrote"
        change = "name one of these by --against"
    if got:
        raise SpecError([SpecFault(file=str(path), path="", got=got, allowed=allowed, change=change)])
    places: dict[ExperimentPath, PlaceKeys] = {}
    for file in files:
        experiment = parse_record(Experiment, read_document(file), name=file.stem)
        runtime = inputs.catalogue.runtimes.get(experiment.runtime)
        try:
            is_rendered = runtime is not None and runtime.spelling is not None
            keys = _compute_variant_keys(experiment, inputs.catalogue) if is_rendered else experiment.runtime
        except KeyError as error:
            keys = str(error.args[0])  # a model
        unknown = f"{file} names {keys}, which this release does not know"
        places["", experiment.name] = unknown if isinstance(keys, str) else keys
    return KeySnapshot(where=str(path), places=places, only_experiment=path.stem if path.is_file() else None)


def read_manifests(folder: Path) -> KeySnapshot:
    """Read the keys that rendered Deployments carry, below `folder` or in the tree of one environment."""
    places: dict[ExperimentPath, PlaceKeys] = {}
    for servers in (file for tree in _find_trees(folder) for file in sorted(tree.glob(f"*/{SERVERS_FILE}"))):
        experiment = servers.parent.parent
        places[experiment.parent.name, experiment.name] = _read_rendered_keys(servers, experiment / KEYS_FILE)
    return KeySnapshot(where=str(folder), places=places)


def _find_trees(folder: Path) -> list[Path]:
    """Return the trees of environments: those below the folder, or the folder itself."""
    environment_trees = sorted({path.parent.parent.parent for path in folder.glob(f"*/*/{SERVERS_FILE}")})
    return environment_trees or ([folder.resolve()] if any(folder.glob(f"*/{SERVERS_FILE}")) else [])


def _read_rendered_keys(servers: Path, storage: Path) -> PlaceKeys:
    """Return Deployment to key, of those that carry one; in words why there is none."""
    fields_by_server: dict[str, KeyFields] = {}
    try:
        maps = {body["metadata"]["name"]: body["data"][KEY_ENTRY] for body in _load_documents(storage, KEY_ENTRY)}
        for body in _load_documents(servers, KEY_VARIABLE):
            pod = body["spec"]["template"]["spec"]
            containers = [container for part in ("initContainers", "containers") for container in pod.get(part, ())]
            entries = (entry for container in containers for entry in container["env"])
            reference = next(entry["valueFrom"] for entry in entries if entry["name"] == KEY_VARIABLE)
            key = maps[reference["configMapKeyRef"]["name"]]
            fields_by_server[body["metadata"]["name"]] = dict(json.loads(key).items())  # what is no mapping has none
    except (OSError, yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, StopIteration):
        return UNREADABLE
    return fields_by_server or UNREADABLE


def _load_documents(file: Path, word: str) -> Iterator[Any]:
    """Yield the objects of a rendered file that have this word in them: to parse all would take `check` a second."""
    for document in file.read_text(errors="replace").split("\n---\n"):
        if word in document:
            yield yaml.load(document, Loader=_Loader)  # noqa: S506 - the safe one, in C


def _list_changes(
    old: Mapping[str, KeyFields], new: Mapping[str, KeyFields], owners: Mapping[str, str]
) -> Iterator[VariantChange]:
    """Yield what becomes of each variant; `owners` is who had an artifact before."""
    for variant, fields in new.items():
        differences = compare_key_fields(old[variant], fields) if variant in old else {}
        verdict: Verdict = "new" if variant not in old else "recompiles" if differences else "same artifact"
        owner = None if verdict == "same artifact" else owners.get(_serialize_key(fields))
        yield VariantChange(
            variant=variant,
            verdict=verdict,
            compiles=verdict != "same artifact" and owner is None,
            was=compute_key_name(old[variant]) if variant in old else None,
            now=compute_key_name(fields),
            same_as=owner,
            graphs=count_graphs(fields),
            differences={field: {"was": was, "now": now} for field, (was, now) in differences.items()},
        )
    for variant in (name for name in old if name not in new):
        yield VariantChange(variant=variant, verdict="gone", was=compute_key_name(old[variant]), differences={})


def _serialize_key(fields: KeyFields) -> str:
    """Return what two keys share exactly when all their fields are equal, whichever release wrote them."""
    return json.dumps(fields, sort_keys=True)


def print_comparisons(old_snapshot: KeySnapshot, comparisons: list[KeyComparison], inputs: CommandInputs) -> None:
    """Say for a person what the edit compiles."""
    changed = [entry for entry in comparisons if any(change.verdict != "same artifact" for change in entry.variants)]
    if changed:
        print_line(f"what differs from {old_snapshot.where}:")
    elif any(comparison.not_compared is None for comparison in comparisons):
        print_line(f"nothing is compiled again: every variant keeps the artifact that {old_snapshot.where} names")
    for environment in (*inputs.environments(), None):
        name = environment.name if environment else None
        comparisons_here = [comparison for comparison in changed if comparison.environment == name]
        if comparisons_here:
            print_line(f"  {name or 'in no environment'}: {_format_bill(comparisons_here, environment, inputs)}")
        for comparison in comparisons_here:
            for change in comparison.variants:
                _print_change(change, comparison.experiment)
    for comparison in comparisons:
        if comparison.not_compared:
            place = "/".join(filter(None, (comparison.environment, comparison.experiment)))
            print_rows([(f"not compared, {comparison.not_compared}: {place}",)], indent=0)


def comparisons_as_dict(
    old_snapshot: KeySnapshot, comparisons: list[KeyComparison], inputs: CommandInputs
) -> dict[str, Any]:
    """Return the same as the plain values that --json prints."""
    bills = {environment.name: _compute_bill(comparisons, environment, inputs) for environment in inputs.environments()}
    experiments = [asdict(comparison) for comparison in comparisons]
    return {"against": old_snapshot.where, "environments": bills, "experiments": experiments}


def _compute_bill(
    comparisons: Iterable[KeyComparison], environment: Environment, inputs: CommandInputs
) -> dict[str, Any]:
    """Return what an edit compiles in an environment, and the most that this can cost.

    Returns:
        `artifacts`: their number; two experiments that need the same one compile it once. `graphs`: of all of them;
        None where a runtime decides it by itself. `most_usd`: the declared deadline of each at the declared price of a
        node-hour; None where one is compiled on a node whose price is not declared.
    """
    experiments = {experiment.name: experiment for experiment in inputs.list_experiments(environment)}
    graphs: dict[str, int | None] = {}
    hours: dict[str, float | None] = {}
    for comparison in comparisons:
        if comparison.environment == environment.name and comparison.experiment in experiments:
            settings = experiments[comparison.experiment].compile
            compiles = {str(change.now): change.graphs for change in comparison.variants if change.compiles}
            graphs |= compiles
            hours |= dict.fromkeys(compiles, settings.deadline_hours if settings.where == "device" else None)
    total_hours = _sum_values(hours)
    most_usd = None if total_hours is None else total_hours * environment.capacity.usd_per_hour
    return {"artifacts": len(graphs), "graphs": _sum_values(graphs), "most_usd": most_usd}


def _sum_values(values: Mapping[str, Number | None]) -> Number | int | None:
    known_values = [value for value in values.values() if value is not None]
    return sum(known_values) if len(known_values) == len(values) else None


def _format_bill(comparisons: list[KeyComparison], environment: Environment | None, inputs: CommandInputs) -> str:
    names = {change.now for comparison in comparisons for change in comparison.variants if change.compiles}
    if environment is None or not names:
        return f"{format_count(len(names), 'artifact')} to compile" if names else "nothing to compile"
    bill = _compute_bill(comparisons, environment, inputs)
    graphs = f" ({format_count(bill['graphs'], 'graph')})" if bill["graphs"] else ""
    text = f"{format_count(bill['artifacts'], 'artifact')}{graphs} to compile"
    if bill["most_usd"] is None:
        return f"{text}, on a CPU node: its price is not declared"
    price = f"deadline_hours x {environment.capacity.usd_per_hour:.2f}"
    return f"{text}, at most {bill['most_usd']:.2f} USD ({price})"


def _print_change(change: VariantChange, experiment: str) -> None:
    differences = (
        f"{field} {format_value(pair['was'])} -> {format_value(pair['now'])}"
        for field, pair in change.differences.items()
    )
    text: str = change.verdict
    if change.verdict == "gone":
        text = f"gone, its artifact stays until collected: {change.was or 'unnamed'}"
    elif change.same_as is not None:
        text = f"nothing to compile, it takes the artifact of {change.same_as}"
    elif change.verdict == "new":
        text = f"new, compiles {change.now}"
    elif change.verdict == "recompiles":
        text = f"recompiles because {', '.join(differences)}"
    print_rows([(f"{experiment}/{change.variant}: {text}",)], indent=4)
    if change.compiles and change.differences:
        print_line(f"      compiles {change.now}")
        print_line(f"      until applied, serves {change.was or 'the artifact that it has'}")
