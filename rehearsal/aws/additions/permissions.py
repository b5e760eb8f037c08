# ruff: noqa: SLF001, ANN001, ANN002, ANN202 - MiniStack is untyped and has no public interface
"""Facts for a fleet's policies: the node group's ARN, its tags and those of its instances.

Plain MiniStack takes a call about a node group for one about its cluster, and a schedule of any
group for one of the group `default`. It takes the name of a call of AWS Budgets for its action, and
a listing of repositories for one without a resource. It takes a variable in a statement's resource
for text, and knows none of the other facts.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from dataclasses import replace

from ministack import app
from ministack.core import iam_actions, iam_evaluator
from ministack.core.responses import get_account_id, get_region
from ministack.services import ec2, eks, tagging

from . import service_model

_VIEW_ACTIONS = {
    "budgets:DescribeBudget",
    "budgets:DescribeBudgets",
    "budgets:DescribeNotificationsForBudget",
    "budgets:DescribeSubscribersForNotification",
}
# IAM user guide, "IAM policy elements: Variables and tags"
_VARIABLE = re.compile(r"\$\{(?P<key>[^}]+)\}")
_caller_key: ContextVar[str] = ContextVar("access key of this request", default="")


def install(_handlers: dict) -> None:
    """Wrap the functions that find a call's resource and check policies; add the tags."""
    extract_resource = iam_actions.extract_resource_arn
    enforce_plain = iam_evaluator.enforce

    def extract_with_additions(service, method, path, headers, body, *rest):
        resolvers = {
            "eks": lambda: _node_group_arn(path),
            "scheduler": lambda: _schedule_arn(path, body, rest),
            "budgets": lambda: _budget_arn(body),
            "ecr": lambda: _repositories_arn(headers, body),
        }.get(service)
        return (resolvers and resolvers()) or extract_resource(
            service, method, path, headers, body, *rest
        )

    iam_actions.extract_resource_arn = extract_with_additions

    def enforce_with_tags(  # noqa: PLR0913, PLR0917  # its callers'
        access_key_id, iam_action, service, region, resource_arn="*", service_context=None
    ):
        _caller_key.set(access_key_id)
        if iam_action in _VIEW_ACTIONS:
            iam_action = "budgets:ViewBudget"  # Service Authorization Reference, AWS Budget Service
        context = {**_ec2_tag_context(resource_arn), **(service_context or {})}
        return enforce_plain(
            access_key_id,
            iam_action,
            service,
            region,
            resource_arn=resource_arn,
            service_context=context,
        )

    iam_evaluator.enforce = enforce_with_tags
    first_match = iam_evaluator._first_match
    iam_evaluator._first_match = lambda context, statements, effect: first_match(
        context, [_fill_in_variables(statement, context) for statement in statements], effect
    )
    tagging._RESOURCE_TAG_COLLECTORS.update(ec2=_collect_ec2_tags, eks=_collect_eks_tags)
    terminate = ec2._ACTION_MAP["TerminateInstances"]
    ec2._ACTION_MAP["TerminateInstances"] = lambda parameters: (
        _find_termination_refusal(parameters) or terminate(parameters)
    )


def _fill_in_variables(statement, context):
    """Return a statement with the caller's values in its resources; no value matches nothing."""

    def value_of(match):
        value = iam_evaluator._resolve_condition_key(match["key"], context)
        return "\0" if value is None else str(value)

    resources = [_VARIABLE.sub(value_of, resource) for resource in statement.resources]
    return replace(statement, resources=resources)


def _find_termination_refusal(parameters):
    """Return a refusal if any of several instances must stay; MiniStack checks only the first."""
    for instance_id in ec2._parse_member_list(parameters, "InstanceId")[1:] if app.AUTH else ():
        arn = f"arn:aws:ec2:{get_region()}:{get_account_id()}:instance/{instance_id}"
        if iam_evaluator.enforce(
            _caller_key.get(), "ec2:TerminateInstances", "ec2", get_region(), resource_arn=arn
        ):
            return ec2._error("UnauthorizedOperation", f"not authorized to terminate {arn}", 403)
    return None


def _node_group_arn(path):
    parts = path.split("/")
    nodegroup = (
        eks._nodegroups.get(f"{parts[2]}/{parts[4]}")
        if parts[3:4] == ["node-groups"] and parts[4:]
        else None
    )
    return nodegroup and nodegroup["nodegroupArn"]


def _schedule_arn(path, body, more_arguments):
    """Return the ARN of a schedule in its group: in a read's query, in a write's body."""
    kind, _, name = path.strip("/").partition("/")
    if kind != "schedules" or not name:
        return None
    query_group = next(
        (parameters for parameters in more_arguments if isinstance(parameters, dict)), {}
    ).get("groupName")
    group = (
        query_group[0] if isinstance(query_group, list) else query_group
    ) or service_model.parse_object(body or b"{}").get("GroupName")
    return (
        f"arn:aws:scheduler:{get_region()}:{get_account_id()}:schedule/{group or 'default'}/{name}"
    )


def _budget_arn(body):
    """Return the ARN of the requested budget, or of all for a listing."""
    name = service_model.parse_object(body or b"{}").get("BudgetName", "*")
    return f"arn:aws:budgets::{get_account_id()}:budget/{name}"


def _repositories_arn(headers, body):
    """Return the ARN of all repositories if a listing names none."""
    target = next((value for name, value in headers.items() if name.lower() == "x-amz-target"), "")
    if not target.endswith(".DescribeRepositories") or service_model.parse_object(
        body or b"{}"
    ).get("repositoryNames"):
        return None
    return f"arn:aws:ecr:{get_region()}:{get_account_id()}:repository/*"


def _ec2_tag_context(arn):
    """Return the conditions on tags in EC2's own spelling."""
    tags = tagging.resource_tags(arn) if arn.startswith("arn:aws:ec2:") else None
    return {f"ec2:ResourceTag/{name}": value for name, value in (tags or {}).items()}


def _collect_ec2_tags():
    for kind, store in (("instance", ec2._instances), ("volume", ec2._volumes)):
        for resource_id in store:
            yield (
                f"arn:aws:ec2:{get_region()}:{get_account_id()}:{kind}/{resource_id}",
                ec2._tags.get(resource_id, []),
            )


def _collect_eks_tags():
    arns = [record["arn"] for record in eks._clusters.values()] + [
        record["nodegroupArn"] for record in eks._nodegroups.values()
    ]
    for arn in arns:
        yield arn, [{"Key": key, "Value": value} for key, value in eks._tags.get(arn, {}).items()]
