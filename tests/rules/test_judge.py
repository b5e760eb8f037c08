"""How faults are told: in which file, how often, from where; and what the committed files break."""

from __future__ import annotations

import json
import shutil
from collections import Counter

import pytest
from committed import workspace
from examples import (
    CLOSED,
    EXAMPLES,
    EXISTING,
    HUB,
    MIRRORS,
    OLD_IMAGE,
    SWEEP,
    like_small,
    native,
    of_model,
    small,
)
from known import DELETE, fig, judged, known
from shipped import copy_examples, load_shipped

from tandem.declarations.catalogue import load_catalogue
from tandem.declarations.workspace import load_workspace
from tandem.rules import RULES, check_workspace
from tandem.rules.contexts import DateContext

FAULTS = check_workspace(workspace(), load_catalogue())


def test_an_experiment_is_judged_once_whatever_hosts_it(tmp_path):
    copy_examples(tmp_path, "post-us-east-2")
    (tmp_path / "experiments" / "post-drafts-windows.yaml").unlink()
    host = tmp_path / "environments" / "post-us-east-2.yaml"
    host.write_text(host.read_text().replace(", post-drafts-windows", ""))
    for index in range(2):
        shutil.copy(host, host.with_name(f"e{index}.yaml"))

    faults = check_workspace(
        load_workspace(tmp_path / "environments", tmp_path / "experiments"), load_catalogue()
    )

    rules = [fault.rule for fault in faults if "/experiments/" in fault.file]
    assert rules == ["compile-memory", "image-vulnerable", "runtime-supported"]


def test_what_depends_on_the_environment_is_told_where_it_hosts():
    faults = judged(small(device_group=4))
    assert [(fault.file, fault.path) for fault in faults if fault.rule == "group-published"] == [
        ("environment.yaml", "experiments[0]")
    ]


def test_faults_of_a_file_are_told_from_top_to_bottom():
    lines = [fault.line or 0 for fault in FAULTS if fault.file.endswith("native-us-east-2.yaml")]
    assert lines == sorted(lines)


def test_no_fault_is_told_twice():
    counts = Counter((fault.file, fault.path, fault.got, fault.rule) for fault in FAULTS)
    assert set(counts.values()) == {1}


def test_fault_of_a_sweep_is_told_once_at_the_sweep():
    sweep = {
        "prefix": "s",
        "mode": "medusa",
        "drafts": ["Qwen/Qwen3-0.6B"],
        "num_speculative_tokens": [5, 7, 10],
    }
    faults = [(fault.rule, fault.path) for fault in judged({"sweep": sweep})]
    assert faults == [("mode-served", "sweep.mode"), ("draft-by-mode", "sweep.drafts[0]")]


def test_refused_mode_cites_its_figure_and_the_nearest():
    (fault,) = judged({"variants[1].mode": "vanilla"})
    assert fault.source is not None
    assert "libraries/nxd-inference/developer_guides/feature-guide.rst" in fault.source
    assert (fault.allowed, fault.change) == ("none, fused", "write fused")


def test_the_posts_label_is_explained_where_it_is_refused():
    (fault,) = judged({"variants[1].method": "eagle"})
    assert "fused is what ran" in fault.got


def test_an_old_driver_names_a_node_image_that_has_the_new_one():
    (fault,) = judged({**OLD_IMAGE, **native()})
    assert (fault.rule, fault.change) == (
        "driver-released",
        "write cluster.ami_release: 1.36.4-20261003",
    )


def test_an_unproven_mode_names_the_key_that_admits_it():
    draft = {"variants[1].mode": "eagle3", "variants[1].draft": "made-up/eagle3-qwen"}
    assert "accept_unproven: true" in judged({"runtime": "native", **draft})[0].change


@pytest.mark.parametrize("mode", ["vanilla", "eagle", "eagle3", "medusa"])
def test_each_known_mode_is_served_or_refused_with_reason(mode):
    fault = next(
        fault for fault in judged({"variants[1].mode": mode}) if fault.rule == "mode-served"
    )
    assert ": " in fault.got
    assert fault.change.startswith("write fused")


def test_sweep_too_long_to_name_is_refused_at_its_prefix():
    sweep = {
        "prefix": "p" * 63,
        "mode": "fused",
        "drafts": ["Qwen/Qwen3-0.6B"],
        "num_speculative_tokens": [5],
    }
    assert [fault.path for fault in judged({"sweep": sweep})] == ["sweep.prefix"]


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"max_prompt_tokens": 500}, "serving.max_model_len"),
        ({"serving.tensor_parallel_size": 64}, "serving.tensor_parallel_size"),
    ],
)
def test_what_is_proposed_is_legal(changes, path):
    (fault,) = judged(changes)
    assert judged({**changes, path: int(fault.change.split(",")[0].removeprefix("write "))}) == ()


def test_a_url_with_a_password_is_refused_without_repeating_it():
    (fault,) = judged({"delivery.repo_url": "https://me:hunter2@git.acme.dev/x.git"})
    assert "hunter2" not in json.dumps(fault.as_dict())


def test_unknown_runtime_and_models_cause_no_other_faults():
    faults = judged({"runtime": "x", "target": "no/such", "variants[1].draft": "no/other"})
    assert sorted(fault.rule or "" for fault in faults) == [
        "draft-known",
        "runtime-known",
        "target-known",
    ]


PUBLIC = {"access": "public"}
PRICE = {"usd_per_gb_month": 0.02}
SUBNET = "subnet-0123456"


def existing(*subnets: tuple[str, str]) -> dict[str, object]:
    """Return an existing network of these subnets, by the ends of their id and their zone's."""
    subnets_ = [{"id": f"{SUBNET}{end}", "zone": f"use2-az{zone}"} for end, zone in subnets]
    return {"network": {**EXISTING, "cidr": "10.0.0.0/16", "subnets": subnets_}}


# what a rule has beyond its example: the changes, and rule and key path of all that is told
FURTHER: dict[str, tuple[dict[str, object], list[str]]] = {
    "tokens without speculation": (
        {"variants[0].num_speculative_tokens": 7},
        ["tokens-by-mode variants[0].num_speculative_tokens"],
    ),
    "a sweep without a load": (
        {"sweep": SWEEP, "concurrency": DELETE},
        ["sweep-declared concurrency"],
    ),
    "a task twice": (
        {"quality": [{"name": "sums"}, {"name": "sums"}]},
        ["task-set quality[1].name"],
    ),
    "a draft without speculation": (
        {"variants[0].draft": "Qwen/Qwen3-1.7B"},
        ["draft-by-mode variants[0].draft"],
    ),
    "a range of clients that is no address": (
        {"cluster.endpoint.clients": ["10.8.0.300/16"]},
        ["range-valid cluster.endpoint.clients[0]"],
    ),
    "a tag of the example's account": (
        {"tags": {"owner-111122223333": "me"}},
        ["example-leftover tags.owner-111122223333"],
    ),
    "a range that is no address": ({"network.cidr": "10.0.0.300/16"}, ["range-valid network.cidr"]),
    "a URL that cannot be read": (
        {"delivery.repo_url": "https://[x"},
        ["repository-readable delivery.repo_url"],
    ),
    "a region nobody knows": (
        {"region": "eu-nowhere-1"},
        ["region-offers-type region", "billing-code region"],
    ),
    "more tags than a resource takes": (
        {"tags": {f"k{index}": "v" for index in range(41)}},
        ["tags-fit tags"],
    ),
    "a tag with a long key": ({"tags": {"k" * 128: "v"}}, [f"tags-fit tags.{'k' * 128}"]),
    "a tag of our own in another case": (
        {"tags": {"Tandem:Environment": "v"}},
        ["tags-fit tags.Tandem:Environment"],
    ),
    "unit prices of tomorrow": ({"prices": {"date": "2026-11-24"}}, ["price-to-come prices.date"]),
    "tags as long as they may be": ({"tags": {"k" * 127: "é" * 255}}, []),
    "a tag with an ampersand": ({"tags": {"k": "r&d"}}, ["tags-fit tags.k"]),
    "a tag without a key": ({"tags": {"": "v"}}, ["tags-fit tags."]),
    "one subnet in one zone": (existing(("1", "3"), ("2", "3")), ["zones-two network.subnets"]),
    "one subnet twice": (
        existing(("1", "1"), ("3", "3"), ("3", "3")),
        ["subnet-once network.subnets[2].id"],
    ),
    "a zone of no NAT gateway": (
        {**CLOSED, "hub": HUB, "network.nat_zone": "use2-az1"},
        ["nat-zone network.nat_zone"],
    ),
    "a control plane in another region": (
        {
            "network": {
                **EXISTING,
                "control_plane_subnets": [
                    {"id": f"{SUBNET}a", "zone": "use2-az1"},
                    {"id": f"{SUBNET}b", "zone": "usw2-az1"},
                ],
            }
        },
        ["zone-of-region network.control_plane_subnets[1].zone"],
    ),
    "a control plane in a zone that EKS does not take": (
        {
            "region": "us-east-1",
            "capacity.zone": "use1-az1",
            "network": {
                **EXISTING,
                "subnets": [
                    {"id": f"{SUBNET}{number}", "zone": f"use1-az{number}"} for number in (1, 2)
                ],
                "control_plane_subnets": [
                    {"id": f"{SUBNET}1", "zone": "use1-az1"},
                    {"id": f"{SUBNET}3", "zone": "use1-az3"},
                ],
            },
        },
        ["region-offers-type region", "zone-takes-cluster network.control_plane_subnets[1].zone"],
    ),
    "a control plane in a zone that the list lacks": (
        {
            "network": {
                **EXISTING,
                "control_plane_subnets": [
                    {"id": f"{SUBNET}a", "zone": "use2-az1"},
                    {"id": f"{SUBNET}b", "zone": "use2-az9"},
                ],
            }
        },
        ["zone-listed network.control_plane_subnets[1].zone"],
    ),
    "builds in a closed VPC from the public registry and index": (
        {"network.nat": "none", "hub": HUB, "builds_in_vpc": True, "suites": ["real"]},
        [
            "mirrors-closed registry_mirrors",
            "builds-reach registry_mirrors",
            "builds-reach package_index",
        ],
    ),
    "a range of the endpoint that is no address": (
        {"cluster.endpoint": {**PUBLIC, "cidrs": ["203.0.113.300/24"]}},
        ["range-valid cluster.endpoint.cidrs[0]"],
    ),
    "a second range of the VPC that is no address": (
        {"network": {**EXISTING, "secondary_cidrs": ["100.65.0.300/16"]}},
        ["range-valid network.secondary_cidrs[0]"],
    ),
    "a price of storage to come": (
        {"artifacts": {**PRICE, "usd_per_gb_month_date": "2031-01-01"}},
        ["price-to-come artifacts.usd_per_gb_month_date"],
    ),
    "a mirror in the example's account": (
        {
            "registry_mirrors": {
                **MIRRORS,
                "public.ecr.aws": "111122223333.dkr.ecr.us-east-2.amazonaws.com/x",
            }
        },
        ["example-leftover registry_mirrors.public.ecr.aws"],
    ),
    "buckets too short for the longest sequence": (
        {"serving.tuning.token_generation_buckets": [512]},
        ["buckets-complete serving.tuning.token_generation_buckets"],
    ),
    "a range wider than any organisation's": (
        {"cluster.endpoint": {**PUBLIC, "cidrs": ["64.0.0.0/2"]}},
        ["endpoint-open cluster.endpoint.cidrs[0]"],
    ),
    "a long name beside a bucket of somebody else's": (
        {
            "environment.name": "e" * 48,
            "artifacts": {"existing_bucket": "mine"},
            "delivery.path": f"m/{'e' * 48}",
        },
        ["environment-name name"],
    ),
    "an experiment whose volumes' names are too long": (
        {"experiment.name": "e" * 44},
        ["experiment-name name"],
    ),
    "the name of a dashboard": ({"experiment.name": "machine"}, ["experiment-folder name"]),
    "the price of another environment's other kind": (
        {"twin.capacity.kind": "on-demand"},
        ["price-own capacity.usd_per_hour"],
    ),
}


@pytest.mark.parametrize(("changes", "expected"), list(FURTHER.values()), ids=list(FURTHER))
def test_rejects_further(changes, expected):
    assert [f"{fault.rule} {fault.path}" for fault in judged(changes)] == expected


def test_without_a_moment_no_date_is_judged():
    assert {rule.id for rule in RULES if rule.context_type is DateContext} == {
        "block-over",
        "price-to-come",
    }
    assert [fault.rule for fault in judged(EXAMPLES["price-to-come"].found, now=None)] == []


def test_two_independent_faults_are_both_told():
    faults = judged({**native(draft="made-up/eagle3-narrow"), "account": "123456789012"})
    assert sorted(fault.rule or "" for fault in faults) == [
        "account-real",
        "head-hidden-size",
        "principal-own",
    ]


def changes_proposed(rule: str, changes: dict[str, object]) -> list[str]:
    return [fault.change for fault in judged(changes) if fault.rule == rule]


def test_the_degree_proposed_divides_the_width_of_target_and_draft():
    # 20 divides the target's 25600 and not the draft's 6144
    assert changes_proposed("degree-divides", {"serving.tensor_parallel_size": 24}) == ["write 16"]


def test_proposed_drafts_are_smaller_and_of_the_same_tokenizer():
    faults = judged({"variants[1].draft": "made-up/eagle3-qwen"})

    (fault,) = [fault for fault in faults if fault.rule == "draft-kind"]
    assert "Qwen/Qwen3-1.7B" in fault.allowed
    assert "Qwen/Qwen3-32B" not in fault.allowed
    assert "llama" not in fault.allowed.lower()
    assert "vanilla" not in fault.change


def test_count_of_devices_that_no_claim_has_is_told_once():
    changes = {"serving.devices": 3, "serving.tensor_parallel_size": 8, "serving.cpu": 40}
    faults = [fault for fault in judged(changes) if fault.severity == "refusal"]
    assert [fault.rule for fault in faults] == ["device-count"]
    assert "devices: 4" in faults[0].change


@pytest.mark.parametrize(
    ("batch", "change"), [(700, "write devices: 16 in the experiment, or lower"), (4096, "lower")]
)
def test_only_a_bindable_claim_is_proposed(batch, change):
    changes = {"serving.max_num_seqs": min(batch, 1024), "serving.max_model_len": 1024}
    if batch > 1024:
        changes["serving.max_model_len"] = 4096

    (change_,) = changes_proposed("device-memory", changes)

    assert change_.startswith(change)


@pytest.mark.parametrize(
    ("rule", "changes", "catalogue"),
    [
        ("device-memory", {}, of_model("Qwen/Qwen3-32B", bytes=fig(450_000_000_000))(known())),
        (
            "disk-fits",
            small(tensor_parallel_size=4),
            like_small("trn2.3xlarge", nvme_gb=450)(known()),
        ),
    ],
)
def test_a_target_that_drafts_for_itself_is_counted_twice(rule, changes, catalogue):
    for draft, has_fault in (("Qwen/Qwen3-1.7B", False), ("Qwen/Qwen3-32B", True)):
        faults = judged({**changes, "variants[1].draft": draft}, catalogue)
        assert (rule in {fault.rule for fault in faults}) is has_fault


@pytest.mark.parametrize(("budget_usd", "change"), [(80, ", or write max_hours: 2"), (10, "")])
def test_a_budget_below_one_hour_is_raised_only(budget_usd, change):
    changes = {"guard.budget_usd": budget_usd}
    assert changes_proposed("budget-holds-run", changes) == [f"raise it{change}"]


def test_what_the_repository_ships_is_legal():
    shipped = load_shipped()
    faults = (*shipped.faults, *check_workspace(shipped, load_catalogue()))
    assert [fault for fault in faults if fault.severity == "refusal"] == []
