"""Texts and numbers that a declared file may hold: each type says in words what it takes.

Invariant: a pattern admits nothing that a registry, git, IAM or Kubernetes would read otherwise.
"""

from __future__ import annotations

import re
from datetime import UTC, date
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from tandem.declarations.record import ADVICE


def match_text(pattern: str, allowed: str) -> Any:
    """Return the field of a text that matches `pattern`; `allowed` says in words what does."""
    return Field(pattern=pattern, json_schema_extra={"allowed": allowed})


def _refuse_session(arn: object) -> object:
    """Answer the ARN of a session, which GetCallerIdentity prints, with that of its role."""
    session = _SESSION.fullmatch(arn) if isinstance(arn, str) else None
    if session is None:
        return arn
    partition, account, name = session.groups()
    command = f"aws iam get-role --role-name {name} --query Role.Arn"
    advice = f"write the role of this session: arn:{partition}:iam::{account}:role/{name}"
    raise PydanticCustomError(
        ADVICE, "{advice}", {"advice": f"{advice}, with its path if it has one ({command})"}
    )


def _refuse_pool(name: str) -> str:
    """Refuse the class that pools all classes of a suite."""
    if name == "all":
        raise PydanticCustomError("pool", "the pool of all classes")
    return name


_CIDR = r"[0-9]{1,3}(\.[0-9]{1,3}){3}/[0-9]{1,2}"
_PRINCIPAL = (
    r"^arn:aws[a-z-]*:iam::[0-9]{12}:(role|user)/([A-Za-z0-9_+=,.@-]+/)*[A-Za-z0-9_+=,.@-]+$"
)
_SESSION = re.compile(r"arn:(aws[a-z-]*):sts::([0-9]{12}):assumed-role/([A-Za-z0-9_+=,.@-]+)/.*")
_LABEL = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
_REGISTRY = r"^[a-z0-9][a-z0-9.-]*\.[a-z0-9-]+(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$"
_KEY = r"^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/(mrk-[0-9a-f]{32}|[0-9a-f-]{36})$"
_HUB = r"^https://[a-z0-9][a-z0-9.-]*(:[0-9]{1,5})?(/[A-Za-z0-9._~-]+)*$"
_FOLDER = r"^\.?[A-Za-z0-9_][A-Za-z0-9._-]*(/\.?[A-Za-z0-9_][A-Za-z0-9._-]*)*$"
_FILE = r"^([A-Za-z0-9_][A-Za-z0-9._-]*/)*[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)+$"
_CLASS = r"^[a-z0-9][a-z0-9-]{0,31}$"
_512_LETTERS = "the name of a secret, up to 512 letters, digits and / _ + = . @ -"
_CLIENT_WORDS = "an IPv4 range such as 10.42.0.0/16, or the id of a security group, sg-..."
_NAME_WORDS = "lower-case letters, digits and dashes, starting with a letter, at most 63"
_PURCHASE = r"^[a-z0-9.]+ (capacity-block|reservation|spot|on-demand)$"
_ADDRESS_WORDS = "an e-mail address, an https:// URL or an ARN, as the protocol has it"
_RUN_WORDS = "a run id: letters, digits and dashes, at most 128"

Account = Annotated[str, match_text(r"^[0-9]{12}$", "12 digits in quotes")]
Region = Annotated[str, match_text(r"^[a-z]{2}(-[a-z]+)+-[0-9]$", "a region name")]
ZoneId = Annotated[
    str, match_text(r"^[a-z0-9]+-az[0-9]$", "a zone id such as use2-az1, never a letter")
]
Cidr = Annotated[str, match_text(rf"^{_CIDR}$", "an IPv4 range such as 10.42.0.0/16")]
ApiClient = Annotated[str, match_text(rf"^(sg-[0-9a-f]{{8,17}}|{_CIDR})$", _CLIENT_WORDS)]
PrincipalArn = Annotated[
    str,
    BeforeValidator(_refuse_session),
    match_text(_PRINCIPAL, "the ARN of one IAM role or user, without wildcards"),
]
Label = Annotated[str, match_text(_LABEL, "lower-case letters, digits and dashes, at most 63")]
# of what we make: a Service and a CDK stage both need the letter first
Name = Annotated[str, match_text(r"^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$", _NAME_WORDS)]
SubnetId = Annotated[str, match_text(r"^subnet-[0-9a-f]{8,17}$", "a subnet id")]
VpcId = Annotated[str, match_text(r"^vpc-[0-9a-f]{8,17}$", "a VPC id")]
RegistryName = Annotated[str, match_text(_REGISTRY, "a registry host, with or without a path")]
BucketName = Annotated[str, match_text(r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", "a bucket name")]
KmsKeyArn = Annotated[str, match_text(_KEY, "the ARN of a KMS key by its id, no alias")]
HubUrl = Annotated[
    str, match_text(_HUB, "an https:// URL without credentials and without end slash")
]
SecretName = Annotated[str, match_text(r"^[A-Za-z0-9/_+=.@-]{1,512}$", _512_LETTERS)]
ReservationId = Annotated[str, match_text(r"^cr-[0-9a-f]{17}$", "cr- and 17 hexadecimal digits")]
PricedPurchase = Annotated[
    str, match_text(_PURCHASE, "instance type and kind, such as trn2.3xlarge spot")
]
IndexUrl = Annotated[str, match_text(r"^https://[^\s@]+$", "an https:// URL without a user name")]
BootstrapQualifier = Annotated[
    str, match_text(r"^[a-z0-9]{1,10}$", "1 to 10 lower-case letters and digits")
]
AmiRelease = Annotated[
    str,
    match_text(
        r"^1\.[0-9]{2}\.[0-9]+-20[0-9]{2}(0[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01])$",
        "a release and its day, such as 1.36.2-20260714",
    ),
]
KubernetesVersion = Annotated[
    str, match_text(r"^1\.[0-9]{2}$", 'a minor in quotes, such as "1.36"')
]
RepositoryUrl = Annotated[str, match_text(r"^(https|ssh)://\S+$", "an https:// or ssh:// URL")]
GitRevision = Annotated[str, match_text(r"^[^\s-]\S*$", "a git revision, without blanks")]
RelativeFolder = Annotated[
    str, match_text(_FOLDER, "a relative folder, without `..`, blanks or end slash")
]
SubscriberAddress = Annotated[str, match_text(r"^[!-~]{3,1024}$", _ADDRESS_WORDS)]
ProjectFile = Annotated[
    str,
    Field(max_length=255),  # as the last part alone may have on a disk
    match_text(_FILE, "a relative path with an ending, such as prompts/support.jsonl"),
]
ClassName = Annotated[
    str,
    match_text(_CLASS, "a prompt class: at most 32 lower-case letters, digits and -, not all"),
    AfterValidator(_refuse_pool),
]
PromptClass = Annotated[str, match_text(_CLASS, "a prompt class of its suites, or all")]
Digest = Annotated[
    str, match_text(r"^[0-9a-f]{64}$", "a SHA-256, 64 hexadecimal digits in lower case")
]
RunId = Annotated[str, match_text(r"^[A-Za-z0-9][A-Za-z0-9-]{0,127}$", _RUN_WORDS)]
Date = date  # a field of this name hides the type
Price = Annotated[float | None, Field(ge=0, le=10_000)]
# of CloudWatch Logs
LogDays = Literal[1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1827, 3653]

UtcMoment = Annotated[
    AwareDatetime,
    AfterValidator(lambda moment: moment.astimezone(UTC)),
    Field(json_schema_extra={"allowed": "a moment with its offset, such as 2026-12-01T11:30:00Z"}),
]
