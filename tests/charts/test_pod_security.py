"""What Kubernetes' Pod Security Standards say to the pods, container by container."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from chart_cases import (
    ENVIRONMENTS,
    HOSTED,
    build_stages,
    find_pod,
    objects,
    of_kind,
    runner,
)

from tandem.declarations.environment import ServingAccess
from tandem.declarations.project_image import PROJECT_IMAGES

Spec = dict[str, Any]


def pods(environment: str, experiment: str) -> Iterator[tuple[str, Spec]]:
    return pods_of(objects(environment, experiment))


def pods_of(bodies: list[Spec]) -> Iterator[tuple[str, Spec]]:
    for body in bodies:
        pod = find_pod(body)
        if pod:
            yield body["metadata"]["name"], pod


def containers(pod: Spec) -> list[Spec]:
    return pod.get("initContainers", []) + pod["containers"]


def baseline(pod: Spec) -> list[str]:
    """What the standard's baseline level refuses of a pod.

    Source: kubernetes.io docs/concepts/security/pod-security-standards, Baseline; sysctls, SELinux,
    AppArmor, /proc and Windows are told by no pod of ours and refused wherever one would appear.
    """
    result = [key for key in ("hostNetwork", "hostPID", "hostIPC") if pod.get(key)]
    result += [f"hostPath {volume['name']}" for volume in pod["volumes"] if "hostPath" in volume]
    result += [
        key
        for key in pod.get("securityContext", {})
        if key not in {"seccompProfile", "runAsNonRoot"}
    ]
    for item in containers(pod):
        context = item["securityContext"]
        result += [
            f"{item['name']} {key}"
            for key in ("privileged", "procMount", "seLinuxOptions")
            if key in context
        ]
        result += [
            f"{item['name']} adds {name}" for name in context.get("capabilities", {}).get("add", [])
        ]
        result += [
            f"{item['name']} hostPort" for port in item.get("ports", []) if "hostPort" in port
        ]
    return result


def restricted(pod: Spec, container: Spec) -> list[str]:
    """What the restricted level refuses of one container, beyond the baseline (same source,
    Restricted)."""
    volume_kinds = {
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    security_context = pod.get("securityContext", {})
    own = container["securityContext"]
    result = [
        v["name"] for v in pod["volumes"] if v["name"] in mounts and not volume_kinds & set(v)
    ]
    result += ["escalation"] if own.get("allowPrivilegeEscalation") is not False else []
    result += (
        ["runs as root"]
        if (own | security_context).get("runAsNonRoot") is not True or own.get("runAsUser") == 0
        else []
    )
    profile = own.get("seccompProfile", security_context.get("seccompProfile", {})).get("type")
    result += ["seccomp"] if profile not in {"RuntimeDefault", "Localhost"} else []
    result += ["capabilities"] if own.get("capabilities", {}).get("drop") != ["ALL"] else []
    return result


def ours(environment: str) -> set[str]:
    return {image.reference(ENVIRONMENTS[environment]) for image in PROJECT_IMAGES}


PODS = [
    pytest.param(spec, id=f"{experiment}-{name}")
    for environment, experiment in HOSTED
    for name, spec in pods(environment, experiment)
]
OURS = [
    pytest.param(spec, item, id=f"{experiment}-{name}-{item['name']}")
    for environment, experiment in HOSTED
    for name, spec in pods(environment, experiment)
    for item in containers(spec)
    if item["image"] in ours(environment)
]


@pytest.mark.parametrize("spec", PODS)
def test_a_pod_is_admitted_to_a_namespace_of_the_baseline(spec):
    assert baseline(spec) == []
    assert spec["automountServiceAccountToken"] is False


@pytest.mark.parametrize(("spec", "container"), OURS)
def test_a_container_of_an_image_of_ours_is_restricted(spec, container):
    assert restricted(spec, container) == []


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_the_runners_pod_is_restricted(environment):
    ((_, spec),) = pods_of(runner(environment))
    (container,) = spec["containers"]
    assert (baseline(spec), restricted(spec, container)) == ([], [])


def served_with(capabilities: Any) -> list[Spec]:
    """The objects of the post, with other capabilities."""
    environment = ENVIRONMENTS["post-us-east-2"].model_copy(
        update={"serving": ServingAccess(capabilities=capabilities)}
    )
    charts = build_stages(environment)
    return [body for bodies in charts.values() for body in bodies]


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ("none", {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}),
        ("runtime-default", {"allowPrivilegeEscalation": False}),
        ("neuron", {"capabilities": {"add": ["SYS_ADMIN", "IPC_LOCK"]}}),
    ],
)
def test_servers_and_compilers_get_the_declared_capabilities(capabilities, expected):
    contexts = [
        item["securityContext"]
        for _, spec in pods_of(served_with(capabilities))
        for item in containers(spec)
        if item["image"] not in ours("post-us-east-2")
    ]

    assert len(contexts) >= 4
    assert [context for context in contexts if context != expected] == []


@pytest.mark.parametrize(
    ("capabilities", "level"),
    [("none", "baseline"), ("runtime-default", "baseline"), ("neuron", "privileged")],
)
def test_a_namespace_admits_no_more_than_its_pods_need(capabilities, level):
    result = served_with(capabilities)
    (namespace,) = of_kind(result, "Namespace").values()
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == level
    assert (level == "privileged") is any(baseline(spec) for _, spec in pods_of(result))
