"""Group cluster: what EKS offers, what is deployed of it, and what a Fleet update would do to it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta

from tandem.guard.config import AwsClients
from tandem.guard.observe import FleetState, observe_fleet
from tandem.ops.doctor.account import AllowlistedAccount
from tandem.ops.doctor.call_policy import AwsCall, list_action_arns
from tandem.ops.doctor.check_result import (
    EXIT_EXTERNAL,
    CheckFinding,
    fail_finding,
    ok_finding,
    unknown_finding,
    warn_finding,
)
from tandem.ops.doctor.context import DoctorContext
from tandem.ops.guard_config import build_guard_config
from tandem.shell_command import build_cdk_command, build_tandem_command, quote_command
from tandem.spec import names
from tandem.spec.environment import Environment

SUPPORT_DAYS = 90  # before its end a minor is told to be ending; ours to choose
KUBERNETES_FILE = "tandem/spec/data/platform/kubernetes.yaml"
NOT_FOUND_CODES = {"ResourceNotFoundException"}
NOT_OFFERED_CODES = {"InvalidParameterException", "ResourceNotFoundException"}
DENIAL_WORDS = ("AccessDenied", "UnauthorizedOperation", "Forbidden")
# what `stop.look` calls a source -> the call that reads it
SOURCE_CALLS = {
    "fence": ("s3", "GetObject"), "lease": ("s3", "GetObject"), "heartbeat": ("s3", "GetObject"),
    "node group": ("eks", "DescribeNodegroup"), "instances": ("ec2", "DescribeInstances"),
}  # fmt: skip


def check_kubernetes_minor(context: DoctorContext, account: AllowlistedAccount) -> Iterator[CheckFinding]:
    """See that EKS offers the Kubernetes minor, and for how long."""
    version = context.environment.cluster.kubernetes
    response = account.ask(
        "eks", "DescribeClusterVersions", version, absent=NOT_OFFERED_CODES, clusterVersions=[version]
    )
    rows = [row for row in (response or {}).get("clusterVersions", []) if row["clusterVersion"] == version]
    command = quote_command("aws", "eks", "describe-cluster-versions", "--region", context.environment.region)
    status = rows[0].get("versionStatus", "") if rows else "UNSUPPORTED"
    if status == "UNSUPPORTED":
        yield fail_finding(f"EKS does not offer Kubernetes {version}", "write another cluster.kubernetes", command)
        return
    support_end = rows[0].get("endOfStandardSupportDate")
    support_text = f"standard support ends on {support_end:%Y-%m-%d}" if support_end else "EKS says no end of support"
    if status == "EXTENDED_SUPPORT":
        yield warn_finding(f"{version} is in extended support, which EKS charges for; {support_text}",
                   "write a newer cluster.kubernetes", command)  # fmt: skip
    elif support_end is not None and support_end - context.now < timedelta(days=SUPPORT_DAYS):
        yield warn_finding(f"{version}: {support_text}", "plan a newer cluster.kubernetes", command)
    else:
        yield ok_finding(f"{version} is offered; {support_text}")
    yield from _compare_support_end(context, support_end.date() if support_end else None)


def _compare_support_end(context: DoctorContext, support_end: date | None) -> Iterator[CheckFinding]:
    version = context.environment.cluster.kubernetes
    declared_end = context.catalogue.kubernetes.minors[version].standard_support_ends.value
    if support_end is not None and declared_end != support_end:
        yield warn_finding(
            f"{KUBERNETES_FILE} says that standard support of {version} ends on {declared_end}",
            "write what EKS says",
            f'minors."{version}".standard_support_ends: {{value: {support_end}, source: KEY}}',
        )


def check_addons(context: DoctorContext, account: AllowlistedAccount) -> Iterator[CheckFinding]:
    """See that each add-on's version is offered for the minor; say what to write where it is not, or is not pinned."""
    version = context.environment.cluster.kubernetes
    pinned_versions = {
        name: figure.value for name, figure in context.catalogue.kubernetes.minors[version].addons.items()
    }
    offered_names: list[str] = []
    for name, pinned_version in pinned_versions.items():
        offer_versions, default_version = _list_addon_versions(account, name, version)
        file_lines = f'{KUBERNETES_FILE}: minors."{version}".addons.{name}: {{value: {default_version}, source: KEY}}'
        if not offer_versions:
            yield fail_finding(f"EKS offers no {name} for {version}", "write another cluster.kubernetes", file_lines)
        elif pinned_version is None:
            yield warn_finding(
                f"{name} is not pinned; EKS would take {default_version}",
                "write it, KEY being a source with this day",
                file_lines,
            )
        elif pinned_version not in offer_versions:
            yield fail_finding(f"{name} {pinned_version} is not offered for {version}; EKS takes {default_version}",
                       "write it, KEY being a source with this day", file_lines)  # fmt: skip
        else:
            offered_names.append(name)
    if offered_names:
        yield ok_finding(f"{len(offered_names)} of {len(pinned_versions)} add-ons are offered for {version} as pinned")


def _list_addon_versions(account: AllowlistedAccount, name: str, version: str) -> tuple[list[str], str | None]:
    """Return the versions of an add-on for a minor, and the one that EKS takes by itself, or else the newest."""
    rows = account.list_rows("eks", "DescribeAddonVersions", "addons", name, addonName=name, kubernetesVersion=version)
    matches = [
        (str(entry["addonVersion"]), bool(compatibility.get("defaultVersion")))
        for row in rows
        for entry in row["addonVersions"]
        for compatibility in entry["compatibilities"]
        if compatibility["clusterVersion"] == version
    ]
    default_version = next(
        (addon_version for addon_version, is_default in matches if is_default), matches[0][0] if matches else None
    )
    return [addon_version for addon_version, _ in matches], default_version


def check_control_plane(context: DoctorContext, account: AllowlistedAccount) -> Iterator[CheckFinding]:
    """Tell whether the cluster is there, is the environment's own, and is what is declared."""
    environment, name = context.environment, names.cluster_name(context.environment)
    response = account.ask("eks", "DescribeCluster", name, absent=NOT_FOUND_CODES, name=name)
    command = quote_command("aws", "eks", "describe-cluster", "--name", name, "--region", environment.region)
    if response is None:
        yield ok_finding(f"{name} is not there yet")
        return
    cluster = response["cluster"]
    owner = cluster.get("tags", {}).get(names.OWNER_TAG)
    if owner != environment.name:
        yield _build_foreign_finding(f"cluster {name}", environment, owner, command)
    elif cluster["status"] != "ACTIVE":
        yield fail_finding(f"{name} is {cluster['status']}", "wait until it is ACTIVE", command, code=EXIT_EXTERNAL)
    elif cluster["version"] != environment.cluster.kubernetes:
        yield warn_finding(f"{name} runs {cluster['version']}, declared is {environment.cluster.kubernetes}",
                   "the next deploy of Cluster updates it; nodes follow with Fleet", command)  # fmt: skip
    else:
        yield ok_finding(f"{name} is ACTIVE with Kubernetes {cluster['version']}")


def _build_foreign_finding(
    resource_name: str, environment: Environment, owner: str | None, command: str
) -> CheckFinding:
    owner_text = f"has {names.OWNER_TAG}={owner}" if owner else f"has no tag {names.OWNER_TAG}"
    return fail_finding(f"{resource_name} {owner_text}: it is not this environment's, or older than the tag",
                f"see whose it is; deploy '{environment.name}/*' if it is yours, else rename the environment",
                command)  # fmt: skip


def check_fleet(context: DoctorContext, account: AllowlistedAccount) -> Iterator[CheckFinding]:
    """Tell what runs, who has it, and that a Fleet update would take it away."""
    environment, node_group = context.environment, names.node_group_name(context.environment)
    clients = {service: account.client(service) for service in ("s3", "eks", "ec2")}
    fleet = observe_fleet(
        AwsClients(**clients, sns=None, cloudwatch=None, scheduler=None, autoscaling=None),
        build_guard_config(environment), context.now,
    )  # fmt: skip
    yield from _report_read_failures(context, account, fleet)
    command = quote_command(
        "aws",
        "eks",
        "describe-nodegroup",
        "--cluster-name",
        names.cluster_name(environment),
        "--nodegroup-name",
        node_group,
        "--region",
        environment.region,
    )
    if fleet.has_node_group is False and not fleet.instances:
        yield ok_finding(f"{node_group} is not there yet")
    elif fleet.has_owner_tag is False:
        yield _build_foreign_finding(f"node group {node_group}", environment, None, command)
    elif "node group" not in fleet.unknown and "instances" not in fleet.unknown:
        yield from _judge_raised_fleet(context, fleet)
    for fault in (text for text in fleet.faults if text.startswith("s3://")):
        yield fail_finding(
            fault,
            "see who wrote it, and what status says of it",
            build_tandem_command("status", environment.name),
            code=EXIT_EXTERNAL,
        )


def _report_read_failures(
    context: DoctorContext, account: AllowlistedAccount, fleet: FleetState
) -> Iterator[CheckFinding]:
    """Say what could not be read, once for each call; before the first deploy there is no bucket, and nothing in it."""
    is_absent = fleet.has_node_group is False and not fleet.instances
    failures_by_call: dict[tuple[str, str], list[str]] = {}
    for source, why in fleet.unknown.items():
        if not (is_absent and "NoSuchBucket" in why):
            failures_by_call.setdefault(SOURCE_CALLS[source], []).append(f"{source}: {why}")
    for (service, operation), failures in failures_by_call.items():
        call = AwsCall(service, operation)
        arns_text = ", ".join(list_action_arns(account.environment, call.action))
        is_denial = any(code in failure for code in DENIAL_WORDS for failure in failures)
        yield unknown_finding(
            "; ".join(failures),
            f"add {call.action} on {arns_text} to the policy of this identity" if is_denial else "try again",
            build_tandem_command("doctor", context.environment.name, "--policy") if is_denial else "",
        )  # fmt: skip


def _judge_raised_fleet(context: DoctorContext, fleet: FleetState) -> Iterator[CheckFinding]:
    """Say what EKS does to a raised fleet at an update of the template, whose desired size is always 0."""
    environment, node_group = context.environment, names.node_group_name(context.environment)
    instance_count = len(fleet.instances)
    if fleet.live_lease is not None:
        yield warn_finding(
            f"run {fleet.live_lease.run} of {fleet.live_lease.who} has the fleet until "
            f"{fleet.live_lease.deadline:%Y-%m-%dT%H:%M:%SZ}: "
            "a deploy that updates Fleet sets it to 0",
            "deploy nothing but what leaves Fleet alone, or wait",
            build_cdk_command("diff", environment.name, "Fleet"),
        )
    elif fleet.desired_size or instance_count:
        yield warn_finding(
            f"{node_group} has desired size {fleet.desired_size} and {instance_count} instances without a live "
            "lease: they "
            "cost, and a stop is due",
            "stop it",
            build_tandem_command("stop", environment.name),
        )
    elif fleet.is_fenced and fleet.fence is not None:
        yield warn_finding(f"{node_group} is at 0 behind a fence, of {fleet.fence.who}: {fleet.fence.why}",
                   "lift it before the next start",
                   build_tandem_command("stop", environment.name, "--release"))  # fmt: skip
    elif not fleet.unknown:
        yield ok_finding(f"{node_group} is ours, at 0, without an instance")
