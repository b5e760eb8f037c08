"""Each knob of the worlds' simulator changes what it names, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import world_records
from world_records import (
    DEFAULT_SHAPE,
    EPISODE_TIMES,
    FIRST_TOKEN_S,
    QUICK_SHAPE,
    STARTS_SHAPE,
    TOKEN_S,
    RunShape,
    ServerClock,
    Values,
    World,
    simulate_run,
)

from tandem.bench.figures.request_table import RequestTable


def simulate(shape: RunShape = DEFAULT_SHAPE, **knobs: Any) -> RequestTable:
    """A run of which only the knobs named disturb anything."""
    return simulate_run(World(**{"name": "test", "request_noise": 0.0, **knobs}), 1, shape)


def slow_all(run: RequestTable) -> Values:
    """How much longer each request took than undisturbed: log."""
    steady_ms = 1e3 * (FIRST_TOKEN_S + TOKEN_S * (run.tokens - 1))
    return np.log(run.figures["e2e_ms"] / steady_ms)


def slowness(run: RequestTable, arm: int) -> Values:
    """The same of an arm's requests, in the order they were sent."""
    rows = np.flatnonzero(run.arm == arm)
    return slow_all(run)[rows[np.argsort(run.start_s[rows])]]


def test_control_round_stands_in_the_middle_and_asks_the_baseline_twice():
    run = simulate()
    assert set(run.round[run.arm == 2].tolist()) == {2}
    assert set(run.arm[run.round == 2].tolist()) == {0, 2}


def test_true_speed_up_divides_the_times_of_the_variant_alone():
    run = simulate(true_speed_up=1.5)
    assert slowness(run, 0) == pytest.approx(0, abs=1e-6)
    assert slowness(run, 1) == pytest.approx(-np.log(1.5))


def test_prompt_spread_is_a_prompts_own_in_every_round():
    run = simulate(prompt_spread=0.2)
    rows = run.arm == 1
    logs = np.log(run.figures["tpot_ms"][rows] / 45)
    by_prompt = [logs[run.prompt[rows] == prompt] for prompt in range(len(run.prompts))]

    assert max(np.ptp(values) for values in by_prompt) < 1e-6
    assert np.std([values[0] for values in by_prompt]) == pytest.approx(0.2, rel=0.2)


def test_drift_slows_both_arms_from_begin_to_end():
    ends = [slowness(simulate(drift=0.15), arm)[[0, -1]] for arm in (0, 1)]
    assert np.abs(ends)[:, 0] == pytest.approx(0, abs=0.01)
    assert np.abs(ends)[:, 1] == pytest.approx(0.15, abs=0.02)


def test_chained_noise_is_alike_from_request_to_request_of_both_arms():
    run = simulate(chained_noise=0.05)
    log = slow_all(run)[np.lexsort((run.end_s, run.start_s))]

    assert log.std() == pytest.approx(0.05, rel=0.3)
    assert np.corrcoef(log[:-4], log[4:])[0, 1] > 0.5


def test_tail_of_the_first_token_is_ten_times_for_its_share():
    run = simulate(first_token_tail=0.05)
    times = run.figures["ttft_ms"] / 1e3 / FIRST_TOKEN_S

    assert np.mean(times >= 10) == pytest.approx(0.05, abs=0.02)
    assert times.max() <= world_records.LONGEST_FIRST_TOKEN + 1e-6
    assert run.figures["tpot_ms"] == pytest.approx(45)


def correlate_arms(run: RequestTable) -> float:
    """How alike the slowness of both arms is, request by request of the same prompt and round."""
    order = np.lexsort((run.arm, run.prompt, run.round))
    order = order[run.round[order] != run.round[run.arm == 2][0]]
    base, variant = slow_all(run)[order].reshape(-1, 2).T
    return float(np.corrcoef(base, variant)[0, 1])


def test_own_noise_of_one_server_is_not_the_others_and_a_wave_is():
    assert abs(correlate_arms(simulate(own_noise=0.05, own_noise_s=200))) < 0.5
    assert correlate_arms(simulate(wave=0.05)) > 0.9


def test_start_is_one_factor_of_a_server_for_the_whole_run():
    run = simulate(start_spread=0.03)
    factors = [slowness(run, arm) for arm in (0, 1)]
    assert [np.ptp(values) < 1e-6 for values in factors] == [True, True]
    assert abs(factors[0][0] - factors[1][0]) > 1e-3


def test_restart_draws_a_new_factor_and_names_a_new_start():
    run = simulate(shape=STARTS_SHAPE, start_spread=0.03)
    rows = run.arm == 1
    factors = np.round(slow_all(run)[rows], 6)

    assert len(np.unique(factors)) == len(np.unique(run.start[rows])) == 6


def test_cold_variant_is_slower_at_first_and_warm_after_a_tenth():
    run = simulate(cold=0.3)
    log = slowness(run, 1)

    assert log[0] == pytest.approx(np.log(1.3), abs=0.03)
    assert log[len(log) // 8 :] == pytest.approx(0, abs=1e-6)
    assert slowness(run, 0) == pytest.approx(0, abs=1e-6)


def test_slow_requests_are_the_variants_and_of_their_share():
    run = simulate(slow_share=0.15, slow_times=4)
    assert np.mean(np.isclose(slowness(run, 1), np.log(4))) == pytest.approx(0.15, abs=0.05)
    assert slowness(run, 0) == pytest.approx(0, abs=1e-6)


def test_noise_touches_what_runs_while_it_lasts():
    half_speed = ServerClock(np.array([0.0, 10.0, 20.0, 40.0]), np.array([0.0, 10.0, 15.0, 35.0]))
    assert [half_speed.find_end(begin_s, 4) for begin_s in (0, 8, 12, 24)] == pytest.approx(
        [4, 14, 20, 28]
    )


def test_failing_requests_are_the_variants_and_of_their_share():
    run = simulate(fail_share=0.1, slow_times=4)
    assert set(run.arm[run.failed].tolist()) == {1}
    assert run.failed[run.arm == 1].mean() == pytest.approx(0.1, abs=0.04)


def test_class_speed_ups_are_of_the_first_classes():
    run = simulate(shape=QUICK_SHAPE, class_speed_ups=(3.0,), other_classes=0.5)
    order = np.argsort(run.start_s)
    class_ = run.class_[order][run.arm[order] == 1]
    times = np.exp(-slowness(run, 1))
    assert times[class_ == 0] == pytest.approx(3.0)
    assert times[class_ > 0] == pytest.approx(0.5)


@pytest.mark.parametrize("law", ["normal", "exponential", "two points"])
def test_prompts_of_every_law_have_mean_0(law):
    world = World(name="test", prompt_spread=0.2, prompt_law=law)
    gains = world_records.draw_gains(world, 100_000, np.random.default_rng(1))
    assert gains.mean() == pytest.approx(0, abs=0.01)


def test_tail_of_requests_touches_its_share_of_both_arms():
    run = simulate(request_tail=0.05)
    for arm in (0, 1):
        assert np.mean(slowness(run, arm) > 1e-6) == pytest.approx(0.05, abs=0.03)


def test_episode_slows_both_servers_while_it_lasts():
    quiet = simulate()
    busy = simulate(episodes_per_hour=6)
    assert quiet.figures["e2e_ms"].max() < busy.figures["e2e_ms"].max()
    slowest = np.exp(np.concatenate([slowness(busy, arm) for arm in (0, 1)]).max())
    assert 1.5 < slowest <= EPISODE_TIMES + 0.01


def test_job_of_the_clock_slows_some_requests_every_minute():
    run = simulate(has_cron=True)
    is_slow = np.concatenate([slowness(run, arm) for arm in (0, 1)]) > 0.05
    assert 0.05 < is_slow.mean() < 0.6
