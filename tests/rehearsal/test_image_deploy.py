"""Registry and builds as synthesized, at the endpoint: the function runs, a build is played, a
failure is told."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import app
from rehearsal.aws.sandbox import FICTITIOUS_ACCOUNT
from tandem.cli.inputs import CommandInputs, read_legal_inputs
from tandem.cli.selection import Selection
from tandem.declarations import names
from tandem.declarations.environment import Environment
from tandem.declarations.project_image import TOOLS

pytestmark = [pytest.mark.cdk, pytest.mark.endpoint, pytest.mark.xdist_group("endpoint")]

ROOT = Path(__file__).parents[2]
MIRROR = "registry.invalid/public"  # a host that can never be found, as a mistyped mirror is


def read_example() -> CommandInputs:
    """Read the example of a trn2.3xlarge and what it hosts."""
    folders = {"environments": ROOT / "environments", "experiments": ROOT / "experiments"}
    return read_legal_inputs(Selection(**folders, names=("dev-trn2-3xlarge",)))


def place(name: str, **more: Any) -> Environment:
    inputs = read_example()
    (environment,) = inputs.environments()
    return environment.model_copy(
        update={"name": name, "account": FICTITIOUS_ACCOUNT, "region": "us-east-2", **more}
    )


WHOLE = place("whole")
BROKEN = place("broken", registry_mirrors={"public.ecr.aws": MIRROR})


@pytest.fixture(scope="module")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("image")
    inputs = read_example()
    hosts = [
        (
            environment,
            [inputs.workspace.experiments[name].record for name in environment.experiments],
        )
        for environment in (WHOLE, BROKEN)
    ]
    app.build_app(hosts, inputs.catalogue, outdir=str(folder), validate=False).synth()
    return folder


@pytest.fixture
def deploy_kind(endpoint, assembly, deploy) -> Callable[..., SimpleNamespace]:
    """Upload the assets as the CDK CLI does and create one stack; its status and the reasons of
    what failed."""

    def act(environment: Environment, kind: str) -> Any:
        folder = assembly / f"assembly-{environment.name}"
        (assets,) = folder.glob(f"*{kind}*.assets.json")
        _publish(endpoint, assembly, json.loads(assets.read_text())["files"])
        (file,) = folder.glob(f"*{kind}*.template.json")
        stack = deploy(json.loads(file.read_text()), names.stack_name(environment, kind))
        return SimpleNamespace(**{**vars(stack), "reasons": "\n".join(stack.reasons)})

    return act


@pytest.fixture
def deploy_image(deploy_kind, delete) -> Iterator[Callable[[Environment], SimpleNamespace]]:
    """Create the Registry of an environment, then the build of the tools image; the Registry is
    deleted at the end."""
    registries = []

    def act(environment: Environment) -> SimpleNamespace:
        registries.append(deploy_kind(environment, "Registry"))
        assert (registries[0].status, registries[0].reasons) == ("CREATE_COMPLETE", "")
        return deploy_kind(environment, "ImageTools")

    yield act
    for stack in registries:
        delete(stack)


def _publish(endpoint, assembly: Path, files: dict[str, Any]) -> None:
    endpoint.client("ssm").put_parameter(
        Name="/cdk-bootstrap/tandem/version", Value="33", Type="String", Overwrite=True
    )
    s3 = endpoint.client("s3")
    for asset in files.values():
        (target,) = asset["destinations"].values()
        if asset["source"]["packaging"] != "zip":
            continue
        if target["bucketName"] not in {row["Name"] for row in s3.list_buckets()["Buckets"]}:
            s3.create_bucket(
                Bucket=target["bucketName"],
                CreateBucketConfiguration={"LocationConstraint": "us-east-2"},
            )
        folder = assembly / Path(asset["source"]["path"]).name
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:
            for path in sorted(folder.rglob("*")):
                if path.is_file():
                    archive.write(path, path.relative_to(folder))
        s3.put_object(Bucket=target["bucketName"], Key=target["objectKey"], Body=content.getvalue())


def log_events(endpoint, text: str) -> list[str]:
    """Every line of the log that a message names."""
    group = text.partition("log group ")[2].partition(",")[0]
    stream = text.partition("stream ")[2].partition(":")[0]
    events = endpoint.client("logs").get_log_events(logGroupName=group, logStreamName=stream)[
        "events"
    ]
    return [event["message"] for event in events]


def test_a_deploy_ends_with_the_image_in_the_repository_and_every_resource_as_the_template_says(
    endpoint, deploy_image, check_resources, delete
) -> None:
    stack = deploy_image(WHOLE)
    assert (stack.status, stack.reasons) == ("CREATE_COMPLETE", "")

    images = endpoint.client("ecr").describe_images(
        repositoryName=names.repository_name(WHOLE, TOOLS.name)
    )["imageDetails"]
    items = check_resources(stack.name)
    delete(stack)

    assert [row["imageTags"] for row in images] == [[TOOLS.tag()]]
    assert {name: item.differences for name, item in items.items() if item.differences} == {}
    assert items["Image"].matching_properties == ("ServiceToken", "Project", "Repository", "Tag")


def test_a_failed_build_fails_the_deploy_with_the_phase_and_with_a_log_that_is_still_there(
    endpoint, deploy_image, delete
) -> None:
    stack = deploy_image(BROKEN)

    lines = log_events(endpoint, stack.reasons)
    delete(stack)

    assert stack.status == "ROLLBACK_COMPLETE"
    assert f"tandem-broken-tools:{TOOLS.tag()} is not in the repository" in stack.reasons
    assert "phase BUILD of the build ended FAILED" in stack.reasons
    assert "https://console.aws.amazon.com/cloudwatch/home?region=us-east-2#logsV2" in stack.reasons
    assert any("registry.invalid: no such host" in line for line in lines)
