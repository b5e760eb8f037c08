"""Played builds and a repository's refusals, beyond plain MiniStack; test_rehearsal.py has whole
deploys."""

from __future__ import annotations

import io
import time
import zipfile

import pytest

from rehearsal.aws.build_behavior import BuildBehavior

pytestmark = [pytest.mark.endpoint, pytest.mark.xdist_group("endpoint")]

SPEC = (
    "version: 0.2\nphases: {build: {commands: [docker push"
    " 222233334444.dkr.ecr.us-east-2.amazonaws.com/played:1]}}"
)
PROJECT = {
    "name": "played",
    "serviceRole": "arn:aws:iam::222233334444:role/r",
    "artifacts": {"type": "NO_ARTIFACTS"},
    "source": {"type": "S3", "location": "played-source/source.zip", "buildspec": SPEC},
    "environment": {"type": "LINUX_CONTAINER", "image": "i", "computeType": "BUILD_GENERAL1_SMALL"},
}
BROKEN_GROUP = "builds/broken"


@pytest.fixture(scope="module")
def project(endpoint):
    """A project whose builds push one tag, with its source, repository and log group."""
    source = io.BytesIO()
    with zipfile.ZipFile(source, "w") as archive:
        archive.writestr("Dockerfile", "FROM base\n")
    s3 = endpoint.client("s3")
    s3.create_bucket(
        Bucket="played-source", CreateBucketConfiguration={"LocationConstraint": "us-east-2"}
    )
    s3.put_object(Bucket="played-source", Key="source.zip", Body=source.getvalue())
    endpoint.client("ecr").create_repository(
        repositoryName="played", imageTagMutability="IMMUTABLE"
    )
    for group in ("/aws/codebuild/played", BROKEN_GROUP):
        endpoint.client("logs").create_log_group(logGroupName=group)
    endpoint.client("codebuild").create_project(**PROJECT)
    return endpoint.client("codebuild")


def wait_for_end(project, ids):
    """Wait until none of the builds runs any more."""
    deadline = time.monotonic() + 20
    while ids and time.monotonic() < deadline:
        builds = project.batch_get_builds(ids=ids)["builds"]
        ids = [build["id"] for build in builds if build["buildStatus"] == "IN_PROGRESS"]
        time.sleep(0.05)
    assert ids == []


@pytest.fixture
def start_build(project):
    """Start a build and wait for its end."""

    def act(**more):
        ids = [project.start_build(projectName="played", **more)["build"]["id"]]
        wait_for_end(project, ids)
        return project.batch_get_builds(ids=ids)["builds"][0]

    return act


def test_a_tag_is_pushed_once(endpoint, start_build):
    # of another test
    endpoint.client("ecr").batch_delete_image(repositoryName="played", imageIds=[{"imageTag": "1"}])
    first = start_build()
    second = start_build()

    (failure,) = [phase for phase in second["phases"] if phase["phaseStatus"] == "FAILED"]
    assert (first["buildStatus"], second["buildStatus"]) == ("SUCCEEDED", "FAILED")
    assert "The image tag '1' already exists" in failure["contexts"][0]["message"]


def test_two_starts_with_one_token_are_one_build(start_build):
    assert start_build(idempotencyToken="t")["id"] == start_build(idempotencyToken="t")["id"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("--build-arg BASE_IMAGE=registry.invalid/base --file Dockerfile", "no such host"),
        ("--file Containerfile", "open Containerfile: no such file"),
    ],
)
def test_a_build_that_cannot_be_names_its_phase_in_its_log(endpoint, project, options, reason):
    spec = f"phases: {{build: {{commands: [docker build {options} .]}}}}"
    source = {**PROJECT["source"], "buildspec": spec}
    logs_config = {"cloudWatchLogs": {"status": "ENABLED", "groupName": BROKEN_GROUP}}
    broken = {**PROJECT, "name": "broken", "source": source, "logsConfig": logs_config}
    project.create_project(**broken)
    build = project.start_build(projectName="broken")["build"]
    wait_for_end(project, [build["id"]])

    logs = project.batch_get_builds(ids=[build["id"]])["builds"][0]["logs"]
    events = endpoint.client("logs").get_log_events(
        logGroupName=BROKEN_GROUP, logStreamName=logs["streamName"]
    )["events"]
    project.delete_project(name="broken")

    assert any(reason in event["message"] for event in events)


@pytest.mark.parametrize(
    ("behavior", "most"),
    [(None, 1), (BuildBehavior(most=2, duration_s=1), 2), (BuildBehavior(most=0), 0)],
    ids=["as a new account", "two", "none"],
)
def test_account_runs_no_more_builds_at_once_than_its_quota(
    endpoint, project, refusal, behavior, most
):
    endpoint.set_builds(behavior or BuildBehavior(duration_s=1))
    builds = [project.start_build(projectName="played")["build"]["id"] for _ in range(most)]
    code = refusal(project.start_build, projectName="played")
    endpoint.set_builds()
    wait_for_end(project, builds)

    assert code == "AccountLimitExceededException"
