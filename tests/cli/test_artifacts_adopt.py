"""`tandem artifacts import`: a folder becomes the artifact of a declared variant, or is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from bucket_specs import ENV, folders, needed, write_environment
from compiled import write_artifact
from stored_sets import keys, put_set

from tandem.cli.program import main
from tandem.declarations.artifact_key import ArtifactKey

pytestmark = pytest.mark.endpoint
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def need(specs, bucket, aws):
    """The artifact of post/qwen-vllm, in the test's bucket."""
    assert aws
    write_environment(specs, bucket)
    return next(
        need
        for need in needed(specs)
        if need.kind == "artifact" and "post/qwen-vllm" in need.used_by
    )


@pytest.fixture
def folder(need, tmp_path):
    return write_artifact(
        tmp_path / "compiled", key=ArtifactKey.from_fields(need.fields), rank_bytes=10
    )


@pytest.fixture
def run(specs, folder, capsys):
    def act(
        *more: str, variant: str = "post/qwen-vllm", where: Path = folder
    ) -> tuple[int, str, str]:
        code = main(
            [
                "artifacts",
                "import",
                str(where),
                "--env",
                ENV,
                "--variant",
                variant,
                *folders(specs),
                *more,
            ]
        )
        output = capsys.readouterr()
        return code, output.out, output.err

    return act


def test_an_adopted_artifact_is_listed_as_present(run, need, specs, capsys):
    code, out, _ = run()
    main(["artifacts", "list", "--env", ENV, *folders(specs), "--json"])
    rows = {row["name"]: row["state"] for row in json.loads(capsys.readouterr().out)["rows"]}
    assert (code, out.splitlines()[0], rows[need.name]) == (0, f"imported: {need.name}", "present")


def test_json_is_one_document_though_the_upload_logs(run, need):
    document = json.loads(run("--json")[1])
    assert (document["taken"], document["name"], document["made"]["where"]) == (
        True,
        need.name,
        "elsewhere",
    )


def test_what_is_there_is_left_alone_and_said(run, need, store):
    put_set(store, need.prefix, "run", need.fields)
    before = keys(store)
    code, out, _ = run()
    assert (code, out.splitlines()[0], keys(store)) == (
        0,
        f"present, left alone: {need.name}",
        before,
    )


def test_an_unknown_variant_gives_2_and_names_the_nearest(run):
    code, _, err = run(variant="post/qwen-vlm")
    assert (code, "post/qwen-vllm" in err) == (2, True)
