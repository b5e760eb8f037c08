"""Names and tags within the limits of what they name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import date
from typing import Any

from tandem.rules.rule import Finding, Rule
from tandem.rules.subjects import Stamp, Trial
from tandem.spec.names import NOTIFY, LimitedName, environment_names, experiment_names

MOST_TAGS = 40  # a resource takes 50; the rest is left to the stacks and to EKS
KEY_LENGTH, VALUE_LENGTH = 128, 256
TAG_TEXT = re.compile(r"[\w\s+\-=.:/@]*")
# beside the experiments' own: the folder of the GitOps tool's objects, and the environment's dashboards
TAKEN_NAMES = frozenset({"gitops", "machine", "money", "people"})
RESERVED_STARTS = ("xn--", "sthree-", "amzn-s3-demo-")
RESERVED_ENDS = ("-s3alias", "--ol-s3", ".mrap", "--x-s3")
ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+")


def _too_long(names: Iterable[LimitedName]) -> Iterator[Finding]:
    """Yield the name furthest over its limit, for each key that makes names too long."""
    worst: dict[str, LimitedName] = {}
    for name in sorted(names, key=lambda name: len(name.value) - name.limit):
        worst[name.path] = name
    for name in worst.values():
        excess = len(name.value) - name.limit
        if excess > 0:
            whose = "the file's" if name.path == "name" else "its"
            yield Finding(
                path=name.path, got=f"{name.value}, {len(name.value)} characters",
                allowed=f"at most {name.limit} for a {name.what}", change=f"shorten {whose} name by {excess}",
            )  # fmt: skip


def _environment(stamp: Stamp) -> Iterable[Finding]:
    return _too_long(environment_names(stamp.environment))


def _experiment(trial: Trial) -> Iterable[Finding]:
    return _too_long(experiment_names(trial.experiment))


def _free(trial: Trial) -> Iterable[Finding]:
    if trial.experiment.name in TAKEN_NAMES:
        yield Finding(
            path="name", got=repr(trial.experiment.name),
            allowed="a name that no folder of manifests/<environment>/ and no dashboard of an environment has",
            change="rename the file",
        )  # fmt: skip


def _words(stamp: Stamp) -> Iterable[Finding]:
    name = stamp.environment.name
    if NOTIFY in name.split("-"):
        yield Finding(
            path="name", got=repr(name),
            allowed=f"a name without the word {NOTIFY}, by which the alarms of `prod` are told from those of `prod-eu`",
            change="rename the file",
        )  # fmt: skip


def _bucket(stamp: Stamp) -> Iterable[Finding]:
    name = stamp.environment.artifacts.existing_bucket
    reserved = name is not None and (name.startswith(RESERVED_STARTS) or name.endswith(RESERVED_ENDS))
    if name is not None and (reserved or ".." in name or ADDRESS.fullmatch(name)):
        yield Finding(
            path="artifacts.existing_bucket", got=repr(name),
            allowed="no two dots in a row, no IP address, no start or end that S3 reserves",
            change="write the bucket's own name",
        )  # fmt: skip


def _bucket_key(stamp: Stamp) -> Iterable[Finding]:
    key, region = stamp.environment.artifacts.kms_key_arn, stamp.environment.region
    if key is not None and key.split(":")[3] != region:
        yield Finding(
            path="artifacts.kms_key_arn", got=f"a key in {key.split(':')[3]}",
            allowed=f"a key in {region}: S3 takes none of another region", change=f"write the ARN of a key in {region}",
        )  # fmt: skip


def _tags(stamp: Stamp) -> Iterable[Finding]:
    tags = stamp.environment.tags
    if len(tags) > MOST_TAGS:
        yield Finding(
            path="tags",
            got=f"{len(tags)} tags",
            allowed=f"at most {MOST_TAGS}",
            change=f"delete {len(tags) - MOST_TAGS}",
        )
    for key, value in tags.items():
        if key.lower().startswith("aws:"):
            yield Finding(
                path=f"tags.{key}", got=f"the key {key!r}", allowed="keys without the prefix aws:", change="rename it"
            )
        for what, text, limit in (("key", key, KEY_LENGTH), ("value", value, VALUE_LENGTH)):
            if len(text) > limit or not TAG_TEXT.fullmatch(text) or not text:
                yield Finding(
                    path=f"tags.{key}", got=f"the {what} {text[:40]!r}, {len(text)} characters",
                    allowed=f"1 to {limit} letters, digits, spaces and _ . : / = + - @",
                    change=f"rewrite the {what}",
                )  # fmt: skip


RULES: tuple[Rule[Any], ...] = (
    Rule(
        id="environment-name", of=Stamp, severity="refusal", find=_environment,
        sentence="every name made from the environment's is within its resource's limit",
        source="S3 and EKS API references: bucket 63, cluster 100, node group 63", date=date(2026, 11, 21),
    ),
    Rule(
        id="environment-words", of=Stamp, severity="refusal", find=_words,
        sentence=f"no word of the environment's name is {NOTIFY}",
        source="tandem/spec/names.py: the second word of a composite alarm's name", date=date(2026, 11, 22),
    ),
    Rule(
        id="experiment-name", of=Trial, severity="refusal", find=_experiment,
        sentence="every name made from the experiment's or a variant's is within its resource's limit",
        source="kubernetes.io/docs/concepts/overview/working-with-objects/names", date=date(2026, 11, 21),
    ),
    Rule(
        id="experiment-folder", of=Trial, severity="refusal", find=_free,
        sentence="an experiment's folder of manifests and its dashboard are its own",
        source="charts/tree.py: manifests/<environment>/gitops and people; tandem/watch: dashboards machine and money",
        date=date(2026, 11, 21),
    ),
    Rule(
        id="bucket-name", of=Stamp, severity="refusal", find=_bucket,
        sentence="an existing bucket's name is one that S3 allows",
        source="docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html", date=date(2026, 11, 21),
    ),
    Rule(
        id="bucket-key", of=Stamp, severity="refusal", find=_bucket_key,
        sentence="the key of the bucket lies in its region",
        source="docs.aws.amazon.com/AmazonS3/latest/userguide/UsingKMSEncryption.html", date=date(2026, 11, 22),
    ),
    Rule(
        id="tags-fit", of=Stamp, severity="refusal", find=_tags,
        sentence=f"at most {MOST_TAGS} tags, of the length and letters AWS takes, none with the prefix aws:",
        source="docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/allocation-tag-restrictions.html",
        date=date(2026, 11, 21),
    ),
)  # fmt: skip
