"""Knobs from YAML: what is refused, with the key path, and that every example in the docs is
taken."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tandem.declarations.faults import SpecError
from tandem.simulator.settings import (
    FaultSettings,
    PromptClassSettings,
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
        ("classes: {default: {acceptence: 0.5}}", "acceptence"),
        ("faults: [{kind: stall, rate: 1, second: 2}]", "faults[0].second"),
        ("start_s: -1", "start_s"),
        ("law: eagle", "law"),
        ("classes: {default: {acceptance: 1.5}}", "acceptance"),
        ("jitter: -1", "jitter"),
        ("max_num_seqs: 0", "max_num_seqs"),
        ("step_ms: []", "step_ms"),
        ("step_ms: [10, 0]", "step_ms[1]"),
        ("law: vllm", "num_speculative_tokens"),
        ("num_speculative_tokens: 7", "num_speculative_tokens"),
        ("classes: {copy: {acceptance: 0.5}}", "classes"),
        ("faults: [{kind: stall}]", "faults[0]"),
        ("faults: [{kind: stall, rate: 1, classes: [copy]}]", "faults[0].classes"),
        ("faults: [{kind: boredom, rate: 1}]", "faults[0].kind"),
    ],
)
def test_rejects_what_means_nothing_and_names_its_place(tmp_path, text, path):
    assert path in refused(tmp_path, text)


def test_a_misspelt_knob_is_told_with_the_right_one(tmp_path):
    assert "did you mean 'step_ms'" in refused(tmp_path, "step_m: [1]")


def test_every_knob_says_what_it_is():
    records = (SimulatorSettings, PromptClassSettings, FaultSettings)
    fields = [field for record in records for field in record.model_fields.values()]
    assert [field for field in fields if not field.description] == []


def test_the_example_in_the_docs_can_be_read(tmp_path):
    (example,) = re.findall(r"```yaml\n(model: .*?)```", DOCS.read_text(), flags=re.DOTALL)
    file = tmp_path / "knobs.yaml"
    file.write_text(example)
    assert read_settings(file).law == "nxdi"


def test_the_docs_name_every_knob():
    text = DOCS.read_text()
    assert [name for name in SimulatorSettings.model_fields if f"`{name}`" not in text] == []


def test_the_docs_name_only_tests_that_exist():
    name = set(re.findall(r"`(test_\w+)`", DOCS.read_text()))
    assert len(name) > 5
    assert name <= {path.stem for path in Path(__file__).parent.glob("test_*.py")}
