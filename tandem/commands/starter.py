"""`tandem new NAME`: a commented pair of files to start from, for the instance type, purchase and network asked.

Invariant: `tandem check` refuses nothing of what is written but the placeholders FILL_IN, and nothing is overwritten.
"""

from __future__ import annotations

import argparse
import re
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import get_args

from tandem.commands.outcome import Exit, print_json
from tandem.commands.selection import Selection
from tandem.rules.naming import TAKEN_NAMES
from tandem.shell_command import quote_command
from tandem.spec.catalogue import Catalogue, catalogue
from tandem.spec.environment import Capacity
from tandem.spec.faults import Fault, SpecError

NAME = re.compile(r"[a-z]([a-z0-9-]{0,28}[a-z0-9])?")  # short enough for every name made from it


TYPES = get_args(Capacity.model_fields["instance_type"].annotation)
KINDS = get_args(Capacity.model_fields["kind"].annotation)
MOST_ZONES = 3

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
RESERVED = """  reservation_id: null         # cr-...; until it is here the Fleet stack is left out
  zone: $zone               # the zone the reservation lies in"""
UNRESERVED = "  zone: $zone               # of those that offer the type: $offered"
BLOCK = """  block: null                  # as sold: {starts: 2026-12-01T11:30:00Z, ends: 2026-12-02T11:30:00Z}
"""
SERVING = {  # what fits one server of the post's pair
    16: {"degree": "32", "devices": "8", "group": "8", "cpu": "90", "memory": "256", "shm": "16"},
    1: {"degree": "4", "devices": "1", "group": "null", "cpu": "10", "memory": "96", "shm": "8"},
}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("name", metavar="NAME", help="name of the environment and the experiment")
    parser.add_argument("--type", choices=TYPES, default=TYPES[0], help=f"instance type (default {TYPES[0]})")
    parser.add_argument("--kind", choices=KINDS, default=KINDS[0], help=f"how it is bought (default {KINDS[0]})")
    parser.add_argument("--region", metavar="R", help="AWS region (default: the first known to offer the type)")
    parser.add_argument("--vpc", choices=tuple(NETWORKS), default="new", help="who makes the VPC (default new)")


def new(options: argparse.Namespace, chosen: Selection) -> Exit:
    """Write environments/NAME.yaml and experiments/NAME.yaml.

    Args:
        options: `name`, `type`, `kind`, `region` and `vpc`.
        chosen: the folders.

    Raises:
        SpecError: the name is no label, one of the files exists, or the type is not sold so or there.
    """
    name, known = options.name, catalogue()
    targets = {folder / f"{name}.yaml" for folder in (chosen.environments, chosen.experiments)}
    faults = [_exists(path) for path in sorted(targets) if path.exists()] + _bad_name(name)
    faults += _unsold_faults(options, known)
    if faults:
        raise SpecError(faults)
    texts = {
        chosen.environments / f"{name}.yaml": _environment_text(options, known),
        chosen.experiments / f"{name}.yaml": _experiment_text(options, known),
    }
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    if chosen.as_json:
        print_json({"written": [str(path) for path in texts]})
    else:
        for path in texts:
            print(f"wrote {path}")
        print(f"next: `{quote_command('tandem', 'check', name)}` lists each FILL_IN with what it takes")
    return Exit.DONE


def _environment_text(options: argparse.Namespace, known: Catalogue) -> str:
    """Return the environment's file."""
    region = _chosen_region(options, known)
    offered = known.offerings.offerings[options.type][region].value
    zone = offered[0]
    zones = [zone, *(other for other in known.offerings.zones[region].value if other != zone)][:MOST_ZONES]
    reserved = options.kind in {"capacity-block", "reservation"}
    values = {
        "name": options.name, "region": region, "type": options.type, "kind": options.kind, "zone": zone,
        "offered": ", ".join(offered), "zones": ", ".join(sorted(zones)),
        "subnets": "\n".join(f"    - {{id: FILL_IN, zone: {each}}}" for each in sorted(zones)),
    }  # fmt: skip
    parts = {
        "network": NETWORKS[options.vpc], "reservation": RESERVED if reserved else UNRESERVED,
        "price": PRICES[options.kind], "block": BLOCK if options.kind == "capacity-block" else "",
    }  # fmt: skip
    filled = {key: Template(text).substitute(values) for key, text in parts.items()}
    return _read_template("environment.yaml").substitute({**values, **filled})


def _experiment_text(options: argparse.Namespace, known: Catalogue) -> str:
    """Return the experiment's file, with settings that fit the instance type."""
    instance = known.instances.instances[options.type]
    counts = ", ".join(str(count) for count in instance.device_counts.value)
    serving = SERVING[max(count for count in SERVING if count <= (instance.devices.value or 1))]
    return _read_template("experiment.yaml").substitute(name=options.name, counts=counts, **serving)


def _read_template(file: str) -> Template:
    return Template((files("tandem") / "commands" / "templates" / file).read_text())


def _chosen_region(options: argparse.Namespace, known: Catalogue) -> str:
    """Return the region asked for, else the first that is known to offer the type."""
    return str(options.region or next(iter(known.offerings.offerings[options.type])))


def _unsold_faults(options: argparse.Namespace, known: Catalogue) -> list[Fault]:
    """Return what the data say against the type's region and kind.

    Source: offerings.yaml and instances.yaml in tandem/spec/data/platform, each dated.
    """
    regions = known.offerings.offerings[options.type]
    kinds = known.instances.instances[options.type].capacity_kinds.value
    faults = []
    if _chosen_region(options, known) not in regions:
        faults.append(Fault(
            file="--region", path="", got=f"{options.region} for {options.type}", allowed=", ".join(sorted(regions)),
            change="write one of them; where your account is offered it elsewhere, add the row to "
            "tandem/spec/data/platform/offerings.yaml",
        ))  # fmt: skip
    if options.kind not in kinds:
        faults.append(Fault(
            file="--kind", path="", got=f"{options.kind} for {options.type}", allowed=", ".join(kinds),
            change="write one of them",
        ))  # fmt: skip
    return faults


def _exists(path: Path) -> Fault:
    return Fault(file=str(path), path="", got="an existing file", allowed="a new name", change="choose another name")


def _bad_name(name: str) -> list[Fault]:
    if NAME.fullmatch(name) and name not in TAKEN_NAMES:
        return []
    return [
        Fault(
            file=f"{name}.yaml", path="", got=repr(name),
            allowed="lower-case letters, digits and dashes, starting with a letter, ending with none, at most 30; "
            f"not {', '.join(sorted(TAKEN_NAMES))}",
            change="choose another name",
        )
    ]  # fmt: skip
