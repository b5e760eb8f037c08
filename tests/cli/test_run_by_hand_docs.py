"""docs/run-by-hand.md says what is so: its commands parse, and what they name is rendered."""

from __future__ import annotations

import contextlib
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from tandem.cli.program import app
from tandem.errors import TandemError
from tandem.spec import names
from tandem.spec.workspace import load_workspace

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "run-by-hand.md").read_text()
ENV, NAMESPACE = "post-us-east-2", "tandem-post"
BLOCKS = re.findall(r"^```\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)
SPELT = re.findall(r"`([^`\n]+)`", PAGE.replace("```", ""))
LINES = [*(line for block in BLOCKS for line in block.splitlines()), *SPELT]
OBJECTS: list[dict[str, Any]] = [
    found
    for path in (ROOT / "manifests" / ENV / "post").rglob("*.yaml")
    for found in yaml.safe_load_all(path.read_text())
    if "metadata" in found
]
[JOB] = [yaml.safe_load(found) for found in re.findall(r"<<'JOB'\n(.*?)^JOB$", PAGE, flags=re.DOTALL | re.MULTILINE)]
POD = JOB["spec"]["template"]


def named(kind: str) -> set[str]:
    return {found["metadata"]["name"] for found in OBJECTS if found["kind"] == kind}


@pytest.mark.parametrize("line", sorted({line for line in LINES if re.match(r"tandem [a-z]+ .*post-us", line)}))
def test_a_command_of_tandem_parses(line):
    words = shlex.split(line)[1:]
    with contextlib.suppress(TandemError):  # --resume reads the run's folder
        assert app.parse_args(words)


@pytest.mark.parametrize("line", sorted({line for line in LINES if "-m tandem bench" in line}))
def test_a_command_of_the_pod_parses(line):
    words = shlex.split(line.partition("-m tandem ")[2].partition(" >")[0].rstrip("'&"))
    with contextlib.suppress(TandemError):  # --resume reads the run's folder
        assert app.parse_args(words)


def test_jobs_are_made_of_the_rendered_cron_jobs():
    started = set(re.findall(r"--from=cronjob/(\S+)", PAGE.replace("`", " ")))
    assert started == named("CronJob")


def test_logs_are_of_jobs_that_were_made():
    made = set(re.findall(r"--from=cronjob/\S+ ([\w-]+)", PAGE))
    assert set(re.findall(r"job/([\w-]+)", PAGE.replace("cronjob/", ""))) <= made | {JOB["metadata"]["name"]}


def test_deployments_and_namespace_are_rendered():
    assert set(re.findall(r"deploy[ /]([\w-]+)", " ".join(BLOCKS).replace("cdk deploy", ""))) == named("Deployment")
    assert set(re.findall(r"kubectl -n ([\w-]+)", PAGE)) == {NAMESPACE}


def test_labels_by_hand_are_those_that_a_raise_sets():
    workspace = load_workspace(ROOT / "environments", ROOT / "experiments", (ENV,))
    experiment = workspace.experiments["post"].record
    assert experiment is not None
    admits = {f"{names.raise_label(variant)}={experiment.name}" for variant in experiment.all_variants()}

    assert set(re.findall(r"raise\.tandem/[\w-]+=\w+", PAGE)) == admits
    assert "=".join(names.compile_label(experiment)) in PAGE


def test_the_pod_has_what_the_policies_admit_and_an_account_that_is_rendered():
    [policy] = [found for found in OBJECTS if found["metadata"]["name"] == "allow-benching"]
    assert POD["metadata"]["labels"] == policy["spec"]["podSelector"]["matchLabels"]
    assert POD["spec"]["serviceAccountName"] == names.BENCH_ACCOUNT in named("ServiceAccount")


def test_the_pods_image_is_the_base_of_our_own():
    base = (ROOT / "images" / "tandem" / "Dockerfile").read_text()
    assert f"{POD['spec']['containers'][0]['image']}@" in base


def test_the_pods_packages_come_from_a_lock_that_is_copied():
    [line] = [line for line in LINES if "pip install" in line and "--require-hashes" in line]
    [copied] = re.findall(r"^tar c (.*) \|", PAGE, flags=re.MULTILINE)
    lock = line.partition(" -r ")[2]

    assert (ROOT / lock).is_file()
    assert lock.partition("/")[0] in copied.split()


def test_what_is_copied_into_the_pod_is_there():
    [copied] = re.findall(r"^tar c (.*) \|", PAGE, flags=re.MULTILINE)
    assert [name for name in copied.split() if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(("file", "heading"), sorted(set(re.findall(r"\]\(([\w./-]*)#?([\w-]*)\)", PAGE))))
def test_a_link_leads_somewhere(file, heading):
    text = (ROOT / "docs" / file).read_text() if file else PAGE
    found = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    assert not heading or heading in {re.sub(r"[^\w\- ]", "", one.strip().lower()).replace(" ", "-") for one in found}
