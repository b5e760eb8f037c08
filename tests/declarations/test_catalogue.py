"""The data files: every figure cites a dated source, and what one file names another holds."""

from __future__ import annotations

import shutil
from typing import get_args

import pytest
from committed import known

from tandem.declarations.catalogue import DATA, load_catalogue
from tandem.declarations.environment import CapacitySettings
from tandem.declarations.experiment import Mode, TuningSettings
from tandem.declarations.faults import SpecError
from tandem.declarations.platform import InstanceType

FILES = sorted(path.relative_to(DATA).as_posix() for path in DATA.rglob("*.yaml"))


@pytest.mark.parametrize("runtime", known().runtimes.values(), ids=lambda runtime: runtime.name)
def test_rendered_runtime_spells_every_mode_that_runs(runtime):
    spelling = runtime.spelling
    running = {support.mode for support in runtime.modes if support.verdict.value != "refused"} - {
        "none"
    }

    assert sorted(support.mode for support in runtime.modes) == sorted(get_args(Mode))
    assert (spelling is not None, runtime.not_rendered_because is None) == (
        runtime.rendered,
        runtime.rendered,
    )
    assert spelling is None or running <= set(spelling.speculation_methods)
    assert spelling is None or running <= set(spelling.speculation_neuron_config)


def test_runtimes_read_exactly_the_tuning_of_experiments():
    read = {
        key
        for runtime_ in known().runtimes.values()
        if runtime_.spelling
        for key in runtime_.spelling.tuning_keys
    }
    assert read == set(TuningSettings.model_fields)


@pytest.mark.parametrize("model", known().models.values(), ids=lambda model: model.id)
def test_each_head_is_as_wide_as_its_target(model):
    assert (model.kind.value == "causal-lm") == (model.head_of is None)
    assert (
        model.head_of is None
        or model.hidden_size.value == known().models[model.head_of].hidden_size.value
    )


@pytest.mark.parametrize(
    "kind", get_args(CapacitySettings.model_fields["instance_type"].annotation)
)
def test_an_accelerator_type_has_its_figures_and_is_offered(kind):
    instance = known().instances.instances[kind]
    names = set(InstanceType.model_fields) - {"resource_slice"}

    assert [name for name in sorted(names) if getattr(instance, name).value is None] == []
    assert instance.physical_cores_per_device.value == 8
    assert max((*instance.device_counts.value, *instance.device_groups.value)) <= (
        instance.devices.value or 0
    )
    assert known().offerings.offerings[kind]


def test_a_node_image_of_the_default_minor_starts_every_runtime():
    releases = known().kubernetes.minors[known().kubernetes.default.value].ami_releases
    drivers = {driver.value[:4] for driver in releases.values() if driver.value}
    for runtime in known().runtimes.values():
        assert drivers - {*runtime.versions.refusing_drivers.value}, runtime.name


def test_a_node_image_is_the_newest_whose_driver_is_known():
    minor = known().kubernetes.minors["1.36"]
    releases = {
        "1.36.1-20260610": "2.28.0.0",
        "1.36.2-20260714": "2.29.0.0",
        "1.36.0-20261003": None,
    }
    figures = {
        name: minor.standard_support_ends.model_copy(update={"value": row})
        for name, row in releases.items()
    }
    minor = minor.model_copy(update={"ami_releases": figures})

    assert (minor.default_release, minor.newest_release) == ("1.36.2-20260714", "1.36.0-20261003")
    assert minor.list_releases(["2.29"]) == ["1.36.1-20260610"]


@pytest.fixture
def data(tmp_path):
    """A copy of the data files, free to be spoilt."""
    shutil.copytree(DATA, tmp_path / "data")
    return tmp_path / "data"


def test_rejects_a_figure_whose_source_is_not_listed(data):
    file = data / "runtimes" / "native.yaml"
    file.write_text(
        file.read_text().replace(
            "sdk: {value: 2.33.0, source: release}", "sdk: {value: 2.33.0, source: rumour}"
        )
    )

    with pytest.raises(SpecError, match=r"versions\.sdk\.source: got \"rumour\"; allowed: a key"):
        load_catalogue(data)


@pytest.mark.parametrize("name", FILES)
def test_rejects_a_data_file_with_an_unknown_key(data, name):
    with (data / name).open("a") as file:
        file.write("unheard_of: 1\n")
    with pytest.raises(SpecError, match="unheard_of"):
        load_catalogue(data)
