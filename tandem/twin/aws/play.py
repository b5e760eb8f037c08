"""The steps of a rehearsal. Each proves its own effect by asking the services, never by the CLI's words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from botocore.exceptions import ClientError

from tandem.spec import names
from tandem.twin.aws.cdk import Cdk, CdkError, Deployed, deployed
from tandem.twin.aws.endpoint import Endpoint
from tandem.twin.aws.hold import Held, hold
from tandem.twin.aws.scene import Scene, furnish

WITNESS = "rehearsal/witness.txt"


class UnfulfilledError(AssertionError):
    """A step ran through and its effect is not there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One step that was taken: what it found, or why it failed."""

    name: str
    seconds: float
    found: str
    failed: bool = False


@dataclass(kw_only=True, slots=True)
class Rehearsal:
    """What a rehearsal found."""

    environment: str
    account: str
    region: str
    steps: list[Step] = field(default_factory=list)
    resources: list[Held] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether every step passed and every resource is as its template says."""
        return not any(step.failed for step in self.steps) and not any(item.differs for item in self.resources)


@dataclass(kw_only=True, slots=True)
class Play:
    """The steps, and what one leaves for the next."""

    endpoint: Endpoint
    scene: Scene
    cdk: Cdk
    found: Rehearsal
    before: dict[str, Deployed] = field(default_factory=dict)

    def quick_steps(self) -> Iterator[tuple[str, Callable[[], str]]]:
        """The steps of a first deploy."""
        yield "start the endpoint", self.start
        yield "bootstrap", self.bootstrap
        yield "deploy", self.deploy
        yield "hold every resource against its template", self.hold

    def steps(self) -> Iterator[tuple[str, Callable[[], str]]]:
        """All steps."""
        yield from self.quick_steps()
        yield "diff", self.diff
        yield "deploy again", self.deploy_again
        if self.scene.environment.capacity.needs_reservation:
            yield "renew the reservation", self.renew
        yield "refuse to destroy what is protected", self.refuse
        yield "destroy", self.destroy
        yield "deploy again, adopting what was retained", self.adopt

    def start(self) -> str:
        """Start the endpoint and make what the environment takes as given."""
        self.endpoint.start()
        made = furnish(self.scene, self.endpoint.client)
        return f"{self.endpoint.url}{''.join(f', {item}' for item in made)}"

    def bootstrap(self) -> str:
        """Bootstrap, and read the version parameter that every stack demands."""
        qualifier = self.scene.environment.bootstrap.qualifier
        self.cdk.bootstrap(qualifier)
        parameter = self.endpoint.client("ssm").get_parameter(Name=f"/cdk-bootstrap/{qualifier}/version")
        return f"version {parameter['Parameter']['Value']}, qualifier {qualifier}"

    def deploy(self) -> str:
        """Deploy everything."""
        self.cdk.deploy()
        self.before = self._complete()
        return f"{len(self.before)} stacks: {', '.join(self.before)}"

    def hold(self) -> str:
        """Hold every resource."""
        recorded = self.endpoint.recorded()
        self.found.resources = [item for name in self.before for item in hold(self.endpoint.client, name, recorded)]
        differing = [item for item in self.found.resources if item.differs]
        if differing:
            raise UnfulfilledError("\n".join(_difference(item) for item in differing))
        properties = sum(len(item.held) for item in self.found.resources)
        return f"{len(self.found.resources)} resources, {properties} properties as the templates say"

    def diff(self) -> str:
        """Ask the CLI for a difference."""
        self.cdk.diff()
        return "no change"

    def deploy_again(self) -> str:
        """Deploy the same once more; no stack may change."""
        self.cdk.deploy()
        _demand(self._changed() == [], f"an unchanged deploy changed {self._changed()}")
        return "no stack was touched"

    def renew(self) -> str:
        """Name another reservation; Fleet alone may change, and what a dashboard says of it."""
        reservation = self.scene.renew_reservation()
        self.cdk.deploy()
        fleet = names.stack(self.scene.environment, "Fleet")
        told = names.stack(self.scene.environment, "Observability")
        changed = self._changed()
        _demand({fleet} <= set(changed) <= {fleet, told}, f"a renewal must change {fleet} alone, it changed {changed}")
        self.before = self._complete()
        _demand(reservation in self.before[fleet].template, f"{fleet} does not name {reservation}")
        self.hold()
        return f"{fleet} alone changed, and names {reservation}"

    def refuse(self) -> str:
        """The operator's first try, with both protections on; then the cluster alone, past CloudFormation."""
        environment = self.scene.environment
        if not (environment.termination_protection and environment.cluster.deletion_protection):
            self.scene.protect(on=True)
            self.cdk.deploy()
        _demand(_refused(self.cdk.destroy), "protected stacks were destroyed")
        left = self._complete()
        _demand(left.keys() == self.before.keys(), f"left after a refused destroy: {list(left)}")
        cluster = names.cluster(self.scene.environment)
        alone = partial(self.endpoint.client("eks").delete_cluster, name=cluster)
        _demand(_refused(alone), f"{cluster} was deleted in spite of its deletion protection")
        return "termination protection held every stack, deletion protection the cluster"

    def destroy(self) -> str:
        """Lift the protections as an operator does, destroy, and look for what must be left and what must not."""
        self.scene.protect(on=False)
        self.cdk.deploy()
        self._bucket_put()
        self.cdk.destroy()
        left = deployed(self.endpoint, self.scene.name)
        _demand(not left, f"left after the destroy: {list(left)}")
        cluster = names.cluster(self.scene.environment)
        clusters = self.endpoint.client("eks").list_clusters()["clusters"]
        _demand(cluster not in clusters, f"{cluster} is left after the destroy")
        _demand(self._bucket_kept(), "the bucket is gone or lost its object")
        return "protections lifted, every stack gone, the bucket and its object are still there"

    def adopt(self) -> str:
        """Deploy once more over the retained bucket."""
        self.scene.protect(on=True)
        self.cdk.deploy("--import-existing-resources")
        self.before = self._complete()
        self.hold()
        _demand(self._bucket_kept(), "the adopted bucket lost its object")
        return f"{len(self.before)} stacks, the bucket is theirs again with its object"

    def _complete(self) -> dict[str, Deployed]:
        stacks = deployed(self.endpoint, self.scene.name)
        broken = {name: stack.status for name, stack in stacks.items() if not stack.status.endswith("_COMPLETE")}
        _demand(not broken and bool(stacks), f"not complete: {broken or 'there is no stack'}")
        return stacks

    def _changed(self) -> list[str]:
        return [name for name, stack in self._complete().items() if self.before.get(name) != stack]

    def _bucket_put(self) -> None:
        bucket = names.bucket(self.scene.environment)
        self.endpoint.client("s3").put_object(Bucket=bucket, Key=WITNESS, Body=b"here before")

    def _bucket_kept(self) -> bool:
        bucket = names.bucket(self.scene.environment)
        body = self.endpoint.client("s3").get_object(Bucket=bucket, Key=WITNESS)["Body"].read()
        return bool(body == b"here before")


def _demand(holds: bool, otherwise: str) -> None:
    if not holds:
        raise UnfulfilledError(otherwise)


def _refused(act: Callable[[], object]) -> bool:
    try:
        act()
    except (CdkError, ClientError):
        return True
    return False


def _difference(item: Held) -> str:
    parts = (f"{part.property}: template {part.template!r}, described {part.described!r}" for part in item.differs)
    return f"{item.stack} {item.logical_id} ({item.type}): {'; '.join(parts)}"
