"""What is watched is what is hosted, with the traffic of its suites; what it costs is told, and
held to a limit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
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


def test_show_marks_prices_that_nobody_verified(specs, capsys):
    main(["show", "--verbose", POST, *folders(specs)])

    lines = capsys.readouterr().out.splitlines()
    (bench,) = [line for line in lines if "metrics of the bench" in line]
    (key,) = [line for line in lines if "keys of logs" in line]
    assert ("?" in bench, "?" in key) == (True, False)
    assert any("price not verified" in line for line in lines)


def test_check_says_it_to_programs_too(specs, capsys):
    main(["check", "--json", POST, *folders(specs)])

    document = json.loads(capsys.readouterr().out)["watching"][POST]
    assert document["limit_usd"] == 300
    assert document["usd"] == pytest.approx(
        sum(part["usd"] for part in document["parts"]), abs=0.01
    )
    assert {part["is_verified"] for part in document["parts"]} == {True, False}


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


def test_a_huge_sweep_exceeds_the_default_limit(specs, capsys):
    windows = ", ".join(map(str, range(2, 65)))
    edit(specs, "experiments/dev.yaml", "max_prompt_tokens: 384", "max_prompt_tokens: 300")
    edit(
        specs,
        "experiments/dev.yaml",
        "schedule: interleaved",
        "schedule: interleaved\nconcurrency: [4]\ngoodput: {tpot_ms: 50}\n"
        "sweep: {prefix: many, mode: fused, drafts: [Qwen/Qwen3-0.6B, Qwen/Qwen3-1.7B], "
        f"num_speculative_tokens: [{windows}]}}",
    )

    code = main(["check", "dev-trn2-3xlarge", *folders(specs)])

    error = next(line for line in capsys.readouterr().err.splitlines() if line.startswith("error"))
    assert code == 2
    assert error.endswith(f"dev-trn2-3xlarge.yaml: {LIMIT}: got 150")


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


def test_without_container_insights_check_says_that_no_server_is_watched(specs, capsys):
    file = specs / "environments" / f"{POST}.yaml"
    document = yaml.safe_load(file.read_text())
    document["observability"] = {**document.get("observability", {}), "container_insights": False}
    file.write_text(yaml.safe_dump(document, sort_keys=False))

    main(["check", POST, *folders(specs), "--json"])

    gaps = json.loads(capsys.readouterr().out)["watching"][POST]["unwatched"]
    assert any(
        sentence.startswith("No server is watched for being ready, and nothing is muted")
        for sentence in gaps
    )
