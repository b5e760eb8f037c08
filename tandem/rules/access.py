"""Who reaches the cluster, and as whom."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from datetime import date

from tandem.rules.network import PRIVATE, network_of
from tandem.rules.rule import Finding, Rule, listed
from tandem.rules.subjects import Stamp
from tandem.spec.environment import Access

WIDEST = 8  # the largest block a registry ever gave one organisation; anything wider is everybody
SHARED = ipaddress.IPv4Network("100.64.0.0/10")  # RFC 6598, which EKS admits as a VPC's secondary range
POLICY_NAME = re.compile(r"[\w+=,.@-]{1,128}", re.ASCII)  # IAM API Reference, CreatePolicy


def _named(stamp: Stamp) -> Iterable[Finding]:
    endpoint = stamp.environment.cluster.endpoint
    if endpoint.access == "public" and not endpoint.cidrs:
        yield Finding(
            path="cluster.endpoint.cidrs", got="none with a public endpoint",
            allowed="the ranges your people come from",
            change="name them, or write access: private",
        )  # fmt: skip


def _open(stamp: Stamp) -> Iterable[Finding]:
    for index, cidr in enumerate(stamp.environment.cluster.endpoint.cidrs):
        block = network_of(cidr)
        if block is not None and block.prefixlen < WIDEST:
            yield Finding(
                path=f"cluster.endpoint.cidrs[{index}]", got=cidr, allowed=f"a prefix of /{WIDEST} or longer",
                change="name the ranges your people come from, or write access: private",
            )  # fmt: skip


def _routed(stamp: Stamp) -> Iterable[Finding]:
    endpoint = stamp.environment.cluster.endpoint
    for index, cidr in enumerate(endpoint.cidrs):
        block = network_of(cidr)
        if endpoint.access == "public" and block is not None and any(block.subnet_of(private) for private in PRIVATE):
            yield Finding(
                path=f"cluster.endpoint.cidrs[{index}]", got=cidr,
                allowed="public ranges: no private address arrives there",
                change="delete it: the VPC itself always reaches the endpoint",
            )  # fmt: skip


def _unused(stamp: Stamp) -> Iterable[Finding]:
    endpoint = stamp.environment.cluster.endpoint
    if endpoint.access == "private" and endpoint.cidrs:
        yield Finding(
            path="cluster.endpoint.cidrs", got=f"{listed(endpoint.cidrs)} with a private endpoint",
            allowed="none with a private endpoint", change="delete them, or write access: public",
        )  # fmt: skip


def _clients_private(stamp: Stamp) -> Iterable[Finding]:
    for index, client in enumerate(stamp.environment.cluster.endpoint.clients):
        block = None if client.startswith("sg-") else network_of(client)
        if block is not None and not any(block.subnet_of(private) for private in (*PRIVATE, SHARED)):
            yield Finding(
                path=f"cluster.endpoint.clients[{index}]", got=client,
                allowed=f"inside {listed((*PRIVATE, SHARED))}: no other address arrives at the API's private one",
                change="delete it, or with access: public write it into cluster.endpoint.cidrs",
            )  # fmt: skip


def _admin(stamp: Stamp) -> Iterable[Finding]:
    if not stamp.environment.cluster.access.admin:
        yield Finding(
            path="cluster.access.admin", got="nobody", allowed="at least one IAM role or user",
            change="name a role: whoever creates the cluster gets no rights in it",
        )  # fmt: skip


def _principal_once(stamp: Stamp) -> Iterable[Finding]:
    access = stamp.environment.cluster.access
    first: dict[str, str] = {}
    for kind in Access.model_fields:
        for index, arn in enumerate(getattr(access, kind)):
            path = f"cluster.access.{kind}[{index}]"
            if arn in first:
                yield Finding(
                    path=path, got=f"{arn}, which is also {first[arn]}", allowed="each principal once",
                    change="delete one: a principal has one access entry",
                )  # fmt: skip
            first.setdefault(arn, path)


def _boundary(stamp: Stamp) -> Iterable[Finding]:
    boundary = stamp.environment.bootstrap.permissions_boundary
    if boundary is not None and not POLICY_NAME.fullmatch(boundary):
        folder, _, name = boundary.rpartition("/")
        plain = POLICY_NAME.fullmatch(name) and folder.endswith(":policy")  # a policy with a path has no such name
        yield Finding(
            path="bootstrap.permissions_boundary", got=repr(boundary),
            allowed="the name of a managed policy, not its ARN",
            change=f"write {name}" if plain else "write the name of a policy whose path is /",
        )  # fmt: skip


_ENDPOINT = "EKS API Reference, VpcConfigRequest publicAccessCidrs"

RULES: tuple[Rule[Stamp], ...] = (
    Rule(
        id="endpoint-named", of=Stamp, severity="refusal", find=_named,
        sentence="a public endpoint names the ranges it admits", source=_ENDPOINT, date=date(2026, 11, 21),
    ),
    Rule(
        id="endpoint-open", of=Stamp, severity="refusal", find=_open,
        sentence=f"no admitted range is wider than /{WIDEST}", source=f"{_ENDPOINT}; cdk-nag AwsSolutions-EKS1",
        date=date(2026, 11, 21),
    ),
    Rule(
        id="endpoint-routed", of=Stamp, severity="refusal", find=_routed,
        sentence="a public endpoint admits public ranges only", source="RFC 1918", date=date(1996, 2, 1),
    ),
    Rule(
        id="endpoint-unused", of=Stamp, severity="refusal", find=_unused,
        sentence="a private endpoint names no ranges", source=_ENDPOINT, date=date(2026, 11, 21),
    ),
    Rule(
        id="clients-private", of=Stamp, severity="refusal", find=_clients_private,
        sentence="who reaches the API's private address comes from a private range or a security group",
        source="RFC 1918, RFC 6598", date=date(2026, 11, 22),
    ),
    Rule(
        id="admin-named", of=Stamp, severity="refusal", find=_admin,
        sentence="somebody is admin of the cluster",
        source="EKS API Reference, CreateAccessConfigRequest bootstrapClusterCreatorAdminPermissions, rendered false",
        date=date(2026, 11, 21),
    ),
    Rule(
        id="principal-once", of=Stamp, severity="refusal", find=_principal_once,
        sentence="each principal is of one kind only",
        source="docs.aws.amazon.com/eks/latest/userguide/creating-access-entries.html", date=date(2026, 11, 21),
    ),
    Rule(
        id="boundary-name", of=Stamp, severity="refusal", find=_boundary,
        sentence="the permissions boundary is a policy's name", source="IAM API Reference, CreatePolicy",
        date=date(2026, 11, 21),
    ),
)  # fmt: skip
