"""`tandem check` says what an edit compiles again, against manifests, a folder or a file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from bucket_specs import config_map, edit_file, folders, referring

from tandem.cli.program import main
from tandem.declarations.catalogue import load_catalogue
from tandem.declarations.document import read_document
from tandem.declarations.experiment import Experiment
from tandem.declarations.names import key_config_map_name
from tandem.declarations.record import parse_record
from tandem.declarations.variant_key import compute_artifact_key

ENVIRONMENT = "post-us-east-2"
K5 = ("num_speculative_tokens: 7", "num_speculative_tokens: 5")


def edit(specs: Path, old: str, new: str, name: str = "post") -> None:
    edit_file(specs, old, new, f"experiments/{name}.yaml")


@pytest.fixture
def before(specs, tmp_path):
    """A copy of the experiments, left as they were."""
    return Path(shutil.copytree(specs / "experiments", tmp_path / "before"))


def check(
    specs: Path, against: Path, capsys: pytest.CaptureFixture[str], *more: str
) -> tuple[int, str]:
    code = main(["check", ENVIRONMENT, *folders(specs), "--against", str(against), *more])
    return code, capsys.readouterr().out


def told(specs: Path, against: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What --json says, by experiment/variant."""
    changes = json.loads(check(specs, against, capsys, "--json")[1])["recompiles"]
    return {f"{change['experiment']}/{change['variant']}": change for change in changes["variants"]}


def rendered(specs: Path, out: Path) -> Path:
    """A manifests folder whose ConfigMaps hold the keys of the experiments as they are now."""
    for path in (specs / "experiments").glob("post*.yaml"):
        experiment = parse_record(Experiment, read_document(path), name=path.stem)
        keys = {
            variant.name: compute_artifact_key(experiment, variant, load_catalogue())
            for variant in experiment.all_variants()
        }
        maps = [config_map(key_config_map_name(key), key.as_fields()) for key in keys.values()]
        write(
            out,
            path.stem,
            "serve",
            [referring(name, key_config_map_name(key)) for name, key in keys.items()],
        )
        write(out, path.stem, "storage", maps)
    return out


def write(out: Path, experiment: str, stage: str, bodies: list[dict[str, Any]]) -> Path:
    """Write the objects of one stage; the file."""
    file = out / ENVIRONMENT / experiment / stage / f"{stage}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump_all(bodies))
    return file


def test_an_unchanged_folder_compiles_nothing(specs, before, capsys):
    assert "nothing compiles again" in check(specs, before, capsys)[1]


def test_a_changed_window_is_told_as_the_reason(specs, before, capsys):
    edit(specs, *K5)

    assert (
        "post/qwen-sd-vllm: recompiles because num_speculative_tokens 7 -> 5"
        in check(specs, before / "post.yaml", capsys)[1]
    )


def test_the_cost_is_deadline_times_price_times_artifacts(specs, before, capsys):
    edit(specs, "max_num_seqs: 4", "max_num_seqs: 2")
    edit(specs, "suites:", "compile: {deadline_hours: 3}\nsuites:")
    out = check(specs, before / "post.yaml", capsys)[1]
    assert "2 artifacts (16 graphs) to compile, at most 214.56 USD" in out  # 2 x 3 h x 35.76


def test_an_artifact_that_two_experiments_need_is_compiled_once(specs, before, capsys):
    for name in ("post", "post-drafts-windows"):
        edit(specs, "async_mode: false", "async_mode: true", name)

    changes = json.loads(check(specs, before, capsys, "--json")[1])["recompiles"]

    names = {change["now"] for change in changes["variants"] if change["compiles"]}
    assert changes["environments"][ENVIRONMENT]["artifacts"] == len(names)


def test_a_renamed_variant_takes_the_artifact_it_had(specs, before, capsys):
    edit(specs, "name: qwen-sd-vllm", "name: fast")
    changes = told(specs, before / "post.yaml", capsys)
    assert (changes["post/fast"]["same_as"], changes["post/qwen-sd-vllm"]["verdict"]) == (
        "post/qwen-sd-vllm",
        "gone",
    )


def test_keys_in_rendered_manifests_are_compared(specs, tmp_path, capsys):
    manifests = rendered(specs, tmp_path / "manifests")
    edit(specs, "num_speculative_tokens: 7", "num_speculative_tokens: 6")
    changes = told(specs, manifests, capsys)
    assert [name for name, change in changes.items() if change["verdict"] != "same artifact"] == [
        "post/qwen-sd-vllm"
    ]


def test_the_folder_manifests_is_compared_without_being_named(specs, capsys, monkeypatch):
    rendered(specs, specs / "manifests")
    edit(specs, "num_speculative_tokens: 7", "num_speculative_tokens: 6")
    monkeypatch.chdir(specs)

    main(["check", ENVIRONMENT])

    assert "what differs from manifests:" in capsys.readouterr().out


@pytest.mark.parametrize(
    "text",
    [
        yaml.safe_dump(referring("a", "no-such-map")),
        "kind: Deployment\nTANDEM_ARTIFACT_KEY: 1\n",
    ],
)
def test_a_broken_manifest_is_said_to_be_not_compared(specs, tmp_path, capsys, text):
    manifests = rendered(specs, tmp_path / "manifests")
    (manifests / ENVIRONMENT / "post" / "serve" / "serve.yaml").write_text(text)
    code, out = check(specs, manifests, capsys)
    assert (code, "its manifest cannot be read" in out) == (0, True)


def test_a_refused_experiment_is_not_compared(specs, before, capsys):
    edit(specs, "tensor_parallel_size: 32", "tensor_parallel_size: 63")
    code, out = check(specs, before, capsys)
    assert (code, "not compared, refused above: post-us-east-2/post" in out) == (2, True)


def test_what_is_not_compared_is_not_said_to_keep_its_artifact(specs, before, capsys):
    edit(specs, "tensor_parallel_size: 32", "tensor_parallel_size: 63")
    assert "nothing compiles again" not in check(specs, before / "post.yaml", capsys)[1]


def test_nothing_to_compare_with_gives_2(specs, tmp_path, capsys):
    assert check(specs, tmp_path / "missing", capsys)[0] == 2
