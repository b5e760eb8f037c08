"""A copy of the declared files with one environment in a made-up account, which may be edited.

The repository's own files are never written. app.py knows nothing of the copy but its place.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tandem.declarations import names
from tandem.declarations.environment import Environment
from tandem.declarations.experiment import Experiment
from tandem.declarations.faults import SpecError
from tandem.declarations.network_settings import ExistingNetwork
from tandem.declarations.project_image import list_hosted_images
from tandem.declarations.workspace import load_workspace

# has the form of an account; no documentation uses it and no query leaves for it
FICTITIOUS_ACCOUNT = "222233334444"


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentSandbox:
    """The copied folders and the environment in them.

    Args:
        name: the environment.
    """

    name: str
    environments: Path
    experiments: Path

    @property
    def project(self) -> Path:
        """The folder from which the paths of prompts count."""
        return self.experiments.parent

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
        return self._load()[0]

    @property
    def stack_kinds(self) -> tuple[str, ...]:
        """The stacks of the environment as it stands in the copy now.

        Raises:
            SpecError: a file is refused.
        """
        environment, experiments = self._load()
        return names.stack_kinds(
            environment, [image.name for image in list_hosted_images(experiments)]
        )

    def list_experiments(self) -> list[Experiment]:
        """Return the hosted experiments as they stand in the copy now.

        Raises:
            SpecError: a file is refused.
        """
        return self._load()[1]

    def _load(self) -> tuple[Environment, list[Experiment]]:
        workspace = load_workspace(self.environments, self.experiments, (self.name,))
        environment_file = workspace.environments.get(self.name)
        if environment_file is None:
            raise SpecError(list(workspace.faults))
        environment = environment_file.record
        return environment, [workspace.experiments[name].record for name in environment.experiments]

    def edit(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Change the environment's file as an operator would; read it back by the loader."""
        document = yaml.safe_load(self.file.read_text())
        change(document)
        self.file.write_text(yaml.safe_dump(document, sort_keys=False))
        assert self.environment.name == self.name

    def renew_reservation(self) -> str:
        """Write another made-up reservation id of valid form, as when a Capacity Block ends."""
        reservation = f"cr-{secrets.token_hex(9)[:17]}"
        self.edit(lambda document: document["capacity"].update(reservation_id=reservation))
        return reservation

    def set_protection(self, *, is_on: bool) -> None:
        """Set both protections, of the stacks and of the cluster."""

        def set_flags(document: dict[str, Any]) -> None:
            document["termination_protection"] = is_on
            document["cluster"]["deletion_protection"] = is_on

        self.edit(set_flags)


def create_sandbox(
    name: str, environments: Path, experiments: Path, folder: Path
) -> EnvironmentSandbox:
    """Copy the declared files into `folder` and move the environment to the made-up account.

    Raises:
        SpecError: there is no such environment, or its file is refused.
    """
    original = EnvironmentSandbox(
        name=name, environments=environments, experiments=experiments
    ).environment
    sandbox = EnvironmentSandbox(
        name=name, environments=folder / "environments", experiments=folder / "experiments"
    )
    shutil.copytree(environments, sandbox.environments)
    shutil.copytree(experiments, sandbox.experiments)
    for experiment in sandbox.list_experiments():
        for suite in experiment.list_suite_files():
            _copy_if_there(experiments.absolute().parent, sandbox.project, suite.file)
    sandbox.file.write_text(sandbox.file.read_text().replace(original.account, FICTITIOUS_ACCOUNT))
    if original.capacity.needs_reservation:
        sandbox.renew_reservation()
    return sandbox


def _copy_if_there(source: Path, target: Path, name: str) -> None:
    """Copy a file by its path in a project; private prompts may be somewhere else."""
    if (source / name).is_file():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / name, target / name)


def create_prerequisites(sandbox: EnvironmentSandbox, client: Callable[[str], Any]) -> list[str]:
    """Make the resources that the environment takes as given; write their made-up ids to its file.

    Returns:
        one line for each resource.
    """
    environment = sandbox.environment
    descriptions = []
    if isinstance(environment.network, ExistingNetwork):
        descriptions.append(_create_network(sandbox, environment.network, client("ec2")))
    if environment.artifacts.existing_bucket:
        client("s3").create_bucket(
            Bucket=environment.artifacts.existing_bucket,
            CreateBucketConfiguration={"LocationConstraint": environment.region},
        )
        descriptions.append(f"bucket {environment.artifacts.existing_bucket}")
    if environment.artifacts.kms_key_arn:
        key = client("kms").create_key()["KeyMetadata"]["Arn"]
        sandbox.edit(lambda document: document["artifacts"].update(kms_key_arn=key))
        descriptions.append(f"key {key}")
    if environment.log_kms_key_arn:
        log_key = client("kms").create_key()["KeyMetadata"]["Arn"]
        sandbox.edit(lambda document: document.update(log_kms_key_arn=log_key))
        descriptions.append(f"key of the logs {log_key}")
    if environment.bootstrap.permissions_boundary:
        statement = (
            '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource":'
            ' "*"}]}'
        )
        boundary = environment.bootstrap.permissions_boundary
        client("iam").create_policy(PolicyName=boundary, PolicyDocument=statement)
        descriptions.append(f"permissions boundary {boundary}")
    return descriptions


def _create_network(sandbox: EnvironmentSandbox, network: ExistingNetwork, ec2: Any) -> str:
    vpc = ec2.create_vpc(CidrBlock=network.cidr)["Vpc"]["VpcId"]
    for cidr in network.secondary_cidrs:
        ec2.associate_vpc_cidr_block(VpcId=vpc, CidrBlock=cidr)
    octets = network.cidr.split(".")
    declared = {subnet.id: subnet.zone for subnet in (*network.subnets, *network.cluster_subnets)}
    subnet_ids = {
        subnet_id: ec2.create_subnet(
            VpcId=vpc,
            CidrBlock=f"{octets[0]}.{octets[1]}.{16 * index}.0/20",
            AvailabilityZoneId=zone,
        )["Subnet"]["SubnetId"]
        for index, (subnet_id, zone) in enumerate(declared.items())
    }

    def set_ids(document: dict[str, Any]) -> None:
        section = document["network"]
        section["vpc_id"] = vpc
        for place in (*section["subnets"], *section.get("control_plane_subnets", ())):
            place["id"] = subnet_ids[place["id"]]

    sandbox.edit(set_ids)
    return f"VPC {vpc} with {len(subnet_ids)} subnets"
