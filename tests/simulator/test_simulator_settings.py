"""Knobs from YAML: what is refused, with the key path, and that every example in the docs is
taken."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tandem.declarations.faults import SpecError
from tandem.simulator.settings import (
    SimulatorSettings,
    read_settings,
)

DOCS = Path(__file__).parents[2] / "docs" / "simulator.md"


def refused(tmp_path: Path, text: str) -> str:
    file = tmp_path / "knobs.yaml"
    file.write_text(text)
    with pytest.raises(SpecError) as refusal:
        read_settings(file)
    return str(refusal.value)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("colour: blue", "colour"),
        ("classes: {default: {acceptance: 1.5}}", "acceptance"),
        ("step_ms: [10, 0]", "step_ms[1]"),
        ("law: vllm", "num_speculative_tokens"),
        ("num_speculative_tokens: 7", "num_speculative_tokens"),
        ("classes: {copy: {acceptance: 0.5}}", "classes"),
        ("faults: [{kind: stall}]", "faults[0]"),
        ("faults: [{kind: stall, rate: 1, classes: [copy]}]", "faults[0].classes"),
    ],
)
def test_rejects_what_means_nothing_and_names_its_place(tmp_path, text, path):
    assert path in refused(tmp_path, text)


def test_the_example_in_the_docs_can_be_read(tmp_path):
    (example,) = re.findall(r"```yaml\n(model: .*?)```", DOCS.read_text(), flags=re.DOTALL)
    file = tmp_path / "knobs.yaml"
    file.write_text(example)
    assert read_settings(file).law == "nxdi"


def test_the_docs_name_every_knob():
    text = DOCS.read_text()
    assert [name for name in SimulatorSettings.model_fields if f"`{name}`" not in text] == []
