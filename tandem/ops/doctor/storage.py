"""Group artifacts: the bucket, the images and charts, the token for gated models."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tandem.ops.doctor.account import Account
from tandem.ops.doctor.line import Finding, fail, ok, unknown, warn
from tandem.ops.doctor.subject import MissingImageError, RegistryError, Subject
from tandem.ops.fault import DeniedError, OpsError, code_of
from tandem.shell_command import build_cdk_command, quote_command
from tandem.spec import names
from tandem.spec.built_image import BUILT, registry
from tandem.spec.images import ImageUse, image_uses

NO_BUCKET = {"404", "NoSuchBucket"}
ELSEWHERE = {"301", "PermanentRedirect", "AuthorizationHeaderMalformed"}
NO_REPOSITORY, NO_IMAGE = {"RepositoryNotFoundException"}, {"ImageNotFoundException"}
NO_SECRET = {"ResourceNotFoundException"}
_ECR = re.compile(r"^(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(\.cn)?/(?P<rest>.+)$")


def bucket(subject: Subject, account: Account) -> Iterator[Finding]:
    """Tell a bucket's name that is free from one that is ours and one that is somebody else's."""
    environment = subject.environment
    yield from _one_bucket(subject, account, names.bucket(environment))
    if environment.artifacts.existing_bucket is None:
        yield from _one_bucket(subject, account, names.log_bucket(environment))


def bucket_key(subject: Subject, account: Account) -> Iterator[Finding]:
    """See that the bucket's customer key is there and may be used; without one S3's own keys need nobody's right."""
    key = subject.environment.artifacts.kms_key_arn
    if key is None:
        yield ok("S3's own keys encrypt the bucket")
        return
    look = quote_command("aws", "kms", "describe-key", "--key-id", key)
    answer = account.ask("kms", "DescribeKey", key, absent={"NotFoundException"}, KeyId=key)
    if answer is None:
        yield fail(f"there is no key {key}", "correct artifacts.kms_key_arn", look)
        return
    state = answer["KeyMetadata"]["KeyState"]
    if state != "Enabled":
        yield fail(f"the bucket's key is {state}: nobody reads or writes an object under it", "enable it", look)
        return
    yield ok("the bucket's key is enabled; that its policy admits this account's roles is its owner's to see to")


def _one_bucket(subject: Subject, account: Account, name: str) -> Iterator[Finding]:
    environment = subject.environment
    try:
        found = account.ask(
            "s3", "HeadBucket", f"s3://{name}", absent=NO_BUCKET, Bucket=name, ExpectedBucketOwner=environment.account
        )
    except DeniedError as error:
        yield _whose(account, name, error)
        return
    except OpsError as error:
        if code_of(error.__cause__) not in ELSEWHERE:
            raise
        yield _in_region(subject, name, "another region")
        return
    there = (found or {}).get("BucketRegion", environment.region)
    if found is None:
        yield _absent(subject, name)
    elif there != environment.region:
        yield _in_region(subject, name, there)
    elif environment.artifacts.existing_bucket is None and not _stamped(subject, account):
        yield warn(
            f"{name} is there already, of an earlier deploy", "adopt it with the first deploy",
            build_cdk_command("deploy", environment.name, "*", "--import-existing-resources"),
        )  # fmt: skip
    else:
        yield ok(f"{name} is ours")


def _absent(subject: Subject, name: str) -> Finding:
    if subject.environment.artifacts.existing_bucket is None:
        return ok(f"{name} is free, or not made yet")
    return fail(f"there is no bucket {name}", "make it, or correct artifacts.existing_bucket",
                quote_command("aws", "s3api", "head-bucket", "--bucket", name))  # fmt: skip


def _in_region(subject: Subject, name: str, region: str) -> Finding:
    change = "artifacts.existing_bucket" if subject.environment.artifacts.existing_bucket else "the environment's name"
    return fail(f"{name} lies in {region}, the environment in {subject.environment.region}", f"change {change}",
                quote_command("aws", "s3api", "get-bucket-location", "--bucket", name))  # fmt: skip


def _whose(account: Account, name: str, error: DeniedError) -> Finding:
    """Tell somebody else's bucket from one of ours that may not be seen: S3 answers 403 for both."""
    rows = account.every("s3", "ListBuckets", "Buckets", f"s3://{name}", Prefix=name)
    if any(row["Name"] == name for row in rows):
        return unknown(f"{name} is ours, but may not be looked at ({error.problem})", error.change)
    return fail(f"{name} is somebody else's: names of buckets are taken world-wide",
                "rename the environment, or name a bucket of yours in artifacts.existing_bucket",
                quote_command("aws", "s3api", "list-buckets", "--prefix", name))  # fmt: skip


def _stamped(subject: Subject, account: Account) -> bool:
    """Whether the stack that makes the bucket is there."""
    stack = names.stack(subject.environment, "Artifacts")
    return (
        account.ask("cloudformation", "DescribeStacks", stack, absent={"ValidationError"}, StackName=stack) is not None
    )


def images(subject: Subject, account: Account) -> Iterator[Finding]:
    """See that every image and chart can be had where it will be pulled from, as this machine reaches it."""
    environment = subject.environment
    uses = image_uses(environment, subject.experiments, subject.catalogue)
    silent: dict[str, str] = {}  # a registry that did not answer is asked once
    unasked: dict[str, list[ImageUse]] = {}
    good = 0
    for use in uses:
        host = use.mirrored.partition("/")[0]
        found = _mirrored(account, use) if _ECR.match(use.mirrored) else _published(subject, use, silent)
        if host in silent:
            unasked.setdefault(host, []).append(use)
        elif found is None:
            good += 1
        else:
            yield found
    for host, left in unasked.items():
        yield unknown(f"{host} did not answer for {len(left)} of {len(uses)} images and charts: {silent[host]}",
                      "ask from a machine that reaches the registry",
                      _build_inspect_command(left[0]))  # fmt: skip
    loose = [use.reference for use in uses if use.digest is None]
    if loose:
        yield warn(f"{len(loose)} not pinned: {', '.join(loose)}", "write their digests", "tandem images --resolve")
    if good:
        yield ok(f"{good} of {len(uses)} images and charts can be pulled")


def _pinned(use: ImageUse) -> str:
    return f"{use.mirrored.rpartition(':')[0]}@{use.digest}" if use.digest else use.mirrored


def _build_inspect_command(use: ImageUse) -> str:
    return quote_command("docker", "buildx", "imagetools", "inspect", _pinned(use))


def _published(subject: Subject, use: ImageUse, silent: dict[str, str]) -> Finding | None:
    """Ask a registry that anybody may read, unless it is silent; note it there where it is."""
    host = use.mirrored.partition("/")[0]
    if host in silent:
        return None
    try:
        subject.digest_of(_pinned(use))
    except MissingImageError as error:
        return fail(str(error), f"mirror it, or correct what names it: {', '.join(use.used_by)}",
                    _build_inspect_command(use))  # fmt: skip
    except RegistryError as error:
        silent[host] = str(error)
    return None


def _mirrored(account: Account, use: ImageUse) -> Finding | None:
    """Ask an ECR registry, where a pull-through cache has an image only after its first pull."""
    parts = _ECR.match(use.mirrored)
    assert parts is not None, use.mirrored
    repository, _, tag = parts["rest"].rpartition(":")
    wanted = {"imageDigest": use.digest} if use.digest else {"imageTag": tag}
    found = account.ask(
        "ecr", "DescribeImages", use.mirrored, absent=NO_REPOSITORY | NO_IMAGE, region=parts["region"],
        registryId=parts["account"], repositoryName=repository, imageIds=[wanted],
    )  # fmt: skip
    if found is not None:
        return None
    rules = account.ask(
        "ecr", "DescribePullThroughCacheRules", use.mirrored, region=parts["region"], registryId=parts["account"]
    )
    prefixes = [str(rule["ecrRepositoryPrefix"]) for rule in (rules or {}).get("pullThroughCacheRules", [])]
    if any(prefix == "ROOT" or repository.startswith(f"{prefix}/") for prefix in prefixes):
        return warn(f"{use.mirrored} is not cached yet", "its first pull fetches it, if the upstream is reached")
    return fail(f"{use.mirrored} is not in the mirror", "copy it there, or correct registry_mirrors",
                quote_command("docker", "buildx", "imagetools", "create", "--tag", use.mirrored,
                              use.reference))  # fmt: skip


def own_images(subject: Subject, account: Account) -> Iterator[Finding]:
    """See that the images of this checkout were built in the account."""
    environment = subject.environment
    for image in BUILT:
        repository, tag = names.repository(environment, image.name), image.tag()
        where = f"{registry(environment)}/{repository}:{tag}"
        try:
            found = account.ask(
                "ecr", "DescribeImages", where, absent=NO_IMAGE,
                registryId=environment.account, repositoryName=repository, imageIds=[{"imageTag": tag}],
            )  # fmt: skip
        except OpsError as error:
            if code_of(error.__cause__) not in NO_REPOSITORY:
                raise
            yield warn(f"{repository} is not there: stack Image is not deployed", "deploy it; it builds the image",
                       build_cdk_command("deploy", environment.name, "Image"))  # fmt: skip
            continue
        if found is None:
            yield warn(f"{repository} has no {tag}, the image of this checkout", "deploy Image, or build it",
                       quote_command("aws", "codebuild", "start-build", "--project-name", repository,
                                     "--region", environment.region))  # fmt: skip
        else:
            yield ok(f"{repository}:{tag} is built")


def token(subject: Subject, account: Account) -> Iterator[Finding]:
    """See that gated models have a token: that its secret is there, never what is in it."""
    environment, secret = subject.environment, subject.environment.hub.token_secret
    gated = [model.id for model in subject.models() if model.gated.value]
    if secret is None:
        if gated:
            yield fail(f"{', '.join(gated)} is gated, and no hub.token_secret is declared",
                       "name a secret that holds a token of the hub",
                       "hub: {token_secret: tandem/hub-token}")  # fmt: skip
        else:
            yield ok("no hosted model is gated, and no secret is declared")
        return
    need = f"for {', '.join(gated)}" if gated else "though no hosted model is gated"
    aws = ("aws", "secretsmanager")
    here = ("--region", environment.region)
    value = ("--secret-string", "file://token")
    found = account.ask("secretsmanager", "DescribeSecret", secret, absent=NO_SECRET, SecretId=secret)
    if found is None:
        missing = fail if gated else warn
        yield missing(f"there is no secret {secret}, declared {need}", "make it, or correct hub.token_secret",
                      quote_command(*aws, "create-secret", *here, "--name", secret, *value))  # fmt: skip
    elif "DeletedDate" in found:
        yield fail(f"secret {secret} is being deleted", "restore it",
                   quote_command(*aws, "restore-secret", *here, "--secret-id", secret))  # fmt: skip
    elif not any("AWSCURRENT" in stages for stages in found.get("VersionIdsToStages", {}).values()):
        yield fail(f"secret {secret} is empty", "put the token into it",
                   quote_command(*aws, "put-secret-value", *here, "--secret-id", secret, *value))  # fmt: skip
    else:
        yield ok(f"secret {secret} is there, {need}; its value was not read")
