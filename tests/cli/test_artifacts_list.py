"""`tandem artifacts list`: what is there, what is missing, what it costs, who uses it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bucket_specs import (
    ENV,
    folders,
    needed,
    store_needs,
    write_environment,
)
from doubles.fault_proxy.rules import ACCESS_DENIED_FAULT, FaultRule
from stored_sets import put_set

from tandem.artifacts.needs import BucketNeed
from tandem.cli.program import main

pytestmark = pytest.mark.endpoint
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def mine(specs, bucket, aws):
    """The specs, with the test's bucket and the experiment `post` alone: two models, two
    artifacts."""
    assert aws
    write_environment(specs, bucket)
    return specs


@pytest.fixture
def run(mine, capsys):
    def act(*more: str, env: str = ENV) -> tuple[int, str, str]:
        code = main(["artifacts", "list", "--env", env, *folders(mine), *more])
        output = capsys.readouterr()
        return code, output.out, output.err

    return act


def rows(run: Run) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads(run("--json")[1])["rows"]}


def artifact(mine: Path) -> BucketNeed:
    return needed(mine)[-1]


def test_who_has_no_credentials_is_told_to_log_in(run, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)

    code, _, err = run()

    assert (code, "log in, or set AWS_PROFILE" in err, "pod" in err) == (3, True, False)


def test_missing_sets_come_with_their_commands_models_first(run):
    out = run()[1]
    commands = [line.strip() for line in out.splitlines() if line.startswith("  tandem run")]
    assert commands == [
        f"tandem run post --env {ENV} --until stage",
        f"tandem run post --env {ENV} --until compile --hours H",
    ]


def test_what_is_stored_is_present_and_needs_no_command(run, mine, store):
    store_needs(store, needed(mine))
    out = run()[1]
    assert ("4 of the 4 that post-us-east-2 needs are present" in out, "tandem run" in out) == (
        True,
        False,
    )


def test_a_stored_set_is_listed_with_its_size_age_and_users(run, mine, store):
    need = artifact(mine)
    put_set(store, need.prefix, "run", need.fields, {"big": bytes(1 << 20)})

    lines = [line.strip() for line in run()[1].splitlines()]

    assert "1.0 MiB, 0 days old, 0.00 USD a month, used by post/qwen-vllm" in lines


@pytest.mark.parametrize(("whole", "code"), [(True, 0), (False, 1)])
def test_strict_gives_1_when_something_needed_is_not_whole(run, mine, store, whole, code):
    store_needs(store, needed(mine) if whole else needed(mine)[1:])
    assert (run()[0], run("--strict")[0]) == (0, code)


def test_a_month_costs_the_declared_price_of_the_stored_bytes(run, mine, store):
    need = artifact(mine)
    put_set(store, need.prefix, "run", need.fields, {"big": bytes(1 << 20)})

    row = rows(run)[need.name]
    assert row["usd_per_month"] == pytest.approx(row["size"] / 2**30 * 0.025)
    assert "(your figure of 2026-11-20)" in run()[1]


def test_a_damaged_artifact_is_removed_before_it_compiles_again(run, mine, store, bucket):
    store_needs(store, needed(mine))
    need = artifact(mine)
    store.delete([f"{need.prefix}/run/config.json"])

    row = rows(run)[need.name]
    assert (row["state"], row["why"]) == ("damaged", ["config.json missing"])
    assert row["commands"] == [
        f"aws s3 rm s3://{bucket}/{need.prefix}/tandem-manifest.json",
        need.command,
    ]


def test_an_unreadable_environment_does_not_end_the_list(run, mine):
    (mine / "environments" / "broken.yaml").write_text("region: 1\n")
    code, out, _ = run()
    assert (
        code,
        f"not counted, because it is refused: {mine}/environments/broken.yaml" in out,
    ) == (
        0,
        True,
    )


def test_a_denied_manifest_is_unread_not_removed(mine, proxy_store, proxy, capsys):
    store_needs(proxy_store, needed(mine))
    proxy.use(
        FaultRule(
            operation="GetObject", path=f"/*/{artifact(mine).prefix}/*", fault=ACCESS_DENIED_FAULT
        )
    )

    code = main(["artifacts", "list", "--env", ENV, *folders(mine)])

    out, err = capsys.readouterr()
    assert (
        code,
        "unread" in out,
        "3 of the 4" in out,
        "aws s3 rm" in out,
        "s3:GetObject" in err,
    ) == (
        3,
        True,
        True,
        False,
        True,
    )


def test_a_missing_bucket_gives_2_and_names_its_stack(specs, aws, capsys):
    assert aws
    write_environment(specs, "no-such-bucket-anywhere")

    code = main(["artifacts", "list", "--env", ENV, *folders(specs)])

    err = capsys.readouterr().err
    assert (
        code,
        "no-such-bucket-anywhere" in err and "does not exist" in err,
        "Traceback" in err,
    ) == (2, True, False)
