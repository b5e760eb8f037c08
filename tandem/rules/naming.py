"""Rules on names, tags and their limits, and on the environment's own repository and folder."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import SplitResult, urlsplit

from tandem.declarations import names
from tandem.declarations.artifact_key import DIGEST_CHARACTERS
from tandem.declarations.environment import EXAMPLE_ACCOUNTS, GitopsDelivery
from tandem.declarations.names import NOTIFY
from tandem.declarations.record import UnknownValueError
from tandem.rules.contexts import EnvironmentContext, ExperimentContext
from tandem.rules.rule import RuleFinding, RuleList, index_paths

MOST_TAGS = 40  # a resource takes 50; the rest is left to the stacks and to EKS
# IAM takes one more of each; CodeBuild takes these (Tag), and EventBridge Scheduler takes no empty
# value
KEY_LENGTH = 127
VALUE_LENGTH = 255
# taken names: the folders of people, runner and the GitOps tool's objects, the environment's
# dashboards
FOLDER_NAMES = frozenset({"gitops", "machine", "money", "people", "runner"})
# of AWS, and of what stops and teardown know as their own
RESERVED_TAG_PREFIXES = ("aws", "tandem")
S3_RESERVED_PREFIXES = ("xn--", "sthree-", "amzn-s3-demo-")
S3_RESERVED_SUFFIXES = ("-s3alias", "--ol-s3", ".mrap", "--x-s3")
ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+")
# RFC 2606
EXAMPLE_DOMAINS = ("example", "example.com", "example.net", "example.org", "invalid", "test")
_EXAMPLE = re.compile(rf"(?<![0-9])({'|'.join(sorted(EXAMPLE_ACCOUNTS))})(?![0-9])")

# What a reader in Go takes for a number, once it has left out each "_"
_GO_NUMBER = re.compile(
    r"[-+]?(0[oO][0-7]+|0[xX][0-9a-fA-F]+|0[bB][01]+|(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?)|0b[-+]?[01]+",
    re.ASCII,
)
# Of these, what cdk8s puts in quotes, because it is a number of YAML 1.1 (npm yaml 2, schema
# yaml-1.1)
_YAML_NUMBER = re.compile(
    r"[-+]?(0b[01_]+|0x[0-9a-fA-F_]+|\d[\d_]*|(\d[\d_]*)?\.[\d_]*|(\d[\d_]*)?(\.[\d_]*)?[eE][-+]?\d+)",
    re.ASCII,
)
# not printable, or the end of a line (YAML 1.1, sections 5.1 and 5.4); cdk8s escapes none of them
_UNREADABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")

_EXAMPLES = "docs.aws.amazon.com/IAM/latest/UserGuide: example accounts"
_OBJECT_NAMES = "kubernetes.io/docs/concepts/overview/working-with-objects/names"
_RESOURCE_NAMES = "S3 and EKS API references: bucket 63, cluster 100, node group 63"
_FOLDERS = (
    "charts/tree.py: manifests/<environment>/gitops, people,"
    " runner; tandem/monitoring: dashboards machine, money"
)
_ALARM_NAMES = "tandem/declarations/names.py: the second word of a composite alarm's name"
_BUCKET_NAMES = "docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html"
_LOG_KEYS = "CloudWatch Logs user guide, Encrypt log data in CloudWatch Logs using AWS KMS"
_BUCKET_KEYS = "docs.aws.amazon.com/AmazonS3/latest/userguide/UsingKMSEncryption.html"
_GO_TEXTS = "kubernetes-sigs/yaml goyaml.v2/resolve.go: how a text without quotes is read"
_TAGS = "IAM API Reference, Tag; IAM user guide, Rules for tagging; CodeBuild API Reference, Tag"
RULES = RuleList()


def _yield_texts(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield (key path, text) of every text of a record, keys of mappings included."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, child in value.items():
            child_path = f"{path}.{key}" if path else str(key)
            yield child_path, str(key)
            yield from _yield_texts(child, child_path)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _yield_texts(child, f"{path}[{index}]")


def is_read_otherwise(text: str) -> bool:
    """Return whether Go takes a manifest's text for a number, or refuses it, as cdk8s writes it."""
    if _UNREADABLE.search(text):
        return True
    if text.startswith("_") or _YAML_NUMBER.fullmatch(text):
        return False
    return _GO_NUMBER.fullmatch(text.replace("_", "")) is not None


@RULES.refuse("environment-texts", _GO_TEXTS, "2026-11-28")
def _find_unreadable_texts(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """Kubernetes reads every text of the environment as text, not as a number."""
    # an experiment has no text that stands alone in a manifest and could be a number: its names
    # begin with a letter
    for path, text in _yield_texts(context.environment.model_dump(mode="json", warnings=False)):
        if is_read_otherwise(text):
            yield RuleFinding(
                path,
                repr(text),
                "a text that Kubernetes does not read as a number",
                "write another",
            )


@RULES.refuse("example-leftover", _EXAMPLES, "2026-11-21")
def _find_example_accounts(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """An environment in a real account names no example account of the AWS documentation."""
    environment = context.environment
    # the environment is an example itself; account-real warns
    if environment.account in EXAMPLE_ACCOUNTS:
        return
    for path, text in _yield_texts(
        environment.model_dump(mode="json", exclude={"account"}, warnings=False)
    ):
        match = _EXAMPLE.search(text)
        if match:
            legal = f"nothing of {match[0]}, an account of the AWS documentation"
            yield RuleFinding(path, text, legal, "write your own: this one came with a copied file")


def _gitops_delivery(context: EnvironmentContext) -> GitopsDelivery:
    if not isinstance(context.environment.delivery, GitopsDelivery):
        raise UnknownValueError("delivery.repo_url")
    return context.environment.delivery


def _parse_repo_url(context: EnvironmentContext) -> SplitResult:
    """Return the parts of the repository's URL; empty parts for an invalid one."""
    try:
        return urlsplit(_gitops_delivery(context).repo_url)
    except ValueError:
        return urlsplit("")


@RULES.refuse("repository-readable", "RFC 3986", "2005-01-01")
def _find_unreadable_url(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The repository's URL has a host."""
    if not _parse_repo_url(context).hostname:
        got = repr(_gitops_delivery(context).repo_url)
        yield RuleFinding("delivery.repo_url", got, "a URL with a host", "write the clone URL")


@RULES.warn("repository-real", "RFC 2606", "1999-06-01")
def _find_placeholder_host(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The repository's host is not one reserved for examples."""
    host = _parse_repo_url(context).hostname or ""
    if any(host == name or host.endswith(f".{name}") for name in EXAMPLE_DOMAINS):
        change = "write its URL: the controller will find nothing there"
        yield RuleFinding(
            "delivery.repo_url", f"the placeholder host {host}", "your repository", change
        )


@RULES.refuse("repository-secret", "RFC 3986, section 3.2.1", "2005-01-01")
def _find_url_credentials(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The repository's URL carries no credentials."""
    url = _parse_repo_url(context)
    if url.password is not None or (url.scheme == "https" and url.username is not None):
        change = "delete them, and give the controller a secret of its own: manifests are committed"
        # never the URL itself, which is printed and stored
        got = "a user name or password in the URL"
        yield RuleFinding("delivery.repo_url", got, "a URL without credentials", change)


@RULES.refuse(
    "path-own", "Tandem's own: each cluster would apply the other's manifests", "2026-11-21"
)
def _find_shared_path(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """No two environments sync the same folder."""
    delivery = _gitops_delivery(context)
    keys = ("repo_url", "revision", "path")
    source = [getattr(delivery, key) for key in keys]
    for peer in context.other_environments:
        if source == [getattr(peer.delivery, key, None) for key in keys]:
            got = f"{delivery.path}, as in environment {peer.name}"
            change = f"write manifests/{context.environment.name}"
            yield RuleFinding("delivery.path", got, "a folder of its own", change)


@RULES.warn("path-rendered", "charts/tree.py: manifests/<environment>", "2026-11-21")
def _find_unrendered_path(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The synced folder is the rendered one: its last part is the environment's name."""
    path = _gitops_delivery(context).path
    name = context.environment.name
    if path.rpartition("/")[2] != name:
        legal = f"a folder named {name}, as `tandem render` writes it"
        change = f"write manifests/{name}, or copy what is rendered to {path} with every commit"
        yield RuleFinding("delivery.path", path, legal, change)


@RULES.refuse_repeats("hosted-once", "Tandem's own: an experiment is one namespace", "2026-11-21")
def _list_hosted_names(context: EnvironmentContext) -> Iterable[tuple[str, str]]:
    """An environment hosts each experiment once."""
    return index_paths("experiments", context.environment.experiments)


def _find_long_name(path: str, name: str, limit: int, resource: str) -> Iterator[RuleFinding]:
    if len(name) > limit:
        owner = "the file's" if path == "name" else "its"
        change = f"shorten {owner} name by {len(name) - limit}"
        yield RuleFinding(
            path, f"{name}, {len(name)} characters", f"at most {limit} for a {resource}", change
        )


@RULES.refuse("environment-name", _RESOURCE_NAMES, "2026-11-21")
def _find_long_environment_name(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """Every resource's name made from the environment's is short enough."""
    # the longest names, with an existing bucket and without; all others have more room
    if context.environment.artifacts.existing_bucket:
        yield from _find_long_name(
            "name", names.scheduler_role_name(context.environment), 64, "IAM role"
        )
    else:
        yield from _find_long_name(
            "name", names.log_bucket_name(context.environment), 63, "S3 log bucket"
        )


@RULES.refuse("experiment-name", _OBJECT_NAMES, "2026-11-21")
def _find_long_experiment_names(context: ExperimentContext) -> Iterable[RuleFinding]:
    """Every resource's name made from the experiment's or a variant's is short enough."""
    volume = f"{context.experiment.name}-{'0' * DIGEST_CHARACTERS}-{'0' * names.BUCKET_CHARACTERS}"
    yield from _find_long_name("name", volume, 63, "volume")  # the namespace has more room
    arms = sorted(context.arms, key=lambda arm: len(arm.variant.name))
    for path, name in {arm.paths["name"]: arm.variant.name for arm in arms}.items():
        yield from _find_long_name(path, name, 46, "Deployment (its pods add 17)")


@RULES.refuse("experiment-folder", _FOLDERS, "2026-11-21")
def _find_folder_collision(context: ExperimentContext) -> Iterable[RuleFinding]:
    """An experiment's folder of manifests and its dashboard are its own."""
    name = context.experiment.name
    if name in FOLDER_NAMES:
        legal = (
            "a name that no folder of manifests/<environment>/"
            " and no dashboard of an environment has"
        )
        yield RuleFinding("name", repr(name), legal, "rename the file")


@RULES.refuse("environment-words", _ALARM_NAMES, "2026-11-22")
def _find_notify_word(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """No word of the environment's name is {NOTIFY}."""
    name = context.environment.name
    if NOTIFY in name.split("-"):
        legal = (
            f"a name without the word {NOTIFY},"
            " by which alarms of `prod` are told from those of `prod-eu`"
        )
        yield RuleFinding("name", repr(name), legal, "rename the file")


@RULES.refuse("bucket-name", _BUCKET_NAMES, "2026-11-21")
def _find_bad_bucket_name(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """An existing bucket's name is one that S3 allows."""
    name = context.environment.artifacts.existing_bucket or ""
    is_reserved = name.startswith(S3_RESERVED_PREFIXES) or name.endswith(S3_RESERVED_SUFFIXES)
    if is_reserved or ".." in name or ADDRESS.fullmatch(name):
        legal = "no two dots in a row, no IP address, no start or end that S3 reserves"
        yield RuleFinding(
            "artifacts.existing_bucket", repr(name), legal, "write the bucket's own name"
        )


def _find_foreign_key(
    context: EnvironmentContext, path: str, key_arn: str | None, service: str
) -> Iterator[RuleFinding]:
    region = context.environment.region
    if key_arn is not None and key_arn.split(":")[3] != region:
        got = f"a key in {key_arn.split(':')[3]}"
        legal = f"a key in {region}: {service} takes none of another region"
        yield RuleFinding(path, got, legal, f"write the ARN of a key in {region}")


@RULES.refuse("bucket-key", _BUCKET_KEYS, "2026-11-22")
def _find_foreign_bucket_key(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The key of the bucket lies in its region."""
    key_arn = context.environment.artifacts.kms_key_arn
    return _find_foreign_key(context, "artifacts.kms_key_arn", key_arn, "S3")


@RULES.refuse("log-key", _LOG_KEYS, "2026-11-28")
def _find_foreign_log_key(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The key of the logs lies in their region."""
    key_arn = context.environment.log_kms_key_arn
    return _find_foreign_key(context, "log_kms_key_arn", key_arn, "CloudWatch Logs")


def _is_tag_text(text: str) -> bool:
    r"""Whether IAM takes the text in a tag: [\p{L}\p{Z}\p{N}_.:/=+\-@], no newline or tab."""
    return all(
        character in "_.:/=+-@" or unicodedata.category(character)[0] in "LZN" for character in text
    )


@RULES.refuse("tags-fit", _TAGS, "2026-11-28")
def _find_bad_tags(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """At most {MOST_TAGS} tags, of lengths and letters that all take, none with aws: or tandem:."""
    tags = context.environment.tags
    if len(tags) > MOST_TAGS:
        yield RuleFinding(
            "tags", f"{len(tags)} tags", f"at most {MOST_TAGS}", f"delete {len(tags) - MOST_TAGS}"
        )
    for key, value in tags.items():
        path = f"tags.{key}"
        prefix = key.lower().partition(":")[0]
        if ":" in key and prefix in RESERVED_TAG_PREFIXES:
            yield RuleFinding(
                path, f"the key {key!r}", f"keys without the prefix {prefix}:", "rename it"
            )
        for part, text, limit in (("key", key, KEY_LENGTH), ("value", value, VALUE_LENGTH)):
            if len(text) > limit or not _is_tag_text(text) or not text:
                legal = f"1 to {limit} letters, digits, spaces and _ . : / = + - @"
                got = f"the {part} {text[:40]!r}, {len(text)} characters"
                yield RuleFinding(path, got, legal, f"rewrite the {part}")


@RULES.refuse(
    "tags-once",
    "IAM user guide, Rules for tagging: keys that differ only in case are one",
    "2026-11-28",
)
def _find_repeated_tags(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """No two keys of tags are equal but for their case."""
    keys_by_name: dict[str, str] = {}
    for key in context.environment.tags:
        first_key = keys_by_name.setdefault(key.lower(), key)
        if first_key != key:
            got = f"the key {key!r} beside {first_key!r}"
            legal = "keys that differ in more than case: IAM takes one"
            yield RuleFinding(f"tags.{key}", got, legal, "delete one of them")


@RULES.warn("tags-name", "Tandem's own: a tag of the file goes before a stack's own", "2026-11-28")
def _find_name_tag(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """No tag is Name: it would give every resource the same name in the console."""
    name = context.environment.tags.get("Name")
    if name is not None:
        got = f"{name!r}, the Name of every resource"
        legal = "no Name: each resource has one of its own"
        yield RuleFinding("tags.Name", got, legal, "rename the key, such as Team, or delete it")
