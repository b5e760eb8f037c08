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
from tandem.judge.claims.answers import find_post_variants

PLAIN = Speculation(method=None)
FUSED = Speculation(method="fused", num_speculative_tokens=7)
KEY = "qwen3-32b-fused-{draft}-k7-tp32-lnc2-b4-s1024-0123456789ab"
HOSTED = {
    "environment": "prod",
    "experiment": "post",
    "instance_type": "trn2.48xlarge",
    "simulated": False,
}


def arms(
    model: str = "Qwen/Qwen3-32B", draft: str = "qwen3-1-7b", **changes: Any
) -> tuple[ManifestArm, ManifestArm]:
    """The post's two arms; `changes` are of the variant."""
    fields = {
        "model": model,
        "runtime": "nxdi-v0",
        "speculation": FUSED,
        "artifact_key": KEY.format(draft=draft),
    }
    return (
        measured.arm("base", role="baseline", model=model, runtime="nxdi-v0", speculation=PLAIN),
        measured.arm("spec", **{**fields, **changes}),
    )


def seen(both: tuple[ManifestArm, ...] | None = None, **changes: Any) -> RequestTable:
    both = arms() if both is None else both
    table = observed([Asked(arm=arm.name) for arm in both], arms=tuple(arm.name for arm in both))
    return dataclasses.replace(
        table, run=msgspec.structs.replace(table.run, arms=both, **{**HOSTED, **changes})
    )


def test_the_posts_own_set_up_is_asked():
    assert find_post_variants(seen()) == (("spec",), None)


def test_claims_are_asked_of_the_posts_variant_alone():
    tuned = measured.arm(
        "tuned", model="Qwen/Qwen3-32B", runtime="nxdi-v0", speculation=Speculation(method="fused")
    )
    assert find_post_variants(seen((*arms(), tuned))) == (("spec",), None)


@pytest.mark.parametrize(
    ("why", "changes"),
    [
        ("they are simulated", {"simulated": True}),
        ("whether they are simulated is not known", {"simulated": None}),
        ("they were named by address, not by --env and --experiment", {"environment": None}),
        ("they run on trn2.3xlarge, not on trn2.48xlarge", {"instance_type": "trn2.3xlarge"}),
        ("they run on an unknown instance type, not on trn2.48xlarge", {"instance_type": None}),
        ("the target is Qwen/Qwen3-8B, not Qwen/Qwen3-32B", {"both": arms("Qwen/Qwen3-8B")}),
        ("nothing says that the draft is Qwen/Qwen3-1.7B", {"both": arms(draft="qwen3-0-6b")}),
        (
            "the variant's speculation is not fused with 7 tokens",
            {"both": arms(speculation=Speculation(method="fused", num_speculative_tokens=5))},
        ),
        (
            "the runtime is not known, so nothing says that this is the post's accelerator",
            {"both": arms(runtime=None)},
        ),
        (
            "nothing says that base decodes without speculation",
            {"both": (msgspec.structs.replace(arms()[0], speculation=None), arms()[1])},
        ),
        (
            "the runtime is native, so nothing says that this is the post's accelerator",
            {"both": (arms()[0], arms(runtime="native")[1])},
        ),
    ],
)
def test_other_servers_are_not_asked_and_it_is_said_why(why, changes):
    assert (
        find_post_variants(seen(**changes))[1]
        == f"The post's claims are not asked of these servers: {why}."
    )
