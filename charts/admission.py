"""What may run as the accounts that write models and artifacts, and which pods people enter: admission policies.

Invariant: a pod of tandem-stage or tandem-compile runs rendered images, commands and arguments, whoever made it; and a
Job with such an account is a copy of a CronJob of its namespace, environment variables, volumes and annotations
included. Whoever applies what is rendered, and the controllers that make pods of it, are not asked.

Two policies, because each knows what the other cannot. A Job is held against the CronJobs themselves, as parameters:
nothing is written twice. Parameters of one policy must all admit an object, so none of them can say that the CronJob
which a Job names exists; and an object of another kind has no CronJob to be compared with. Therefore a ConfigMap in
each experiment's namespace holds the words of each rendered pod, and whatever makes pods is held against it.

Sources: kubernetes.io docs/reference/access-authn-authz/validating-admission-policy (stable since 1.30), and its
reference of ParamRef: without a namespace the parameters are those of the object's own namespace.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from charts.manifest import NAME, PART_OF, Object
from tandem.ops.people.cluster_rights import BENCH_JOB, DELIVERY_GROUP, RUNNER_NAMESPACE, kubernetes_group
from tandem.spec import names
from tandem.spec.environment import Environment, GitopsDelivery

API = "admissionregistration.k8s.io/v1"
COMMANDS, COPIES, ENTRY = "tandem-rendered-commands", "tandem-rendered-copies", "tandem-bench-entry"
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
_HAS_NAME = f"has({{0}}.metadata) && has({{0}}.metadata.labels) && '{NAME}' in {{0}}.metadata.labels"


def list_policies(environment: Environment) -> list[tuple[str, str, Object]]:
    """Return the policies and their bindings: kind, name and spec of each."""
    specs = {
        COMMANDS: (_build_commands_policy(environment), _refer_parameters({"name": COMMANDS_MAP})),
        COPIES: (_build_copies_policy(environment), _refer_parameters({"selector": {"matchLabels": PART_OF}})),
        ENTRY: (_build_entry_policy(), {}),
    }
    return [
        row
        for name, (policy, parameters) in specs.items()
        for row in (
            ("ValidatingAdmissionPolicy", name, policy),
            (
                "ValidatingAdmissionPolicyBinding", name,
                {"policyName": name, **parameters, "validationActions": ["Deny"]},
            ),
        )
    ]  # fmt: skip


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
    """Return image, command and arguments as `_WORDS` computes them.

    Each word stands behind its kind and its length, so that no other words are spelt alike.
    """
    kinds = {"i": [container["image"]], "c": container.get("command", []), "a": container.get("args", [])}
    return " ".join(f"{kind}{len(word)}:{word}" for kind, words in kinds.items() for word in words)


_WORDS = """
(['i' + string(size(c.image)) + ':' + c.image]
+ (has(c.command) ? c.command.map(w, 'c' + string(size(w)) + ':' + w) : [])
+ (has(c.args) ? c.args.map(w, 'a' + string(size(w)) + ':' + w) : [])).join(' ')
""".strip().replace("\n", " ")


def _build_commands_policy(environment: Environment) -> Object:
    optional = "(has(variables.pod.{0}) ? variables.pod.{0} : [])"
    hooks = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")
    return {
        **_build_policy(("v1", "ConfigMap"), POD_MAKERS, ["CREATE", "UPDATE"], _list_account_conditions(environment)),
        "variables": [
            {"name": "template", "expression": _TEMPLATE},
            {"name": "pod", "expression": "variables.template.spec"},
            _build_name_variable("variables.template"),
            {
                "name": "containers",
                "expression": " + ".join([
                    "variables.pod.containers", *map(optional.format, ("initContainers", "ephemeralContainers")),
                ]),
            },
            {"name": "words", "expression": f"variables.containers.map(c, {_WORDS}).join('\\n')"},
        ],
        "validations": [
            {
                "expression": "variables.name in params.data && params.data[variables.name] == variables.words",
                "message": f"pods of {' and '.join(WRITER_ACCOUNTS)} run rendered images, commands and arguments "
                "alone: start a rendered CronJob by kubectl create job --from=cronjob/NAME",
            },
            {
                "expression": f"!variables.containers.exists(c, {' || '.join(f'has(c.{hook})' for hook in hooks)})",
                "message": f"pods of {' and '.join(WRITER_ACCOUNTS)} have neither hooks nor probes: they are commands",
            },
        ],
    }  # fmt: skip


def _build_copies_policy(environment: Environment) -> Object:
    annotations = "(has({0}.metadata) && has({0}.metadata.annotations) ? {0}.metadata.annotations : {{}})"
    job_template, cron_job_template = "object.spec.template", "params.spec.jobTemplate.spec.template"
    conditions = (
        "object.metadata.name.startsWith(variables.name + '-')",
        f"{job_template}.spec == {cron_job_template}.spec",
        f"{annotations.format(job_template)} == {annotations.format(cron_job_template)}",
    )
    return {
        **_build_policy(("batch/v1", "CronJob"), {"batch": ("jobs",)}, ["CREATE", "UPDATE"],
                  _list_account_conditions(environment)),
        "variables": [_build_name_variable(job_template)],
        "validations": [{
            "expression": f"variables.name != params.metadata.name || ({' && '.join(conditions)})",
            "message": f"a Job of {' or '.join(WRITER_ACCOUNTS)} is a copy of a CronJob, its name that of the CronJob "
            "and a suffix: kubectl create job --from=cronjob/NAME NAME-1",
        }],
    }  # fmt: skip


def _build_entry_policy() -> Object:
    groups = json.dumps([kubernetes_group("engineer"), kubernetes_group("operator")])
    conditions = [
        ("experiments", _IN_EXPERIMENT),
        ("people", f"has(request.userInfo.groups) && request.userInfo.groups.exists(g, g in {groups})"),
    ]
    pods = {"": ("pods/attach", "pods/exec", "pods/portforward")}
    return {
        **_build_policy(None, pods, ["CONNECT"], conditions),
        "validations": [{
            "expression": f"request.name.startsWith('{BENCH_JOB}-')",
            "message": f"people enter pods of Jobs named {BENCH_JOB} alone; an admin enters any",
        }],
    }  # fmt: skip


_IN_EXPERIMENT = f"request.namespace.startsWith('{names.NAMESPACE_PREFIX}')"


def _list_account_conditions(environment: Environment) -> list[tuple[str, str]]:
    """Return the conditions of a policy on the guarded accounts: name and expression of each.

    Kubernetes' own controllers act by accounts of kube-system, or where that is switched off by one name
    (kube-controller-manager reference, --use-service-account-credentials).
    """
    namespaces, groups = ["kube-system", RUNNER_NAMESPACE], []
    if isinstance(environment.delivery, GitopsDelivery):
        namespaces.append(environment.delivery.namespace)
    else:
        groups.append(DELIVERY_GROUP)
    groups += [f"system:serviceaccounts:{namespace}" for namespace in namespaces]
    account_expressions = (
        f"(has({_TEMPLATE}.spec.{field}) && {_TEMPLATE}.spec.{field} in {json.dumps(list(WRITER_ACCOUNTS))})"
        for field in ("serviceAccountName", "serviceAccount")
    )
    return [
        ("experiments", _IN_EXPERIMENT),
        ("no-controller-manager", "request.userInfo.username != 'system:kube-controller-manager'"),
        (
            "no-controller",
            f"!has(request.userInfo.groups) || !request.userInfo.groups.exists(g, g in {json.dumps(groups)})",
        ),
        ("guarded-account", " || ".join(account_expressions)),
    ]


def _build_policy(
    parameter: tuple[str, str] | None, resources: Mapping[str, Sequence[str]], operations: Sequence[str],
    conditions: Sequence[tuple[str, str]],
) -> Object:  # fmt: skip
    return {
        "failurePolicy": "Fail",
        **({"paramKind": dict(zip(("apiVersion", "kind"), parameter, strict=True))} if parameter else {}),
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "namespaceSelector": {},
            "objectSelector": {},
            "resourceRules": [
                {
                    "apiGroups": [group], "apiVersions": ["v1"], "operations": list(operations),
                    "resources": list(kinds), "scope": "Namespaced",
                }
                for group, kinds in resources.items()
            ],
        },
        "matchConditions": [{"name": name, "expression": expression} for name, expression in conditions],
    }  # fmt: skip


def _refer_parameters(reference: Object) -> Object:
    return {"paramRef": {**reference, "parameterNotFoundAction": "Deny"}}


def _build_name_variable(template: str) -> Object:
    has_name = _HAS_NAME.format(template)
    return {"name": "name", "expression": f"{has_name} ? {template}.metadata.labels['{NAME}'] : ''"}
