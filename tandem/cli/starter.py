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

from tandem.cli.outcome import print_json
from tandem.cli.selection import Selection
from tandem.errors import ExitCode
from tandem.rules.naming import FOLDER_NAMES
from tandem.shell_command import quote_command
from tandem.spec.catalogue import Catalogue, load_catalogue
from tandem.spec.environment import CapacitySettings
from tandem.spec.faults import SpecError, SpecFault

NAME_PATTERN = re.compile(r"[a-z]([a-z0-9-]{0,28}[a-z0-9])?")  # short enough for every name made from it


INSTANCE_TYPES = get_args(CapacitySettings.model_fields["instance_type"].annotation)
CAPACITY_KINDS = get_args(CapacitySettings.model_fields["kind"].annotation)
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


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("name", metavar="NAME", help="name of the environment and the experiment")
    parser.add_argument(
        "--type", choices=INSTANCE_TYPES, default=INSTANCE_TYPES[0], help=f"instance type (default {INSTANCE_TYPES[0]})"
    )
    parser.add_argument(
        "--kind",
        choices=CAPACITY_KINDS,
        default=CAPACITY_KINDS[0],
        help=f"how it is bought (default {CAPACITY_KINDS[0]})",
    )
    parser.add_argument("--region", metavar="R", help="AWS region (default: the first known to offer the type)")
    parser.add_argument("--vpc", choices=tuple(NETWORKS), default="new", help="who makes the VPC (default new)")


def new(options: argparse.Namespace, selection: Selection) -> ExitCode:
    """Write environments/NAME.yaml and experiments/NAME.yaml.

    Args:
        options: `name`, `type`, `kind`, `region` and `vpc`.
        selection: the folders.

    Raises:
        SpecError: the name is no label, one of the files exists, or the type is not sold so or there.
    """
    name, spec_catalogue = options.name, load_catalogue()
    spec_paths = {folder / f"{name}.yaml" for folder in (selection.environments, selection.experiments)}
    faults = [_build_exists_fault(path) for path in sorted(spec_paths) if path.exists()] + _list_name_faults(name)
    faults += _list_offering_faults(options, spec_catalogue)
    if faults:
        raise SpecError(faults)
    texts = {
        selection.environments / f"{name}.yaml": _environment_text(options, spec_catalogue),
        selection.experiments / f"{name}.yaml": _experiment_text(options, spec_catalogue),
    }
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    if selection.as_json:
        print_json({"written": [str(path) for path in texts]})
    else:
        for path in texts:
            print(f"wrote {path}")
        print(f"next: `{quote_command('tandem', 'check', name)}` lists each FILL_IN with what it takes")
    return ExitCode.DONE


def _environment_text(options: argparse.Namespace, spec_catalogue: Catalogue) -> str:
    """Return the environment's file."""
    region = _select_region(options, spec_catalogue)
    offered_zones = spec_catalogue.offerings.offerings[options.type][region].value
    zone = offered_zones[0]
    zones = [zone, *(other_zone for other_zone in spec_catalogue.offerings.zones[region].value if other_zone != zone)][
        :MAX_ZONES
    ]
    has_reservation = options.kind in {"capacity-block", "reservation"}
    values = {
        "name": options.name, "region": region, "type": options.type, "kind": options.kind, "zone": zone,
        "offered": ", ".join(offered_zones), "zones": ", ".join(sorted(zones)),
        "subnets": "\n".join(f"    - {{id: FILL_IN, zone: {zone_id}}}" for zone_id in sorted(zones)),
    }  # fmt: skip
    parts = {
        "network": NETWORKS[options.vpc], "reservation": RESERVATION_LINES if has_reservation else ZONE_LINE,
        "price": PRICES[options.kind], "block": BLOCK_LINE if options.kind == "capacity-block" else "",
    }  # fmt: skip
    texts = {key: Template(text).substitute(values) for key, text in parts.items()}
    return _read_template("environment.yaml").substitute({**values, **texts})


def _experiment_text(options: argparse.Namespace, spec_catalogue: Catalogue) -> str:
    """Return the experiment's file, with settings that fit the instance type."""
    instance = spec_catalogue.instances.instances[options.type]
    counts = ", ".join(str(count) for count in instance.device_counts.value)
    serving = SERVING[max(count for count in SERVING if count <= (instance.devices.value or 1))]
    return _read_template("experiment.yaml").substitute(name=options.name, counts=counts, **serving)


def _read_template(file: str) -> Template:
    return Template((files("tandem") / "cli" / "templates" / file).read_text())


def _select_region(options: argparse.Namespace, spec_catalogue: Catalogue) -> str:
    """Return the region asked for, else the first that is known to offer the type."""
    return str(options.region or next(iter(spec_catalogue.offerings.offerings[options.type])))


def _list_offering_faults(options: argparse.Namespace, spec_catalogue: Catalogue) -> list[SpecFault]:
    """Return what the data say against the type's region and kind.

    Source: offerings.yaml and instances.yaml in tandem/spec/data/platform, each dated.
    """
    regions = spec_catalogue.offerings.offerings[options.type]
    kinds = spec_catalogue.instances.instances[options.type].capacity_kinds.value
    faults = []
    if _select_region(options, spec_catalogue) not in regions:
        faults.append(SpecFault(
            file="--region", path="", got=f"{options.region} for {options.type}", allowed=", ".join(sorted(regions)),
            change="write one of them; where your account is offered it elsewhere, add the row to "
            "tandem/spec/data/platform/offerings.yaml",
        ))  # fmt: skip
    if options.kind not in kinds:
        faults.append(SpecFault(
            file="--kind", path="", got=f"{options.kind} for {options.type}", allowed=", ".join(kinds),
            change="write one of them",
        ))  # fmt: skip
    return faults


def _build_exists_fault(path: Path) -> SpecFault:
    return SpecFault(
        file=str(path), path="", got="an existing file", allowed="a new name", change="choose another name"
    )


def _list_name_faults(name: str) -> list[SpecFault]:
    if NAME_PATTERN.fullmatch(name) and name not in FOLDER_NAMES:
        return []
    return [
        SpecFault(
            file=f"{name}.yaml", path="", got=repr(name),
            allowed="lower-case letters, digits and dashes, starting with a letter, ending with none, at most 30; "
            f"not {', '.join(sorted(FOLDER_NAMES))}",
            change="choose another name",
        )
    ]  # fmt: skip
