"""An account to examine: the local endpoint, and in front of it what it does not know, over real
HTTP.

The endpoint knows no offerings, quotas, reservations, add-on versions, cluster versions and no
rules of a pull-through cache. `ServerOffers` answers these in the services' own wire forms, and
hands everything else on.
"""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

import boto3
from committed import experiment, known
from doubles.fault_proxy.proxy import FaultProxy
from doubles.loopback import Question, answer_requests

from rehearsal.aws.endpoint import AwsEndpoint
from tandem.declarations import names
from tandem.declarations.environment import Environment
from tandem.declarations.network_settings import ExistingNetwork, ExistingSubnet
from tandem.declarations.record import SpecRecord
from tandem.ops.account import AccountClients
from tandem.ops.doctor.context import DoctorContext, Finding
from tandem.ops.doctor.runner import CHECKS, run_checks
from tandem.run.suite_findings import judge_bucket_suite

ACCOUNT = "222233334444"
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
RESERVATION = "cr-0123456789abcdef0"
DIGEST = "sha256:" + "ab" * 32
# as hashicorp/terraform-provider-aws#37636 records it
MEMBER = (
    "Failed to list Cost Allocation Tags: Linked account doesn't have access to cost allocation"
    " tags."
)
Answered = tuple[int, dict[str, str], bytes]
TYPE = "trn2.48xlarge"
ZONE = "use2-az3"
REGION = "us-east-2"


def block(**changes: Any) -> dict[str, Any]:
    """A Capacity Block as EC2 describes it."""
    return {
        "capacityReservationId": RESERVATION,
        "ownerId": ACCOUNT,
        "instanceType": TYPE,
        "availabilityZoneId": ZONE,
        "totalInstanceCount": 1,
        "availableInstanceCount": 1,
        "state": "active",
        "reservationType": "capacity-block",
        "startDate": "2026-11-21T11:30:00Z",
        "endDate": "2026-11-23T11:30:00Z",
        "createDate": "2026-11-20T09:00:00Z",
        **changes,
    }


def extension(status: str, **changes: Any) -> dict[str, Any]:
    """An extension of that block by a day, as EC2 lists it."""
    return {
        "capacityReservationId": RESERVATION,
        "capacityBlockExtensionStatus": status,
        "capacityBlockExtensionPurchaseDate": "2026-11-21T11:45:00Z",
        "capacityBlockExtensionEndDate": "2026-11-24T11:30:00Z",
        **changes,
    }


@dataclass
class Facts:
    """What the account is offered."""

    offered: dict[str, list[str]] = field(default_factory=dict)
    reservations: list[dict[str, Any]] = field(default_factory=list)
    extensions: list[dict[str, Any]] = field(default_factory=list)
    scale_down: str = ""
    """When EKS's own scheduled action empties the node group; empty: there is none."""
    quotas: dict[str, float] = field(default_factory=dict)
    default_quotas: dict[str, float] = field(default_factory=dict)
    cache_rules: list[str] = field(default_factory=list)
    addons: dict[str, list[str]] = field(default_factory=dict)
    default_addon: dict[str, str] = field(default_factory=dict)
    addon_schema: dict[str, Any] = field(default_factory=dict)
    """Schema of the configuration of any add-on; the empty one admits everything."""
    minors: dict[str, dict[str, Any]] = field(default_factory=dict)
    secrets: dict[str, dict[str, Any]] = field(default_factory=dict)
    ami_release: str = "1.36.2-20260625"
    cost_tags: dict[str, str] = field(default_factory=dict)
    """Key of a tag that AWS Billing knows to its status."""
    price_list: dict[str, list[float]] = field(default_factory=dict)
    """Usage type to the on-demand price of each product that the Price List has of it."""
    member: bool = False
    """Whether the account is a member of an organization, which may not see these."""
    subscriptions: dict[str, str] | None = None
    """Endpoint to its ARN; None asks the local endpoint, which confirms mail by itself."""
    suspended: list[str] | None = None
    """Suspended processes of any Auto Scaling group; None asks the local endpoint, which suspends
    none."""
    buckets: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Name to the status of a HEAD and the region that it says."""


def good_facts() -> Facts:
    """All that a healthy account offers to the example."""
    minor = known().kubernetes.minors["1.36"]
    ends = datetime.combine(minor.standard_support_ends.value or NOW, datetime.min.time(), UTC)
    return Facts(
        offered={TYPE: ["use2-az1", ZONE], "m7i.xlarge": ["use2-az1", "use2-az2", ZONE]},
        reservations=[block()],
        quotas={
            "Running On-Demand Trn instances": 192.0,
            "All Trn Spot Instance Requests": 192.0,
            "Concurrently running builds for Linux/Small environment": 1.0,
        },
        addons={name: [figure.value] for name, figure in minor.addons.items() if figure.value},
        cost_tags={names.OWNER_TAG: "Active"},
        price_list=good_prices(),
        minors={
            "1.36": {
                "versionStatus": "STANDARD_SUPPORT",
                "endOfStandardSupportDate": ends.timestamp(),
            }
        },
    )


def good_prices() -> dict[str, list[float]]:
    """The prices of us-east-2 as the data have them, and one that they lack."""
    return {
        "USE2-AmazonEKS-Hours:perCluster": [0.10],
        "USE2-BoxUsage:m7i.xlarge": [0.2016],
        "USE2-EBS:VolumeUsage.gp3": [0.08],
        "USE2-NatGateway-Hours": [0.045],
        "USE2-NatGateway-Bytes": [0.045],
        "USE2-PublicIPv4:InUseAddress": [0.005],
        "USE2-VpcEndpoint-Hours": [0.01],
    }


class Offers:
    """Answers from `facts`; hands the rest to the endpoint."""

    def __init__(self, facts: Facts, endpoint: AwsEndpoint) -> None:
        self.facts = facts
        self.upstream = urlsplit(endpoint.url).netloc
        self.url = ""

    @contextlib.contextmanager
    def served(self) -> Iterator[Self]:
        """Answer for the account."""
        with answer_requests(self._answer) as self.url:
            yield self

    def _answer(self, question: Question) -> Answered:
        head_answer = (
            self.facts.buckets.get(question.path.strip("/")) if question.method == "HEAD" else None
        )
        if head_answer is not None:
            return head_answer[0], {"x-amz-bucket-region": head_answer[1]}, b""
        if self.facts.member and question.headers.get("X-Amz-Target", "").endswith(
            ".ListCostAllocationTags"
        ):
            status = 400
            known = _json({"__type": "AccessDeniedException", "Message": MEMBER})
        else:
            status = 200
            known = self._known(question)
        return (status, {"Content-Type": known[0]}, known[1]) if known else self._hand_on(question)

    def _hand_on(self, question: Question) -> Answered:
        upstream = http.client.HTTPConnection(self.upstream, timeout=60)
        upstream.putrequest(
            question.method, question.path, skip_host=True, skip_accept_encoding=True
        )
        for name, value in question.headers.items():
            if name.lower() not in {"connection", "expect"}:
                upstream.putheader(name, value)
        upstream.endheaders(question.body)
        answer = upstream.getresponse()
        body = answer.read()
        upstream.close()
        left_out = {"connection", "transfer-encoding", "date", "server"}
        return (
            answer.status,
            {name: value for name, value in answer.getheaders() if name.lower() not in left_out},
            body,
        )

    def _known(self, question: Question) -> tuple[str, bytes] | None:
        body = question.body
        target = question.headers.get("X-Amz-Target", "").rpartition(".")[2]
        path, _, query = question.path.partition("?")
        query = dict(parse_qsl(query)) | dict(parse_qsl(body.decode(errors="replace")))
        answers: dict[str, Callable[[], tuple[str, bytes] | None]] = {
            "ListServiceQuotas": lambda: _json({"Quotas": _quotas(self.facts.quotas)}),
            "ListAWSDefaultServiceQuotas": lambda: _json(
                {"Quotas": _quotas(self.facts.default_quotas)}
            ),
            "DescribePullThroughCacheRules": lambda: _json(
                {"pullThroughCacheRules": self._rules()}
            ),
            "ListCostAllocationTags": lambda: _json(
                {"CostAllocationTags": self._cost_tags(json.loads(body)["TagKeys"])}
            ),
            "GetProducts": lambda: _json(
                {"PriceList": self._products(json.loads(body)["Filters"])}
            ),
            "GetParameter": lambda: self._parameter(json.loads(body)["Name"]),
            "DescribeSecret": lambda: self._secret(json.loads(body)["SecretId"]),
            "/addons/supported-versions": lambda: _json({"addons": self._addons(query)}),
            "/addons/configuration-schemas": lambda: _json(
                {"configurationSchema": json.dumps(self.facts.addon_schema)}
            ),
            "/cluster-versions": lambda: _json({"clusterVersions": self._minors(query)}),
            "DescribeInstanceTypeOfferings": lambda: _xml(
                "instanceTypeOfferingSet", self._offered(query)
            ),
            "DescribeCapacityReservations": lambda: _xml(
                "capacityReservationSet", self._reserved(query)
            ),
            "DescribeCapacityBlockExtensionHistory": lambda: _xml(
                "capacityBlockExtensionSet", self.facts.extensions
            ),
            "DescribeScheduledActions": lambda: _scheduled_actions(query, self.facts.scale_down),
            "ListSubscriptionsByTopic": lambda: _subscribed(self.facts.subscriptions),
            "DescribeAutoScalingGroups": lambda: _scaling_group(query, self.facts.suspended),
        }
        answer = answers.get(target or query.get("Action", path))
        return answer() if answer else None

    def _rules(self) -> list[dict[str, str]]:
        return [{"ecrRepositoryPrefix": row} for row in self.facts.cache_rules]

    def _cost_tags(self, keys: list[str]) -> list[dict[str, str]]:
        known = {key: status for key, status in self.facts.cost_tags.items() if key in keys}
        return [
            {"TagKey": key, "Type": "UserDefined", "Status": status}
            for key, status in known.items()
        ]

    def _products(self, filters: list[dict[str, str]]) -> list[str]:
        usage = next(row["Value"] for row in filters if row["Field"] == "usagetype")
        products = []
        for number, usd in enumerate(self.facts.price_list.get(usage, [])):
            dimension = {"beginRange": "0", "unit": "Hrs", "pricePerUnit": {"USD": f"{usd:.10f}"}}
            term = {"priceDimensions": {f"SKU{number}.JRTCKXETXF.6YS6EN2CT7": dimension}}
            terms = {"OnDemand": {f"SKU{number}.JRTCKXETXF": term}}
            products.append(
                json.dumps({"product": {"attributes": {"usagetype": usage}}, "terms": terms})
            )
        return products

    def _parameter(self, name: str) -> tuple[str, bytes] | None:
        is_public = name.startswith(
            "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/neuron/"
        )
        return (
            _json({"Parameter": {"Name": name, "Value": self.facts.ami_release}})
            if is_public
            else None
        )

    def _secret(self, name: str) -> tuple[str, bytes] | None:
        secret = self.facts.secrets.get(name)
        return None if secret is None else _json(secret)

    def _addons(self, query: dict[str, str]) -> list[dict[str, Any]]:
        name = query["addonName"]
        version = query["kubernetesVersion"]
        versions = self.facts.addons.get(name, [])
        default = self.facts.default_addon.get(name, versions[0] if versions else "")
        rows = [
            {
                "addonVersion": row,
                "compatibilities": [{"clusterVersion": version, "defaultVersion": row == default}],
            }
            for row in versions
        ]
        return [{"addonName": name, "addonVersions": rows}] if rows else []

    def _minors(self, query: dict[str, str]) -> list[dict[str, Any]]:
        row = self.facts.minors.get(query.get("clusterVersions", ""))
        return [{"clusterVersion": query["clusterVersions"], **row}] if row else []

    def _offered(self, form: dict[str, str]) -> list[dict[str, Any]]:
        kind = form["Filter.1.Value.1"]
        return [
            {"instanceType": kind, "location": zone} for zone in self.facts.offered.get(kind, [])
        ]

    def _reserved(self, form: dict[str, str]) -> list[dict[str, Any]]:
        reservation = form["CapacityReservationId.1"]
        return [
            row for row in self.facts.reservations if row["capacityReservationId"] == reservation
        ]


def _json(value: dict[str, Any]) -> tuple[str, bytes]:
    return "application/json", json.dumps(value).encode()


def _quotas(values: dict[str, float]) -> list[dict[str, Any]]:
    return [
        {"QuotaName": name, "QuotaCode": "L-00000000", "Value": value}
        for name, value in values.items()
    ]


def _write_xml(value: object, item: str) -> str:
    """Write keys as elements, and each item of a list as an element of one name."""
    if isinstance(value, dict):
        return "".join(f"<{key}>{_write_xml(row, item)}</{key}>" for key, row in value.items())
    if isinstance(value, list):
        return "".join(f"<{item}>{_write_xml(row, item)}</{item}>" for row in value)
    return str(value)


def _xml(name: str, rows: list[dict[str, Any]]) -> tuple[str, bytes]:
    """An answer of EC2's."""
    return "text/xml", _write_xml({"Response": {name: rows}}, "item").encode()


def _query_xml(operation: str, fields: dict[str, Any]) -> tuple[str, bytes]:
    """An answer of a service that speaks the query protocol."""
    answer = {f"{operation}Response": {f"{operation}Result": fields}}
    return "text/xml", _write_xml(answer, "member").encode()


def _scaling_group(query: dict[str, str], suspended: list[str] | None) -> tuple[str, bytes] | None:
    if suspended is None:
        return None
    group = {
        "AutoScalingGroupName": query["AutoScalingGroupNames.member.1"],
        "DesiredCapacity": 0,
        "MinSize": 0,
        "SuspendedProcesses": [{"ProcessName": process} for process in suspended],
    }
    return _query_xml("DescribeAutoScalingGroups", {"AutoScalingGroups": [group]})


def _scheduled_actions(query: dict[str, str], moment: str) -> tuple[str, bytes]:
    name = query["ScheduledActionNames.member.1"]
    actions = [{"ScheduledActionName": name, "StartTime": moment}] if moment else []
    return _query_xml("DescribeScheduledActions", {"ScheduledUpdateGroupActions": actions})


def _subscribed(arns: dict[str, str] | None) -> tuple[str, bytes] | None:
    if arns is None:
        return None
    rows = [
        {"Protocol": "email", "Endpoint": endpoint, "SubscriptionArn": arn}
        for endpoint, arn in arns.items()
    ]
    return _query_xml("ListSubscriptionsByTopic", {"Subscriptions": rows})


class Session:
    """A session of boto3's that makes each client once: they take seconds on a busy machine."""

    def __init__(self) -> None:
        self._session = boto3.session.Session(
            aws_access_key_id=ACCOUNT,
            aws_secret_access_key="local",  # noqa: S106
        )
        self._made: dict[tuple[str, str], Any] = {}

    def client(self, service: str, *, region_name: str, config: Any) -> Any:
        key = (service, region_name)
        if key not in self._made:
            self._made[key] = self._session.client(service, region_name=region_name, config=config)
        return self._made[key]


@dataclass
class World:
    """The account behind a fault proxy, and a healthy environment of this test's own in it."""

    endpoint: AwsEndpoint
    proxy: FaultProxy
    offers: Offers
    session: Any
    environment: Environment
    digest_of: Callable[[str], str] = lambda _: DIGEST
    now: datetime = NOW

    @property
    def facts(self) -> Facts:
        return self.offers.facts

    def change(self, **fields: Any) -> Environment:
        """Change fields of the environment; `capacity={...}` changes fields of that section."""
        update = {
            name: (
                old.model_copy(update=value)
                if isinstance(old := getattr(self.environment, name), SpecRecord)
                and isinstance(value, dict)
                else value
            )
            for name, value in fields.items()
        }
        self.environment = self.environment.model_copy(update=update)
        return self.environment

    def alter(self, **changes: Any) -> None:
        """Set what the account offers, `name+` adding to it, and change the environment's other
        fields."""
        for name in [name for name in changes if hasattr(self.facts, name.rstrip("+"))]:
            value = changes.pop(name)
            offered = getattr(self.facts, name.rstrip("+"))
            setattr(
                self.facts, name.rstrip("+"), {**offered, **value} if name.endswith("+") else value
            )
        self.change(**changes)

    def account(self) -> AccountClients:
        return AccountClients(self.environment, self.session)

    def subject(self) -> DoctorContext:
        experiments = tuple(experiment(name) for name in self.environment.experiments)
        return DoctorContext(
            environment=self.environment,
            experiments=experiments,
            catalogue=known(),
            now=self.now,
            resolve_digest=self.digest_of,
            judge_suite=judge_bucket_suite,
        )

    def lines(self, *checks: str) -> tuple[Finding, ...]:
        """Examine; only these checks, and the credentials before them, where any are named."""
        checks_to_run = [
            check for check in CHECKS if not checks or check.id in {*checks, "credentials"}
        ]
        row = run_checks(self.subject(), self.account(), checks_to_run)
        return tuple(line for line in row if not checks or line.check in checks)

    def only(self, check: str) -> Finding:
        """The one line of a check."""
        (line,) = self.lines(check)
        return line

    def levels(self, check: str) -> list[str]:
        return [line.level for line in self.lines(check)]


def in_hours(hours: float) -> str:
    return f"{NOW + timedelta(hours=hours):%Y-%m-%dT%H:%M:%SZ}"


def cluster(world: World, *, version: str = "1.36", tags: dict[str, str] | None = None) -> None:
    name = world.environment.name
    owner = {names.OWNER_TAG: name} if tags is None else tags
    world.endpoint.client("eks").create_cluster(
        name=names.cluster_name(world.environment),
        roleArn="arn:aws:iam::222233334444:role/Operator",
        version=version,
        resourcesVpcConfig={"subnetIds": []},
        tags=owner,
    )


def node_group(
    world: World,
    *,
    desired: int = 0,
    tags: dict[str, str] | None = None,
    capacity_type: str = "ON_DEMAND",
) -> None:
    owner = {names.OWNER_TAG: world.environment.name} if tags is None else tags
    world.endpoint.client("eks").create_nodegroup(
        clusterName=names.cluster_name(world.environment),
        nodegroupName=names.node_group_name(world.environment),
        scalingConfig={"minSize": 0, "desiredSize": desired, "maxSize": 1},
        subnets=[],
        nodeRole="arn:aws:iam::222233334444:role/Operator",
        instanceTypes=["trn2.48xlarge"],
        tags=owner,
        capacityType=capacity_type,
    )


def schedule(world: World, name: str) -> None:
    """A schedule in the guard's group."""
    scheduler = world.endpoint.client("scheduler")
    group = names.schedule_group_name(world.environment)
    with contextlib.suppress(scheduler.exceptions.ConflictException):
        scheduler.create_schedule_group(Name=group)
    target = {
        "Arn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:q",
        "RoleArn": f"arn:aws:iam::{ACCOUNT}:role/r",
    }
    scheduler.create_schedule(
        Name=name,
        GroupName=group,
        ScheduleExpression="at(2036-01-01T00:00:00)",
        Target=target,
        FlexibleTimeWindow={"Mode": "OFF"},
    )


def bucket(world: World) -> None:
    world.endpoint.client("s3").create_bucket(
        Bucket=names.bucket_name(world.environment),
        CreateBucketConfiguration={"LocationConstraint": REGION},
    )


def existing(vpc_id: str, *subnets: tuple[str, str]) -> ExistingNetwork:
    return ExistingNetwork.model_construct(
        kind="existing",
        vpc_id=vpc_id,
        cidr="10.9.0.0/16",
        subnets=tuple(ExistingSubnet.model_construct(id=id_, zone=zone) for id_, zone in subnets),
    )
