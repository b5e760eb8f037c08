"""The Neuron DRA chart: its address and its images behind an environment's mirrors."""

from __future__ import annotations

from dataclasses import replace

import pytest
from committed import environment, known

from tandem.declarations.driver_release import build_driver_release

MIRROR = "111122223333.dkr.ecr.us-east-2.amazonaws.com/mirror"


def mirror(*registries: str) -> dict[str, str]:
    return {registry: f"{MIRROR}/{registry.replace('/', '-')}" for registry in registries}


def list_registries() -> list[str]:
    chart = known().dra_chart
    names = [chart.repository.removeprefix("oci://")]
    names += [image.repository for image in chart.images.value]
    return sorted({name.partition("/")[0] for name in names})


def test_without_mirrors_the_chart_is_the_published_one():
    published = known().dra_chart
    place = environment("post-us-east-2")

    assert build_driver_release(place, known()).repository == published.repository


def test_a_mirror_moves_the_chart_and_its_images():
    place = environment("post-us-east-2").model_copy(
        update={"registry_mirrors": mirror(*list_registries())}
    )

    release = build_driver_release(place, known())

    assert MIRROR in release.repository
    assert MIRROR in release.values.value["draDriver"]["image"]["repository"]


def test_an_image_that_no_value_moves_is_refused():
    catalogue = known()
    chart = catalogue.dra_chart
    fixed = [image.model_copy(update={"repository_value": None}) for image in chart.images.value]
    images = chart.images.model_copy(update={"value": tuple(fixed)})
    catalogue = replace(catalogue, dra_chart=chart.model_copy(update={"images": images}))
    place = environment("post-us-east-2").model_copy(
        update={"registry_mirrors": mirror(*list_registries())}
    )

    with pytest.raises(ValueError, match="no value that moves"):
        build_driver_release(place, catalogue)
