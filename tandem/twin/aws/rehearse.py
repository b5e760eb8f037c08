"""Rehearses an environment's whole life with the real CDK CLI against the local endpoint.

bootstrap, deploy, hold every resource, diff, deploy again, renew the reservation, destroy with the bucket retained,
deploy again adopting the bucket. Each step proves its own effect by asking the services, never the CLI's words.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from botocore.exceptions import BotoCoreError, ClientError

from tandem.twin.aws.cdk import Cdk, CdkError
from tandem.twin.aws.endpoint import Endpoint
from tandem.twin.aws.fidelity import UnknownTypeError
from tandem.twin.aws.installation import EndpointError
from tandem.twin.aws.play import Play, Rehearsal, Step, UnfulfilledError
from tandem.twin.aws.resolve import UnresolvedError
from tandem.twin.aws.scene import ACCOUNT, scene

# What a step may meet: a refusal, an effect that is not there, an endpoint that went away. All else is our own fault.
_EXPECTED = (
    BotoCoreError, CdkError, ClientError, EndpointError, OSError, UnfulfilledError, UnknownTypeError, UnresolvedError,
)  # fmt: skip


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
        reservation = copied.environment.capacity.reservation_id
        made_up = f"account {ACCOUNT}" + (f" and reservation {reservation}" if reservation else "")
        say(f"rehearsing a copy of {request.name} in {region} on a local endpoint, with the made-up {made_up}")
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
    except _EXPECTED as reason:
        found, failed = str(reason), True
    return Step(name=name, seconds=time.monotonic() - started, found=found, failed=failed)
