"""What is watched is what is hosted, with the traffic of its suites; what it costs is told, and
held to a limit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from bucket_specs import folders

from tandem.cli.inputs import read_legal_inputs
from tandem.cli.monitoring_cost import compute_costs, list_faults
from tandem.cli.program import main
from tandem.cli.selection import Selection
from tandem.declarations.workspace import load_workspace

ROOT = Path(__file__).parent.parent.parent


POST = "post-us-east-2"
LIMIT = "observability.monthly_limit_usd"


def edit(specs: Path, file: str, old: str, new: str) -> None:
    path = specs / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def select_post(specs: Path) -> Selection:
    return Selection(
        environments=specs / "environments", experiments=specs / "experiments", names=(POST,)
    )


def limited(specs: Path, usd: str) -> None:
    edit(specs, f"environments/{POST}.yaml", "monthly_limit_usd: 300", f"monthly_limit_usd: {usd}")


def test_more_than_the_limit_is_refused_at_its_key(specs, capsys):
    limited(specs, "100")

    code = main(["check", POST, *folders(specs)])

    error, choices, change, *_ = capsys.readouterr().err.splitlines()
    lines = (specs / f"environments/{POST}.yaml").read_text().splitlines()
    line = next(number for number, text in enumerate(lines, start=1) if "monthly_limit_usd" in text)
    assert code == 2
    assert error.endswith(f"{POST}.yaml:{line}: {LIMIT}: got 100")
    assert "what watching may cost in a month" in choices
    assert "raise it, or declare fewer variants" in change
    assert "metrics of the bench" in change


REFERENCE = """reference:
    run: 20261121T101500Z-0123abcd
    values:
      - {experiment: post, variant: qwen-vllm, prompt_class: CLASS, concurrency: LOAD, tpot_ms: 45}
"""


@pytest.mark.parametrize(
    ("prompt_class", "load", "path"),
    [
        ("jsonn", "4", "observability.reference.values[0].prompt_class"),
        ("json", "16", "observability.reference.values[0].concurrency"),
    ],
)
def test_a_reference_of_what_no_suite_asks_is_warned_of(specs, prompt_class, load, path):
    reference = REFERENCE.replace("CLASS", prompt_class).replace("LOAD", load)
    edit(specs, f"environments/{POST}.yaml", "reference: null ", reference + "  # ")

    inputs = read_legal_inputs(select_post(specs))

    (fault,) = [fault for fault in inputs.faults if "reference" in fault.path]
    assert (fault.path, fault.severity) == (path, "warning")
    assert fault.line


@pytest.mark.parametrize(("variants", "refused"), [(100, False), (130, True)])
def test_more_alarms_than_a_template_takes_are_refused(variants, *, refused):
    """The synthesis would refuse them too, and say less of where."""
    workspace = load_workspace(ROOT / "environments", ROOT / "experiments", ("native-us-east-2",))
    name, *_ = workspace.environments["native-us-east-2"].record.experiments
    post = workspace.experiments[name].record
    assert post is not None
    wide = post.model_copy(
        update={
            "variants": tuple(
                post.variants[-1].model_copy(update={"name": f"v{index}"})
                for index in range(variants)
            )
        }
    )
    experiments = {**workspace.experiments, name: replace(workspace.experiments[name], record=wide)}

    many = replace(workspace, experiments=experiments)
    faults = [
        fault for fault in list_faults(many, compute_costs(many, ())) if fault.path == "experiments"
    ]

    assert [(fault.path, fault.severity) for fault in faults] == (
        [("experiments", "refusal")] if refused else []
    )
