"""Group artifacts: the bucket, the images and charts, the token for gated models."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tandem.errors import TandemError
from tandem.ops.doctor.account import AllowlistedAccount
from tandem.ops.doctor.check_result import (
    CheckFinding,
    fail_finding,
    ok_finding,
    unknown_finding,
    warn_finding,
)
from tandem.ops.doctor.context import DoctorContext, MissingImageError, RegistryError
from tandem.ops.faults import AccessDeniedError, error_code
from tandem.shell_command import build_cdk_command, quote_command
from tandem.spec import names
from tandem.spec.images import ImageUse, list_image_uses
from tandem.spec.project_image import PROJECT_IMAGES, registry_host

NO_BUCKET_CODES = {"404", "NoSuchBucket"}
REDIRECT_CODES = {"301", "PermanentRedirect", "AuthorizationHeaderMalformed"}
NO_REPOSITORY_CODES, NO_IMAGE_CODES = {"RepositoryNotFoundException"}, {"ImageNotFoundException"}
NO_SECRET_CODES = {"ResourceNotFoundException"}
_ECR_REFERENCE = re.compile(
    r"^(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(\.cn)?/(?P<rest>.+)$"
)


def check_bucket(context: DoctorContext, account: AllowlistedAccount) -> Iterator[CheckFinding]:
    """Tell a bucket's name that is free from one that is ours and one that is somebody else's."""
    environment = context.environment
    yield from _judge_bucket(context, account, names.bucket_name(environment))
    if environment.artifacts.existing_bucket is None:
        yield from _judge_bucket(context, account, names.log_bucket_name(environment))


def check_bucket_key(context: DoctorContext, account: AllowlistedAccount) -> Iterator[CheckFinding]:
    """See that the bucket's customer key is there and may be used; without one S3's own keys need nobody's right."""
    key = context.environment.artifacts.kms_key_arn
    if key is None:
        yield ok_finding("S3's own keys encrypt the bucket")
        return
    command = quote_command("aws", "kms", "describe-key", "--key-id", key)
    answer = account.ask("kms", "DescribeKey", key, absent={"NotFoundException"}, KeyId=key)
    if answer is None:
        yield fail_finding(f"there is no key {key}", "correct artifacts.kms_key_arn", command)
        return
    state = answer["KeyMetadata"]["KeyState"]
    if state != "Enabled":
        yield fail_finding(
            f"the bucket's key is {state}: nobody reads or writes an object under it", "enable it", command
        )
        return
    yield ok_finding(
        "the bucket's key is enabled; that its policy admits this account's roles is its owner's to see to"
    )


def _judge_bucket(context: DoctorContext, account: AllowlistedAccount, name: str) -> Iterator[CheckFinding]:
    environment = context.environment
    try:
        response = account.ask(
            "s3",
            "HeadBucket",
            f"s3://{name}",
            absent=NO_BUCKET_CODES,
            Bucket=name,
            ExpectedBucketOwner=environment.account,
        )
    except AccessDeniedError as error:
        yield _judge_denied_bucket(account, name, error)
        return
    except TandemError as error:
        if error_code(error.__cause__) not in REDIRECT_CODES:
            raise
        yield _build_region_finding(context, name, "another region")
        return
    bucket_region = (response or {}).get("BucketRegion", environment.region)
    if response is None:
        yield _judge_missing_bucket(context, name)
    elif bucket_region != environment.region:
        yield _build_region_finding(context, name, bucket_region)
    elif environment.artifacts.existing_bucket is None and not _has_artifacts_stack(context, account):
        yield warn_finding(
            f"{name} is there already, of an earlier deploy", "adopt it with the first deploy",
            build_cdk_command("deploy", environment.name, "*", "--import-existing-resources"),
        )  # fmt: skip
    else:
        yield ok_finding(f"{name} is ours")


def _judge_missing_bucket(context: DoctorContext, name: str) -> CheckFinding:
    if context.environment.artifacts.existing_bucket is None:
        return ok_finding(f"{name} is free, or not made yet")
    return fail_finding(f"there is no bucket {name}", "make it, or correct artifacts.existing_bucket",
                quote_command("aws", "s3api", "head-bucket", "--bucket", name))  # fmt: skip


def _build_region_finding(context: DoctorContext, name: str, region: str) -> CheckFinding:
    field_name = (
        "artifacts.existing_bucket" if context.environment.artifacts.existing_bucket else "the environment's name"
    )
    return fail_finding(
        f"{name} lies in {region}, the environment in {context.environment.region}",
        f"change {field_name}",
        quote_command("aws", "s3api", "get-bucket-location", "--bucket", name),
    )


def _judge_denied_bucket(account: AllowlistedAccount, name: str, error: AccessDeniedError) -> CheckFinding:
    """Tell somebody else's bucket from one of ours that may not be seen: S3 answers 403 for both."""
    rows = account.list_rows("s3", "ListBuckets", "Buckets", f"s3://{name}", Prefix=name)
    if any(row["Name"] == name for row in rows):
        return unknown_finding(f"{name} is ours, but may not be looked at ({error.problem})", error.change)
    return fail_finding(f"{name} is somebody else's: names of buckets are taken world-wide",
                "rename the environment, or name a bucket of yours in artifacts.existing_bucket",
                quote_command("aws", "s3api", "list-buckets", "--prefix", name))  # fmt: skip


def _has_artifacts_stack(context: DoctorContext, account: AllowlistedAccount) -> bool:
    """Whether the stack that makes the bucket is there."""
    stack = names.stack_name(context.environment, "Artifacts")
    return (
        account.ask("cloudformation", "DescribeStacks", stack, absent={"ValidationError"}, StackName=stack) is not None
    )


def check_images(context: DoctorContext, account: AllowlistedAccount) -> Iterator[CheckFinding]:
    """See that every image and chart can be had where it will be pulled from, as this machine reaches it."""
    environment = context.environment
    uses = list_image_uses(environment, context.experiments, context.catalogue)
    registry_errors: dict[str, str] = {}  # a registry that did not answer is asked once
    unchecked_uses: dict[str, list[ImageUse]] = {}
    available_count = 0
    for use in uses:
        host = use.mirrored.partition("/")[0]
        finding = (
            _check_mirrored_image(account, use)
            if _ECR_REFERENCE.match(use.mirrored)
            else _check_public_image(context, use, registry_errors)
        )
        if host in registry_errors:
            unchecked_uses.setdefault(host, []).append(use)
        elif finding is None:
            available_count += 1
        else:
            yield finding
    for host, remaining_uses in unchecked_uses.items():
        yield unknown_finding(
            f"{host} did not answer for {len(remaining_uses)} of {len(uses)} images and charts: "
            f"{registry_errors[host]}",
            "ask from a machine that reaches the registry",
            _build_inspect_command(remaining_uses[0]),
        )
    references = [use.reference for use in uses if use.digest is None]
    if references:
        yield warn_finding(
            f"{len(references)} not pinned: {', '.join(references)}", "write their digests", "tandem images --resolve"
        )
    if available_count:
        yield ok_finding(f"{available_count} of {len(uses)} images and charts can be pulled")


def _build_image_reference(use: ImageUse) -> str:
    return f"{use.mirrored.rpartition(':')[0]}@{use.digest}" if use.digest else use.mirrored


def _build_inspect_command(use: ImageUse) -> str:
    return quote_command("docker", "buildx", "imagetools", "inspect", _build_image_reference(use))


def _check_public_image(context: DoctorContext, use: ImageUse, registry_errors: dict[str, str]) -> CheckFinding | None:
    """Ask a registry that anybody may read, unless it is silent; note it there where it is."""
    host = use.mirrored.partition("/")[0]
    if host in registry_errors:
        return None
    try:
        context.resolve_digest(_build_image_reference(use))
    except MissingImageError as error:
        return fail_finding(str(error), f"mirror it, or correct what names it: {', '.join(use.used_by)}",
                    _build_inspect_command(use))  # fmt: skip
    except RegistryError as error:
        registry_errors[host] = str(error)
    return None


def _check_mirrored_image(account: AllowlistedAccount, use: ImageUse) -> CheckFinding | None:
    """Ask an ECR registry, where a pull-through cache has an image only after its first pull."""
    match = _ECR_REFERENCE.match(use.mirrored)
    assert match is not None, use.mirrored
    repository, _, tag = match["rest"].rpartition(":")
    image_id = {"imageDigest": use.digest} if use.digest else {"imageTag": tag}
    response = account.ask(
        "ecr", "DescribeImages", use.mirrored, absent=NO_REPOSITORY_CODES | NO_IMAGE_CODES, region=match["region"],
        registryId=match["account"], repositoryName=repository, imageIds=[image_id],
    )  # fmt: skip
    if response is not None:
        return None
    rules = account.ask(
        "ecr", "DescribePullThroughCacheRules", use.mirrored, region=match["region"], registryId=match["account"]
    )
    prefixes = [str(rule["ecrRepositoryPrefix"]) for rule in (rules or {}).get("pullThroughCacheRules", [])]
    if any(prefix == "ROOT" or repository.startswith(f"{prefix}/") for prefix in prefixes):
        return warn_finding(
            f"{use.mirrored} is not cached yet", "its first pull fetches it, if the upstream is reached"
        )
    return fail_finding(f"{use.mirrored} is not in the mirror", "copy it there, or correct registry_mirrors",
                quote_command("docker", "buildx", "imagetools", "create", "--tag", use.mirrored,
                              use.reference))  # fmt: skip


def check_own_images(context: DoctorContext, account: AllowlistedAccount) -> Iterator[CheckFinding]:
    """See that the images of this checkout were built in the account."""
    environment = context.environment
    for image in PROJECT_IMAGES:
        repository, tag = names.repository_name(environment, image.name), image.tag()
        where = f"{registry_host(environment)}/{repository}:{tag}"
        try:
            response = account.ask(
                "ecr", "DescribeImages", where, absent=NO_IMAGE_CODES,
                registryId=environment.account, repositoryName=repository, imageIds=[{"imageTag": tag}],
            )  # fmt: skip
        except TandemError as error:
            if error_code(error.__cause__) not in NO_REPOSITORY_CODES:
                raise
            yield warn_finding(
                f"{repository} is not there: stack Image is not deployed",
                "deploy it; it builds the image",
                build_cdk_command("deploy", environment.name, "Image"),
            )
            continue
        if response is None:
            yield warn_finding(f"{repository} has no {tag}, the image of this checkout", "deploy Image, or build it",
                       quote_command("aws", "codebuild", "start-build", "--project-name", repository,
                                     "--region", environment.region))  # fmt: skip
        else:
            yield ok_finding(f"{repository}:{tag} is built")


def check_token(context: DoctorContext, account: AllowlistedAccount) -> Iterator[CheckFinding]:
    """See that gated models have a token: that its secret is there, never what is in it."""
    environment, secret = context.environment, context.environment.hub.token_secret
    gated_models = [model.id for model in context.list_models() if model.gated.value]
    if secret is None:
        if gated_models:
            yield fail_finding(f"{', '.join(gated_models)} is gated, and no hub.token_secret is declared",
                       "name a secret that holds a token of the hub",
                       "hub: {token_secret: tandem/hub-token}")  # fmt: skip
        else:
            yield ok_finding("no hosted model is gated, and no secret is declared")
        return
    purpose = f"for {', '.join(gated_models)}" if gated_models else "though no hosted model is gated"
    command_words = ("aws", "secretsmanager")
    region_flags = ("--region", environment.region)
    value_flags = ("--secret-string", "file://token")
    response = account.ask("secretsmanager", "DescribeSecret", secret, absent=NO_SECRET_CODES, SecretId=secret)
    if response is None:
        build_finding = fail_finding if gated_models else warn_finding
        yield build_finding(
            f"there is no secret {secret}, declared {purpose}",
            "make it, or correct hub.token_secret",
            quote_command(*command_words, "create-secret", *region_flags, "--name", secret, *value_flags),
        )
    elif "DeletedDate" in response:
        yield fail_finding(f"secret {secret} is being deleted", "restore it",
                   quote_command(*command_words, "restore-secret", *region_flags, "--secret-id", secret))  # fmt: skip
    elif not any("AWSCURRENT" in stages for stages in response.get("VersionIdsToStages", {}).values()):
        yield fail_finding(
            f"secret {secret} is empty",
            "put the token into it",
            quote_command(*command_words, "put-secret-value", *region_flags, "--secret-id", secret, *value_flags),
        )
    else:
        yield ok_finding(f"secret {secret} is there, {purpose}; its value was not read")
