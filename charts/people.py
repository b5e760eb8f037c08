"""Rights of operator, engineer and viewer in the cluster, and the pods that may run there with guarded accounts.

Invariant: each Role is rows of tandem/ops/people/cluster_rights.py and no more; nothing here gives rights to a program.
An admin needs none of them and has EKS's own cluster-admin policy from the first deploy. The others have no right
before these objects are applied. A pod of tandem-stage or tandem-compile runs rendered images, commands and arguments,
whoever made it. A Job with such an account is a copy of a CronJob of its namespace, environment variables, volumes and
annotations included. The policies skip those who apply rendered objects, and the controllers that make pods of them.

Two admission policies, because each knows what the other cannot. A Job is compared with the CronJobs themselves, as
parameters: nothing is written twice. Parameters of one policy must all admit an object, so none of them can say that
the CronJob which a Job names exists; and an object of another kind has no CronJob for a comparison. Therefore a
ConfigMap in each experiment's namespace holds the words of each rendered pod, and any object that makes pods is
compared with it.

Sources: kubernetes.io docs/reference/access-authn-authz/validating-admission-policy (stable since 1.30), and its
reference of ParamRef: without a namespace the parameters are those of the object's own namespace.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from charts.manifest import NAME, PART_OF, Object, build_object, object_labels
from tandem.ops.people.cluster_rights import (
    CLUSTER_KINDS,
    CLUSTER_RIGHTS,
    DELIVERY_GROUP,
    RUNNER_NAMESPACE,
    ClusterRight,
    NamespaceScope,
    kubernetes_group,
)
from tandem.spec import names
from tandem.spec.environment import Environment, GitopsDelivery
from tandem.spec.experiment import Experiment

FOLDER = "people"
RBAC, ADMISSION_API = "rbac.authorization.k8s.io", "admissionregistration.k8s.io/v1"
WAVE = 0
COMMANDS, COPIES = "tandem-rendered-commands", "tandem-rendered-copies"
COMMANDS_MAP = "rendered-commands"
WRITER_ACCOUNTS = (names.STAGE_ACCOUNT, names.COMPILE_ACCOUNT)
POD_MAKERS = {
    "": ("pods", "pods/ephemeralcontainers", "replicationcontrollers"),
    "apps": ("daemonsets", "deployments", "replicasets", "statefulsets"),
    "batch": ("cronjobs", "jobs"),
}
_TEMPLATE = (
    "(has(object.spec.jobTemplate) ? object.spec.jobTemplate.spec.template : "
    "has(object.spec.template) ? object.spec.template : object)"
)
# a container in the form of `_spell_words`
_WORDS = """
(['i' + string(size(c.image)) + ':' + c.image]
+ (has(c.command) ? c.command.map(w, 'c' + string(size(w)) + ':' + w) : [])
+ (has(c.args) ? c.args.map(w, 'a' + string(size(w)) + ':' + w) : [])).join(' ')
""".strip().replace("\n", " ")


def render_people(
    environment: Environment,
    experiments: Sequence[Experiment],
    charts_by_experiment: Mapping[str, Mapping[str, list[Object]]],
) -> dict[str, list[Object]]:
    """Return the objects of people's rights: those of the cluster, then those of each namespace.

    Args:
        charts_by_experiment: experiment -> chart -> its objects, the source of the admission policies.
    """
    policies = (_build_object(ADMISSION_API, *row) for row in _list_policies(environment))
    objects = {"cluster": [*_build_roles("everywhere", None), *policies]}
    for experiment in experiments:
        namespace = names.experiment_namespace(experiment)
        bodies = [body for chart in charts_by_experiment[experiment.name].values() for body in chart]
        commands = _build_object("v1", "ConfigMap", COMMANDS_MAP, {"data": summarize_commands(bodies)}, namespace)
        objects[namespace] = [*_build_roles("experiments", namespace), commands]
    return objects


def _build_object(api: str, kind: str, name: str, body: Object, namespace: str | None = None) -> Object:
    return build_object(api, kind, name, body, namespace=namespace, labels=object_labels(name, FOLDER), wave=WAVE)


def _build_roles(scope: NamespaceScope, namespace: str | None) -> Iterator[Object]:
    """Yield role and binding of each kind of people with a right in `scope` that no kind before has.

    The kinds after it are bound to its role as well.
    """
    role, api = "Role" if namespace else "ClusterRole", f"{RBAC}/v1"
    for index, kind in enumerate(CLUSTER_KINDS):
        rules = build_rules(right for right in CLUSTER_RIGHTS if right.scope == scope and right.kinds[0] == kind)
        if rules:
            groups = [kubernetes_group(holder) for holder in CLUSTER_KINDS[index:]]
            binding = {
                "roleRef": {"apiGroup": RBAC, "kind": role, "name": groups[0]},
                "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": group} for group in groups],
            }
            yield _build_object(api, role, groups[0], {"rules": rules}, namespace)
            yield _build_object(api, f"{role}Binding", groups[0], binding, namespace)


def build_rules(rights: Iterable[ClusterRight]) -> list[Object]:
    """Return rights as the rules of a Role."""
    return [
        {"apiGroups": [right.group], "resources": list(right.resources), "verbs": list(right.verbs)} for right in rights
    ]


def summarize_commands(objects: Iterable[Object]) -> dict[str, str]:
    """Return the data of an experiment's ConfigMap: CronJob with a guarded account -> the words of its pod."""
    pods = {
        body["metadata"]["name"]: body["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        for body in objects
        if body["kind"] == "CronJob"
    }
    return {
        name: "\n".join(_spell_words(container) for container in (*pod["containers"], *pod.get("initContainers", [])))
        for name, pod in pods.items()
        if pod["serviceAccountName"] in WRITER_ACCOUNTS
    }


def _spell_words(container: Object) -> str:
    """Return image, command and arguments, each after its kind and length, so that different words never look alike."""
    kinds = {"i": [container["image"]], "c": container.get("command", []), "a": container.get("args", [])}
    return " ".join(f"{kind}{len(word)}:{word}" for kind, words in kinds.items() for word in words)


def _list_policies(environment: Environment) -> Iterator[tuple[str, str, Object]]:
    """Yield the admission policies and their bindings: kind, name and body of each."""
    rows: dict[str, tuple[Object, Object]] = {
        COMMANDS: (_build_commands_policy(environment), {"name": COMMANDS_MAP}),
        COPIES: (_build_copies_policy(environment), {"selector": {"matchLabels": PART_OF}}),
    }
    for name, (policy, reference) in rows.items():
        parameters = {**reference, "parameterNotFoundAction": "Deny"}
        binding = {"policyName": name, "paramRef": parameters, "validationActions": ["Deny"]}
        yield "ValidatingAdmissionPolicy", name, {"spec": policy}
        yield "ValidatingAdmissionPolicyBinding", name, {"spec": binding}


def _build_commands_policy(environment: Environment) -> Object:
    optional = "(has(variables.pod.{0}) ? variables.pod.{0} : [])"
    optional_containers = [optional.format(field) for field in ("initContainers", "ephemeralContainers")]
    hooks = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")
    variables = {
        "template": _TEMPLATE,
        "pod": "variables.template.spec",
        "name": _name_expression("variables.template"),
        "containers": " + ".join(["variables.pod.containers", *optional_containers]),
        "words": f"variables.containers.map(c, {_WORDS}).join('\\n')",
    }
    accounts = " and ".join(WRITER_ACCOUNTS)
    validations = {
        "variables.name in params.data && params.data[variables.name] == variables.words": f"pods of {accounts} run "
        "rendered images, commands and arguments alone: start a rendered CronJob by kubectl create job "
        "--from=cronjob/NAME",
        f"!variables.containers.exists(c, {' || '.join(f'has(c.{hook})' for hook in hooks)})": f"pods of {accounts} "
        "have neither hooks nor probes: they are commands",
    }
    return _build_policy(
        POD_MAKERS, ["CREATE", "UPDATE"], _list_account_conditions(environment), validations, variables,
        parameter={"apiVersion": "v1", "kind": "ConfigMap"},
    )  # fmt: skip


def _build_copies_policy(environment: Environment) -> Object:
    annotations = "(has({0}.metadata) && has({0}.metadata.annotations) ? {0}.metadata.annotations : {{}})"
    job_template, cron_job_template = "object.spec.template", "params.spec.jobTemplate.spec.template"
    copy_conditions = (
        "object.metadata.name.startsWith(variables.name + '-')",
        f"{job_template}.spec == {cron_job_template}.spec",
        f"{annotations.format(job_template)} == {annotations.format(cron_job_template)}",
    )
    validation = f"variables.name != params.metadata.name || ({' && '.join(copy_conditions)})"
    message = (
        f"a Job of {' or '.join(WRITER_ACCOUNTS)} is a copy of a CronJob, its name that of the CronJob "
        "and a suffix: kubectl create job --from=cronjob/NAME NAME-1"
    )
    return _build_policy(
        {"batch": ["jobs"]}, ["CREATE", "UPDATE"], _list_account_conditions(environment), {validation: message},
        {"name": _name_expression(job_template)}, parameter={"apiVersion": "batch/v1", "kind": "CronJob"},
    )  # fmt: skip


_IN_EXPERIMENT = f"request.namespace.startsWith('{names.NAMESPACE_PREFIX}')"


def _list_account_conditions(environment: Environment) -> dict[str, str]:
    """Return the conditions of a policy on the guarded accounts: name and expression of each.

    Kubernetes' own controllers use accounts of kube-system, or one name if that is switched off
    (kube-controller-manager reference, --use-service-account-credentials).
    """
    namespaces, groups = ["kube-system", RUNNER_NAMESPACE], []
    if isinstance(environment.delivery, GitopsDelivery):
        namespaces.append(environment.delivery.namespace)
    else:
        groups.append(DELIVERY_GROUP)
    groups += [f"system:serviceaccounts:{namespace}" for namespace in namespaces]
    in_groups = f"request.userInfo.groups.exists(g, g in {json.dumps(groups)})"
    accounts = json.dumps(list(WRITER_ACCOUNTS))
    return {
        "experiments": _IN_EXPERIMENT,
        "no-controller-manager": "request.userInfo.username != 'system:kube-controller-manager'",
        "no-controller": f"!has(request.userInfo.groups) || !{in_groups}",
        "guarded-account": " || ".join(
            f"(has({_TEMPLATE}.spec.{field}) && {_TEMPLATE}.spec.{field} in {accounts})"
            for field in ("serviceAccountName", "serviceAccount")
        ),
    }


def _build_policy(
    resources: Mapping[str, Sequence[str]], operations: list[str], conditions: Mapping[str, str],
    validations: Mapping[str, str], variables: Mapping[str, str] | None = None, *,
    parameter: Mapping[str, str] | None = None,
) -> Object:  # fmt: skip
    """Return the spec of a policy.

    Args:
        resources: API group -> resources.
        conditions, variables: name -> expression.
        validations: expression -> message.
        parameter: apiVersion and kind of the objects for the comparison.
    """
    rules = [
        {
            "apiGroups": [group], "apiVersions": ["v1"], "operations": operations, "resources": list(kinds),
            "scope": "Namespaced",
        }
        for group, kinds in resources.items()
    ]  # fmt: skip
    constraints = {
        "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}, "resourceRules": rules,
    }  # fmt: skip
    spec: dict[str, Any] = {
        "failurePolicy": "Fail",
        "paramKind": dict(parameter or {}),
        "matchConstraints": constraints,
        "matchConditions": _list_expressions(conditions),
        "variables": _list_expressions(variables or {}),
        "validations": [{"expression": expression, "message": text} for expression, text in validations.items()],
    }
    return {field: value for field, value in spec.items() if value}


def _list_expressions(expressions: Mapping[str, str]) -> list[Object]:
    return [{"name": name, "expression": expression} for name, expression in expressions.items()]


def _name_expression(template: str) -> str:
    labels = f"{template}.metadata.labels"
    has_name = f"has({template}.metadata) && has({labels}) && '{NAME}' in {labels}"
    return f"{has_name} ? {labels}['{NAME}'] : ''"
