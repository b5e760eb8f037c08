# ruff: noqa: SLF001, ANN001, ANN002, ANN202 - MiniStack is untyped and has no public interface
"""Auto Scaling's controls of a node group's group: processes suspended and resumed, size bounds.

Its activities say when each instance was launched and ended, long after EC2 forgot it.

`Launch` and `Terminate` have an effect, only on the groups of node groups; other processes are
stored and shown. Source: Amazon EC2 Auto Scaling user guide, "Suspend and resume processes"; API
reference, UpdateAutoScalingGroup.
"""

from __future__ import annotations

from urllib.parse import parse_qs

from ministack.core import iam_actions
from ministack.core.responses import new_uuid
from ministack.services import autoscaling, tagging

LAUNCH_PROCESS = "Launch"
TERMINATE_PROCESS = "Terminate"
PROCESSES = (
    LAUNCH_PROCESS,
    TERMINATE_PROCESS,
    "AddToLoadBalancer",
    "AlarmNotification",
    "AZRebalance",
    "HealthCheck",
    "InstanceRefresh",
    "ReplaceUnhealthy",
    "ScheduledActions",
)
# on a group's record: its activities by instance, also of those long gone
ACTIVITY_FIELD = "_tandem_activities"
_SUSPENSION_FIELD = "_tandem_suspended"  # on a group's record: the names of its suspended processes


def install(_handlers: dict) -> None:
    """Add the calls, enforce the size bounds, and give policies a group's ARN and tags."""
    actions = autoscaling._ACTION_MAP
    actions["SuspendProcesses"] = lambda parameters: _change_processes(
        parameters, "SuspendProcesses", set.union
    )
    actions["ResumeProcesses"] = lambda parameters: _change_processes(
        parameters, "ResumeProcesses", set.difference
    )
    update = autoscaling._update_asg
    describe = autoscaling._describe_asgs
    actions["UpdateAutoScalingGroup"] = lambda parameters: _update_group(update, parameters)
    actions["DescribeAutoScalingGroups"] = lambda parameters: _insert_processes(
        describe(parameters)
    )
    actions["DescribeScalingActivities"] = _describe_activities
    tagging._RESOURCE_TAG_COLLECTORS["autoscaling"] = _collect_tags
    extract = iam_actions.extract_resource_arn

    def extract_arn(service, method, path, headers, body, *rest):
        group_arn = _group_arn(body) if service == "autoscaling" else None
        return group_arn or extract(service, method, path, headers, body, *rest)

    iam_actions.extract_resource_arn = extract_arn


def is_suspended(group: dict, process: str) -> bool:
    """Return whether a process of a group is suspended."""
    return process in group.get(_SUSPENSION_FIELD, ())


def _find_group(parameters):
    name = autoscaling._p(parameters, "AutoScalingGroupName")
    group = autoscaling._asgs.get(name)
    message = f"AutoScalingGroup name not found - AutoScalingGroup '{name}' not found"
    return group, None if group else autoscaling._error("ValidationError", message)


def _change_processes(parameters, action, combine):
    """Suspend or resume the named processes, or all if none is named."""
    group, error = _find_group(parameters)
    if error:
        return error
    processes = autoscaling._parse_member_list(parameters, "ScalingProcesses") or PROCESSES
    unknown = sorted(set(processes) - set(PROCESSES))
    if unknown:
        return autoscaling._error(
            "ValidationError", f"{', '.join(unknown)} is not a valid process type"
        )
    group[_SUSPENSION_FIELD] = sorted(combine(set(group.get(_SUSPENSION_FIELD, ())), processes))
    autoscaling._reconcile_instances(group)
    return autoscaling._xml(200, f"{action}Response", "")


def _update_group(update_plain, parameters):
    """Change a group; desired capacity follows a new bound that it breaks; a named one obeys both.

    MiniStack takes any sizes.
    """
    group, error = _find_group(parameters)
    if error:
        return error
    smallest, largest = (
        int(autoscaling._p(parameters, size) or group[size]) for size in ("MinSize", "MaxSize")
    )
    desired_capacity = int(
        autoscaling._p(parameters, "DesiredCapacity")
        or min(max(group["DesiredCapacity"], smallest), largest)
    )
    if not smallest <= desired_capacity <= largest:
        message = (
            f"Desired capacity:{desired_capacity} must be between the specified min size:{smallest}"
            f" and max size:{largest}"
        )
        return autoscaling._error("ValidationError", message)
    return update_plain({**parameters, "DesiredCapacity": str(desired_capacity)})


def _describe_activities(parameters):
    """List the launches and ends of a group's instances, the newest first."""
    group, error = _find_group(parameters)
    if error:
        return error
    rows = [row for activities in group.get(ACTIVITY_FIELD, {}).values() for row in activities][
        ::-1
    ]
    rows.sort(key=lambda row: row["StartTime"], reverse=True)
    members = "".join(_activity_xml(group["AutoScalingGroupName"], row) for row in rows)
    result = "DescribeScalingActivitiesResult"
    body = f"<{result}><Activities>{members}</Activities></{result}>"
    return autoscaling._xml(200, "DescribeScalingActivitiesResponse", body)


def _activity_xml(name, row):
    """Print one activity, with the fields that the API reference requires."""
    status = (
        "Successful"
        if "EndTime" in row or row["Description"].startswith("Launching")
        else "InProgress"
    )
    fields = {
        "ActivityId": new_uuid(),
        "AutoScalingGroupName": name,
        "Cause": "a difference between desired and actual capacity",
        "StatusCode": status,
        **row,
    }
    members = "".join(f"<{field}>{text}</{field}>" for field, text in fields.items())
    return f"<member>{members}</member>"


def _insert_processes(answer):
    """Print the suspended processes of each group after its name."""
    status, head, body = answer
    text = body.decode()
    for name, group in autoscaling._asgs.items():
        members = "".join(
            f"<member><ProcessName>{process}</ProcessName><SuspensionReason>User"
            " suspended</SuspensionReason></member>"
            for process in group.get(_SUSPENSION_FIELD, ())
        )
        name_xml = f"<AutoScalingGroupName>{name}</AutoScalingGroupName>"
        text = text.replace(
            name_xml, f"{name_xml}<SuspendedProcesses>{members}</SuspendedProcesses>"
        )
    return status, head, text.encode()


def _group_arn(body):
    """Return the ARN of a call's group, with the id for which its policy has a wildcard."""
    name = parse_qs((body or b"").decode(errors="replace")).get("AutoScalingGroupName", [""])[0]
    group = autoscaling._asgs.get(name)
    return group and group["AutoScalingGroupARN"]


def _collect_tags():
    for name, group in autoscaling._asgs.items():
        yield group["AutoScalingGroupARN"], autoscaling._tags.get(name, [])
