"""What a dashboard says of a real run is what its summary says: the same quantiles, and the same speed-up of them."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from hosted import graph, watched

from rehearsal.cloudwatch.expression import evaluate_range
from rehearsal.cloudwatch.series_store import MetricKey, SeriesStore
from tandem.bench.datapoints import read_rounds
from tandem.bench.summary import summarize_run
from tandem.cli.publish import list_dimensions
from tandem.metrics import CATALOGUE
from tandem.monitoring import experiment_dashboard
from tandem.monitoring.scope import ExperimentScope, SuiteTraffic
from tandem.monitoring.widget import Dashboard
from tandem.publish.batch import round_values
from tandem.spec.experiment import Variant

REAL_RUN = Path(__file__).parents[1] / "benchmarks" / "real_run" / "ngram"
BASE, DRAFTED = "base", "ngram"
HALF_PERCENT = 0.005 * 1.001  # what rounding to three digits changes a value by
ROWS = {
    "E2E latency": "e2e_ms", "TPOT": "tpot_ms", "TTFT": "ttft_ms", "Output tokens per stream": "output_tokens_per_s",
    "Output tokens of the system": "system_output_tokens_per_s",
}  # fmt: skip


@cache
def medians() -> dict[tuple[str, int | None, str, str], float]:
    """The p50 of the run's summary, by class, concurrency, metric and arm."""
    return {(cell.class_, cell.concurrency, cell.metric, cell.arm): cell.p50 for cell in summarize_run(REAL_RUN).cells}


CELLS = sorted({(class_, streams) for class_, streams, *_ in medians() if streams is not None})


@cache
def published() -> SeriesStore:
    """What CloudWatch would hold of the run."""
    series = SeriesStore()
    for one in read_rounds(REAL_RUN):
        for row in one.rows:
            key = MetricKey.from_dimensions("Tandem/post-us-east-2", row.metric, list_dimensions("post", row))
            series.add(key, row.at_s, Counter(round_values(row.values).tolist()))
    return series


def shown(class_: str, streams: int) -> Dashboard:
    """The dashboard of the run's two arms at one class and concurrency."""
    whole = watched("post-us-east-2")
    variants = (
        Variant(name=BASE, mode="none"),
        Variant(name=DRAFTED, mode="fused", draft="Qwen/Qwen3-1.7B", num_speculative_tokens=7),
    )
    experiment = whole.experiments[0].experiment.model_copy(update={"variants": variants, "sweep": None})
    traffic = SuiteTraffic(suites={"own": (class_,)}, concurrencies=(streams,))
    return experiment_dashboard.build_experiment_dashboard(
        whole.environment, ExperimentScope(experiment=experiment, traffic=traffic)
    )


def over_the_run(dashboard: Dashboard, title: str) -> dict[str, float]:
    start_s, end_s = published().span() or (0, 0)
    found = evaluate_range(graph(dashboard, title).lines, published(), start_s, end_s)
    return {result.label: value for result in found for _, value in result.points}


@pytest.mark.parametrize(("class_", "streams"), CELLS)
@pytest.mark.parametrize("title", ROWS)
def test_the_median_of_an_arm_is_that_of_the_summary(title: str, class_: str, streams: int) -> None:
    found = over_the_run(shown(class_, streams), f"{title}, p50")

    for arm in (BASE, DRAFTED):
        assert found[arm] == pytest.approx(medians()[class_, streams, ROWS[title], arm], rel=HALF_PERCENT)


@pytest.mark.parametrize(("class_", "streams"), CELLS)
@pytest.mark.parametrize("title", ROWS)
def test_the_speed_up_is_that_of_the_summarys_medians(title: str, class_: str, streams: int) -> None:
    base, drafted = (medians()[class_, streams, ROWS[title], arm] for arm in (BASE, DRAFTED))
    expected = base / drafted if CATALOGUE[ROWS[title]].better == "lower" else drafted / base

    found = over_the_run(shown(class_, streams), f"{title}, speed-up")

    assert found == {DRAFTED: pytest.approx(expected, rel=2 * HALF_PERCENT)}
