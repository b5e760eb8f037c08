"""The bucket, the images and charts, the token."""

from __future__ import annotations

import json
import shlex

import pytest
from doctor_world import ACCOUNT, DIGEST, REGION, World
from doubles.fault_proxy.rules import ACCESS_DENIED_FAULT, FaultRule

from tandem.ops.doctor.context import MissingImageError, RegistryError
from tandem.spec import names
from tandem.spec.environment import HubSettings
from tandem.spec.project_image import PROJECT_IMAGES

GATED = ("qwen3-native", "llama-eagle3")


def make_bucket(world: World, name: str, account: str = ACCOUNT) -> None:
    world.endpoint.account, mine = account, world.endpoint.account
    try:
        world.endpoint.client("s3").create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
    finally:
        world.endpoint.account = mine


def test_a_name_that_nobody_has_is_free(world: World) -> None:
    assert world.levels("bucket") == ["ok", "ok"]


def test_a_bucket_of_an_earlier_deploy_is_to_be_adopted(world: World) -> None:
    make_bucket(world, names.bucket_name(world.environment))

    first, _ = world.lines("bucket")

    assert first.level == "warn"
    assert first.command.endswith("--import-existing-resources")


def test_a_bucket_of_the_deployed_stack_is_ours(world: World) -> None:
    make_bucket(world, names.bucket_name(world.environment))
    template = {"Resources": {"P": {"Type": "AWS::SSM::Parameter", "Properties": {"Type": "String", "Value": "v"}}}}
    world.endpoint.client("cloudformation").create_stack(
        StackName=f"{world.environment.name}-Artifacts", TemplateBody=json.dumps(template)
    )

    assert world.lines("bucket")[0].said == f"{names.bucket_name(world.environment)} is ours"


def test_a_bucket_of_somebody_else_is_bad_input(world: World) -> None:
    make_bucket(world, names.bucket_name(world.environment), "333344445555")

    first, _ = world.lines("bucket")

    assert (first.level, first.code) == ("fail", 2)
    assert "somebody else's" in first.said


def test_a_bucket_of_ours_that_may_not_be_seen_is_unknown(world: World) -> None:
    make_bucket(world, names.bucket_name(world.environment))
    world.proxy.use(FaultRule(operation="HeadBucket", fault=ACCESS_DENIED_FAULT))

    first, _ = world.lines("bucket")

    assert (first.level, first.code) == ("unknown", 3)
    assert "add s3:ListBucket on" in first.do


@pytest.mark.parametrize("status", [200, 301])
def test_a_bucket_in_another_region_is_bad_input(world: World, status: int) -> None:
    world.facts.buckets[names.bucket_name(world.environment)] = (status, "eu-west-1")

    first, _ = world.lines("bucket")

    assert (first.level, first.code) == ("fail", 2)
    assert "the environment in us-east-2" in first.said


def test_a_declared_bucket_that_is_not_there_is_bad_input(world: World) -> None:
    world.change(artifacts={"existing_bucket": f"{world.environment.name}-mine"})

    line = world.only("bucket")

    assert (line.level, line.code) == ("fail", 2)


def test_a_declared_bucket_that_is_there_is_ours(world: World) -> None:
    world.change(artifacts={"existing_bucket": f"{world.environment.name}-mine"})
    make_bucket(world, f"{world.environment.name}-mine")

    assert world.levels("bucket") == ["ok"]


def test_images_that_their_registry_has_are_ok(world: World) -> None:
    assert "fail" not in world.levels("images")


def test_what_is_pinned_is_asked_for_by_its_digest(world: World) -> None:
    asked: list[str] = []
    world.digest_of = lambda reference: asked.append(reference) or DIGEST

    world.lines("images")

    assert [reference for reference in asked if "@sha256:" in reference]


def test_an_image_that_its_registry_has_not_is_bad_input(world: World) -> None:
    def missing(reference: str) -> str:
        raise MissingImageError(f"{reference}: not there")

    world.digest_of = missing

    assert {line.code for line in world.lines("images") if line.level == "fail"} == {2}


def test_a_registry_that_does_not_answer_is_asked_once_and_unknown(world: World) -> None:
    asked: list[str] = []

    def silent(reference: str) -> str:
        asked.append(reference.partition("/")[0])
        raise RegistryError(f"{reference}: no route")

    world.digest_of = silent

    levels = world.levels("images")

    assert len(asked) == len(set(asked))
    assert levels.count("unknown") == 1


def mirrored(world: World) -> str:
    """Have all public images come from the account's own registry."""
    host = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/{world.environment.name}"
    world.change(registry_mirrors={"public.ecr.aws": host, "docker.io": host})
    return host


def test_an_image_that_the_mirror_lacks_is_bad_input(world: World) -> None:
    mirrored(world)

    lines = [line for line in world.lines("images") if line.level == "fail"]

    assert lines
    assert {line.code for line in lines} == {2}
    assert all(line.command.startswith("docker buildx imagetools create --tag") for line in lines)


def test_an_image_that_a_cache_will_fetch_is_a_warning(world: World) -> None:
    mirrored(world)
    world.facts.cache_rules = [world.environment.name]

    assert "fail" not in world.levels("images")
    assert any("not cached yet" in line.said for line in world.lines("images"))


def test_images_of_ours_before_the_first_deploy_are_a_warning(world: World) -> None:
    assert world.levels("own-images") == ["warn", "warn"]


def test_an_image_of_another_checkout_names_the_build(world: World) -> None:
    for image in PROJECT_IMAGES:
        world.endpoint.client("ecr").create_repository(
            repositoryName=names.repository_name(world.environment, image.name)
        )

    line, _ = world.lines("own-images")

    assert line.level == "warn"
    assert line.command.startswith(f"aws codebuild start-build --project-name tandem-{world.environment.name}-tools")


def test_the_image_of_this_checkout_is_ok(world: World) -> None:
    ecr = world.endpoint.client("ecr")
    for image in PROJECT_IMAGES:
        repository = names.repository_name(world.environment, image.name)
        ecr.create_repository(repositoryName=repository)
        manifest = json.dumps({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json"})
        ecr.put_image(repositoryName=repository, imageManifest=manifest, imageTag=image.tag())

    assert world.levels("own-images") == ["ok", "ok"]


def test_without_a_gated_model_no_secret_is_asked_for(world: World) -> None:
    world.lines("token")

    assert "DescribeSecret" not in {one.operation for one in world.proxy.log}


def test_a_gated_model_without_a_declared_secret_is_bad_input(world: World) -> None:
    world.change(experiments=GATED, hub=HubSettings())

    line = world.only("token")

    assert (line.level, line.code) == ("fail", 2)


def test_a_gated_model_whose_secret_is_missing_is_bad_input(world: World) -> None:
    world.change(experiments=GATED, hub=HubSettings(token_secret=f"{world.environment.name}/token"))

    line = world.only("token")

    assert (line.level, line.code) == ("fail", 2)
    assert line.command.startswith("aws secretsmanager create-secret")


def test_a_secret_that_is_there_is_ok_and_its_value_stays_unread(world: World) -> None:
    name = f"{world.environment.name}/token"
    world.change(experiments=GATED, hub=HubSettings(token_secret=name))
    world.endpoint.client("secretsmanager").create_secret(Name=name, SecretString="a-token")

    line = world.only("token")

    assert line.level == "ok"
    assert "GetSecretValue" not in {one.operation for one in world.proxy.log}


def test_a_secret_that_is_being_deleted_fails(world: World) -> None:
    name = f"{world.environment.name}/token"
    world.change(experiments=GATED, hub=HubSettings(token_secret=name))
    secrets = world.endpoint.client("secretsmanager")
    secrets.create_secret(Name=name, SecretString="a-token")
    secrets.delete_secret(SecretId=name)

    assert world.only("token").command.startswith("aws secretsmanager restore-secret")


def test_an_empty_secret_fails(world: World) -> None:
    name = f"{world.environment.name}/token"
    world.change(experiments=GATED, hub=HubSettings(token_secret=name))
    world.facts.secrets[name] = {"Name": name}

    assert world.only("token").command.startswith("aws secretsmanager put-secret-value")


@pytest.mark.parametrize("name", ["a; curl evil", "$(id)", "`id`", "it's", 'a "b"'])
def test_a_hostile_name_of_a_secret_is_one_word_of_the_command(world: World, name: str) -> None:
    world.change(hub=HubSettings.model_construct(token_secret=name))

    line = next(line for line in world.lines("token") if line.command)

    assert shlex.split(line.command)[-4:] == ["--name", name, "--secret-string", "file://token"]


def test_without_a_key_of_its_own_the_bucket_needs_none(world: World) -> None:
    assert world.levels("bucket-key") == ["ok"]
    assert world.proxy.requests("DescribeKey") == ()


@pytest.mark.parametrize(("enabled", "level"), [(True, "ok"), (False, "fail")])
def test_a_key_that_is_not_enabled_opens_nothing(world: World, level: str, *, enabled: bool) -> None:
    kms = world.endpoint.client("kms")
    arn = kms.create_key()["KeyMetadata"]["Arn"]
    if not enabled:
        kms.disable_key(KeyId=arn)
    world.change(artifacts={"kms_key_arn": arn})

    assert world.levels("bucket-key") == [level]


def test_a_key_that_does_not_exist_is_bad_input(world: World) -> None:
    world.change(artifacts={"kms_key_arn": f"arn:aws:kms:{REGION}:{ACCOUNT}:key/01234567-89ab-cdef-0123-456789abcdef"})

    line = world.only("bucket-key")

    assert (line.level, line.code) == ("fail", 2)
