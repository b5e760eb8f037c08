"""Group cluster: EKS's offers, the deployed parts, and the effect of a Fleet update on them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from tandem.declarations import names
from tandem.declarations.platform import read_release_day
from tandem.guard.fleet_state import FleetState
from tandem.guard.observe import observe_fleet
from tandem.monitoring import agent
from tandem.ops.account import AccountClients, build_aws_command
from tandem.ops.doctor.addon_schema import find_schema_faults
from tandem.ops.doctor.context import EXIT_EXTERNAL, TIME_FORMAT, DoctorContext, Finding
from tandem.ops.guard_config import build_guard_config
from tandem.shell_command import build_cdk_command, build_tandem_command

SUPPORT_DAYS = 90  # report the end of a minor's support so many days before; ours to choose
KUBERNETES_FILE = "tandem/declarations/data/platform/kubernetes.yaml"
NOT_OFFERED_CODES = {"InvalidParameterException", "ResourceNotFoundException"}
OBSERVE_ACTIONS = (
    "s3:GetObject",
    "eks:DescribeNodegroup",
    "ec2:DescribeInstances",
    "ec2:DescribeCapacityReservations",
)


def check_kubernetes_minor(context: DoctorContext, account: AccountClients) -> Iterator[Finding]:
    """Check that EKS offers the Kubernetes minor, and for how long."""
    version = context.environment.cluster.kubernetes
    command = build_aws_command("eks describe-cluster-versions", region=context.environment.region)
    answer = account.find(
        "eks",
        "DescribeClusterVersions",
        version,
        absent=NOT_OFFERED_CODES,
        clusterVersions=[version],
    )
    rows = (answer or {}).get("clusterVersions", [])
    row = next((row for row in rows if row["clusterVersion"] == version), None)
    if row is None or row.get("versionStatus") == "UNSUPPORTED":
        message = f"EKS does not offer Kubernetes {version}"
        yield Finding("fail", message, "write another cluster.kubernetes", command)
        return
    yield _judge_support(context, row, command)
    support_end = row.get("endOfStandardSupportDate")
    declared_end = context.catalogue.kubernetes.minors[version].standard_support_ends.value
    if support_end is not None and declared_end != support_end.date():
        message = (
            f"{KUBERNETES_FILE} says that standard support of {version} ends on {declared_end}"
        )
        path = f'minors."{version}".standard_support_ends'
        line = f"{path}: {{value: {support_end.date()}, source: KEY}}"
        yield Finding("warn", message, "write what EKS says", line)


def _judge_support(context: DoctorContext, row: dict[str, Any], command: str) -> Finding:
    """Report how long a minor is in standard support."""
    version = row["clusterVersion"]
    end = row.get("endOfStandardSupportDate")
    text = f"standard support ends on {end:%Y-%m-%d}" if end else "EKS gives no end of support"
    if row.get("versionStatus") == "EXTENDED_SUPPORT":
        message = f"{version} is in extended support, which costs more; {text}"
        return Finding("warn", message, "write a newer cluster.kubernetes", command)
    if end is not None and end - context.now < timedelta(days=SUPPORT_DAYS):
        return Finding("warn", f"{version}: {text}", "plan a newer cluster.kubernetes", command)
    return Finding("ok", f"{version} is offered; {text}")


def check_node_image(context: DoctorContext, account: AccountClients) -> Finding:
    """Name the accelerator nodes' AMI release EKS recommends, if newer than the declared one."""
    environment = context.environment
    parameter = names.node_image_parameter(environment)
    response = account.find("ssm", "GetParameter", parameter, Name=parameter)
    if response is None:
        return Finding(
            "unknown", f"AWS publishes no {parameter}", "see the releases of awslabs/amazon-eks-ami"
        )
    newest = response["Parameter"]["Value"]
    minor = context.catalogue.kubernetes.minors[environment.cluster.kubernetes]
    release = environment.cluster.ami_release or minor.default_release
    if release is None:
        return Finding("ok", f"no release is pinned: EKS takes {newest}")
    if read_release_day(newest) <= read_release_day(release):
        return Finding("ok", f"{release} is no older than what EKS recommends")
    driver = minor.find_driver(release) or "not known"
    message = f"the nodes get AMI release {release}, driver {driver}; EKS recommends {newest}"
    action = "read its driver among the releases of awslabs/amazon-eks-ami, write it, deploy Fleet"
    return Finding("warn", message, action, f"cluster.ami_release: {newest}")


def check_addons(context: DoctorContext, account: AccountClients) -> Iterator[Finding]:
    """Check that EKS offers each add-on's version for the minor; say what to write if not."""
    version = context.environment.cluster.kubernetes
    addons = context.catalogue.kubernetes.minors[version].addons
    judged = [
        _judge_addon(version, name, figure.value, _list_offers(account, name, version))
        for name, figure in addons.items()
    ]
    problems = [finding for finding in judged if finding is not None]
    yield from problems
    offered_count = len(judged) - len(problems)
    if offered_count:
        message = f"{offered_count} of {len(addons)} add-ons are offered for {version} as pinned"
        yield Finding("ok", message)


def _list_offers(account: AccountClients, name: str, version: str) -> dict[str, bool]:
    """Return each offered version of an add-on, and whether EKS takes it by default."""
    offers = {}
    for row in account.list_rows(
        "eks", "DescribeAddonVersions", "addons", name, addonName=name, kubernetesVersion=version
    ):
        for entry in row["addonVersions"]:
            for compatibility in entry["compatibilities"]:
                if compatibility["clusterVersion"] == version:
                    is_default = bool(compatibility.get("defaultVersion"))
                    offers[entry["addonVersion"]] = is_default
    return offers


def _judge_addon(
    version: str, name: str, pinned: str | None, offers: dict[str, bool]
) -> Finding | None:
    """Report what to write for an add-on; None if EKS offers it as pinned."""
    if pinned in offers:
        return None
    # the version that EKS takes by default, or else the newest
    default = max(offers, key=offers.__getitem__, default="")
    line = f'{KUBERNETES_FILE}: minors."{version}".addons.{name}: {{value: {default}, source: KEY}}'
    if not offers:
        message = f"EKS offers no {name} for {version}"
        return Finding("fail", message, "write another cluster.kubernetes", line)
    action = "write it, KEY being a source with this day"
    if pinned is None:
        return Finding("warn", f"{name} is not pinned; EKS would take {default}", action, line)
    return Finding("fail", f"{name} {pinned} is not offered; EKS takes {default}", action, line)


def check_agent_configuration(context: DoctorContext, account: AccountClients) -> Finding:
    """Check that the CloudWatch add-on's schema admits Observability's configuration."""
    environment = context.environment
    if not environment.observability.container_insights:
        return Finding("ok", "Container Insights is off")
    minor = context.catalogue.kubernetes.minors[environment.cluster.kubernetes]
    version = minor.addons[agent.ADDON].value
    if version is None:
        return Finding("unknown", f"{agent.ADDON} is not pinned", "see addons: pin it")
    addon = f"{agent.ADDON} {version}"
    answer = account.find(
        "eks",
        "DescribeAddonConfiguration",
        agent.ADDON,
        absent=NOT_OFFERED_CODES,
        addonName=agent.ADDON,
        addonVersion=version,
    )
    if answer is None:
        action = "see addons: pin another version"
        return Finding("unknown", f"EKS has no schema of {addon}", action)
    schema = json.loads(answer["configurationSchema"])
    faults = find_schema_faults(agent.build_addon_configuration(environment), schema)
    if not faults:
        return Finding("ok", f"the schema of {addon} admits each key that Observability writes")
    return Finding(
        "fail",
        f"{addon} takes no such configuration: {'; '.join(faults)}",
        "write observability: {container_insights: false}, or pin another version; Workloads does"
        " not wait for it",
        build_aws_command(
            "eks describe-addon-configuration",
            addon_name=agent.ADDON,
            addon_version=version,
            region=environment.region,
        ),
    )


def check_control_plane(context: DoctorContext, account: AccountClients) -> Finding:
    """Report whether the cluster exists, is the environment's own, and is as declared."""
    environment = context.environment
    name = names.cluster_name(context.environment)
    response = account.find("eks", "DescribeCluster", name, name=name)
    if response is None:
        return Finding("ok", f"{name} is not there yet")
    cluster = response["cluster"]
    declared_version = environment.cluster.kubernetes
    owner = cluster.get("tags", {}).get(names.OWNER_TAG)
    if owner != environment.name:
        return _build_foreign_finding(account, f"cluster {name}", owner)
    if cluster["status"] != "ACTIVE":
        return Finding(
            "fail", f"{name} is {cluster['status']}", "wait until it is ACTIVE", code=EXIT_EXTERNAL
        )
    if cluster["version"] != declared_version:
        message = f"{name} runs {cluster['version']}, declared is {declared_version}"
        return Finding(
            "warn", message, "the next deploy of Cluster updates it; nodes follow with Fleet"
        )
    return Finding("ok", f"{name} is ACTIVE with Kubernetes {cluster['version']}")


def _build_foreign_finding(account: AccountClients, resource: str, owner: str | None) -> Finding:
    owner_text = f"has {names.OWNER_TAG}={owner}" if owner else f"has no tag {names.OWNER_TAG}"
    message = f"{resource} {owner_text}: it is not this environment's, or its tag was removed"
    action = (
        f"see whose it is; deploy '{account.name}/*' if it is yours, else rename the environment"
    )
    return Finding("fail", message, action)


def check_fleet(context: DoctorContext, account: AccountClients) -> Iterator[Finding]:
    """Report the running nodes, their owner, and that a Fleet update would take them away."""
    config = build_guard_config(context.environment)
    name = context.environment.name
    fleet = observe_fleet(account.guard_clients("s3", "eks", "ec2"), config, context.now)
    is_absent = fleet.has_node_group is False and not fleet.instances
    failures = [
        f"{source}: {why}"
        for source, why in fleet.unknown.items()
        if not (is_absent and "NoSuchBucket" in why)  # before the first deploy there is no bucket
    ]
    if failures:
        action = (
            f"try again; where it is denied, allow {', '.join(OBSERVE_ACTIONS)} to this identity"
        )
        yield Finding(
            "unknown", "; ".join(failures), action, build_tandem_command("doctor", name, "--policy")
        )
    if is_absent:
        yield Finding("ok", f"{config.node_group} is not there yet")
    elif fleet.has_owner_tag is False:
        yield _build_foreign_finding(account, f"node group {config.node_group}", None)
    elif not {"node group", "instances"} & set(fleet.unknown):
        yield from _judge_raised_fleet(context, fleet)
    for fault in fleet.faults:
        if fault.startswith("s3://"):
            yield Finding(
                "fail",
                fault,
                "see who wrote it",
                build_tandem_command("status", name),
                code=EXIT_EXTERNAL,
            )


def _judge_raised_fleet(context: DoctorContext, fleet: FleetState) -> Iterator[Finding]:
    """Report what EKS does to a raised fleet when the template, with desired size 0, updates."""
    name = context.environment.name
    node_group = names.node_group_name(context.environment)
    lease = fleet.live_lease
    fence = fleet.fence
    if lease is not None:
        deadline = f"{lease.deadline:{TIME_FORMAT}}"
        message = (
            f"run {lease.run} of {lease.who} has the fleet until {deadline}: a deploy that updates"
            " Fleet sets it to 0"
        )
        action = "deploy only what leaves Fleet unchanged, or wait"
        yield Finding("warn", message, action, build_cdk_command("diff", name, "Fleet"))
    elif fleet.desired_size or fleet.instances:
        counts = f"desired size {fleet.desired_size} and {len(fleet.instances)} instances"
        message = f"{node_group} has {counts} without a live lease: a stop is due"
        yield Finding("warn", message, "stop it", build_tandem_command("stop", name))
    elif fence is not None and fleet.is_fenced:
        message = f"{node_group} is at 0 behind a fence, of {fence.who}: {fence.why}"
        command = build_tandem_command("stop", name, "--release")
        yield Finding("warn", message, "lift it before the next start", command)
    elif not fleet.unknown:
        yield Finding("ok", f"{node_group} is ours, at 0, without an instance")
