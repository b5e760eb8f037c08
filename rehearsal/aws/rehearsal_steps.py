"""The steps of a rehearsal. Each proves its effect by service queries, never by CLI output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from botocore.exceptions import ClientError

from rehearsal.aws.cdk_cli import CdkCli, CdkError, StackState, read_stacks
from rehearsal.aws.endpoint import AwsEndpoint
from rehearsal.aws.sandbox import EnvironmentSandbox, create_prerequisites
from rehearsal.aws.template_check import ResourceCheck, check_stack
from tandem.declarations import names

WITNESS_KEY = "rehearsal/witness.txt"


class MissingEffectError(AssertionError):
    """A step ended well but its effect is missing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepResult:
    """One finished step: its outcome, or why it failed."""

    name: str
    seconds: float
    outcome: str
    is_failure: bool = False


@dataclass(kw_only=True, slots=True)
class RehearsalResult:
    """The result of a rehearsal."""

    environment: str
    account: str
    region: str
    steps: list[StepResult] = field(default_factory=list)
    resources: list[ResourceCheck] = field(default_factory=list)

    @property
    def is_success(self) -> bool:
        """Whether every step passed and every resource is as its template says."""
        return not any(step.is_failure for step in self.steps) and not any(
            item.differences for item in self.resources
        )


@dataclass(kw_only=True, slots=True)
class RehearsalSteps:
    """The steps, and the state that one leaves for the next."""

    endpoint: AwsEndpoint
    sandbox: EnvironmentSandbox
    cdk: CdkCli
    result: RehearsalResult
    stacks_before: dict[str, StackState] = field(default_factory=dict)

    def quick_steps(self) -> Iterator[tuple[str, Callable[[], str]]]:
        """Yield the steps of a first deploy."""
        yield "start the endpoint", self.start
        yield "bootstrap", self.bootstrap
        yield "deploy", self.deploy
        yield "hold every resource against its template", self.check_resources

    def steps(self) -> Iterator[tuple[str, Callable[[], str]]]:
        """Yield all steps."""
        yield from self.quick_steps()
        yield "diff", self.diff
        yield "deploy again", self.deploy_again
        if self.sandbox.environment.capacity.needs_reservation:
            yield "renew the reservation", self.renew
        yield "refuse to destroy what is protected", self.refuse_destroy
        yield "destroy", self.destroy
        yield "deploy again, adopting what was retained", self.adopt

    def start(self) -> str:
        """Start the endpoint and make the resources that the environment takes as given."""
        self.endpoint.start()
        prerequisites = create_prerequisites(self.sandbox, self.endpoint.client)
        return f"{self.endpoint.url}{''.join(f', {item}' for item in prerequisites)}"

    def bootstrap(self) -> str:
        """Bootstrap, and read the version parameter that every stack requires."""
        qualifier = self.sandbox.environment.bootstrap.qualifier
        self.cdk.bootstrap(qualifier)
        parameter = self.endpoint.client("ssm").get_parameter(
            Name=f"/cdk-bootstrap/{qualifier}/version"
        )
        return f"version {parameter['Parameter']['Value']}, qualifier {qualifier}"

    def deploy(self) -> str:
        """Deploy everything."""
        self.cdk.deploy()
        self.stacks_before = self._read_complete_stacks()
        return f"{len(self.stacks_before)} stacks: {', '.join(self.stacks_before)}"

    def check_resources(self) -> str:
        """Check every resource against its template."""
        custom_resources = self.endpoint.list_custom_resources()
        self.result.resources = [
            item
            for name in self.stacks_before
            for item in check_stack(self.endpoint.client, name, custom_resources)
        ]
        checks_with_differences = [item for item in self.result.resources if item.differences]
        if checks_with_differences:
            raise MissingEffectError(
                "\n".join(_format_differences(item) for item in checks_with_differences)
            )
        properties = sum(len(item.matching_properties) for item in self.result.resources)
        return (
            f"{len(self.result.resources)} resources, {properties} properties as the templates say"
        )

    def diff(self) -> str:
        """Let the CLI look for a difference."""
        self.cdk.diff()
        return "no change"

    def deploy_again(self) -> str:
        """Deploy the same files once more; no stack may change."""
        self.cdk.deploy()
        _require_effect(
            self._list_changes() == [], f"an unchanged deploy changed {self._list_changes()}"
        )
        return "no stack was touched"

    def renew(self) -> str:
        """Name another reservation: Fleet must change.

        Only what also names it may change with it: the runner's specs in Workloads, the dashboard
        in Observability.
        """
        reservation = self.sandbox.renew_reservation()
        self.cdk.deploy()
        fleet_stack, *other_stacks = (
            names.stack_name(self.sandbox.environment, part)
            for part in ("Fleet", "Workloads", "Observability")
        )
        changes = self._list_changes()
        _require_effect(
            {fleet_stack} <= set(changes) <= {fleet_stack, *other_stacks},
            f"a renewal must change {fleet_stack}, and may change {' and '.join(other_stacks)};"
            f" it changed {changes}",
        )
        self.stacks_before = self._read_complete_stacks()
        _require_effect(
            reservation in self.stacks_before[fleet_stack].template,
            f"{fleet_stack} does not name {reservation}",
        )
        self.check_resources()
        return f"{' and '.join(changes)} changed; {fleet_stack} names {reservation}"

    def refuse_destroy(self) -> str:
        """Try to destroy with both protections on, then to delete the cluster directly."""
        environment = self.sandbox.environment
        if not (environment.termination_protection and environment.cluster.deletion_protection):
            self.sandbox.set_protection(is_on=True)
            self.cdk.deploy()
        # stacks of images are never protected: a destroy may delete those that no other stack needs
        protected_stacks = {
            name for name, stack in self._read_complete_stacks().items() if stack.is_protected
        }
        _require_effect(bool(protected_stacks), "no stack is protected")
        _require_effect(_is_rejection(self.cdk.destroy), "protected stacks were destroyed")
        lost_stacks = protected_stacks - self._read_complete_stacks().keys()
        _require_effect(not lost_stacks, f"destroyed although protected: {sorted(lost_stacks)}")
        cluster = names.cluster_name(self.sandbox.environment)
        delete_cluster = partial(self.endpoint.client("eks").delete_cluster, name=cluster)
        _require_effect(
            _is_rejection(delete_cluster),
            f"{cluster} was deleted in spite of its deletion protection",
        )
        return (
            f"termination protection held {len(protected_stacks)} stacks, deletion protection the"
            " cluster"
        )

    def destroy(self) -> str:
        """Lift the protections as an operator does, destroy, check what is left and gone."""
        self.sandbox.set_protection(is_on=False)
        self.cdk.deploy()
        self._put_witness()
        self.cdk.destroy()
        stacks_after = read_stacks(self.endpoint, self.sandbox.name)
        _require_effect(not stacks_after, f"left after the destroy: {list(stacks_after)}")
        cluster = names.cluster_name(self.sandbox.environment)
        clusters = self.endpoint.client("eks").list_clusters()["clusters"]
        _require_effect(cluster not in clusters, f"{cluster} is left after the destroy")
        _require_effect(self._has_witness(), "the bucket is gone or lost its object")
        return "protections lifted, every stack gone, the bucket and its object are still there"

    def adopt(self) -> str:
        """Deploy once more over the retained bucket."""
        self.sandbox.set_protection(is_on=True)
        self.cdk.deploy("--import-existing-resources")
        self.stacks_before = self._read_complete_stacks()
        self.check_resources()
        _require_effect(self._has_witness(), "the adopted bucket lost its object")
        return f"{len(self.stacks_before)} stacks, the bucket is theirs again with its object"

    def _read_complete_stacks(self) -> dict[str, StackState]:
        stacks = read_stacks(self.endpoint, self.sandbox.name)
        incomplete_stacks = {
            name: stack.status
            for name, stack in stacks.items()
            if not stack.status.endswith("_COMPLETE")
        }
        _require_effect(
            not incomplete_stacks and bool(stacks),
            f"not complete: {incomplete_stacks or 'there is no stack'}",
        )
        return stacks

    def _list_changes(self) -> list[str]:
        return [
            name
            for name, stack in self._read_complete_stacks().items()
            if self.stacks_before.get(name) != stack
        ]

    def _put_witness(self) -> None:
        bucket = names.bucket_name(self.sandbox.environment)
        self.endpoint.client("s3").put_object(Bucket=bucket, Key=WITNESS_KEY, Body=b"here before")

    def _has_witness(self) -> bool:
        bucket = names.bucket_name(self.sandbox.environment)
        body = self.endpoint.client("s3").get_object(Bucket=bucket, Key=WITNESS_KEY)["Body"].read()
        return bool(body == b"here before")


def _require_effect(is_effective: bool, message: str) -> None:
    if not is_effective:
        raise MissingEffectError(message)


def _is_rejection(action: Callable[[], object]) -> bool:
    try:
        action()
    except (CdkError, ClientError):
        return True
    return False


def _format_differences(check: ResourceCheck) -> str:
    parts = (
        f"{difference.property_path}: template {difference.template_value!r}, described"
        f" {difference.actual_value!r}"
        for difference in check.differences
    )
    return f"{check.stack} {check.logical_id} ({check.type}): {'; '.join(parts)}"
