"""How faults are told: in which file, how often, from where; and what the committed files break."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from environment_examples import ENVIRONMENT_EXAMPLES
from example import EXISTING, MIRRORS, native, small
from known import judged, known

from tandem.rules import RULES, check_workspace
from tandem.rules.contexts import DateContext, build_experiment_context
from tandem.rules.doc import render_page
from tandem.spec.catalogue import load_catalogue
from tandem.spec.workspace import load_workspace

ROOT = Path(__file__).parent.parent.parent
COMMITTED = load_workspace(ROOT / "environments", ROOT / "experiments")
FAULTS = check_workspace(COMMITTED, load_catalogue())


def test_an_experiment_is_judged_once_whatever_hosts_it(tmp_path: Path) -> None:
    for folder in ("environments", "experiments"):
        (tmp_path / folder).mkdir()
    (tmp_path / "experiments" / "post.yaml").write_text((ROOT / "experiments" / "post.yaml").read_text())
    text = (ROOT / "environments" / "post-us-east-2.yaml").read_text().replace(", post-drafts-windows", "")
    for index in range(3):
        (tmp_path / "environments" / f"e{index}.yaml").write_text(text)

    faults = check_workspace(load_workspace(tmp_path / "environments", tmp_path / "experiments"), load_catalogue())

    assert [fault.rule for fault in faults if "/experiments/" in fault.file] == [
        "compile-memory",
        "image-vulnerable",
    ]


def test_what_depends_on_the_environment_is_told_where_it_hosts() -> None:
    faults = judged(small(device_group=4))

    assert [(fault.file, fault.path) for fault in faults if fault.rule == "group-published"] == [
        ("environment.yaml", "experiments[0]")
    ]


def test_faults_of_a_file_are_told_from_top_to_bottom() -> None:
    lines = [fault.line or 0 for fault in FAULTS if fault.file.endswith("native-us-east-2.yaml")]

    assert lines == sorted(lines)


def test_no_fault_is_told_twice() -> None:
    told = Counter((fault.file, fault.path, fault.got, fault.rule) for fault in FAULTS)

    assert set(told.values()) == {1}


def test_a_fault_of_a_sweep_is_told_once_at_the_sweep() -> None:
    sweep = {"prefix": "s", "mode": "medusa", "drafts": ["Qwen/Qwen3-0.6B"], "num_speculative_tokens": [5, 7, 10]}

    faults = [(fault.rule, fault.path) for fault in judged({"experiment.sweep": sweep})]

    assert faults == [("mode-served", "sweep.mode"), ("draft-by-mode", "sweep.drafts[0]")]


def test_a_figure_that_decides_is_cited_with_its_own_source() -> None:
    (fault,) = judged({"experiment.variants[1].mode": "vanilla"})

    assert fault.source is not None
    assert fault.source.startswith(
        "aws-neuron/aws-neuron-sdk libraries/nxd-inference/developer_guides/feature-guide.rst"
    )


def test_a_refused_mode_names_the_nearest_one_served() -> None:
    (fault,) = judged({"experiment.variants[1].mode": "vanilla"})

    assert (fault.allowed, fault.change) == ("none, fused", "nearest: fused")


def test_the_posts_label_is_explained_where_it_is_refused() -> None:
    (fault,) = judged({"experiment.variants[1].method": "eagle"})

    assert "the post's `eagle` is such a label, fused is what ran" in fault.got


def test_an_unproven_mode_names_the_key_that_admits_it() -> None:
    faults = judged({
        "experiment.runtime": "native", "experiment.variants[1].mode": "eagle3",
        "experiment.variants[1].draft": "made-up/eagle3-qwen",
    })  # fmt: skip

    assert "accept_unproven: true" in faults[0].change


@pytest.mark.parametrize("mode", ["vanilla", "eagle", "eagle3", "medusa"])
def test_each_known_word_is_served_or_refused_with_reason_and_nearest(mode: str) -> None:
    changes = {"experiment.variants[1].mode": mode}

    fault = next(fault for fault in judged(changes) if fault.rule == "mode-served")

    assert ": " in fault.got
    assert fault.change.startswith("nearest: fused")


def test_a_sweep_too_long_to_name_is_refused_at_its_prefix() -> None:
    sweep = {"prefix": "p" * 63, "mode": "fused", "drafts": ["Qwen/Qwen3-0.6B"], "num_speculative_tokens": [5]}

    assert [fault.path for fault in judged({"experiment.sweep": sweep})] == ["sweep.prefix"]


def test_the_length_that_is_proposed_is_legal() -> None:
    (fault,) = judged({"experiment.max_prompt_tokens": 500})
    proposed = int(fault.change.split(",")[0].removeprefix("write "))

    assert judged({"experiment.max_prompt_tokens": 500, "experiment.serving.max_model_len": proposed}) == ()


def test_the_tp_degree_that_is_proposed_is_legal() -> None:
    (fault,) = judged({"experiment.serving.tensor_parallel_size": 64})
    proposed = int(fault.change.split(",")[0].removeprefix("write "))

    assert judged({"experiment.serving.tensor_parallel_size": proposed}) == ()


def test_a_url_with_a_password_is_refused_without_repeating_it() -> None:
    (fault,) = judged({"environment.delivery.repo_url": "https://me:hunter2@git.acme.dev/x.git"})

    assert "hunter2" not in json.dumps(fault.as_dict())


SERVED = [*({"experiment.serving.devices": devices, "experiment.serving.tensor_parallel_size": degree,
             "experiment.serving.logical_neuron_core": lnc, "experiment.serving.cpu": 5,
             "experiment.serving.memory_gib": 90, "experiment.serving.device_group": None}
            for devices in (1, 2, 4, 8, 16) for degree in (1, 2, 4, 8, 16, 32, 64, 128) for lnc in (1, 2))]  # fmt: skip


@pytest.mark.parametrize("changes", SERVED, ids=lambda changes: " ".join(str(value) for value in changes.values()))
def test_an_accepted_experiment_uses_no_more_cores_than_it_claims(changes: dict[str, int]) -> None:
    refused = {fault.rule for fault in judged(changes) if fault.severity == "refusal"}
    devices, degree, lnc, *_ = changes.values()

    assert ("cores-present" in refused) == (degree > devices * 8 // lnc)


@pytest.mark.parametrize(
    ("changes", "change"),
    [
        ({"tensor_parallel_size": 64}, "write 32, or devices: 16"),
        ({"tensor_parallel_size": 16}, "write 32, or devices: 4"),
        ({"tensor_parallel_size": 8, "devices": 4}, "write 16, or accept it: no smaller claim holds this degree"),
        ({"tensor_parallel_size": 128}, "write 32"),
    ],
)
def test_the_nearest_claim_is_one_that_can_be_bound(changes: dict[str, int], change: str) -> None:
    faults = judged({f"experiment.serving.{key}": value for key, value in changes.items()})

    assert [fault.change for fault in faults if fault.rule in {"cores-present", "cores-idle"}] == [change]


def test_logical_cores_are_those_of_the_devices_at_the_lnc() -> None:
    experiment = COMMITTED.experiments["post"].experiment
    assert experiment is not None

    assert build_experiment_context(experiment, known()).logical_cores() == 32


def test_an_unknown_runtime_and_unknown_models_are_told_and_nothing_follows_from_them() -> None:
    faults = judged({
        "experiment.runtime": "x", "experiment.target": "no/such", "experiment.variants[1].draft": "no/other",
    })  # fmt: skip

    assert sorted(fault.rule or "" for fault in faults) == ["draft-known", "runtime-known", "target-known"]


FURTHER: dict[str, tuple[dict[str, object], list[tuple[str, str]]]] = {
    "tokens without speculation": (
        {"experiment.variants[0].num_speculative_tokens": 7},
        [("tokens-by-mode", "variants[0].num_speculative_tokens")],
    ),
    "a draft without speculation": (
        {"experiment.variants[0].draft": "Qwen/Qwen3-1.7B"},
        [("draft-by-mode", "variants[0].draft")],
    ),
    "a range that is no address": ({"environment.network.cidr": "10.0.0.300/16"}, [("range-valid", "network.cidr")]),
    "a prefix that is none": ({"environment.network.cidr": "10.0.0.0/40"}, [("range-valid", "network.cidr")]),
    "a URL that cannot be read": (
        {"environment.delivery.repo_url": "https://[x"},
        [("repository-readable", "delivery.repo_url")],
    ),
    "a region nobody knows": ({"environment.region": "eu-nowhere-1"}, [("region-offers-type", "region")]),
    "half a large node on a small one": (
        small(devices=8, device_group=8, tensor_parallel_size=32, cpu=90, memory_gib=256),
        [
            *(
                (rule, "experiments[0]")
                for rule in ("device-count", "cores-bound", "group-published", "cpu-fits", "memory-fits")
            ),
            ("compile-memory", "compile.memory_gib"),
        ],
    ),
    "more tags than a resource takes": (
        {"environment.tags": {f"k{index}": "v" for index in range(41)}},
        [("tags-fit", "tags")],
    ),
    "a tag with a long key": ({"environment.tags": {"k" * 129: "v"}}, [("tags-fit", f"tags.{'k' * 129}")]),
    "a tag with a long value": ({"environment.tags": {"k": "v" * 257}}, [("tags-fit", "tags.k")]),
    "a tag with an ampersand": ({"environment.tags": {"k": "r&d"}}, [("tags-fit", "tags.k")]),
    "a tag without a value": ({"environment.tags": {"team": ""}}, [("tags-fit", "tags.team")]),
    "a tag without a key": ({"environment.tags": {"": "v"}}, [("tags-fit", "tags.")]),
    "one subnet in one zone": (
        {
            "environment.network": {
                "kind": "existing",
                "vpc_id": "vpc-01234567",
                "cidr": "10.0.0.0/16",
                "subnets": [{"id": f"subnet-0123456{n}", "zone": "use2-az3"} for n in (1, 2)],
            }
        },
        [("zones-two", "network.subnets")],
    ),
    "one subnet twice": (
        {
            "environment.network": {
                "kind": "existing",
                "vpc_id": "vpc-01234567",
                "cidr": "10.0.0.0/16",
                "subnets": [{"id": f"subnet-0123456{n}", "zone": f"use2-az{n}"} for n in (1, 3)]
                + [{"id": "subnet-01234563", "zone": "use2-az3"}],
            }
        },
        [("subnet-once", "network.subnets[2].id")],
    ),
    "one subnet under two zones": (
        {
            "environment.network": {
                "kind": "existing",
                "vpc_id": "vpc-01234567",
                "cidr": "10.0.0.0/16",
                "subnets": [{"id": "subnet-01234561", "zone": f"use2-az{n}"} for n in (1, 3)],
            }
        },
        [("subnet-once", "network.subnets[1].id")],
    ),
    "a range of the endpoint that is no address": (
        {"environment.cluster.endpoint": {"access": "public", "cidrs": ["203.0.113.300/24"]}},
        [("range-valid", "cluster.endpoint.cidrs[0]")],
    ),
    "a second range of the VPC that is no address": (
        {"environment.network": {**EXISTING, "secondary_cidrs": ["100.65.0.300/16"]}},
        [("range-valid", "network.secondary_cidrs[0]")],
    ),
    "a range of clients that is no address": (
        {"environment.cluster.endpoint.clients": ["10.8.0.300/16"]},
        [("range-valid", "cluster.endpoint.clients[0]")],
    ),
    "a price of storage to come": (
        {
            "environment.artifacts": {"usd_per_gb_month": 0.02, "usd_per_gb_month_date": "2031-01-01"},
        },
        [("price-to-come", "artifacts.usd_per_gb_month_date")],
    ),
    "a mirror in the example's account": (
        {
            "environment.registry_mirrors": {
                **MIRRORS,
                "public.ecr.aws": "111122223333.dkr.ecr.us-east-2.amazonaws.com/x",
            }
        },
        [("example-leftover", "registry_mirrors.public.ecr.aws")],
    ),
    "a tag of the example's account": (
        {"environment.tags": {"owner-111122223333": "me"}},
        [("example-leftover", "tags.owner-111122223333")],
    ),
    "a queue in the example's account": (
        {
            "environment.observability.alarm_subscriptions": [
                {"protocol": "sqs", "endpoint": "arn:aws:sqs:us-east-2:123456789012:pager"}
            ]
        },
        [("example-leftover", "observability.alarm_subscriptions[0].endpoint")],
    ),
    "the price of a block on a spot node": (
        {
            "environment.capacity.kind": "spot",
            "environment.capacity.reservation_id": None,
            "twin.capacity.kind": "capacity-block",
        },
        [("price-own", "capacity.usd_per_hour")],
    ),
    "buckets too short for the longest sequence": (
        {"experiment.serving.tuning.token_generation_buckets": [512]},
        [("buckets-complete", "serving.tuning.token_generation_buckets")],
    ),
    "a range wider than any organisation's": (
        {"environment.cluster.endpoint": {"access": "public", "cidrs": ["64.0.0.0/2"]}},
        [("endpoint-open", "cluster.endpoint.cidrs[0]")],
    ),
}


@pytest.mark.parametrize(("changes", "expected"), list(FURTHER.values()), ids=list(FURTHER))
def test_rejects_further(changes: dict[str, object], expected: list[tuple[str, str]]) -> None:
    assert [(fault.rule, fault.path) for fault in judged(changes)] == expected


@pytest.mark.parametrize("module", ["tandem.spec.reference", "tandem.rules.doc"])
def test_the_generated_pages_are_checked_from_the_command_line(module: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, "--check"], cwd=ROOT, capture_output=True, check=False)

    assert (done.returncode, done.stderr) == (0, b"")


def test_without_a_moment_no_date_is_judged() -> None:
    assert {rule.id for rule in RULES if rule.context_type is DateContext} == {"block-over", "price-to-come"}
    assert [fault.rule for fault in judged(ENVIRONMENT_EXAMPLES["price-to-come"].found, now=None)] == []


def test_two_independent_faults_are_both_told() -> None:
    faults = judged({**native(draft="made-up/eagle3-narrow"), "environment.account": "123456789012"})

    assert sorted(fault.rule or "" for fault in faults) == ["account-real", "head-hidden-size", "principal-own"]


def test_the_committed_page_of_rules_is_current() -> None:
    assert (ROOT / "docs" / "rules.md").read_text() == render_page()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_is_a_row_of_the_page(rule: object) -> None:
    assert f"| `{rule.id}` | {rule.sentence} | {rule.severity} |" in render_page()  # type: ignore[attr-defined]


def changes_proposed(rule: str, changes: dict[str, object]) -> list[str]:
    return [fault.change for fault in judged(changes) if fault.rule == rule]


def test_the_degree_proposed_divides_the_width_of_target_and_draft() -> None:
    # 20 divides the target's 25600 and not the draft's 6144
    assert changes_proposed("degree-divides", {"experiment.serving.tensor_parallel_size": 24}) == ["write 16"]


def test_the_drafts_proposed_are_smaller_than_the_target_and_of_its_tokenizer() -> None:
    faults = judged({"experiment.variants[1].draft": "made-up/eagle3-qwen"})

    (fault,) = [fault for fault in faults if fault.rule == "draft-kind"]
    assert "Qwen/Qwen3-1.7B" in fault.allowed
    assert "Qwen/Qwen3-32B" not in fault.allowed
    assert "llama" not in fault.allowed.lower()
    assert "vanilla" not in fault.change


def test_a_count_of_devices_that_no_claim_has_is_told_once() -> None:
    changes = {
        "experiment.serving.devices": 3, "experiment.serving.tensor_parallel_size": 8, "experiment.serving.cpu": 40,
    }  # fmt: skip

    faults = [fault for fault in judged(changes) if fault.severity == "refusal"]

    assert [fault.rule for fault in faults] == ["device-count"]
    assert "devices: 4" in faults[0].change


def test_a_swept_name_that_a_written_variant_has_is_to_be_renamed() -> None:
    sweep = {"prefix": "fast", "mode": "fused", "drafts": ["Qwen/Qwen3-0.6B"], "num_speculative_tokens": [5]}

    changes = {"experiment.sweep": sweep, "experiment.variants[1].name": "fast-qwen3-0-6b-k5"}

    assert changes_proposed("variant-once", changes) == ["rename one: it names a Deployment and a Service"]


@pytest.mark.parametrize(("batch", "change"), [(700, "write devices: 16 in the experiment, or lower"), (4096, "lower")])
def test_only_a_claim_that_can_be_bound_is_proposed_for_more_memory(batch: int, change: str) -> None:
    changes = {"experiment.serving.max_num_seqs": min(batch, 1024), "experiment.serving.max_model_len": 1024}
    if batch > 1024:
        changes["experiment.serving.max_model_len"] = 4096

    (found,) = changes_proposed("device-memory", changes)

    assert found.startswith(change)


@pytest.mark.parametrize(
    ("policy", "change"),
    [("policy/Edge", "write Edge"), ("policy/team/Edge", "write the name of a policy whose path is /")],
)
def test_the_name_proposed_for_a_boundary_is_the_name_of_that_policy(policy: str, change: str) -> None:
    changes = {"environment.bootstrap.permissions_boundary": f"arn:aws:iam::210987654321:{policy}"}

    assert changes_proposed("boundary-name", changes) == [change]
