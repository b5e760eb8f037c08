"""Of which servers the post's claims are asked."""

from __future__ import annotations

import dataclasses
from typing import Any

import measured
import msgspec
import pytest
from observed import Asked, observed

from tandem.bench.figures.request_table import RequestTable
from tandem.bench.records.manifest import ManifestArm, Speculation
from tandem.post.answers import find_obstacles

PLAIN = Speculation(method=None)
FUSED = Speculation(method="fused", num_speculative_tokens=7)
DRAFT = "Qwen/Qwen3-1.7B"


def arms(model: str = "Qwen/Qwen3-32B", **changes: Any) -> tuple[ManifestArm, ManifestArm]:
    """The post's two arms; `changes` are of the variant."""
    fields = {"model": model, "runtime": "nxdi-v0", "speculation": FUSED}
    return (
        measured.arm("base", role="baseline", model=model, runtime="nxdi-v0", speculation=PLAIN),
        measured.arm("spec", **{**fields, **changes}),
    )


def measure(both: tuple[ManifestArm, ...] | None = None, **changes: Any) -> RequestTable:
    both = arms() if both is None else both
    table = observed([Asked(arm=arm.name) for arm in both], arms=tuple(arm.name for arm in both))
    fields = {"instance_type": "trn2.48xlarge", "simulated": False, **changes}
    return dataclasses.replace(table, run=msgspec.structs.replace(table.run, arms=both, **fields))


def test_the_posts_own_set_up_is_asked():
    assert find_obstacles(measure(), {"spec": DRAFT}) == {"spec": ""}


def test_each_variant_has_its_own_obstacle():
    tuned = msgspec.structs.replace(arms()[1], name="tuned", speculation=PLAIN)
    obstacles = find_obstacles(measure((*arms(), tuned)), {"spec": DRAFT, "tuned": DRAFT})
    assert obstacles["spec"] == ""
    assert obstacles["tuned"] == "the variant's speculation is not fused with 7 tokens"


def test_another_draft_is_an_obstacle():
    obstacles = find_obstacles(measure(), {"spec": "Qwen/Qwen3-0.6B"})
    assert obstacles["spec"] == "the draft is Qwen/Qwen3-0.6B, not Qwen/Qwen3-1.7B"


@pytest.mark.parametrize(
    ("reason", "changes"),
    [
        ("they are simulated", {"simulated": True}),
        ("whether they are simulated is not known", {"simulated": None}),
        ("they run on trn2.3xlarge, not on trn2.48xlarge", {"instance_type": "trn2.3xlarge"}),
        ("they run on an unknown instance type", {"instance_type": None}),
        ("the target is Qwen/Qwen3-8B, not Qwen/Qwen3-32B", {"both": arms("Qwen/Qwen3-8B")}),
        ("the runtime is not known, so nothing", {"both": arms(runtime=None)}),
        ("the runtime is native, so nothing", {"both": arms(runtime="native")}),
        (
            "nothing says that base decodes without speculation",
            {"both": (msgspec.structs.replace(arms()[0], speculation=None), arms()[1])},
        ),
    ],
)
def test_other_servers_have_an_obstacle(reason, changes):
    obstacles = find_obstacles(measure(**changes), {"spec": DRAFT})
    assert obstacles["spec"].startswith(reason)
