"""Group cluster: what EKS offers, what is deployed of it, and what a Fleet update would do to it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta

from tandem import stop
from tandem.ops.doctor.account import Account
from tandem.ops.doctor.calls import known, resources
from tandem.ops.doctor.line import WORLD, Finding, fail, ok, unknown, warn
from tandem.ops.doctor.subject import Subject
from tandem.ops.guarded import guarded
from tandem.shell_command import build_cdk_command, build_tandem_command, quote_command
from tandem.spec import names
from tandem.spec.environment import Environment

SUPPORT_DAYS = 90  # before its end a minor is told to be ending; ours to choose
FILE = "tandem/spec/data/platform/kubernetes.yaml"
GONE = {"ResourceNotFoundException"}
NOT_OFFERED = {"InvalidParameterException", "ResourceNotFoundException"}
REFUSALS = ("AccessDenied", "UnauthorizedOperation", "Forbidden")
# what `stop.look` calls a source -> the call that reads it
READS = {
    "fence": ("s3", "GetObject"), "lease": ("s3", "GetObject"), "heartbeat": ("s3", "GetObject"),
    "node group": ("eks", "DescribeNodegroup"), "instances": ("ec2", "DescribeInstances"),
}  # fmt: skip


def minor(subject: Subject, account: Account) -> Iterator[Finding]:
    """See that EKS offers the Kubernetes minor, and for how long."""
    version = subject.environment.cluster.kubernetes
    found = account.ask("eks", "DescribeClusterVersions", version, absent=NOT_OFFERED, clusterVersions=[version])
    rows = [row for row in (found or {}).get("clusterVersions", []) if row["clusterVersion"] == version]
    look = quote_command("aws", "eks", "describe-cluster-versions", "--region", subject.environment.region)
    status = rows[0].get("versionStatus", "") if rows else "UNSUPPORTED"
    if status == "UNSUPPORTED":
        yield fail(f"EKS does not offer Kubernetes {version}", "write another cluster.kubernetes", look)
        return
    ends = rows[0].get("endOfStandardSupportDate")
    until = f"standard support ends on {ends:%Y-%m-%d}" if ends else "EKS says no end of support"
    if status == "EXTENDED_SUPPORT":
        yield warn(f"{version} is in extended support, which EKS charges for; {until}",
                   "write a newer cluster.kubernetes", look)  # fmt: skip
    elif ends is not None and ends - subject.now < timedelta(days=SUPPORT_DAYS):
        yield warn(f"{version}: {until}", "plan a newer cluster.kubernetes", look)
    else:
        yield ok(f"{version} is offered; {until}")
    yield from _dated(subject, ends.date() if ends else None)


def _dated(subject: Subject, ends: date | None) -> Iterator[Finding]:
    version = subject.environment.cluster.kubernetes
    written = subject.catalogue.kubernetes.minors[version].standard_support_ends.value
    if ends is not None and written != ends:
        yield warn(f"{FILE} says that standard support of {version} ends on {written}", "write what EKS says",
                   f'minors."{version}".standard_support_ends: {{value: {ends}, source: KEY}}')  # fmt: skip


def addons(subject: Subject, account: Account) -> Iterator[Finding]:
    """See that each add-on's version is offered for the minor; say what to write where it is not, or is not pinned."""
    version = subject.environment.cluster.kubernetes
    written = {name: figure.value for name, figure in subject.catalogue.kubernetes.minors[version].addons.items()}
    good: list[str] = []
    for name, mine in written.items():
        offered, default = _offered(account, name, version)
        write = f'{FILE}: minors."{version}".addons.{name}: {{value: {default}, source: KEY}}'
        if not offered:
            yield fail(f"EKS offers no {name} for {version}", "write another cluster.kubernetes", write)
        elif mine is None:
            yield warn(f"{name} is not pinned; EKS would take {default}", "write it, KEY being a source with this day",
                       write)  # fmt: skip
        elif mine not in offered:
            yield fail(f"{name} {mine} is not offered for {version}; EKS takes {default}",
                       "write it, KEY being a source with this day", write)  # fmt: skip
        else:
            good.append(name)
    if good:
        yield ok(f"{len(good)} of {len(written)} add-ons are offered for {version} as pinned")


def _offered(account: Account, name: str, version: str) -> tuple[list[str], str | None]:
    """Return the versions of an add-on for a minor, and the one that EKS takes by itself, or else the newest."""
    rows = account.every("eks", "DescribeAddonVersions", "addons", name, addonName=name, kubernetesVersion=version)
    fitting = [
        (str(one["addonVersion"]), bool(compatible.get("defaultVersion")))
        for row in rows
        for one in row["addonVersions"]
        for compatible in one["compatibilities"]
        if compatible["clusterVersion"] == version
    ]
    default = next((found for found, chosen in fitting if chosen), fitting[0][0] if fitting else None)
    return [found for found, _ in fitting], default


def control_plane(subject: Subject, account: Account) -> Iterator[Finding]:
    """Tell whether the cluster is there, is the environment's own, and is what is declared."""
    environment, name = subject.environment, names.cluster(subject.environment)
    found = account.ask("eks", "DescribeCluster", name, absent=GONE, name=name)
    look = quote_command("aws", "eks", "describe-cluster", "--name", name, "--region", environment.region)
    if found is None:
        yield ok(f"{name} is not there yet")
        return
    cluster = found["cluster"]
    owner = cluster.get("tags", {}).get(names.OWNER_TAG)
    if owner != environment.name:
        yield _strange(f"cluster {name}", environment, owner, look)
    elif cluster["status"] != "ACTIVE":
        yield fail(f"{name} is {cluster['status']}", "wait until it is ACTIVE", look, code=WORLD)
    elif cluster["version"] != environment.cluster.kubernetes:
        yield warn(f"{name} runs {cluster['version']}, declared is {environment.cluster.kubernetes}",
                   "the next deploy of Cluster updates it; nodes follow with Fleet", look)  # fmt: skip
    else:
        yield ok(f"{name} is ACTIVE with Kubernetes {cluster['version']}")


def _strange(what: str, environment: Environment, owner: str | None, look: str) -> Finding:
    said = f"has {names.OWNER_TAG}={owner}" if owner else f"has no tag {names.OWNER_TAG}"
    return fail(f"{what} {said}: it is not this environment's, or older than the tag",
                f"see whose it is; deploy '{environment.name}/*' if it is yours, else rename the environment",
                look)  # fmt: skip


def fleet(subject: Subject, account: Account) -> Iterator[Finding]:
    """Tell what runs, who has it, and that a Fleet update would take it away."""
    environment, group = subject.environment, names.node_group(subject.environment)
    clients = {service: account.client(service) for service in ("s3", "eks", "ec2")}
    seen = stop.look(
        stop.Clients(**clients, sns=None, cloudwatch=None, scheduler=None, autoscaling=None),
        guarded(environment), subject.now,
    )  # fmt: skip
    yield from _unseen(subject, account, seen)
    look = quote_command(
        "aws", "eks", "describe-nodegroup", "--cluster-name", names.cluster(environment), "--nodegroup-name", group,
        "--region", environment.region,
    )  # fmt: skip
    if seen.present is False and not seen.instances:
        yield ok(f"{group} is not there yet")
    elif seen.owned is False:
        yield _strange(f"node group {group}", environment, None, look)
    elif "node group" not in seen.unknown and "instances" not in seen.unknown:
        yield from _raised(subject, seen)
    for fault in (said for said in seen.faults if said.startswith("s3://")):
        yield fail(fault, "see who wrote it, and what status says of it",
                   build_tandem_command("status", environment.name), code=WORLD)  # fmt: skip


def _unseen(subject: Subject, account: Account, seen: stop.Seen) -> Iterator[Finding]:
    """Say what could not be read, once for each call; before the first deploy there is no bucket, and nothing in it."""
    never = seen.present is False and not seen.instances
    together: dict[tuple[str, str], list[str]] = {}
    for source, why in seen.unknown.items():
        if not (never and "NoSuchBucket" in why):
            together.setdefault(READS[source], []).append(f"{source}: {why}")
    for (service, operation), said in together.items():
        call = known(service, operation)
        on = ", ".join(resources(account.environment, call.action))
        denied = any(code in one for code in REFUSALS for one in said)
        yield unknown(
            "; ".join(said),
            f"add {call.action} on {on} to the policy of this identity" if denied else "try again",
            build_tandem_command("doctor", subject.environment.name, "--policy") if denied else "",
        )  # fmt: skip


def _raised(subject: Subject, seen: stop.Seen) -> Iterator[Finding]:
    """Say what EKS does to a raised fleet at an update of the template, whose desired size is always 0."""
    environment, group = subject.environment, names.node_group(subject.environment)
    alive = len(seen.instances)
    if seen.live is not None:
        yield warn(
            f"run {seen.live.run} of {seen.live.who} has the fleet until {seen.live.deadline:%Y-%m-%dT%H:%M:%SZ}: "
            "a deploy that updates Fleet sets it to 0", "deploy nothing but what leaves Fleet alone, or wait",
            build_cdk_command("diff", environment.name, "Fleet"),
        )  # fmt: skip
    elif seen.desired or alive:
        yield warn(f"{group} has desired size {seen.desired} and {alive} instances without a live lease: they "
                   "cost, and a stop is due", "stop it", build_tandem_command("stop", environment.name))  # fmt: skip
    elif seen.fenced and seen.fence is not None:
        yield warn(f"{group} is at 0 behind a fence, of {seen.fence.who}: {seen.fence.why}",
                   "lift it before the next start",
                   build_tandem_command("stop", environment.name, "--clear"))  # fmt: skip
    elif not seen.unknown:
        yield ok(f"{group} is ours, at 0, without an instance")
