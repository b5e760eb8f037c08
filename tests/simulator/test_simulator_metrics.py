"""The /metrics pages: each runtime's own figures of the same steps, in virtual time and over
HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families
from simulator_client import CHAT, ask, chat, until
from virtual_engine import run_engine

from tandem.simulator.engine import EngineRequest, EngineSteps
from tandem.simulator.metrics_page import MetricsPage
from tandem.simulator.settings import PromptClassSettings, SimulatorSettings

Samples = dict[str, float]


def build_virtual_page(settings, engine_run):
    """The figures of what `run_engine` yields, as the server would show them after it."""
    page = MetricsPage(settings)
    for steps, finished_requests in engine_run:
        page.record_steps(steps)
        for engine_request in finished_requests:
            page.record_end(engine_request, "length", engine_request.output_tokens)
    return page


def knobs(**more: object) -> SimulatorSettings:
    base = {
        "model": "m",
        "law": "vllm",
        "num_speculative_tokens": 3,
        "classes": {"default": PromptClassSettings(acceptance=0.7)},
    }
    return SimulatorSettings(**{**base, **more})


OLD = {"runtime": "nxdi-v0", "law": "nxdi", "num_speculative_tokens": 7}


def samples(page: str) -> Samples:
    """Every sample by its name and labels, model and engine left out."""
    result = [
        sample for family in text_string_to_metric_families(page) for sample in family.samples
    ]
    return {
        entry.name.removeprefix("vllm:")
        + "".join(
            f"{{{name}={value}}}"
            for name, value in sorted(entry.labels.items())
            if name not in {"model_name", "engine"}
        ): entry.value
        for entry in result
    }


class VirtualRun:
    """A run in virtual time, its page, and what truly happened."""

    def __init__(self, settings: SimulatorSettings) -> None:
        self.jobs = [
            EngineRequest(number + 1, "default", 50, 60, number * 0.3) for number in range(40)
        ]
        self.steps: list[EngineSteps] = []
        self.page = samples(
            build_virtual_page(settings, self._noted(settings)).render_text(0, 0, 0).decode()
        )
        self.decode_steps = sum(job.step_count for job in self.jobs)
        self.tokens = sum(job.output_tokens for job in self.jobs)
        self.accepted = sum(int(job.step_tokens.sum()) - job.step_count for job in self.jobs)

    def _noted(
        self, settings: SimulatorSettings
    ) -> Iterator[tuple[EngineSteps, list[EngineRequest]]]:
        for steps, end in run_engine(settings, self.jobs):
            self.steps.append(steps)
            yield steps, end


@pytest.fixture(scope="module")
def new():
    return VirtualRun(knobs())


@pytest.fixture(scope="module")
def old():
    return VirtualRun(knobs(**OLD))


def test_v1_counts_every_token(new):
    assert new.page["generation_tokens_total"] == new.tokens


def test_v0_counts_one_token_for_each_sequence_and_step(old):
    assert old.page["generation_tokens_total"] == old.decode_steps + len(old.jobs)
    assert old.page["generation_tokens_total"] < old.tokens / 2


@pytest.mark.parametrize("ran", ["new", "old"])
def test_the_tokens_of_ended_requests_are_true_everywhere(ran, request):
    result = request.getfixturevalue(ran)
    assert result.page["request_generation_tokens_sum"] == result.tokens
    assert (
        result.page["request_prompt_tokens_sum"]
        == result.page["prompt_tokens_total"]
        == 50 * len(result.jobs)
    )


@pytest.mark.parametrize(
    ("ran", "name"),
    [("new", "inter_token_latency_seconds"), ("old", "time_per_output_token_seconds")],
)
def test_token_latency_is_observed_once_a_step(ran, name, request):
    result = request.getfixturevalue(ran)
    wait_s = sum(job.end_s - job.first_s for job in result.jobs)
    assert result.page[f"{name}_count"] == result.decode_steps
    assert result.page[f"{name}_sum"] == pytest.approx(wait_s)


def test_live_counters_say_what_was_drafted_and_accepted(new):
    assert new.page["spec_decode_num_drafts_total"] == new.decode_steps
    assert new.page["spec_decode_num_draft_tokens_total"] == 3 * new.decode_steps
    assert new.page["spec_decode_num_accepted_tokens_total"] == new.accepted


def test_the_places_of_a_draft_add_up_and_fall(new):
    places = [
        new.page[f"spec_decode_num_accepted_tokens_per_pos_total{{position={place}}}"]
        for place in range(3)
    ]
    assert sum(places) == new.accepted
    assert places == sorted(places, reverse=True)
    assert len(set(places)) == 3


def test_flat_counters_stay_at_0():
    page = VirtualRun(knobs(spec_counters="flat")).page
    draft_counters = {
        name: value
        for name, value in page.items()
        if name.startswith("spec_decode") and "_created" not in name
    }
    assert len(draft_counters) == 6
    assert set(draft_counters.values()) == {0}


def test_who_has_read_the_last_byte_finds_the_request_counted(simulator):
    for requests in range(1, 6):
        ask(simulator.url, CHAT, chat())
        page = samples(ask(simulator.url, "/metrics").body.decode())

        assert page["request_success_total{finished_reason=stop}"] == requests
        assert page["generation_tokens_total"] == 30 * requests


def test_gauges_show_who_runs_and_who_waits(start_simulator):
    busy = start_simulator(max_num_seqs=2, step_ms=(30.0,))
    for _ in range(5):
        threading.Thread(
            target=ask, args=(busy.url, CHAT, chat(ignore_eos=True)), daemon=True
        ).start()

    def now() -> tuple[float, float]:
        page = samples(ask(busy.url, "/metrics").body.decode())
        return page["num_requests_running"], page["num_requests_waiting"]

    assert until(lambda: now() == (2, 3))
    assert samples(ask(busy.url, "/metrics").body.decode())["kv_cache_usage_perc"] > 0
