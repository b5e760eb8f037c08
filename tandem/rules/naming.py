"""Names and tags within the limits of what they name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tandem.rules.contexts import EnvironmentContext, ExperimentContext
from tandem.rules.rule import RuleFinding, RuleList
from tandem.spec.names import NOTIFY, ResourceName, environment_names, experiment_names

MOST_TAGS = 40  # a resource takes 50; the rest is left to the stacks and to EKS
KEY_LENGTH, VALUE_LENGTH = 128, 256
TAG_TEXT = re.compile(r"[\w\s+\-=.:/@]*")
# beside the experiments' own: the folder of the GitOps tool's objects, and the environment's dashboards
FOLDER_NAMES = frozenset({"gitops", "machine", "money", "people"})
S3_RESERVED_PREFIXES = ("xn--", "sthree-", "amzn-s3-demo-")
S3_RESERVED_SUFFIXES = ("-s3alias", "--ol-s3", ".mrap", "--x-s3")
ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+")

RULES = RuleList()


def _find_long_names(names: Iterable[ResourceName]) -> Iterator[RuleFinding]:
    """Yield the name furthest over its limit, for each key that makes names too long."""
    longest_by_path: dict[str, ResourceName] = {}
    for name in sorted(names, key=lambda name: len(name.value) - name.limit):
        longest_by_path[name.path] = name
    for name in longest_by_path.values():
        excess = len(name.value) - name.limit
        if excess > 0:
            owner = "the file's" if name.path == "name" else "its"
            yield RuleFinding(
                path=name.path, got=f"{name.value}, {len(name.value)} characters",
                allowed=f"at most {name.limit} for a {name.resource_type}", change=f"shorten {owner} name by {excess}",
            )  # fmt: skip


@RULES.refuse("environment-name", "S3 and EKS API references: bucket 63, cluster 100, node group 63", "2026-11-21")
def _find_long_environment_names(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """Every name made from the environment's is within its resource's limit."""
    return _find_long_names(environment_names(context.environment))


@RULES.refuse("experiment-name", "kubernetes.io/docs/concepts/overview/working-with-objects/names", "2026-11-21")
def _find_long_experiment_names(context: ExperimentContext) -> Iterable[RuleFinding]:
    """Every name made from the experiment's or a variant's is within its resource's limit."""
    return _find_long_names(experiment_names(context.experiment))


@RULES.refuse(
    "experiment-folder",
    "charts/tree.py: manifests/<environment>/gitops and people; tandem/monitoring: dashboards machine and money",
    "2026-11-21",
)
def _find_folder_collision(context: ExperimentContext) -> Iterable[RuleFinding]:
    """An experiment's folder of manifests and its dashboard are its own."""
    if context.experiment.name in FOLDER_NAMES:
        yield RuleFinding(
            path="name", got=repr(context.experiment.name),
            allowed="a name that no folder of manifests/<environment>/ and no dashboard of an environment has",
            change="rename the file",
        )  # fmt: skip


@RULES.refuse(
    "environment-words",
    "tandem/spec/names.py: the second word of a composite alarm's name",
    "2026-11-22",
    sentence=f"No word of the environment's name is {NOTIFY}.",
)
def _find_notify_word(context: EnvironmentContext) -> Iterable[RuleFinding]:
    name = context.environment.name
    if NOTIFY in name.split("-"):
        yield RuleFinding(
            path="name", got=repr(name),
            allowed=f"a name without the word {NOTIFY}, by which the alarms of `prod` are told from those of `prod-eu`",
            change="rename the file",
        )  # fmt: skip


@RULES.refuse("bucket-name", "docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html", "2026-11-21")
def _find_bad_bucket_name(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """An existing bucket's name is one that S3 allows."""
    name = context.environment.artifacts.existing_bucket
    has_reserved_part = name is not None and (
        name.startswith(S3_RESERVED_PREFIXES) or name.endswith(S3_RESERVED_SUFFIXES)
    )
    if name is not None and (has_reserved_part or ".." in name or ADDRESS.fullmatch(name)):
        yield RuleFinding(
            path="artifacts.existing_bucket", got=repr(name),
            allowed="no two dots in a row, no IP address, no start or end that S3 reserves",
            change="write the bucket's own name",
        )  # fmt: skip


@RULES.refuse("bucket-key", "docs.aws.amazon.com/AmazonS3/latest/userguide/UsingKMSEncryption.html", "2026-11-22")
def _find_foreign_bucket_key(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The key of the bucket lies in its region."""
    key, region = context.environment.artifacts.kms_key_arn, context.environment.region
    if key is not None and key.split(":")[3] != region:
        yield RuleFinding(
            path="artifacts.kms_key_arn", got=f"a key in {key.split(':')[3]}",
            allowed=f"a key in {region}: S3 takes none of another region", change=f"write the ARN of a key in {region}",
        )  # fmt: skip


@RULES.refuse(
    "tags-fit",
    "docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/allocation-tag-restrictions.html",
    "2026-11-21",
    sentence=f"At most {MOST_TAGS} tags, of the length and letters AWS takes, none with the prefix aws:.",
)
def _find_bad_tags(context: EnvironmentContext) -> Iterable[RuleFinding]:
    tags = context.environment.tags
    if len(tags) > MOST_TAGS:
        yield RuleFinding(
            path="tags",
            got=f"{len(tags)} tags",
            allowed=f"at most {MOST_TAGS}",
            change=f"delete {len(tags) - MOST_TAGS}",
        )
    for key, value in tags.items():
        if key.lower().startswith("aws:"):
            yield RuleFinding(
                path=f"tags.{key}", got=f"the key {key!r}", allowed="keys without the prefix aws:", change="rename it"
            )
        for part, text, limit in (("key", key, KEY_LENGTH), ("value", value, VALUE_LENGTH)):
            if len(text) > limit or not TAG_TEXT.fullmatch(text) or not text:
                yield RuleFinding(
                    path=f"tags.{key}", got=f"the {part} {text[:40]!r}, {len(text)} characters",
                    allowed=f"1 to {limit} letters, digits, spaces and _ . : / = + - @",
                    change=f"rewrite the {part}",
                )  # fmt: skip
