"""Rehearses an environment's whole life with the real CDK CLI against the local endpoint.

bootstrap, deploy, hold every resource, diff, deploy again, renew the reservation, destroy with the bucket retained,
deploy again adopting the bucket. Each step proves its own effect by asking the services, never the CLI's words.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from botocore.exceptions import ClientError

from tandem.spec import names
from tandem.twin.aws.cdk import Cdk, CdkFailed, Deployed, deployed
from tandem.twin.aws.endpoint import Endpoint, EndpointError
from tandem.twin.aws.fidelity import UnknownType
from tandem.twin.aws.hold import Held, hold
from tandem.twin.aws.resolve import Unresolved
from tandem.twin.aws.scene import ACCOUNT, Scene, furnish, reserved, scene

WITNESS = "rehearsal/witness.txt"
_EXPECTED = (CdkFailed, ClientError, EndpointError, Unresolved, UnknownType)


class NotAsTold(AssertionError):
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What to rehearse.

    Args:
        quick: bootstrap, deploy and hold only.
    """

    name: str
    environments: Path
    experiments: Path
    quick: bool = False
    app: str | None = None


def rehearse(request: Request, say: Callable[[str], None]) -> Rehearsal:
    """Take every step until one fails.

    Raises:
        SpecError: the environment is not there or refused.
    """
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tandem-rehearsal-")))
        copied = scene(request.name, request.environments, request.experiments, work)
        region = copied.environment.region
        found = Rehearsal(environment=request.name, account=ACCOUNT, region=region)
        say(f"rehearsing {request.name} as account {ACCOUNT} in {region} on a local endpoint")
        endpoint = Endpoint(account=ACCOUNT, region=region, say=say)
        stack.callback(endpoint.stop)
        cdk = Cdk(endpoint=endpoint, scene=copied, work=work, **({"app": request.app} if request.app else {}))
        play = Play(endpoint=endpoint, scene=copied, cdk=cdk, found=found)
        for name, step in play.quick_steps() if request.quick else play.steps():
            say(f"  {name} ...")
            taken = _taken(name, step)
            found.steps.append(taken)
            say(f"  {name}: {'FAILED: ' if taken.failed else ''}{taken.found} ({taken.seconds:.1f} s)")
            if taken.failed:
                break
    return found


def _taken(name: str, step: Callable[[], str]) -> Step:
    started = time.monotonic()
    try:
        found, failed = step(), False
    except (*_EXPECTED, NotAsTold) as reason:
        found, failed = str(reason), True
    return Step(name=name, seconds=time.monotonic() - started, found=found, failed=failed)


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
        if reserved(self.scene.environment):
            yield "renew the reservation", self.renew
        yield "refuse to destroy what is protected", self.refuse
        yield "destroy", self.destroy
        yield "deploy again, adopting what was retained", self.adopt

    def start(self) -> str:
        self.endpoint.start()
        made = furnish(self.scene, self.endpoint.client)
        return f"{self.endpoint.url}{''.join(f', {item}' for item in made)}"

    def bootstrap(self) -> str:
        qualifier = self.scene.environment.bootstrap.qualifier
        self.cdk.bootstrap(qualifier)
        parameter = self.endpoint.client("ssm").get_parameter(Name=f"/cdk-bootstrap/{qualifier}/version")
        return f"version {parameter['Parameter']['Value']}, qualifier {qualifier}"

    def deploy(self) -> str:
        self.cdk.deploy()
        self.before = self._complete()
        return f"{len(self.before)} stacks: {', '.join(self.before)}"

    def hold(self) -> str:
        recorded = self.endpoint.recorded()
        self.found.resources = [item for name in self.before for item in hold(self.endpoint.client, name, recorded)]
        differing = [item for item in self.found.resources if item.differs]
        if differing:
            raise NotAsTold("\n".join(_difference(item) for item in differing))
        properties = sum(len(item.held) for item in self.found.resources)
        return f"{len(self.found.resources)} resources, {properties} properties as the templates say"

    def diff(self) -> str:
        self.cdk.diff()
        return "no change"

    def deploy_again(self) -> str:
        self.cdk.deploy()
        _demand(self._changed() == [], f"an unchanged deploy changed {self._changed()}")
        return "no stack was touched"

    def renew(self) -> str:
        reservation = self.scene.renew_reservation()
        self.cdk.deploy()
        fleet = names.stack(self.scene.environment, "Fleet")
        _demand(self._changed() == [fleet], f"a renewal must change {fleet} alone, it changed {self._changed()}")
        self.before = self._complete()
        _demand(reservation in self.before[fleet].template, f"{fleet} does not name {reservation}")
        self.hold()
        return f"{fleet} alone changed, and names {reservation}"

    def refuse(self) -> str:
        """The operator's first try, with both protections on; then the cluster alone, past CloudFormation."""
        if not self.scene.environment.termination_protection:
            return "this environment declares no termination protection"
        try:
            self.cdk.destroy()
        except CdkFailed:
            pass
        else:
            raise NotAsTold("protected stacks were destroyed")
        left = self._complete()
        _demand(left.keys() == self.before.keys(), f"left after a refused destroy: {list(left)}")
        return "termination protection held every stack"

    def destroy(self) -> str:
        self.scene.protect(on=False)
        self.cdk.deploy()
        self._bucket_put()
        self.cdk.destroy()
        left = deployed(self.endpoint, self.scene.name)
        _demand(not left, f"left after the destroy: {list(left)}")
        clusters = self.endpoint.client("eks").list_clusters()["clusters"]
        _demand(not clusters, f"clusters left after the destroy: {clusters}")
        _demand(self._bucket_kept(), "the bucket is gone or lost its object")
        return "protections lifted, every stack gone, the bucket and its object are still there"

    def adopt(self) -> str:
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
        raise NotAsTold(otherwise)


def _difference(item: Held) -> str:
    parts = (f"{part.property}: template {part.template!r}, described {part.described!r}" for part in item.differs)
    return f"{item.stack} {item.logical_id} ({item.type}): {'; '.join(parts)}"
