"""A record comes back from its own YAML, and one digest tells two runs' specs apart."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from committed import ENVIRONMENTS, environment, experiment, known
from complete import ENVIRONMENT, EXPERIMENT
from declared_environments import read_environments

from tandem.declarations.environment import CapacityBlock, Environment
from tandem.declarations.experiment import Experiment
from tandem.declarations.record import SpecRecord
from tandem.declarations.spec_digest import compute_spec_digest, dump_record_yaml
from tandem.declarations.workspace import load_workspace

ENVIRONMENT_RECORDS = {name: environment(name) for name in ENVIRONMENTS} | read_environments()
# each would be read as something else by some reader, were it not quoted
STRANGE_TEXTS = (
    "1.5e3",
    "0x1F",
    "017",
    "1_000",
    "12:30:45",
    "2026-12-01",
    "yes",
    "null",
    "~",
    "",
    " ",
    "- a",
    "a: b",
    "# nothing",
    "*alias",
    "&anchor",
    "!tag",
    "%directive",
    "{}",
    "'",
    '"',
    "back\\slash",
    "tab\tin it",
    "line\nline",
    "ünïcödé ✓ 😀",
    "\x7f\x85\u2028",
    "x" * 5000,
)


def read_back(folder: Path, *records: SpecRecord) -> list[SpecRecord]:
    """What the folders say that a runner mounts."""
    kinds = {Environment: "environments", Experiment: "experiments"}
    for kind in kinds.values():
        (folder / kind).mkdir()
    for record in records:
        (folder / kinds[type(record)] / f"{record.name}.yaml").write_text(dump_record_yaml(record))
    workspace = load_workspace(folder / "environments", folder / "experiments")
    assert [
        fault for fault in workspace.faults if fault.path.partition("[")[0] != "experiments"
    ] == []
    return [getattr(workspace, kinds[type(record)])[record.name].record for record in records]


@pytest.mark.parametrize("name", ENVIRONMENT_RECORDS)
def test_an_environment_comes_back_equal(name, tmp_path):
    assert read_back(tmp_path, ENVIRONMENT_RECORDS[name]) == [ENVIRONMENT_RECORDS[name]]


def test_records_with_every_key_come_back_equal(tmp_path):
    texts = [json.dumps({**data, "name": "home"}) for data in (ENVIRONMENT, EXPERIMENT)]
    records = [Environment.model_validate_json(texts[0]), Experiment.model_validate_json(texts[1])]
    assert read_back(tmp_path, *records) == records


@pytest.mark.parametrize("text", STRANGE_TEXTS, ids=ascii)
def test_a_strange_text_comes_back_as_key_and_as_value(text, tmp_path):
    record = environment("post-us-east-2").model_copy(update={"tags": {text: text, "other": "x"}})
    assert read_back(tmp_path, record) == [record]


@pytest.mark.parametrize("usd", [0.0, 1e-07, 1234.56789, 10000.0])
def test_a_price_comes_back_to_the_last_digit(usd, tmp_path):
    record = changed("post-us-east-2", "capacity", usd_per_hour=usd)
    assert read_back(tmp_path, record) == [record]


def changed(name: str, section: str, **update: Any) -> Environment:
    record = environment(name)
    return record.model_copy(update={section: getattr(record, section).model_copy(update=update)})


def digest(record: Environment | None = None, pair: Experiment | None = None) -> str:
    return compute_spec_digest(
        record or environment("post-us-east-2"), pair or experiment("post"), known()
    )


def test_the_plan_of_a_blocks_hours_is_in_no_digest():
    moments = {
        "starts": datetime(2026, 12, 1, 11, 30, tzinfo=UTC),
        "ends": datetime(2026, 12, 3, 11, 30, tzinfo=UTC),
    }
    assert digest(changed("post-us-east-2", "capacity", block=CapacityBlock(**moments))) == digest()


def test_what_the_runner_reads_has_the_digest_of_the_files(tmp_path):
    mine = [environment("post-us-east-2"), experiment("post")]
    assert compute_spec_digest(*read_back(tmp_path, *mine), known()) == digest()


def test_another_hosted_experiment_changes_no_digest():
    record = environment("post-us-east-2")
    assert digest(record.model_copy(update={"experiments": ("post",)})) == digest()


@pytest.mark.parametrize(
    "record",
    [
        changed("post-us-east-2", "capacity", usd_per_hour=1.0),
        changed("post-us-east-2", "guard", max_hours=1),
    ],
    ids=["price", "limit"],
)
def test_another_environment_is_another_digest(record):
    assert digest(record) != digest()


def test_another_experiment_is_another_digest():
    pair = experiment("post")
    slower = pair.variants[1].model_copy(update={"num_speculative_tokens": 5})
    others = [
        pair.model_copy(update={"schedule": "simultaneous"}),
        pair.model_copy(update={"variants": (pair.variants[0], slower)}),
        pair.model_copy(update={"name": "post-again"}),
    ]
    assert len({digest(), *(digest(pair=variation) for variation in others)}) == 4


def test_another_runtime_of_the_data_files_is_another_digest():
    catalogue = known()
    runtime = catalogue.runtimes["nxdi-v0"]
    newer = runtime.model_copy(update={"image": runtime.image.model_copy(update={"tag": "next"})})
    variation = replace(catalogue, runtimes={**catalogue.runtimes, "nxdi-v0": newer})
    assert (
        compute_spec_digest(environment("post-us-east-2"), experiment("post"), variation)
        != digest()
    )
