"""`tandem destroy` as an operator runs it: what it asks, shows, refuses and ends with."""

from __future__ import annotations

import io
import json
import re
from types import SimpleNamespace

import pytest
from small_stacks import ACCOUNT, DEPLOYED

from tandem.cli import program
from tandem.declarations import names
from tandem.errors import INTERRUPT_EXIT_CODE
from tandem.ops.faults import AccessDeniedError
from tandem.ops.leftovers import SEARCHES

pytestmark = pytest.mark.proof


@pytest.fixture
def run(endpoint, capsys, monkeypatch, tmp_path):
    """Run the command on an environment; its code, what it printed, and whether a traceback is in
    it."""

    def act(one, *flags, stdin=None, **variables):
        for name, value in (endpoint.client_environment(tmp_path) | variables).items():
            monkeypatch.setenv(name, value)
        if stdin is not None:
            typed = io.StringIO(stdin)
            typed.isatty = lambda: True
            monkeypatch.setattr("sys.stdin", typed)
        folders = [
            "--environments",
            str(one.folder / "environments"),
            "--experiments",
            str(one.folder / "experiments"),
        ]
        code = program.main(["destroy", "--env", one.name, *folders, "--poll-s", "0.02", *flags])
        said = capsys.readouterr()
        assert "Traceback" not in said.err + said.out
        return SimpleNamespace(code=code, out=said.out, err=said.err)

    return act


def test_it_shows_what_goes_and_stays_then_ends_with_what_is_left(small, run):
    one = small().deploy()

    done = run(one, "--yes-i-mean", one.name)

    assert done.code == 0
    shown = re.findall(r"^goes   \S+-(\w+),", done.err, flags=re.MULTILINE)
    assert shown == [
        "Workloads",
        "Fleet",
        "Observability",
        "Cluster",
        "Guard",
        "ImageTools",
        "Registry",
        "Network",
    ]
    assert re.search(
        rf"^stays  bucket s3://{names.bucket_name(one.environment)}, 0 bytes, USD a month unknown",
        done.err,
        re.MULTILINE,
    )
    assert done.out.startswith("nothing left but:\n")
    assert "ORPHAN" not in done.out
    assert f"bucket {names.bucket_name(one.environment)}: stays" in done.out


def test_the_name_may_be_typed_and_every_line_of_progress_has_its_time(small, run):
    one = small().deploy(("Artifacts", "Network"))

    done = run(one, stdin=f"{one.name}\n")

    lines = done.err.splitlines()
    progress = [
        line
        for line in lines
        if not re.match(r" |as |goes |stays |gone |stuck |removed by |Type ", line)
    ]
    assert (done.code, one.stacks()) == (0, {"Artifacts": "CREATE_COMPLETE"})
    assert progress
    assert all(re.match(r"\d\d:\d\d:\d\d ", line) for line in progress)


@pytest.mark.parametrize("stdin", ["yes\n", "\n", ""])
def test_anything_else_that_is_typed_changes_nothing(small, run, stdin):
    one = small().deploy(("Artifacts", "Network"))
    before = one.stacks()

    done = run(one, stdin=stdin)

    assert done.code == 2
    assert "nothing was changed" in done.err
    assert one.stacks() == before


@pytest.mark.parametrize("flags", [[], ["--yes-i-mean", "another"]], ids=["nobody", "another"])
def test_where_nobody_can_type_it_the_flag_must_say_the_name(small, run, flags):
    one = small().deploy(("Artifacts", "Network"))
    before = one.stacks()

    done = run(one, *flags)

    assert done.code == 2
    assert f"--yes-i-mean {one.name}" in done.err
    assert one.stacks() == before


def test_never_deployed_is_told_asks_for_nothing_and_is_no_fault(small, run):
    one = small()

    done = run(one)

    assert done.code == 0
    assert "no stack of it is deployed, there is nothing to delete" in done.err
    assert "nothing left but:\n  nothing\n" in done.out


def test_an_orphan_makes_it_end_with_1_and_its_command(small, run):
    one = small()
    one.client("ecr").create_repository(repositoryName=f"tandem-{one.name}-tools")

    done = run(one)

    assert done.code == 1
    assert re.search(r"ECR repository tandem-\S+: ORPHAN; aws ecr delete-repository", done.out)


def test_a_document_has_all_of_it(small, run):
    one = small().deploy()

    done = run(one, "--yes-i-mean", one.name, "--json")

    document = json.loads(done.out)
    assert (document["environment"], document["account"], document["exit_code"]) == (
        one.name,
        ACCOUNT,
        0,
    )
    assert len(document["deleted"]) == len(DEPLOYED) - 1
    assert {entry["kind"] for entry in document["kept"]} == {
        "KMS key",
        "bucket",
        "log group",
        "stack",
    }
    assert (document["orphans"], document["unsearched"]) == ([], {})


def test_another_accounts_credentials_are_refused_before_anything_is_asked(small, run):
    one = small().deploy(("Artifacts", "Network"))

    done = run(one, "--yes-i-mean", one.name, AWS_ACCESS_KEY_ID="999988887777")

    assert done.code == 2
    assert "these credentials are of account 999988887777\n" in done.err
    assert f"log in to {ACCOUNT}" in done.err
    assert "Network" in one.stacks()


def test_an_interrupt_says_that_the_same_command_goes_on(small, run, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    one = small().deploy(("Artifacts", "Network"))
    monkeypatch.setattr("tandem.ops.destroy.steps.delete_stack", interrupted)

    done = run(one, "--yes-i-mean", one.name)

    assert done.code == INTERRUPT_EXIT_CODE
    assert "the same command goes on from there" in done.err


def test_an_environment_that_the_rules_refuse_today_may_still_be_taken_down(small, run):
    def old(document):
        document["cluster"]["kubernetes"] = "1.20"

    one = small(change=old).deploy(("Artifacts", "Network"))
    assert run(one, "--yes-i-mean", one.name).code == 0


def test_a_kind_that_could_not_be_searched_is_never_taken_for_nothing(small, run, monkeypatch):
    def denied(_account, _owned):
        raise AccessDeniedError(
            "ListKeys is denied", where="KMS keys", change="allow kms:ListKeys to this identity"
        )

    monkeypatch.setitem(SEARCHES, "KMS keys", denied)

    done = run(small())

    assert done.code == 3
    assert "of what could be searched, nothing left but:" in done.out
    assert "not searched: KMS keys: KMS keys: ListKeys is denied; allow kms:ListKeys" in done.out
