"""Group artifacts: the bucket, the images and charts, the token for gated models."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from tandem.aws.faults import error_code
from tandem.declarations import names
from tandem.declarations.images import PRIVATE_ECR, ImageUse, list_image_uses
from tandem.declarations.project_image import list_hosted_images, registry_host
from tandem.errors import TandemError
from tandem.ops.account import AccountClients, build_aws_command
from tandem.ops.destroy.stacks import read_stack
from tandem.ops.doctor.capacity import find_quota
from tandem.ops.doctor.context import (
    CheckLevel,
    DoctorContext,
    Finding,
    MissingImageError,
    RegistryError,
)
from tandem.ops.faults import AccessDeniedError
from tandem.shell_command import build_cdk_command, quote_command

INSPECT_WORDS = ("docker", "buildx", "imagetools", "inspect")
# as Service Quotas calls it (its code is L-9D07B6EF in listings of several accounts), of the
# builds' COMPUTE_TYPE
BUILD_QUOTA = "Concurrently running builds for Linux/Small environment"
TOKEN_FLAG = {"secret_string": "file://token"}
REDIRECT_CODES = {"301", "PermanentRedirect", "AuthorizationHeaderMalformed"}


def check_bucket(context: DoctorContext, account: AccountClients) -> Iterator[Finding]:
    """Report whether a bucket's name is free, ours or somebody else's."""
    environment = context.environment
    yield _judge_bucket(context, account, names.bucket_name(environment))
    if environment.artifacts.existing_bucket is None:
        yield _judge_bucket(context, account, names.log_bucket_name(environment))


def _judge_bucket(context: DoctorContext, account: AccountClients, name: str) -> Finding:
    environment = context.environment
    is_existing = environment.artifacts.existing_bucket is not None
    try:
        answer = account.find(
            "s3", "HeadBucket", f"s3://{name}", Bucket=name, ExpectedBucketOwner=environment.account
        )
    except AccessDeniedError as error:
        return _judge_denied_bucket(account, name, error)
    except TandemError as error:
        if error_code(error.__cause__) not in REDIRECT_CODES:
            raise
        answer = {"BucketRegion": "another region"}
    if answer is None and is_existing:
        action = "create it, or correct artifacts.existing_bucket"
        return Finding("fail", f"there is no bucket {name}", action)
    if answer is None:
        return Finding("ok", f"{name} is free, or not made yet")
    region = answer.get("BucketRegion", environment.region)
    if region != environment.region:
        message = f"{name} lies in {region}, the environment in {environment.region}"
        place = "artifacts.existing_bucket" if is_existing else "the environment's name"
        return Finding("fail", message, f"change {place}")
    if not is_existing and read_stack(account, "Artifacts") is None:
        command = build_cdk_command("deploy", environment.name, "*", "--import-existing-resources")
        message = f"{name} is of an earlier deploy"
        return Finding("warn", message, "adopt it with the first deploy", command)
    return Finding("ok", f"{name} is ours")


def _judge_denied_bucket(account: AccountClients, name: str, error: AccessDeniedError) -> Finding:
    """Report whether a denied bucket is another's or ours without a right: S3 answers 403."""
    rows = account.list_rows("s3", "ListBuckets", "Buckets", f"s3://{name}", Prefix=name)
    if any(row["Name"] == name for row in rows):
        return Finding(
            "unknown", f"{name} is ours, but may not be looked at ({error.problem})", error.change
        )
    message = f"{name} is somebody else's: names of buckets are taken world-wide"
    action = "rename the environment, or name a bucket of yours in artifacts.existing_bucket"
    return Finding("fail", message, action)


def check_bucket_key(context: DoctorContext, account: AccountClients) -> Finding:
    """Check that the bucket's customer key exists and may be used; S3's own keys need no right."""
    key = context.environment.artifacts.kms_key_arn
    if key is None:
        return Finding("ok", "S3's own keys encrypt the bucket")
    return _judge_key(account, key, "artifacts.kms_key_arn", "bucket's")


def _judge_key(account: AccountClients, key: str, path: str, whose: str) -> Finding:
    answer = account.find("kms", "DescribeKey", key, KeyId=key)
    if answer is None:
        return Finding("fail", f"there is no key {key}", f"correct {path}")
    state = answer["KeyMetadata"]["KeyState"]
    if state != "Enabled":
        return Finding(
            "fail",
            f"the {whose} key is {state}: nothing can be read or written with it",
            "enable it",
        )
    return Finding("ok", f"the {whose} key is enabled; whom its policy admits is not looked at")


def check_images(context: DoctorContext, account: AccountClients) -> Iterator[Finding]:
    """Check that every image and chart can be pulled, as far as this machine reaches it."""
    uses = list_image_uses(context.environment, context.experiments, context.catalogue)
    available_count = 0
    for host, group in groupby(sorted(uses, key=_read_host), _read_host):
        host_uses = list(group)
        for number, use in enumerate(host_uses):
            try:
                finding = _check_image(context, account, use)
            except RegistryError as error:  # try this registry no more
                count_text = f"{len(host_uses) - number} of {len(uses)} images and charts"
                command = quote_command(*INSPECT_WORDS, _build_image_reference(use))
                message = f"{host} did not answer for {count_text}: {error}"
                yield Finding("unknown", message, "ask from a machine that reaches it", command)
                break
            if finding:
                yield finding
            available_count += finding is None
    references = [use.reference for use in uses if use.digest is None]
    if references:
        message = f"{len(references)} not pinned: {', '.join(references)}"
        command = "tandem images --resolve"
        yield Finding("warn", message, "write their digests", command)
    if available_count:
        yield Finding("ok", f"{available_count} of {len(uses)} images and charts can be pulled")


def _read_host(use: ImageUse) -> str:
    return use.mirrored.partition("/")[0]


def _build_image_reference(use: ImageUse) -> str:
    if use.digest:
        return f"{use.mirrored.rpartition(':')[0]}@{use.digest}"
    return use.mirrored


def _check_image(context: DoctorContext, account: AccountClients, use: ImageUse) -> Finding | None:
    """Check an image; an ECR pull-through cache has one only after its first pull.

    Raises:
        RegistryError: a public registry does not answer.
    """
    match = PRIVATE_ECR.match(use.mirrored)
    if match is not None:
        return _check_mirrored_image(account, use, match)
    reference = _build_image_reference(use)
    try:
        context.resolve_digest(reference)
    except MissingImageError as error:
        action = f"mirror it, or correct what names it: {', '.join(use.used_by)}"
        return Finding("fail", str(error), action, quote_command(*INSPECT_WORDS, reference))
    return None


def _check_mirrored_image(
    account: AccountClients, use: ImageUse, match: re.Match[str]
) -> Finding | None:
    """Check an image of a private registry of ECR's, or of a pull-through cache there."""
    image = use.mirrored
    repository = match["name"]
    registry: dict[str, Any] = {"region": match["region"], "registryId": match["account"]}
    image_id = {"imageDigest": use.digest} if use.digest else {"imageTag": image.rpartition(":")[2]}
    if account.find(
        "ecr", "DescribeImages", image, repositoryName=repository, imageIds=[image_id], **registry
    ):
        return None
    answer = account.ask("ecr", "DescribePullThroughCacheRules", image, **registry)
    prefixes = [rule["ecrRepositoryPrefix"] for rule in answer.get("pullThroughCacheRules", [])]
    if any(prefix == "ROOT" or repository.startswith(f"{prefix}/") for prefix in prefixes):
        action = "see that its first pull reaches the upstream"
        return Finding("warn", f"{image} is not cached yet", action)
    command = quote_command(
        "docker", "buildx", "imagetools", "create", "--tag", image, use.reference
    )
    action = "copy it there, or correct registry_mirrors"
    return Finding("fail", f"{image} is not there", action, command)


def check_own_images(context: DoctorContext, account: AccountClients) -> Iterator[Finding]:
    """Check that the hosted images of this checkout were built in the account."""
    environment = context.environment
    for image in list_hosted_images(context.experiments):
        repository = names.repository_name(environment, image.name)
        tag = image.tag()
        where = f"{registry_host(environment)}/{repository}:{tag}"
        if account.find(
            "ecr",
            "DescribeImages",
            where,
            repositoryName=repository,
            registryId=environment.account,
            imageIds=[{"imageTag": tag}],
        ):
            yield Finding("ok", f"{repository}:{tag} is built")
        else:
            kind = names.image_stack_kind(image.name)
            action = f"deploy stack {kind}, which builds it; where it is deployed, build it"
            command = build_aws_command(
                "codebuild start-build", project_name=repository, region=environment.region
            )
            yield Finding("warn", f"{repository} has no {tag}, this checkout's", action, command)


def check_suites(context: DoctorContext, account: AccountClients) -> Iterator[Finding]:
    """Check that the bucket has the experiments' files of prompts, and that the servers take them.

    A viewer may not read them: the line is unknown then.
    """
    has_file = False
    for experiment in context.experiments:
        for suite in experiment.list_suite_files():
            has_file = True
            yield context.judge_suite(context, experiment, suite, account.client("s3"))
    if not has_file:
        yield Finding("ok", "no hosted experiment names a file of prompts")


def check_build_quota(context: DoctorContext, account: AccountClients) -> Finding:
    """Check that the account may run a build: a new one may run one at once, or none."""
    quota = find_quota(account, "codebuild", BUILD_QUOTA)
    region = context.environment.region
    if quota is None:
        return Finding(
            "unknown",
            f"Service Quotas lists no {BUILD_QUOTA!r}",
            "look up its current name in the console",
        )
    message = f"{BUILD_QUOTA}: {quota['Value']:g}"
    if quota["Value"] >= 1:
        return Finding("ok", f"{message}; a build waits for its turn")
    command = build_aws_command(
        "service-quotas request-service-quota-increase --service-code codebuild",
        quota_code=quota["QuotaCode"],
        desired_value="1",
        region=region,
    )
    action = "ask for one, which may take days, or push the images by hand (docs/image.md)"
    return Finding("fail", f"{message}: no image can be built", action, command)


def check_log_key(context: DoctorContext, account: AccountClients) -> Finding:
    """Check that the key of the logs exists and is enabled; CloudWatch's own keys need no right."""
    key = context.environment.log_kms_key_arn
    if key is None:
        return Finding(
            "ok", "CloudWatch's own keys encrypt the logs of control plane, builds and connections"
        )
    return _judge_key(account, key, "log_kms_key_arn", "logs'")


def check_token(context: DoctorContext, account: AccountClients) -> Finding:
    """Check that gated models have a token: that its secret exists, without reading it."""
    secret = context.environment.hub.token_secret
    gated_models = ", ".join(model.id for model in context.list_models() if model.gated.value)
    if secret is None and not gated_models:
        return Finding("ok", "no hosted model is gated, and no secret is declared")
    if secret is None:
        message = f"{gated_models} is gated, and no token is declared"
        lines = "hub: {token_secret: tandem/hub-token}"
        return Finding("fail", message, "name its secret", lines)
    purpose = f"for {gated_models}" if gated_models else "though no hosted model is gated"
    answer = account.find("secretsmanager", "DescribeSecret", secret, SecretId=secret)
    if answer is None:
        level: CheckLevel = "fail" if gated_models else "warn"
        message = f"there is no secret {secret}, declared {purpose}"
        command = _build_secret_command(context, "create-secret", name=secret, **TOKEN_FLAG)
        return Finding(level, message, "create it, or correct hub.token_secret", command)
    if "DeletedDate" in answer:
        command = _build_secret_command(context, "restore-secret", secret_id=secret)
        return Finding("fail", f"secret {secret} is being deleted", "restore it", command)
    stages = answer.get("VersionIdsToStages", {}).values()
    if not any("AWSCURRENT" in labels for labels in stages):
        command = _build_secret_command(context, "put-secret-value", secret_id=secret, **TOKEN_FLAG)
        return Finding("fail", f"secret {secret} is empty", "put the token into it", command)
    return Finding("ok", f"secret {secret} exists, {purpose}; its value was not read")


def _build_secret_command(context: DoctorContext, verb: str, **flags: str) -> str:
    return build_aws_command(
        f"secretsmanager {verb} --region {context.environment.region}", **flags
    )
