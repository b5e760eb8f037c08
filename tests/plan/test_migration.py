"""An experiment on another runtime: legal, complete, and the nearest that can be had."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from bucket_specs import folders
from shipped import load_shipped

from tandem.cli.program import main
from tandem.declarations.catalogue import load_catalogue
from tandem.errors import InputError
from tandem.plan.migration import migrate_experiment

ROOT = Path(__file__).parents[2]
MOVES = [
    ("post", "native"),
    ("dev", "native"),
    ("post-drafts-windows", "native"),
    ("qwen3-native", "nxdi-v0"),
    ("llama-eagle3", "nxdi-v0"),
]


def declared(name):
    return load_shipped().experiments[name].record


def migrated(name, runtime):
    return migrate_experiment(declared(name), runtime, load_catalogue())


@pytest.mark.parametrize(("name", "runtime"), MOVES)
def test_written_experiment_is_legal(name, runtime, capsys):
    assert main(["migrate", name, "--runtime", runtime, *folders(ROOT)]) == 0
    assert "each compiles again" in capsys.readouterr().out


def test_a_plain_draft_becomes_the_head_of_the_target():
    variant = migrated("post", "native").experiment.variants[1]
    assert (variant.mode, variant.draft) == ("eagle3", "RedHatAI/Qwen3-32B-speculator.eagle3")


def test_a_head_becomes_the_largest_draft_of_the_same_tokenizer():
    variant = migrated("qwen3-native", "nxdi-v0").experiment.variants[1]
    assert (variant.mode, variant.draft, variant.num_speculative_tokens) == (
        "fused",
        "Qwen/Qwen3-1.7B",
        7,
    )


def test_a_mode_without_a_documented_run_asks_for_proof():
    migration = migrated("post", "native")
    assert migration.experiment.accept_unproven
    assert any("no documented run" in sentence for sentence in migration.evidence)


def test_what_is_proven_accepts_nothing_unproven():
    assert not migrated("qwen3-native", "nxdi-v0").experiment.accept_unproven


def test_a_setting_that_the_runtime_does_not_read_is_lost():
    experiment = declared("post")
    tuning = experiment.serving.tuning.model_copy(update={"fused_qkv": True})
    tuning.model_fields_set.add("fused_qkv")
    serving = experiment.serving.model_copy(update={"tuning": tuning})
    migration = migrate_experiment(
        experiment.model_copy(update={"serving": serving}), "native", load_catalogue()
    )
    assert "serving.tuning.fused_qkv: native reads no such setting" in migration.losses
    assert migration.experiment.serving.tuning.fused_qkv is None


def test_a_variant_without_any_draft_is_dropped_with_the_nearest():
    catalogue = load_catalogue()
    models = {name: model for name, model in catalogue.models.items() if model.head_of is None}

    migration = migrate_experiment(declared("post"), "native", replace(catalogue, models=models))
    assert [variant.name for variant in migration.experiment.variants] == ["qwen-vllm"]
    assert any("qwen-sd-vllm" in loss and "nearest:" in loss for loss in migration.losses)


@pytest.mark.parametrize("runtime", ["nxdi-v1", "nowhere", "nxdi-v0"])
def test_a_runtime_that_cannot_be_had_names_the_nearest(runtime):
    with pytest.raises(InputError) as caught:
        migrated("post", runtime)
    assert re.fullmatch(r"name one of: (native-\S+, )*native", caught.value.change)


def test_write_makes_a_file_once(tmp_path):
    for name in ("environments", "experiments"):
        (tmp_path / name).mkdir()
    (tmp_path / "experiments" / "post.yaml").write_text(
        (ROOT / "experiments" / "post.yaml").read_text()
    )
    folders = [f"--{name}={tmp_path / name}" for name in ("environments", "experiments")]
    assert main(["migrate", "post", "--runtime", "native", "--write", *folders]) == 0
    assert (
        (tmp_path / "experiments" / "post-native.yaml")
        .read_text()
        .startswith("# post on the runtime native")
    )
    assert main(["migrate", "post", "--runtime", "native", "--write", *folders]) == 2


def test_a_written_experiment_makes_the_folders_above_it(tmp_path):
    folder = tmp_path / "team" / "experiments"

    main(["migrate", "post", "--runtime", "native", "--write", f"--experiments={folder}"])

    assert (folder / "post-native.yaml").is_file()


@pytest.mark.parametrize(
    ("path", "line", "refused_line"),
    [
        ("target", "target: Qwen/Qwen3-32B", "target: Qwen/Nope"),
        ("runtime", "runtime: nxdi-v0", "runtime: nowhere"),
        ("variants[1].draft", "draft: Qwen/Qwen3-1.7B", "draft: Qwen/Nope"),
    ],
)
def test_a_refused_experiment_is_not_migrated(path, line, refused_line, tmp_path, capsys):
    text = (ROOT / "experiments" / "post.yaml").read_text()
    (tmp_path / "post.yaml").write_text(text.replace(line, refused_line))
    words = ["migrate", "post", "--runtime", "native", f"--experiments={tmp_path}"]
    assert main(words) == 2
    assert f"{path}: got '{refused_line.split()[-1]}'" in capsys.readouterr().err
