"""docs/artifacts.md says what is so: its commands parse, its rights are enough and no more."""

from __future__ import annotations

import argparse
import re
import shlex
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from bucket_specs import ENV, folders, needed, write_environment
from compiled import write_artifact
from doubles.aws_principal import RolePrincipal, create_principal
from stored_sets import put_set

from tandem.artifacts.__main__ import COMMANDS, MODULES
from tandem.artifacts.store import ObjectStore
from tandem.cli.program import main
from tandem.declarations.artifact_key import ArtifactKey

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "artifacts.md").read_text()
DOCUMENTS = [
    PAGE,
    (ROOT / "docs" / "artifacts-faults.md").read_text(),
    (ROOT / "README.md").read_text(),
]
STALE = "artifacts/tiny-000000000000"
BUCKET = "rights-bucket"


def commands(start: str) -> list[list[str]]:
    """Every command line of the documents that begins so, as arguments after its start."""
    text = "\n".join(DOCUMENTS).replace(" \\\n", " ")
    command_lines = [
        line.split("#")[0]
        for line in re.findall(rf"^(?:\$ )?({start} .*)$", text, flags=re.MULTILINE)
    ]
    command_lines += re.findall(rf"`({start} [^`]*)`", text)
    return [shlex.split(line)[len(start.split()) :] for line in command_lines if "|" not in line]


@pytest.mark.parametrize("words", commands("python -m tandem.artifacts"), ids=" ".join)
def test_every_command_of_the_module_in_the_documents_parses(words):
    assert words[0] in COMMANDS
    parser = argparse.ArgumentParser()
    import_module(f"tandem.artifacts.{MODULES.get(words[0], words[0])}").add_arguments(parser)
    parser.parse_args([word for word in words[1:] if word != "..."])


def rights() -> dict[str, tuple[list[str], list[str]]]:
    """What the table of rights says: command to actions on the bucket and on its objects."""
    rows = re.findall(r"^\| (`[^|]*) \| (s3:[^|]*) \| (s3:[^|]*) \|$", PAGE, flags=re.MULTILINE)
    return {
        command: (bucket.split(", "), objects.split(", "))
        for commands_, bucket, objects in rows
        for command in re.findall(r"`([^`]+)`", commands_)
    }


@pytest.fixture(scope="module")
def rights_bucket(enforcing):
    """An empty bucket where policies bind."""
    where: Any = {"LocationConstraint": enforcing.region}
    enforcing.client("s3").create_bucket(Bucket=BUCKET, CreateBucketConfiguration=where)
    return BUCKET


@pytest.fixture
def act(enforcing, rights_bucket, specs, tmp_path, monkeypatch):
    """Run a documented command as somebody with just its rights, or with one right less."""
    write_environment(specs, rights_bucket)
    owner = ObjectStore(rights_bucket, enforcing.client("s3"))
    for entry in owner.list(""):
        owner.delete([entry.key])
    put_set(owner, STALE, "run")
    owner.client.create_multipart_upload(Bucket=rights_bucket, Key=f"{STALE}/run/big")
    need = needed(specs)[-1]
    folder = write_artifact(
        tmp_path / "compiled", key=ArtifactKey.from_fields(need.fields), rank_bytes=10
    )
    words = {
        "list": ["list"],
        "explain": ["explain", "tiny-000000000000", need.used_by[0]],
        "import": ["import", str(folder), "--variant", need.used_by[0]],
        "gc": ["gc"],
        "gc --delete": ["gc", "--delete"],
    }
    now = ObjectStore.now
    monkeypatch.setattr(ObjectStore, "now", lambda store: now(store) + timedelta(days=40))

    def run(command: str, without: str = "") -> int:
        own_actions = (
            [action for action in actions if action != without] for actions in rights()[command]
        )
        places = (
            f"arn:aws:s3:::{rights_bucket}",
            [f"arn:aws:s3:::{rights_bucket}/{top}/*" for top in ("models", "artifacts")],
        )
        statements = [
            {"Effect": "Allow", "Action": actions, "Resource": resource}
            for actions, resource in zip(own_actions, places, strict=True)
            if actions
        ]
        become(create_principal(enforcing, *statements), monkeypatch)
        return main(["artifacts", *words[command], "--env", ENV, *folders(specs)])

    return run


def become(principal: RolePrincipal, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in principal.environment().items():
        monkeypatch.setenv(name, value)
    # the session of the test before has its credentials
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)


@pytest.mark.endpoint
@pytest.mark.parametrize("command", [name for name in rights() if "stage" not in name])
def test_the_documented_rights_are_enough(act, command):
    assert act(command) == 0


# Not missed here: what is asked only of an upload that is taken up again; and telling a missing
# object from a denied one, for which S3 wants the right to list and this endpoint does not.
SPARED = {("import", f"s3:{action}") for action in ("AbortMultipartUpload", "ListBucket")}


@pytest.mark.endpoint
@pytest.mark.parametrize(
    ("command", "right"),
    [
        (command, right)
        for command, (bucket, objects) in rights().items()
        if "stage" not in command
        for right in (*bucket, *objects)
        if (command, right) not in SPARED
    ],
)
def test_a_missing_right_fails_the_command_by_name(act, capsys, command, right):
    assert (act(command, right), right in capsys.readouterr().err) == (3, True)
