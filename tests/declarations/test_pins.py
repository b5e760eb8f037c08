"""The pins that move together are named with what their files hold."""

from __future__ import annotations

import re

import pytest
from committed import ENVIRONMENTS, ROOT, environment, experiment, known

from tandem.declarations.pins import NO_PIN_TEXT, VersionPin, list_pins


def pins(name: str) -> list[VersionPin]:
    mine = environment(name)
    return list(list_pins(mine, [experiment(name_) for name_ in mine.experiments], known()))


PINS = [
    pytest.param(pin, id=f"{name}-{pin.component}") for name in ENVIRONMENTS for pin in pins(name)
]


@pytest.mark.parametrize("pin", PINS)
def test_a_pins_value_stands_in_its_file(pin):
    texts = [(ROOT / file).read_text() for file in pin.file.split(", ")]
    assert pin.value == NO_PIN_TEXT or pin.value.partition(",")[0] in texts[-1]


def test_with_gitops_no_kubectl_layer_is_pinned():
    assert "kubectl layer" not in {pin.component for pin in pins("native-us-east-2")}


def test_kubectl_is_of_the_layer_that_is_locked_and_imported():
    minor = known().kubernetes.kubectl.value.partition(".")[2]
    minors = re.findall(
        r"aws-cdk\.lambda-layer-kubectl-v(\d+)>=", (ROOT / "pyproject.toml").read_text()
    )
    assert minors == [minor]
    assert f"import KubectlV{minor}Layer" in (ROOT / "stacks" / "kubectl.py").read_text()
