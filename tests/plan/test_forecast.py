"""What a draft and a window give: limits, monotony, memory."""

from __future__ import annotations

import pytest

from tandem.declarations.catalogue import load_catalogue
from tandem.plan.forecast import (
    PlanLoad,
    choose_window,
    compute_core_memory,
    compute_step_cost,
    convert_cost,
    fit_published_cost,
    forecast_cells,
    stretch_step,
)
from tandem.plan.measurement_rows import load_published
from tandem.plan.plan_basis import DraftBasis, DraftShare, PlanBasis

MODELS = load_catalogue().models
TARGET = MODELS["Qwen/Qwen3-32B"]
DRAFT = MODELS["Qwen/Qwen3-1.7B"]
POST = DraftShare(0.19, 0.13, 0.4, "measured")
COST, _ = fit_published_cost(load_published(), TARGET)
EXPERTS = TARGET.model_copy(
    update={"family": TARGET.family.model_copy(update={"value": "gpt_oss"})}
)


def make_load(acceptance=0.8, share=None):
    draft = DraftBasis(acceptance=acceptance, share=share)
    return PlanLoad(law="k", target=TARGET, context_tokens=700, draft=draft)


def forecast(share=POST, windows=(7,), loads=(1,)):
    return list(forecast_cells(make_load(0.8, share), (DRAFT.id,), windows, loads))


def forecast_published(tpot_ms=None, windows=(7,), loads=(1,)):
    share = None if tpot_ms is None else convert_cost(COST, tpot_ms)
    load = make_load(share=share)
    return list(forecast_cells(load, (DRAFT.id,), windows, loads, cost=COST))


def test_a_draft_that_costs_too_much_has_no_break_even():
    assert forecast(share=DraftShare(1.2, 1.0, 1.3, "assumed"))[0].break_even is None


def test_a_larger_batch_makes_a_draft_forward_a_smaller_share():
    alone, many = forecast(loads=(1, 16))
    assert many.speed_up > alone.speed_up


def test_a_plain_step_grows_with_the_caches_that_it_reads():
    assert stretch_step(make_load(), 16) > stretch_step(make_load(), 1) == 1.0


def test_memory_is_weights_and_cache_over_the_cores():
    memory = compute_core_memory(TARGET, DRAFT, cores=8, sequences=4, max_model_len=1024)
    kv_bytes = 4 * 1024 * (TARGET.count_kv_bytes() + DRAFT.count_kv_bytes())
    total = (TARGET.bytes.value + DRAFT.bytes.value + kv_bytes) / 8 / 2**30
    assert memory.total_gib == pytest.approx(total)


def test_more_cores_than_kv_heads_hold_copies_of_the_cache():
    memory = compute_core_memory(TARGET, None, cores=32, sequences=4, max_model_len=1024)
    assert memory.kv_gib == pytest.approx(128 / 1024)  # 32 KiB a token on each core


def test_a_model_of_unknown_size_has_no_memory():
    unknown, *_ = [model for model in MODELS.values() if model.bytes.value is None]
    assert compute_core_memory(unknown, None, cores=8, sequences=1, max_model_len=1024) is None


def test_the_choice_is_the_window_whose_worst_case_is_best():
    cells = forecast(windows=range(1, 16))
    assert choose_window(cells, (DRAFT.id,), 1).low == max(cell.low for cell in cells)


def test_a_published_cost_gives_a_range_of_two():
    cells = forecast_published(tpot_ms=20.0, windows=range(1, 16), loads=(1, 2))
    assert [cell.high / cell.low for cell in cells] == pytest.approx([2.0] * 30)
    assert all(cell.low < cell.speed_up < cell.high for cell in cells)


def test_without_a_plain_tpot_no_cell_has_a_speed_up():
    (cell,) = forecast_published()
    assert (cell.speed_up, cell.low, cell.high, cell.break_even) == (None, None, None, None)


def test_the_low_end_is_one_where_gain_begins():
    (cell,) = forecast_published()
    assert forecast_published(tpot_ms=cell.gain_tpot_ms)[0].low == pytest.approx(1.0)


def test_without_speed_ups_the_earliest_gain_is_chosen():
    cells = forecast_published(windows=(3, 5, 7, 10, 15))
    choice = choose_window(cells, (DRAFT.id,), 1)
    assert choice.gain_tpot_ms == min(cell.gain_tpot_ms for cell in cells)


def test_a_mixture_of_experts_has_no_cost_and_says_why():
    cost, objection = fit_published_cost(load_published(), EXPERTS)
    assert cost is None
    assert objection.startswith(
        "of its kind (mixture of experts, sequential drafts, fused or native), one pair"
    )


def test_each_verified_token_makes_a_step_longer():
    free, dear = (compute_step_cost(make_load(), 0.19, 7, 1, share) for share in (0.0, 0.328))
    assert dear - free == pytest.approx(6 * 0.328)


def test_a_step_beyond_the_chips_compute_takes_longer():
    costs = [
        compute_step_cost(make_load(), 0.19, 7, concurrency) for concurrency in (16, 32, 64, 128)
    ]
    assert costs[1] < costs[0] < costs[2] < costs[3]


def test_speculation_loses_at_a_large_batch():
    small, large = forecast(loads=(4, 128))
    assert small.speed_up > 1.5 > large.speed_up


def test_drafts_of_which_the_same_is_known_are_one_group():
    known = DraftBasis(acceptance=0.7, acceptance_basis="given")
    basis = PlanBasis(drafts={"a": DraftBasis(), "b": known, "c": DraftBasis()})

    assert basis.list_groups() == [("a", "c"), ("b",)]
