"""Who reaches the cluster, and as whom."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from tandem.rules.contexts import EnvironmentContext
from tandem.rules.network import PRIVATE, parse_network
from tandem.rules.rule import RuleFinding, RuleList, join_values
from tandem.spec.environment import ClusterAccess

WIDEST_PREFIX = 8  # the largest block a registry ever gave one organisation; anything wider is everybody
SHARED = ipaddress.IPv4Network("100.64.0.0/10")  # RFC 6598, which EKS admits as a VPC's secondary range
POLICY_NAME = re.compile(r"[\w+=,.@-]{1,128}", re.ASCII)  # IAM API Reference, CreatePolicy

_ENDPOINT = "EKS API Reference, VpcConfigRequest publicAccessCidrs"
RULES = RuleList()


@RULES.refuse("endpoint-named", _ENDPOINT, "2026-11-21")
def _find_missing_cidrs(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """A public endpoint names the ranges it admits."""
    endpoint = context.environment.cluster.endpoint
    if endpoint.access == "public" and not endpoint.cidrs:
        yield RuleFinding(
            path="cluster.endpoint.cidrs", got="none with a public endpoint",
            allowed="the ranges your people come from",
            change="name them, or write access: private",
        )  # fmt: skip


@RULES.refuse(
    "endpoint-open",
    f"{_ENDPOINT}; cdk-nag AwsSolutions-EKS1",
    "2026-11-21",
    sentence=f"No admitted range is wider than /{WIDEST_PREFIX}.",
)
def _find_wide_cidrs(context: EnvironmentContext) -> Iterable[RuleFinding]:
    for index, cidr in enumerate(context.environment.cluster.endpoint.cidrs):
        block = parse_network(cidr)
        if block is not None and block.prefixlen < WIDEST_PREFIX:
            yield RuleFinding(
                path=f"cluster.endpoint.cidrs[{index}]", got=cidr, allowed=f"a prefix of /{WIDEST_PREFIX} or longer",
                change="name the ranges your people come from, or write access: private",
            )  # fmt: skip


@RULES.refuse("endpoint-routed", "RFC 1918", "1996-02-01")
def _find_private_cidrs(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """A public endpoint admits public ranges only."""
    endpoint = context.environment.cluster.endpoint
    for index, cidr in enumerate(endpoint.cidrs):
        block = parse_network(cidr)
        if endpoint.access == "public" and block is not None and any(block.subnet_of(private) for private in PRIVATE):
            yield RuleFinding(
                path=f"cluster.endpoint.cidrs[{index}]", got=cidr,
                allowed="public ranges: no private address arrives there",
                change="delete it: the VPC itself always reaches the endpoint",
            )  # fmt: skip


@RULES.refuse("endpoint-unused", _ENDPOINT, "2026-11-21")
def _find_unused_cidrs(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """A private endpoint names no ranges."""
    endpoint = context.environment.cluster.endpoint
    if endpoint.access == "private" and endpoint.cidrs:
        yield RuleFinding(
            path="cluster.endpoint.cidrs", got=f"{join_values(endpoint.cidrs)} with a private endpoint",
            allowed="none with a private endpoint", change="delete them, or write access: public",
        )  # fmt: skip


@RULES.refuse("clients-private", "RFC 1918, RFC 6598", "2026-11-22")
def _find_public_clients(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """Who reaches the API's private address comes from a private range or a security group."""
    for index, client in enumerate(context.environment.cluster.endpoint.clients):
        block = None if client.startswith("sg-") else parse_network(client)
        if block is not None and not any(block.subnet_of(private) for private in (*PRIVATE, SHARED)):
            yield RuleFinding(
                path=f"cluster.endpoint.clients[{index}]", got=client,
                allowed=f"inside {join_values((*PRIVATE, SHARED))}: no other address arrives at the API's private one",
                change="delete it, or with access: public write it into cluster.endpoint.cidrs",
            )  # fmt: skip


@RULES.refuse(
    "admin-named",
    "EKS API Reference, CreateAccessConfigRequest bootstrapClusterCreatorAdminPermissions, rendered false",
    "2026-11-21",
)
def _find_missing_admin(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """Somebody is admin of the cluster."""
    if not context.environment.cluster.access.admin:
        yield RuleFinding(
            path="cluster.access.admin", got="nobody", allowed="at least one IAM role or user",
            change="name a role: whoever creates the cluster gets no rights in it",
        )  # fmt: skip


@RULES.refuse("principal-once", "docs.aws.amazon.com/eks/latest/userguide/creating-access-entries.html", "2026-11-21")
def _find_repeated_principals(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """Each principal is of one kind only."""
    access = context.environment.cluster.access
    first_paths: dict[str, str] = {}
    for kind in ClusterAccess.model_fields:
        for index, arn in enumerate(getattr(access, kind)):
            path = f"cluster.access.{kind}[{index}]"
            if arn in first_paths:
                yield RuleFinding(
                    path=path, got=f"{arn}, which is also {first_paths[arn]}", allowed="each principal once",
                    change="delete one: a principal has one access entry",
                )  # fmt: skip
            first_paths.setdefault(arn, path)


@RULES.refuse("boundary-name", "IAM API Reference, CreatePolicy", "2026-11-21")
def _find_boundary_arn(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The permissions boundary is a policy's name."""
    boundary = context.environment.bootstrap.permissions_boundary
    if boundary is not None and not POLICY_NAME.fullmatch(boundary):
        folder, _, name = boundary.rpartition("/")
        has_plain_name = POLICY_NAME.fullmatch(name) and folder.endswith(
            ":policy"
        )  # a policy with a path has no such name
        yield RuleFinding(
            path="bootstrap.permissions_boundary", got=repr(boundary),
            allowed="the name of a managed policy, not its ARN",
            change=f"write {name}" if has_plain_name else "write the name of a policy whose path is /",
        )  # fmt: skip
