"""Charts write Kubernetes objects as classes: mypy reads the fields of a class, and takes any dict
in its place."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from functools import cache

import pytest
from committed import ROOT

ALIAS = "k8s"
SOURCES = {path.stem: path.read_text() for path in sorted((ROOT / "charts").glob("*.py"))}
# a resource and a label of ours, although a class has a field of that name
MAPPED = {"storage", "workload"}
CUSTOM_RESOURCES = {"argocd", "flux"}  # of their kinds cdk8s-plus has no class


@cache
def read_fields() -> dict[str, dict[str, str]]:
    """Return the fields of each class of cdk8s_plus_36.k8s, with the annotation of each."""
    from cdk8s_plus_36 import k8s  # noqa: PLC0415 - starts Node

    classes = {name: value for name, value in vars(k8s).items() if inspect.isclass(value)}
    return {
        name: {
            field: str(parameter.annotation)
            for field, parameter in inspect.signature(value.__init__).parameters.items()
            if parameter.kind is parameter.KEYWORD_ONLY
        }
        for name, value in classes.items()
    }


def spell_camel(field: str) -> str:
    first, *rest = field.strip("_").split("_")
    return first + "".join(word.capitalize() for word in rest)


@cache
def list_spellings() -> frozenset[frozenset[str]]:
    """Return the fields of each class, as Python and as YAML spell them."""
    fields = [set(names) for names in read_fields().values()]
    return frozenset(
        frozenset(names | {spell_camel(name) for name in names}) for names in fields if names
    )


def find_class(call: ast.expr) -> str | None:
    """Return the name of a class of k8s that an expression calls."""
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    is_alias = isinstance(call.func.value, ast.Name) and call.func.value.id == ALIAS
    return call.func.attr if is_alias else None


def list_dicts(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the dicts in an expression that is not itself a call."""
    is_dict_call = (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict"
    )
    if isinstance(node, ast.Dict | ast.DictComp) or is_dict_call:
        yield node
    elif not isinstance(node, ast.Call):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                yield from list_dicts(child)


def list_faults(source: str) -> list[str]:
    """Return the dicts of a chart that stand where k8s has a class, with their lines."""
    tree = ast.parse(source)
    faults: list[str] = []
    for node in ast.walk(tree):
        name = find_class(node) if isinstance(node, ast.Call) else None
        fields = read_fields().get(name or "", {})
        for keyword in node.keywords if name else ():
            annotation = fields.get(keyword.arg or "", "")
            if keyword.arg is None:
                faults.append(f"{node.lineno}: {name}(**...) hides its fields")
            elif (
                "Union[" in annotation and "Dict[" in annotation and list(list_dicts(keyword.value))
            ):
                faults.append(f"{node.lineno}: {name}.{keyword.arg} is a dict")

        if isinstance(node, ast.Dict) and node.keys:
            keys = {key.value for key in node.keys if isinstance(key, ast.Constant)}
            if (
                len(keys) == len(node.keys)
                and not keys <= MAPPED
                and any(keys <= names for names in list_spellings())
            ):
                faults.append(f"{node.lineno}: {sorted(keys)} are fields of a class")
    return faults


def imports_classes(source: str) -> bool:
    return "from cdk8s_plus_36 import k8s" in source


@pytest.mark.parametrize(
    "module", [name for name, source in SOURCES.items() if imports_classes(source)]
)
def test_no_dict_stands_where_kubernetes_has_a_class(module: str) -> None:
    assert list_faults(SOURCES[module]) == []


@pytest.mark.parametrize("module", SOURCES)
def test_only_custom_resources_are_written_without_classes(module: str) -> None:
    uses_resource = "add_custom_resource(" in SOURCES[module]
    assert uses_resource is (module in CUSTOM_RESOURCES | {"chart"})


@pytest.mark.parametrize("module", SOURCES)
def test_a_module_has_at_most_one_chart(module: str) -> None:
    classes = [
        node for node in ast.walk(ast.parse(SOURCES[module])) if isinstance(node, ast.ClassDef)
    ]
    assert len(classes) <= 1


@pytest.mark.parametrize(
    "expression",
    [
        'k8s.PodSpec(containers=[{"name": "vllm"}])',
        'k8s.PodSpec(containers=[*others, {"name": "vllm"}])',
        'k8s.DeploymentSpec(selector={"match_labels": labels}, template=template)',
        "k8s.PodSpec(containers=containers, security_context=dict(run_as_non_root=True))",
        "k8s.Container(name='vllm', env=[{'name': name} for name in names])",
        "k8s.Container(**fields)",
        '{"name": "work", "mountPath": "/work"}',
        '{"name": "work", "mount_path": "/work"}',
    ],
)
def test_a_dict_in_place_of_a_class_is_found(expression: str) -> None:
    assert len(list_faults(f"from cdk8s_plus_36 import k8s\nvalue = {expression}\n")) >= 1


@pytest.mark.parametrize(
    "expression",
    [
        'k8s.LabelSelector(match_labels={"app.kubernetes.io/name": "qwen"})',
        'k8s.ResourceRequirements(requests={"cpu": k8s.Quantity.from_string("2")})',
        (
            'k8s.OpaqueDeviceConfiguration(driver="d", parameters={"apiVersion": "d/v1",'
            ' "logicalNeuronCore": 2})'
        ),
    ],
)
def test_labels_quantities_and_free_parameters_are_dicts(expression: str) -> None:
    assert list_faults(f"from cdk8s_plus_36 import k8s\nvalue = {expression}\n") == []
