"""A copy of the declared files in which one environment lives in a made-up account and may be edited.

The repository's own files are never written, and nothing of the copy is told to app.py but where it lies.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tandem.spec.environment import Environment, ExistingNetwork
from tandem.spec.faults import SpecError
from tandem.spec.load import load

ACCOUNT = "222233334444"  # of the form of an account; no documentation uses it and nobody is asked about it


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """The copied folders and the environment in them.

    Args:
        name: the environment.
    """

    name: str
    environments: Path
    experiments: Path

    @property
    def file(self) -> Path:
        """The environment's file in the copy."""
        return self.environments / f"{self.name}.yaml"

    @property
    def environment(self) -> Environment:
        """The environment as it stands in the copy now.

        Raises:
            SpecError: the file is refused.
        """
        workspace = load(self.environments, self.experiments, (self.name,))
        declared = workspace.environments.get(self.name)
        if declared is None or declared.environment is None:
            raise SpecError(list(workspace.faults))
        return declared.environment

    def edit(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Change the environment's file as an operator would, and read it back through the loader."""
        document = yaml.safe_load(self.file.read_text())
        change(document)
        self.file.write_text(yaml.safe_dump(document, sort_keys=False))
        assert self.environment.name == self.name

    def renew_reservation(self) -> str:
        """Write another made-up reservation id of the right form, as at the end of a Capacity Block."""
        reservation = f"cr-{secrets.token_hex(9)[:17]}"
        self.edit(lambda document: document["capacity"].update(reservation_id=reservation))
        return reservation

    def protect(self, *, on: bool) -> None:
        """Say both protections, of the stacks and of the cluster."""

        def change(document: dict[str, Any]) -> None:
            document["termination_protection"] = on
            document["cluster"]["deletion_protection"] = on

        self.edit(change)


def scene(name: str, environments: Path, experiments: Path, into: Path) -> Scene:
    """Copy the declared files into `into` and move the environment to the made-up account.

    Raises:
        SpecError: there is no such environment, or its file is refused.
    """
    original = Scene(name=name, environments=environments, experiments=experiments).environment
    copied = Scene(name=name, environments=into / "environments", experiments=into / "experiments")
    shutil.copytree(environments, copied.environments)
    shutil.copytree(experiments, copied.experiments)
    copied.file.write_text(copied.file.read_text().replace(original.account, ACCOUNT))
    if original.capacity.needs_reservation:
        copied.renew_reservation()
    return copied


def furnish(copied: Scene, client: Callable[[str], Any]) -> list[str]:
    """Make at the endpoint what the environment takes as given, and write made-up ids where the file names ids.

    Returns:
        one line for each thing made.
    """
    environment = copied.environment
    made = []
    if isinstance(environment.network, ExistingNetwork):
        made.append(_existing_network(copied, environment.network, client("ec2")))
    if environment.artifacts.existing_bucket:
        client("s3").create_bucket(
            Bucket=environment.artifacts.existing_bucket,
            CreateBucketConfiguration={"LocationConstraint": environment.region},
        )
        made.append(f"bucket {environment.artifacts.existing_bucket}")
    if environment.artifacts.kms_key_arn:
        key = client("kms").create_key()["KeyMetadata"]["Arn"]
        copied.edit(lambda document: document["artifacts"].update(kms_key_arn=key))
        made.append(f"key {key}")
    if environment.bootstrap.permissions_boundary:
        statement = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}'
        boundary = environment.bootstrap.permissions_boundary
        client("iam").create_policy(PolicyName=boundary, PolicyDocument=statement)
        made.append(f"permissions boundary {boundary}")
    return made


def _existing_network(copied: Scene, network: ExistingNetwork, ec2: Any) -> str:
    vpc = ec2.create_vpc(CidrBlock=network.cidr)["Vpc"]["VpcId"]
    for cidr in network.secondary_cidrs:
        ec2.associate_vpc_cidr_block(VpcId=vpc, CidrBlock=cidr)
    first = network.cidr.split(".")
    subnets = [
        ec2.create_subnet(
            VpcId=vpc, CidrBlock=f"{first[0]}.{first[1]}.{16 * index}.0/20", AvailabilityZoneId=subnet.zone
        )["Subnet"]["SubnetId"]
        for index, subnet in enumerate(network.subnets)
    ]

    def change(document: dict[str, Any]) -> None:
        document["network"]["vpc_id"] = vpc
        for place, subnet in zip(document["network"]["subnets"], subnets, strict=True):
            place["id"] = subnet

    copied.edit(change)
    return f"VPC {vpc} with {len(subnets)} subnets"
