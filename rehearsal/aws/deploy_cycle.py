"""Rehearses an environment's whole life with the real CDK CLI against the local endpoint.

bootstrap, deploy, check every resource, diff, deploy again, renew the reservation, destroy with the
bucket retained, deploy again adopting the bucket. Each step proves its effect by queries to the
services, never by the CLI's words.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from botocore.exceptions import BotoCoreError, ClientError

from rehearsal.aws.cdk_cli import CdkCli, CdkError
from rehearsal.aws.endpoint import AwsEndpoint
from rehearsal.aws.fidelity import UnknownTypeError
from rehearsal.aws.installation import EndpointError
from rehearsal.aws.intrinsic_functions import UnknownExpressionError
from rehearsal.aws.rehearsal_steps import (
    MissingEffectError,
    RehearsalResult,
    RehearsalSteps,
    StepResult,
)
from rehearsal.aws.sandbox import FICTITIOUS_ACCOUNT, create_sandbox

# Expected failures of a step: a refusal, a missing effect, an endpoint that went away. All others
# are our own fault.
_STEP_ERRORS = (
    BotoCoreError,
    CdkError,
    ClientError,
    EndpointError,
    OSError,
    MissingEffectError,
    UnknownTypeError,
    UnknownExpressionError,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RehearsalRequest:
    """A request for a rehearsal.

    Args:
        is_quick: only bootstrap, deploy and check.
    """

    name: str
    environments: Path
    experiments: Path
    is_quick: bool = False
    app_command: str | None = None


def run_rehearsal(request: RehearsalRequest, report: Callable[[str], None]) -> RehearsalResult:
    """Take every step until one fails.

    Raises:
        SpecError: the environment is not there or refused.
    """
    with ExitStack() as stack:
        work_folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="tandem-rehearsal-"))
        )
        sandbox = create_sandbox(
            request.name, request.environments, request.experiments, work_folder
        )
        region = sandbox.environment.region
        result = RehearsalResult(
            environment=request.name, account=FICTITIOUS_ACCOUNT, region=region
        )
        reservation = sandbox.environment.capacity.reservation_id
        fictitious_ids = f"account {FICTITIOUS_ACCOUNT}" + (
            f" and reservation {reservation}" if reservation else ""
        )
        report(
            f"rehearsing a copy of {request.name} in {region} on a local endpoint, with the made-up"
            f" {fictitious_ids}"
        )
        endpoint = AwsEndpoint(account=FICTITIOUS_ACCOUNT, region=region, report=report)
        stack.callback(endpoint.stop)
        cdk = CdkCli(
            endpoint=endpoint,
            sandbox=sandbox,
            work_folder=work_folder,
            **({"app_command": request.app_command} if request.app_command else {}),
        )
        steps = RehearsalSteps(endpoint=endpoint, sandbox=sandbox, cdk=cdk, result=result)
        for name, action in steps.quick_steps() if request.is_quick else steps.steps():
            report(f"  {name} ...")
            step_result = _run_step(name, action)
            result.steps.append(step_result)
            report(
                f"  {name}: {'FAILED: ' if step_result.is_failure else ''}{step_result.outcome} "
                f"({step_result.seconds:.1f} s)"
            )
            if step_result.is_failure:
                break
    return result


def _run_step(name: str, action: Callable[[], str]) -> StepResult:
    start_s = time.monotonic()
    try:
        outcome = action()
        is_failure = False
    except _STEP_ERRORS as error:
        outcome = str(error)
        is_failure = True
    return StepResult(
        name=name, seconds=time.monotonic() - start_s, outcome=outcome, is_failure=is_failure
    )
