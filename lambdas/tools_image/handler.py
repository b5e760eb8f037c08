"""Build of our images into their repositories: the function behind the custom resource of stacks/image.py.

Invariant: every event gets an answer, whatever happens, before this function's own time is over; otherwise
CloudFormation would wait in vain. Standard library and boto3 only, because Lambda's Python has no more.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import boto3
from botocore.config import Config

CLIENT_CONFIG = Config(connect_timeout=3, read_timeout=5, retries={"total_max_attempts": 3, "mode": "standard"})
MARGIN_S = (
    90.0  # kept for the answer: two more calls with their retries (27 s each), then every try of `send_response` (27 s)
)
FIRST_WAIT_S, MAX_WAIT_S = 2.0, 15.0
RESPONSE_ATTEMPTS, RESPONSE_TIMEOUT_S = 4, 5.0
MAX_REASON_CHARACTERS = 2000  # CloudFormation accepts 4096 bytes of answer in all


class ImageBuildError(RuntimeError):
    """The image is not in the repository; the message is the reason that CloudFormation shows."""


def handler(event: dict[str, Any], context: Any) -> None:
    """Answer one event of CloudFormation: a create or update ends with the image in place, a delete does nothing."""
    reason = ""
    try:
        if event["RequestType"] != "Delete":
            ensure_image(
                event["ResourceProperties"], event["RequestId"],
                lambda: context.get_remaining_time_in_millis() / 1000 - MARGIN_S,
            )  # fmt: skip
    except ImageBuildError as build_error:
        reason = str(build_error)
    except Exception as error:  # noqa: BLE001  # whatever it is, CloudFormation must hear of it
        reason = (
            f"{type(error).__name__}: {error}; the function's log: group {context.log_group_name}, "
            f"stream {context.log_stream_name}"
        )
    print(reason or f"{event['RequestType']}: done")
    send_response(event, reason)


def ensure_image(properties: dict[str, str], token: str, remaining_s: Callable[[], float]) -> None:
    """Return once the repository has the tag; build the image if the tag is missing.

    Args:
        properties: Project, Repository and Tag.
        token: makes two deliveries of one event one build.
        remaining_s: returns the seconds left.

    Raises:
        ImageBuildError: the repository does not have the tag; the message says why.
    """
    ecr, codebuild = boto3.client("ecr", config=CLIENT_CONFIG), boto3.client("codebuild", config=CLIENT_CONFIG)
    repository, tag = properties["Repository"], properties["Tag"]
    if _has_image(ecr, repository, tag):
        return
    build = codebuild.start_build(projectName=properties["Project"], idempotencyToken=token)["build"]
    wait_s = FIRST_WAIT_S
    while build["buildStatus"] == "IN_PROGRESS" and remaining_s() > wait_s:
        time.sleep(wait_s)
        wait_s = min(wait_s * 1.5, MAX_WAIT_S)
        (build,) = codebuild.batch_get_builds(ids=[build["id"]])["builds"]
    if not _has_image(ecr, repository, tag):  # a failed build may have lost a race against another push of the tag
        logs = build.get("logs", {})  # the log outlives the rollback of a failed deploy
        log = f"log group {logs.get('groupName')}, stream {logs.get('streamName')}: {logs.get('deepLink', 'no link')}"
        outcome = f"{_describe_outcome(build)}. Build {build['id']}, {log}"
        raise ImageBuildError(f"{repository}:{tag} is not in the repository: {outcome}")


def _has_image(ecr: Any, repository: str, tag: str) -> bool:
    try:
        ecr.describe_images(repositoryName=repository, imageIds=[{"imageTag": tag}])
    except ecr.exceptions.ImageNotFoundException:
        return False
    return True


def _describe_outcome(build: dict[str, Any]) -> str:
    """Return how the build ended: its failed phase with CodeBuild's message."""
    status = build["buildStatus"]
    if status == "IN_PROGRESS":
        return f"the build is still in phase {build['currentPhase']} and no time is left to wait; deploy again later"
    for phase in build.get("phases", []):
        if phase.get("phaseStatus", "SUCCEEDED") not in {"SUCCEEDED", "IN_PROGRESS", "QUEUED"}:
            message = "; ".join(context["message"] for context in phase.get("contexts", []) if context.get("message"))
            return f"phase {phase['phaseType']} of the build ended {phase['phaseStatus']}{message and f' ({message})'}"
    return f"the build ended {status} and pushed nothing"


def send_response(event: dict[str, Any], reason: str) -> None:
    """Send the outcome to CloudFormation; a reason means that it failed.

    Raises:
        OSError: every try failed.
    """
    body = json.dumps({
        "Status": "FAILED" if reason else "SUCCESS",
        "Reason": reason.encode("ascii", "replace").decode()[:MAX_REASON_CHARACTERS],
        "PhysicalResourceId": event.get("PhysicalResourceId") or event["LogicalResourceId"],
        **{name: event[name] for name in ("StackId", "RequestId", "LogicalResourceId")},
    }).encode()  # fmt: skip
    # the URL is signed for an empty content type
    request = urllib.request.Request(event["ResponseURL"], body, {"Content-Type": ""}, method="PUT")  # noqa: S310
    for attempt in range(1, RESPONSE_ATTEMPTS + 1):
        try:
            urllib.request.urlopen(request, timeout=RESPONSE_TIMEOUT_S).close()  # noqa: S310  # CloudFormation's own URL
        except OSError as error:
            print(f"answer {attempt} of {RESPONSE_ATTEMPTS}: {error}")
            if attempt == RESPONSE_ATTEMPTS:
                raise
            time.sleep(2 ** (attempt - 1))
        else:
            return
