"""Accounts made by hand, and worlds of the post's two servers in them."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml
from hand_made_account import make_account
from own_prompts import write_suite
from run_lives import TASK, RunLives

from rehearsal.run.settings import RehearsalSettings
from rehearsal.run.world import RehearsalAccount, RunWorld
from tandem.artifacts.archive import build_archive
from tandem.declarations import names

ROOT = Path(__file__).resolve().parents[3]


@contextmanager
def open_account(folder: Path, names_of_forms: Sequence[str]) -> Iterator[RehearsalAccount]:
    """Make what a run needs of post-us-east-2 by hand: a deploy takes the CDK half a minute.

    Args:
        folder: of the declared files.
        names_of_forms: of prompts of one's own, which the experiment asks in place of ours.
    """
    experiments = shutil.copytree(ROOT / "experiments", folder / "project" / "experiments")
    archive = build_task()
    digest = hashlib.sha256(archive).hexdigest()
    declared = yaml.safe_load((experiments / "post.yaml").read_text())
    declared["quality"] = [{"name": TASK, "sha256": digest}]
    declared["suites"] = [write_suite(experiments.parent, name) for name in names_of_forms]
    (experiments / "post.yaml").write_text(yaml.safe_dump(declared, sort_keys=False))
    account = RehearsalAccount.create("post-us-east-2", ROOT / "environments", experiments, folder)
    account.sandbox.edit(
        lambda document: document["capacity"].update(
            kind="on-demand", reservation_id=None, block=None
        )
    )
    try:
        make_account(account.endpoint.client, account.sandbox.environment)
        bucket = names.bucket_name(account.sandbox.environment)
        key = names.task_set_key(TASK, digest)
        account.endpoint.client("s3").put_object(Bucket=bucket, Key=key, Body=archive)
        yield account
    finally:
        account.endpoint.stop()


@contextmanager
def open_lives(account: RehearsalAccount, folder: Path) -> Iterator[RunLives]:
    """Start a world of the post's two servers; its results are next to its own files."""
    settings = RehearsalSettings(
        environment="post-us-east-2", experiment="post", time_scale=25, poll_s=0.5
    )
    world = RunWorld(account, settings, folder / "world")
    world.folder.mkdir()
    world.write_inputs()
    with world:
        world.wait_for_runner()
        yield RunLives(world, folder / "results")


def build_task() -> bytes:
    """Return the archive of a task of 200 sums."""
    items = [
        {
            "item": f"{number}",
            "prompt": f"What is {number} + 7? Answer with the number alone.",
            "answer": f"{number + 7}",
        }
        for number in range(200)
    ]
    lines = "".join(f"{json.dumps(item)}\n" for item in items)
    return build_archive({"items.jsonl": lines.encode()})
