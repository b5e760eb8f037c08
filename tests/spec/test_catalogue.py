"""The data files: every figure cites a dated source, and what one file names another holds."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any, get_args

import pytest
from committed import known

from tandem.spec.catalogue import DATA, load_catalogue
from tandem.spec.environment import CapacitySettings, SystemNodeSettings
from tandem.spec.experiment import Mode, TuningSettings
from tandem.spec.faults import SpecError
from tandem.spec.figure import FigureSource, walk_figures
from tandem.spec.platform import InstanceType

TODAY = date(2026, 11, 22)  # the day of the last reading; a later reading moves it
FILES = sorted(path.relative_to(DATA).as_posix() for path in DATA.rglob("*.yaml"))


def records() -> Iterator[tuple[str, Any]]:
    """Yield every record of the catalogue that lists sources."""
    yield from known().models.items()
    yield from known().runtimes.items()
    for name in ("instances", "offerings", "kubernetes", "dra_chart", "digests"):
        yield name, getattr(known(), name)


RECORDS = dict(records())
SOURCES = {f"{name} {key}": source for name, record in RECORDS.items() for key, source in record.sources.items()}


@pytest.mark.parametrize("name", RECORDS)
def test_every_figure_cites_a_source_that_its_file_lists(name: str) -> None:
    record = RECORDS[name]

    assert {figure.source for _, figure in walk_figures(record, "")} <= set(record.sources)


@pytest.mark.parametrize("name", RECORDS)
def test_no_source_is_listed_in_vain(name: str) -> None:
    record = RECORDS[name]

    assert set(record.sources) - {figure.source for _, figure in walk_figures(record, "")} == set()


@pytest.mark.parametrize("source", list(SOURCES.values()), ids=SOURCES)
def test_a_source_names_a_place_and_a_day_that_has_been(source: FigureSource) -> None:
    assert source.date <= TODAY
    assert len(source.where) > len("no source")


@pytest.mark.parametrize("runtime", known().runtimes)
def test_a_runtime_says_of_every_mode_whether_it_runs(runtime: str) -> None:
    assert sorted(support.mode for support in known().runtimes[runtime].modes) == sorted(get_args(Mode))


RUNNING = [
    (runtime.name, support.mode)
    for runtime in known().runtimes.values()
    for support in runtime.modes
    if runtime.rendered and support.verdict.value != "refused" and support.mode != "none"
]


@pytest.mark.parametrize(("runtime", "mode"), RUNNING)
def test_every_mode_that_runs_is_spelt(runtime: str, mode: str) -> None:
    spelling = known().runtimes[runtime].spelling

    assert spelling is not None
    assert mode in spelling.speculation_methods
    assert mode in spelling.speculation_neuron_config


@pytest.mark.parametrize("runtime", known().runtimes)
def test_a_runtime_is_spelt_exactly_when_it_is_rendered(runtime: str) -> None:
    found = known().runtimes[runtime]

    assert (found.spelling is not None, found.not_rendered_because is None) == (found.rendered, found.rendered)


@pytest.mark.parametrize(
    "key", sorted({key for each in known().runtimes.values() if each.spelling for key in each.spelling.tuning_keys})
)
def test_a_tuning_key_is_one_that_an_experiment_can_declare(key: str) -> None:
    assert key in TuningSettings.model_fields


def test_every_tuning_key_is_read_by_some_runtime() -> None:
    read = {key for each in known().runtimes.values() if each.spelling for key in each.spelling.tuning_keys}

    assert read == set(TuningSettings.model_fields)


PROVEN = {
    target
    for runtime in known().runtimes.values()
    for target in (*runtime.proven_targets.value, *(name for mode in runtime.modes for name in mode.proven_targets))
}


@pytest.mark.parametrize("target", sorted(PROVEN))
def test_a_proven_target_has_a_model_file(target: str) -> None:
    assert target in known().models


@pytest.mark.parametrize("id_", [id_ for id_, model in known().models.items() if model.head_of])
def test_a_heads_target_has_a_model_file_of_its_width(id_: str) -> None:
    head = known().models[id_]
    target = known().models[head.head_of or ""]

    assert head.hidden_size.value == target.hidden_size.value


@pytest.mark.parametrize("id_", known().models)
def test_only_heads_are_heads_of_something(id_: str) -> None:
    model = known().models[id_]

    assert (model.kind.value == "causal-lm") == (model.head_of is None)


@pytest.mark.parametrize("kind", get_args(CapacitySettings.model_fields["instance_type"].annotation))
def test_an_accelerator_type_has_its_figures(kind: str) -> None:
    instance = known().instances.instances[kind]
    named = set(InstanceType.model_fields) - {"resource_slice"}

    assert [name for name in sorted(named) if getattr(instance, name).value is None] == []


@pytest.mark.parametrize("kind", get_args(CapacitySettings.model_fields["instance_type"].annotation))
def test_an_accelerator_type_has_eight_physical_cores_per_device(kind: str) -> None:
    assert known().instances.instances[kind].physical_cores_per_device.value == 8


@pytest.mark.parametrize("kind", get_args(CapacitySettings.model_fields["instance_type"].annotation))
def test_no_claim_can_be_larger_than_the_type(kind: str) -> None:
    instance = known().instances.instances[kind]
    devices = instance.devices.value or 0

    assert max((*instance.device_counts.value, *instance.device_groups.value)) <= devices


@pytest.mark.parametrize("kind", get_args(CapacitySettings.model_fields["instance_type"].annotation))
def test_an_accelerator_type_is_offered_somewhere(kind: str) -> None:
    assert known().offerings.offerings[kind]


@pytest.mark.parametrize("kind", get_args(SystemNodeSettings.model_fields["instance_type"].annotation))
def test_system_nodes_can_be_had_wherever_accelerators_can(kind: str) -> None:
    offerings = known().offerings.offerings
    regions = {region for name, table in offerings.items() if name.startswith("trn2") for region in table}

    assert regions <= set(offerings[kind])


OFFERED = [(kind, region) for kind, table in known().offerings.offerings.items() for region in table]


@pytest.mark.parametrize(("kind", "region"), OFFERED)
def test_an_offering_names_zones_of_its_region(kind: str, region: str) -> None:
    zones = known().offerings.zones[region].value

    assert set(known().offerings.offerings[kind][region].value) <= set(zones)


def test_the_default_kubernetes_minor_is_known_and_above_the_floor() -> None:
    kubernetes = known().kubernetes

    assert kubernetes.default.value in kubernetes.minors
    assert float(kubernetes.default.value) >= float(kubernetes.floor.value)


def test_the_default_node_image_starts_every_rendered_runtime() -> None:
    driver = known().kubernetes.minors[known().kubernetes.default.value].neuron_driver.value
    needed = [each.versions.minimum_driver.value for each in known().runtimes.values() if each.rendered]

    assert driver is not None
    assert all(
        [int(part) for part in minimum.split(".")] <= [int(part) for part in driver.split(".")]
        for minimum in needed if minimum
    )  # fmt: skip


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A copy of the data files, free to be spoilt."""
    shutil.copytree(DATA, tmp_path / "data")
    return tmp_path / "data"


def test_rejects_a_figure_whose_source_is_not_listed(data: Path) -> None:
    file = data / "runtimes" / "native.yaml"
    file.write_text(
        file.read_text().replace("sdk: {value: 2.33.0, source: release}", "sdk: {value: 2.33.0, source: rumour}")
    )

    with pytest.raises(SpecError, match=r"versions\.sdk: got the source 'rumour'"):
        load_catalogue(data)


def test_rejects_a_runtime_that_leaves_a_mode_out(data: Path) -> None:
    file = data / "runtimes" / "native.yaml"
    file.write_text(file.read_text().replace("  - mode: medusa\n", "  - mode: eagle\n"))

    with pytest.raises(SpecError, match="no entry for medusa"):
        load_catalogue(data)


FLAGS = [
    "tp_degree", "padding_side", "speculation_length", "on_device_sampling_config",
    "on_device_sampling_config.top_k", "save_sharded_checkpoint", "async_mode", "sequence_parallel_enabled",
    "enable_eagle_speculation", "context_encoding_buckets",
]  # fmt: skip


@pytest.mark.parametrize("setting", FLAGS)
def test_rejects_a_runtime_whose_compile_has_no_flag_for_a_setting(data: Path, setting: str) -> None:
    file = data / "runtimes" / "nxdi-v0.yaml"
    lines = [line for line in file.read_text().splitlines() if not line.startswith(f"      {setting}: {{flag")]
    file.write_text("\n".join(lines))

    with pytest.raises(SpecError, match=rf"spelling\.compile\.flags: got no flag for {setting}"):
        load_catalogue(data)


@pytest.mark.parametrize("name", FILES)
def test_rejects_a_data_file_with_an_unknown_key(data: Path, name: str) -> None:
    with (data / name).open("a") as file:
        file.write("unheard_of: 1\n")

    with pytest.raises(SpecError, match="unheard_of"):
        load_catalogue(data)


def test_the_data_files_are_read_once() -> None:
    assert load_catalogue() is load_catalogue()
