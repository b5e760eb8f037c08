"""What may run as tandem-stage and tandem-compile: the rendered CEL, evaluated on rendered and on forged objects."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from admission_evaluator import Admission, AdmissionRequest
from chart_cases import ENVIRONMENTS, EXPERIMENTS, HOSTED, objects, of_kind, rights

from tandem.spec import names

Object = dict[str, Any]
SPACE = names.experiment_namespace(EXPERIMENTS["post"])
GUARDED = (names.STAGE_ACCOUNT, names.COMPILE_ACCOUNT)
RESOURCES = {
    "Pod": ("", "pods"), "ReplicationController": ("", "replicationcontrollers"),
    "DaemonSet": ("apps", "daemonsets"), "Deployment": ("apps", "deployments"), "ReplicaSet": ("apps", "replicasets"),
    "StatefulSet": ("apps", "statefulsets"), "CronJob": ("batch", "cronjobs"), "Job": ("batch", "jobs"),
}  # fmt: skip


@cache
def admission(environment: str) -> Admission:
    rendered = [body for hosted in ENVIRONMENTS[environment].experiments for body in objects(environment, hosted)]
    return Admission(objects=[*rights(environment), *rendered])


def cron_jobs(environment: str, experiment: str) -> list[Object]:
    return [copy.deepcopy(body) for body in of_kind(objects(environment, experiment), "CronJob").values()]


def account(template: Object) -> str:
    return str(template["spec"]["serviceAccountName"])


def cron_job(name: str = names.COMPILE_ACCOUNT) -> Object:
    """The first CronJob of the post with an account."""
    return next(body for body in cron_jobs("post-us-east-2", "post") if account(template_of(body)) == name)


def template_of(body: Object) -> Object:
    """The pod template that an object holds, or the Pod that it is."""
    spec = body["spec"]
    template: Object = spec["jobTemplate"]["spec"]["template"] if "jobTemplate" in spec else spec.get("template", body)
    return template


def copy_to_job(body: Object, suffix: str = "-1") -> Object:
    """The Job that `kubectl create job --from=cronjob/NAME NAME-1` makes."""
    job = copy.deepcopy(body["spec"]["jobTemplate"])
    name = body["metadata"]["name"]
    metadata = {
        **job["metadata"], "name": f"{name}{suffix}", "namespace": body["metadata"]["namespace"],
        "annotations": {"cronjob.kubernetes.io/instantiate": "manual"},
    }  # fmt: skip
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": job["spec"]}


def wrap_template(kind: str, body: Object) -> Object:
    """Another kind of object with the pod template of a CronJob."""
    template = template_of(body)
    metadata = {"name": f"{body['metadata']['name']}-1", "namespace": body["metadata"]["namespace"]}
    if kind == "Job":
        return copy_to_job(body)
    if kind == "CronJob":
        return body
    if kind == "Pod":
        return {"kind": kind, "metadata": {**template["metadata"], **metadata}, "spec": template["spec"]}
    return {"kind": kind, "metadata": metadata, "spec": {"template": template}}


def request_of(body: Object, operation: str = "CREATE") -> AdmissionRequest:
    group, resource = RESOURCES[body["kind"]]
    metadata = body["metadata"]
    return AdmissionRequest(
        operation=operation, group=group, resource=resource, namespace=metadata["namespace"], name=metadata["name"],
        object=body,
    )  # fmt: skip


def list_denials(body: Object, operation: str = "CREATE") -> list[str]:
    return admission("post-us-east-2").list_denials(request_of(body, operation))


@pytest.mark.parametrize(("environment", "experiment"), HOSTED)
def test_every_rendered_cron_job_is_admitted(environment: str, experiment: str) -> None:
    judged = {
        body["metadata"]["name"]: admission(environment).list_denials(request_of(body))
        for body in cron_jobs(environment, experiment)
    }

    assert judged == {name: [] for name in judged} != {}


@pytest.mark.parametrize(("environment", "experiment"), HOSTED)
def test_every_copy_of_a_rendered_cron_job_is_admitted(environment: str, experiment: str) -> None:
    judged = [
        admission(environment).list_denials(request_of(copy_to_job(body)))
        for body in cron_jobs(environment, experiment)
    ]

    assert judged == [[] for _ in judged] != []


@pytest.mark.parametrize(("environment", "experiment"), HOSTED)
def test_the_words_of_every_guarded_cron_job_are_rendered(environment: str, experiment: str) -> None:
    (commands,) = [
        body["data"]
        for body in rights(environment)
        if body["kind"] == "ConfigMap"
        and body["metadata"]["namespace"] == names.experiment_namespace(EXPERIMENTS[experiment])
    ]
    guarded = {
        body["metadata"]["name"] for body in cron_jobs(environment, experiment) if account(template_of(body)) in GUARDED
    }

    assert set(commands) == guarded


def first(template: Object) -> Object:
    """The first container that runs."""
    container: Object = (template["spec"].get("initContainers") or template["spec"]["containers"])[0]
    return container


Forge = Callable[[Object], None]
EVIL = {"name": "evil", "image": "registry.example.com/evil:1"}


def forge_arguments(template: Object) -> None:
    first(template)["args"][-1] += "x"


def forge_no_arguments(template: Object) -> None:
    del first(template)["args"]


def forge_merged_arguments(template: Object) -> None:
    words = first(template)["args"]
    words[:2] = [f"{words[0]} a{len(words[1])}:{words[1]}"]


def forge_arguments_as_command(template: Object) -> None:
    container = first(template)
    container["command"] = container.pop("args")


def forge_init_container(template: Object) -> None:
    template["spec"].setdefault("initContainers", []).insert(0, EVIL)


def forge_rendered_container(template: Object) -> None:
    """A container of another rendered pod is none of this one."""
    other = names.STAGE_ACCOUNT if account(template) == names.COMPILE_ACCOUNT else names.COMPILE_ACCOUNT
    template["spec"]["containers"] = template_of(cron_job(other))["spec"]["containers"]


def forge_no_labels(template: Object) -> None:
    del template["metadata"]["labels"]


def forge_other_account_field(template: Object) -> None:
    """The deprecated name of the field is the account too."""
    template["spec"]["serviceAccount"] = template["spec"].pop("serviceAccountName")
    first(template)["image"] = EVIL["image"]


def forge_fields(place: Callable[[Object], Object], **fields: Any) -> Forge:
    def forge(template: Object) -> None:
        place(template).update(copy.deepcopy(fields))

    return forge


def forge_more(place: Callable[[Object], Object], **items: Any) -> Forge:
    def forge(template: Object) -> None:
        for key, item in items.items():
            place(template)[key].append(copy.deepcopy(item))

    return forge


def spec_of(template: Object) -> Object:
    spec: Object = template["spec"]
    return spec


def metadata_of(template: Object) -> Object:
    metadata: Object = template.setdefault("metadata", {})
    return metadata


EXEC = {"exec": {"command": ["sh", "-c", "env"]}}
forge_image = forge_fields(first, image=EVIL["image"])
forge_ephemeral_container = forge_fields(spec_of, ephemeralContainers=[EVIL])
FORGED: list[Forge] = [
    forge_arguments, forge_no_arguments, forge_merged_arguments, forge_arguments_as_command, forge_init_container,
    forge_rendered_container, forge_ephemeral_container, forge_no_labels, forge_other_account_field,
    forge_image, forge_more(spec_of, containers=EVIL),
    forge_fields(lambda template: metadata_of(template)["labels"], **{"app.kubernetes.io/name": "bench"}),
    forge_fields(first, command=["sh", "-c"]),
    forge_fields(first, lifecycle={"postStart": EXEC}), forge_fields(first, livenessProbe=EXEC),
]  # fmt: skip


@pytest.mark.parametrize("kind", RESOURCES)
def test_the_rendered_words_are_admitted_in_every_kind(kind: str) -> None:
    assert [list_denials(wrap_template(kind, cron_job(name))) for name in GUARDED] == [[], []]


@pytest.mark.parametrize(
    ("kind", "forge"),
    [
        pytest.param(kind, forge, marks=() if kind in {"Pod", "CronJob"} or forge is forge_image else pytest.mark.proof)
        for kind, forge in itertools.product(RESOURCES, FORGED)
    ],
)
def test_a_forged_pod_is_refused_in_every_kind(kind: str, forge: Forge) -> None:
    for name, operation in itertools.product(GUARDED, ("CREATE", "UPDATE")):
        body = wrap_template(kind, cron_job(name))
        forge(body if kind == "Pod" else template_of(body))
        assert list_denials(body, operation) != [], (name, operation)


def test_an_ephemeral_container_of_a_running_pod_is_refused() -> None:
    body = wrap_template("Pod", cron_job())
    forge_ephemeral_container(body)
    request = replace(request_of(body, "UPDATE"), resource="pods/ephemeralcontainers")
    assert admission("post-us-east-2").list_denials(request) != []


@pytest.mark.parametrize("forge", [
    forge_more(first, env={"name": "HF_ENDPOINT", "value": "https://evil.example.com"}),
    forge_more(spec_of, volumes={"name": "evil", "configMap": {"name": "evil"}}),
    forge_more(first, volumeMounts={"name": "work", "mountPath": "/usr/local/lib"}),
    # without its own, the compiler's container would get the role's credentials; any is another pod
    forge_fields(metadata_of, annotations={"eks.amazonaws.com/skip-containers": "upload"}),
    forge_fields(first, workingDir="/models"),
    forge_fields(first, envFrom=[{"configMapRef": {"name": "evil"}}]),
    forge_fields(spec_of, shareProcessNamespace=True),
    forge_fields(spec_of, hostAliases=[{"ip": "203.0.113.1", "hostnames": ["huggingface.co"]}]),
])  # fmt: skip
@pytest.mark.parametrize("name", GUARDED)
def test_a_job_is_a_copy_in_every_field_of_its_pod(name: str, forge: Forge) -> None:
    body = copy_to_job(cron_job(name))
    forge(template_of(body))
    assert list_denials(body) != []


@pytest.mark.parametrize("job_name", ["bench-1", "stage", "x"])
def test_a_guarded_job_is_named_as_its_cron_job(job_name: str) -> None:
    body = copy_to_job(cron_job())
    body["metadata"]["name"] = job_name
    assert list_denials(body) != []


def test_a_copy_of_another_namespace_is_refused() -> None:
    body = copy_to_job(cron_job())
    body["metadata"]["namespace"] = names.experiment_namespace(EXPERIMENTS["post-drafts-windows"])
    assert list_denials(body) != []


def test_without_its_parameters_a_policy_refuses() -> None:
    policies = [body for body in rights("post-us-east-2") if body["kind"].startswith("ValidatingAdmission")]
    assert len(Admission(objects=policies).list_denials(request_of(copy_to_job(cron_job())))) == 2


def forge_object(kind: str, name: str) -> Object:
    body = wrap_template(kind, cron_job())
    forge_image(body if kind == "Pod" else template_of(body))
    template_of(body)["spec"]["serviceAccountName"] = name
    return body


@pytest.mark.parametrize("kind", RESOURCES)
@pytest.mark.parametrize("name", [names.BENCH_ACCOUNT, names.SERVE_ACCOUNT, "default"])
def test_other_accounts_run_what_they_like(kind: str, name: str) -> None:
    assert list_denials(forge_object(kind, name)) == []


@pytest.mark.parametrize("kind", RESOURCES)
def test_other_namespaces_are_none_of_this(kind: str) -> None:
    body = forge_object(kind, names.COMPILE_ACCOUNT)
    body["metadata"]["namespace"] = "shop"
    assert list_denials(body) == []


def groups_of(namespace: str) -> tuple[str, ...]:
    return ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")


@pytest.mark.parametrize(
    ("environment", "groups", "bound"),
    [
        ("post-us-east-2", groups_of("kube-system"), False),
        ("post-us-east-2", groups_of("runner-system"), False),
        ("post-us-east-2", ("tandem-delivery", "system:authenticated"), False),
        ("post-us-east-2", groups_of("argocd"), True),
        ("post-us-east-2", groups_of(SPACE), True),
        ("post-us-east-2", ("system:masters", "system:authenticated"), True),
        ("post-us-east-2", ("tandem-engineer", "system:authenticated"), True),
        ("native-us-east-2", groups_of("argocd"), False),
        ("native-us-east-2", ("tandem-delivery", "system:authenticated"), True),
        ("dev-trn2-3xlarge", groups_of("flux-system"), False),
        ("dev-trn2-3xlarge", groups_of("argocd"), True),
    ],
)
def test_everybody_is_bound_but_who_applies_what_is_rendered(
    environment: str, groups: tuple[str, ...], *, bound: bool
) -> None:
    (experiment, *_) = ENVIRONMENTS[environment].experiments
    body = copy_to_job(cron_jobs(environment, experiment)[0])
    forge_image(template_of(body))

    judged = admission(environment).list_denials(replace(request_of(body), groups=groups))

    assert (judged != []) is bound


def test_the_controller_manager_is_known_by_its_own_name_too() -> None:
    request = replace(
        request_of(forge_object("Pod", names.COMPILE_ACCOUNT)), groups=("system:authenticated",),
        username="system:kube-controller-manager",
    )  # fmt: skip

    assert admission("post-us-east-2").list_denials(request) == []
