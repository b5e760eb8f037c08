"""`tandem new NAME`: a commented pair of files to start from, for the instance type, purchase and network asked.

Invariant: `tandem check` refuses nothing of what is written but the placeholders FILL_IN, and nothing is overwritten.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from string import Template
from typing import Annotated, Literal, get_args

from cyclopts import Parameter

from tandem.cli.console import print_result
from tandem.cli.selection import DEFAULTS, Selection
from tandem.errors import ExitCode
from tandem.rules.naming import FOLDER_NAMES
from tandem.shell_command import quote_command
from tandem.spec.catalogue import Catalogue, load_catalogue
from tandem.spec.environment import CapacitySettings
from tandem.spec.faults import SpecError, SpecFault

NAME_PATTERN = re.compile(r"[a-z]([a-z0-9-]{0,28}[a-z0-9])?")  # short enough for every name made from it
NAME_RULE = "lower-case letters, digits and dashes, starting with a letter, ending with none, at most 30; not "

INSTANCE_TYPES: tuple[str, ...] = get_args(CapacitySettings.model_fields["instance_type"].annotation)
CAPACITY_KINDS: tuple[str, ...] = get_args(CapacitySettings.model_fields["kind"].annotation)
MAX_ZONES = 3

NETWORKS = {
    "new": """network:
  kind: new                    # or `existing`: `tandem new --vpc existing` writes its keys
  cidr: 10.50.0.0/16
  zones: [$zones]   # zone ids, never letters: aws ec2 describe-availability-zones
  nat: single                  # none closes the cluster off; then every registry needs a mirror""",
    "existing": """network:                       # aws ec2 describe-subnets shows ids, ranges and zone ids
  kind: existing
  vpc_id: FILL_IN
  cidr: FILL_IN                # range of the VPC, such as 10.50.0.0/16
  subnets:                     # private, in two zones or more, one of them the nodes'
$subnets""",
}
PRICES = {
    "capacity-block": "UpfrontFee by hours and nodes: aws ec2 describe-capacity-block-offerings",
    "reservation": "your on-demand price, with your discount",
    "spot": "aws ec2 describe-spot-price-history --instance-types $type",
    "on-demand": "your on-demand price, with your discount",
}
RESERVATION_LINES = """  reservation_id: null         # cr-...; until it is here the Fleet stack is left out
  zone: $zone               # the zone the reservation lies in"""
ZONE_LINE = "  zone: $zone               # of those that offer the type: $offered"
BLOCK_LINE = """  block: null                  # as sold: {starts: 2026-12-01T11:30:00Z, ends: 2026-12-02T11:30:00Z}
"""
SERVING = {  # what fits one server of the post's pair
    16: {"degree": "32", "devices": "8", "group": "8", "cpu": "90", "memory": "256", "shm": "16"},
    1: {"degree": "4", "devices": "1", "group": "null", "cpu": "10", "memory": "96", "shm": "8"},
}


def new(
    name: str,
    /,
    *,
    instance_type: Annotated[str, Parameter(name="--type", choices=INSTANCE_TYPES)] = INSTANCE_TYPES[0],
    kind: Annotated[str, Parameter(choices=CAPACITY_KINDS)] = CAPACITY_KINDS[0],
    region: Annotated[str | None, Parameter(metavar="R")] = None,
    vpc: Literal["new", "existing"] = "new",
    selection: Selection = DEFAULTS,
) -> ExitCode:
    """Write a commented starter of both files.

    Args:
        name: of the environment and the experiment
        instance_type: what the nodes are
        kind: how they are bought
        region: AWS region (default: the first known to offer the type)
        vpc: who makes the VPC

    Raises:
        SpecError: the name is no label, one of the files exists, or the type is not sold so or there.
    """
    catalogue = load_catalogue()
    region = region or next(iter(catalogue.offerings.offerings[instance_type]))
    folders = (selection.environments, selection.experiments)
    paths = [folder / f"{name}.yaml" for folder in folders]
    faults = [
        SpecFault(file=str(path), path="", got="an existing file", allowed="a new name", change="choose another name")
        for path in dict.fromkeys(paths)
        if path.exists()
    ]
    faults += _list_faults(name, instance_type, kind, region, catalogue)
    if faults:
        raise SpecError(faults)
    texts = (
        _environment_text(name, instance_type=instance_type, kind=kind, region=region, vpc=vpc, catalogue=catalogue),
        _experiment_text(name, instance_type, catalogue),
    )
    for path, text in zip(paths, texts, strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    next_step = f"next: `{quote_command('tandem', 'check', name)}` lists each FILL_IN with what it takes"
    lines = [*(f"wrote {path}" for path in paths), next_step]
    print_result({"written": [str(path) for path in paths]}, lines, as_json=selection.as_json)
    return ExitCode.DONE


def _list_faults(name: str, instance_type: str, kind: str, region: str, catalogue: Catalogue) -> Iterator[SpecFault]:
    """Yield what is wrong of the name, and what the data say against the type's region and kind.

    Source: offerings.yaml and instances.yaml in tandem/spec/data/platform, each dated.
    """
    if not NAME_PATTERN.fullmatch(name) or name in FOLDER_NAMES:
        allowed = f"{NAME_RULE}{', '.join(sorted(FOLDER_NAMES))}"
        yield SpecFault(file=f"{name}.yaml", path="", got=repr(name), allowed=allowed, change="choose another name")
    regions = catalogue.offerings.offerings[instance_type]
    if region not in regions:
        got, allowed = f"{region} for {instance_type}", ", ".join(sorted(regions))
        change = "write one of them; where your account is offered it elsewhere, add the row to "
        change += "tandem/spec/data/platform/offerings.yaml"
        yield SpecFault(file="--region", path="", got=got, allowed=allowed, change=change)
    kinds = catalogue.instances.instances[instance_type].capacity_kinds.value
    if kind not in kinds:
        got, change = f"{kind} for {instance_type}", "write one of them"
        yield SpecFault(file="--kind", path="", got=got, allowed=", ".join(kinds), change=change)


def _environment_text(name: str, *, instance_type: str, kind: str, region: str, vpc: str, catalogue: Catalogue) -> str:
    offered_zones = catalogue.offerings.offerings[instance_type][region].value
    # the nodes' zone and the first others of the region
    zones = sorted([*dict.fromkeys((offered_zones[0], *catalogue.offerings.zones[region].value))][:MAX_ZONES])
    values = {"name": name, "region": region, "type": instance_type, "kind": kind, "zone": offered_zones[0]}
    values |= {"offered": ", ".join(offered_zones), "zones": ", ".join(zones)}
    values["subnets"] = "\n".join(f"    - {{id: FILL_IN, zone: {zone}}}" for zone in zones)
    parts = {
        "network": NETWORKS[vpc],
        "reservation": RESERVATION_LINES if kind in {"capacity-block", "reservation"} else ZONE_LINE,
        "price": PRICES[kind],
        "block": BLOCK_LINE if kind == "capacity-block" else "",
    }
    texts = {key: Template(text).substitute(values) for key, text in parts.items()}
    return _read_template("environment.yaml").substitute({**values, **texts})


def _experiment_text(name: str, instance_type: str, catalogue: Catalogue) -> str:
    """Return the experiment's file, with settings that fit the instance type."""
    instance = catalogue.instances.instances[instance_type]
    counts = ", ".join(str(count) for count in instance.device_counts.value)
    serving = SERVING[max(count for count in SERVING if count <= (instance.devices.value or 1))]
    return _read_template("experiment.yaml").substitute(name=name, counts=counts, **serving)


def _read_template(file: str) -> Template:
    return Template((files("tandem") / "cli" / "templates" / file).read_text())
