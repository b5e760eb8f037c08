"""`tandem destroy` as an operator runs it: what it asks, shows, refuses and ends with."""

from __future__ import annotations

import io
import re
from types import SimpleNamespace

import pytest
from bucket_specs import folders
from small_stacks import ACCOUNT

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

    def act(world, *flags, stdin=None, **variables):
        for name, value in (endpoint.client_environment(tmp_path) | variables).items():
            monkeypatch.setenv(name, value)
        if stdin is not None:
            typed = io.StringIO(stdin)
            typed.isatty = lambda: True
            monkeypatch.setattr("sys.stdin", typed)
        words = ["destroy", "--env", world.name, *folders(world.folder), "--poll-s", "0.02"]
        code = program.main([*words, *flags])
        output = capsys.readouterr()
        assert "Traceback" not in output.err + output.out
        return SimpleNamespace(code=code, out=output.out, err=output.err)

    return act


def test_teardown_shows_what_goes_and_stays(small, run):
    world = small().deploy()

    outcome = run(world, "--yes-i-mean", world.name)

    assert outcome.code == 0
    kinds = re.findall(r"^goes   \S+-(\w+),", outcome.err, flags=re.MULTILINE)
    assert kinds == [
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
        rf"^stays  bucket s3://{names.bucket_name(world.environment)}, 0 bytes, cost unknown",
        outcome.err,
        re.MULTILINE,
    )
    assert outcome.out.startswith("nothing left but:\n")
    assert "ORPHAN" not in outcome.out
    assert f"bucket {names.bucket_name(world.environment)}: stays" in outcome.out


@pytest.mark.parametrize(
    ("flags", "stdin", "words"),
    [
        ([], "yes\n", "nothing was changed"),
        ([], "\n", "nothing was changed"),
        ([], "", "nothing was changed"),
        ([], None, "--yes-i-mean {}"),
        (["--yes-i-mean", "another"], None, "--yes-i-mean {}"),
    ],
    ids=["yes", "a line", "an end", "nobody", "another"],
)
def test_whoever_does_not_name_the_environment_changes_nothing(small, run, flags, stdin, words):
    world = small().deploy(("Artifacts", "Network"))
    before = world.stacks()

    outcome = run(world, *flags, stdin=stdin)

    assert outcome.code == 2
    assert words.format(world.name) in outcome.err
    assert world.stacks() == before


def test_teardown_of_nothing_is_no_fault(small, run):
    world = small()

    outcome = run(world)

    assert outcome.code == 0
    assert "no stack of it is deployed, there is nothing to delete" in outcome.err
    assert "nothing left but:\n  nothing\n" in outcome.out


def test_an_orphan_makes_it_end_with_1_and_its_command(small, run):
    world = small()
    world.client("ecr").create_repository(repositoryName=f"tandem-{world.name}-tools")

    outcome = run(world)

    assert outcome.code == 1
    assert re.search(r"ECR repository tandem-\S+: ORPHAN\s+aws ecr delete-repository", outcome.out)


def test_another_accounts_credentials_are_refused_before_anything_is_asked(small, run):
    world = small().deploy(("Artifacts", "Network"))

    outcome = run(world, "--yes-i-mean", world.name, AWS_ACCESS_KEY_ID="999988887777")

    assert outcome.code == 2
    assert "these credentials are of account 999988887777\n" in outcome.err
    assert f"log in to {ACCOUNT}" in outcome.err
    assert "Network" in world.stacks()


def test_an_interrupt_says_that_the_same_command_goes_on(small, run, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    world = small().deploy(("Artifacts", "Network"))
    monkeypatch.setattr("tandem.ops.destroy.steps.delete_stack", interrupted)

    outcome = run(world, "--yes-i-mean", world.name)

    assert outcome.code == INTERRUPT_EXIT_CODE
    assert "the same command continues from there" in outcome.err


def test_environment_that_rules_refuse_may_be_taken_down(small, run):
    def old(document):
        document["cluster"]["kubernetes"] = "1.20"

    world = small(change=old).deploy(("Artifacts", "Network"))
    assert run(world, "--yes-i-mean", world.name).code == 0


def test_unsearched_kind_is_told(small, run, monkeypatch):
    def denied(_account, _owned):
        raise AccessDeniedError(
            "ListKeys is denied", where="KMS keys", change="allow kms:ListKeys to this identity"
        )

    monkeypatch.setitem(SEARCHES, "KMS keys", denied)

    outcome = run(small())

    assert outcome.code == 3
    assert "of what could be searched, nothing left but:" in outcome.out
    assert "not searched: KMS keys: KMS keys: ListKeys is denied; allow kms:ListKeys" in outcome.out
