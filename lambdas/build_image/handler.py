"""Build of our images into their repositories: the function behind stacks/image.py's resources.

Invariant: every event gets an answer, whatever happens, before CloudFormation's own wait for it is
over. A build may last longer than one call of a function: then this function calls itself with the
event and what it has begun. Standard library and boto3 only, because Lambda's Python has no more.
"""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import boto3
from botocore.config import Config

CLIENT_CONFIG = Config(
    connect_timeout=3, read_timeout=5, retries={"total_max_attempts": 3, "mode": "standard"}
)
# Kept of each call, for three more calls of AWS with their retries (27 s each), and then for every
# try of `send_response` (27 s).
MARGIN_S = 120.0
# Counted from the first call. The answer then comes before CloudFormation's own wait is over
# (stacks/image.py, SERVICE_TIMEOUT_S).
WAIT_S = 3300.0
FIRST_WAIT_S = 2.0
MAX_WAIT_S = 15.0
RESPONSE_ATTEMPTS = 4
RESPONSE_TIMEOUT_S = 5.0
MAX_REASON_CHARACTERS = 2000  # CloudFormation accepts 4096 bytes of answer in all
LIMIT_CODE = "AccountLimitExceededException"
# CodeBuild's words for an account that may run no build, so none ever ends and makes room
NO_BUILD_AT_ALL = re.compile(r"more than 0 ")
Event = dict[str, Any]


class ImageBuildError(RuntimeError):
    """The image is not in the repository; the message is the reason that CloudFormation shows."""


def handler(event: Event, context: Any) -> None:
    """Carry on a CloudFormation event: create or update ends with the image, delete is a no-op."""
    reason = ""
    try:
        if event["RequestType"] != "Delete":
            event.setdefault("Until", time.time() + WAIT_S)
            is_there = ensure_image(
                event, lambda: context.get_remaining_time_in_millis() / 1000 - MARGIN_S
            )
            if not is_there:
                _call_again(event, context)
                return
    except ImageBuildError as build_error:
        reason = str(build_error)
    except Exception as error:  # noqa: BLE001  # whatever it is, CloudFormation must hear of it
        reason = (
            f"{type(error).__name__}: {error}; the function's log:"
            f" group {context.log_group_name}, stream {context.log_stream_name}"
        )
    print(reason or f"{event['RequestType']}: done")
    send_response(event, reason)


def _call_again(event: Event, context: Any) -> None:
    """Have another call of this function carry the event on."""
    print(f"{event['RequestType']}: goes on in another call")
    payload = json.dumps(event).encode()
    client = boto3.client("lambda", config=CLIENT_CONFIG)
    client.invoke(
        FunctionName=context.invoked_function_arn, InvocationType="Event", Payload=payload
    )


def ensure_image(event: Event, remaining_s: Callable[[], float]) -> bool:
    """Return True once the repository has the tag; build the image if the tag is missing.

    Args:
        event: with Project, Repository and Tag, and the time Until which to wait. The id of a build
            that was started is written into it.
        remaining_s: returns the seconds left to this call.

    Returns:
        False if this call's time is over, and the build, or the wait for its turn, is not.

    Raises:
        ImageBuildError: the repository does not have the tag, and will not; the message says why.
    """
    ecr = boto3.client("ecr", config=CLIENT_CONFIG)
    codebuild = boto3.client("codebuild", config=CLIENT_CONFIG)
    properties = event["ResourceProperties"]
    name = f"{properties['Repository']}:{properties['Tag']}"
    if _has_image(ecr, properties):
        return True
    wait_s = FIRST_WAIT_S
    while True:
        build, limit = _advance_build(codebuild, event)
        if build and build["buildStatus"] != "IN_PROGRESS":
            # a failed build may have lost a race against another push of the tag
            if _has_image(ecr, properties):
                return True
            raise ImageBuildError(f"{name} is not in the repository: {_describe_outcome(build)}")
        is_call_over = remaining_s() <= wait_s
        if time.time() + wait_s >= event["Until"] or (
            is_call_over and NO_BUILD_AT_ALL.search(limit)
        ):
            outcome = _describe_outcome(build) if build else _describe_limit(limit)
            raise ImageBuildError(f"{name} is not in the repository: {outcome}")
        if is_call_over:
            return False
        time.sleep(wait_s)
        wait_s = min(wait_s * 1.5, MAX_WAIT_S)


def _advance_build(codebuild: Any, event: Event) -> tuple[dict[str, Any] | None, str]:
    """Return the event's build, and why it waits; start the build if that was not done.

    Returns:
        The build and "", or None and CodeBuild's message, if the account runs as many builds as it
        may.
    """
    if "Build" in event:
        (build,) = codebuild.batch_get_builds(ids=[event["Build"]])["builds"]
        return build, ""
    project = event["ResourceProperties"]["Project"]
    try:
        # the token makes two deliveries of one event one build
        answer = codebuild.start_build(projectName=project, idempotencyToken=event["RequestId"])
    except codebuild.exceptions.AccountLimitExceededException as error:
        limit = str(error.response["Error"].get("Message", error))
        print(f"{LIMIT_CODE}: {limit}")
        return None, limit
    event["Build"] = answer["build"]["id"]
    return answer["build"], ""


def _has_image(ecr: Any, properties: dict[str, str]) -> bool:
    try:
        ecr.describe_images(
            repositoryName=properties["Repository"], imageIds=[{"imageTag": properties["Tag"]}]
        )
    except ecr.exceptions.ImageNotFoundException:
        return False
    return True


def _describe_limit(limit: str) -> str:
    """Return why no build was started, and what raises the account's limit."""
    return (
        f"{LIMIT_CODE}: {limit}. Ask AWS for a higher CodeBuild quota"
        " 'Concurrently running builds for Linux/Small environment',"
        " or push the image by hand (docs/image.md); then deploy again"
    )


def _describe_outcome(build: dict[str, Any]) -> str:
    """Return how the build ended, its failed phase with CodeBuild's message, and its log."""
    logs = build.get("logs", {})  # the log outlives the rollback of a failed deploy
    log = (
        f"log group {logs.get('groupName')}, stream {logs.get('streamName')}:"
        f" {logs.get('deepLink', 'no link')}"
    )
    return f"{_describe_end(build)}. Build {build['id']}, {log}"


def _describe_end(build: dict[str, Any]) -> str:
    status = build["buildStatus"]
    if status == "IN_PROGRESS":
        return (
            f"the build is still in phase {build['currentPhase']} and no time is left to wait;"
            " deploy again later"
        )
    for phase in build.get("phases", []):
        if phase.get("phaseStatus", "SUCCEEDED") not in {"SUCCEEDED", "IN_PROGRESS", "QUEUED"}:
            message = "; ".join(
                context["message"]
                for context in phase.get("contexts", [])
                if context.get("message")
            )
            reason = f" ({message})" if message else ""
            return f"phase {phase['phaseType']} of the build ended {phase['phaseStatus']}{reason}"
    return f"the build ended {status} and pushed nothing"


def send_response(event: dict[str, Any], reason: str) -> None:
    """Send the outcome to CloudFormation; a reason means that it failed.

    Raises:
        OSError: every try failed.
    """
    body = json.dumps(
        {
            "Status": "FAILED" if reason else "SUCCESS",
            "Reason": reason.encode("ascii", "replace").decode()[:MAX_REASON_CHARACTERS],
            "PhysicalResourceId": event.get("PhysicalResourceId") or event["LogicalResourceId"],
            **{name: event[name] for name in ("StackId", "RequestId", "LogicalResourceId")},
        }
    ).encode()
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
