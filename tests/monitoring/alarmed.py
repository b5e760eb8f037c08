"""Committed environments with other settings, and series in which things happen."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

import hosted
from doubles.cloudwatch.series_store import MetricKey, SeriesStore

from tandem.declarations.environment import ReferenceRun, ReferenceValue
from tandem.monitoring.alarm import EnvironmentAlarms, MetricAlarm
from tandem.monitoring.alarms import build_alarms
from tandem.monitoring.scope import MonitoringScope

# limits of CloudWatch that only tests ask for
MAX_NAME_CHARACTERS = 255
MAX_DESCRIPTION_CHARACTERS = 1024
MAX_EVALUATION_S = 86_400  # periods x period_s, for a period below an hour
START = 1_699_999_200  # a whole quarter-hour
MINUTE = 60
QUARTER = 15  # minutes
HOUR = 60  # minutes

EXPERIMENT = "post"
BASELINE = "qwen-vllm"
DRAFTING = "qwen-sd-vllm"
REFERENCE = ReferenceRun(
    run="20261121T101500Z-0a1b2c3d",
    values=(
        ReferenceValue(
            experiment=EXPERIMENT,
            variant=BASELINE,
            prompt_class="open",
            concurrency=4,
            ttft_ms=200,
            tpot_ms=45,
        ),
        ReferenceValue(
            experiment=EXPERIMENT,
            variant=DRAFTING,
            prompt_class="repeat",
            concurrency=4,
            tpot_ms=15,
            acceptance_length=4,
        ),
    ),
)


def watched(
    name: str = "post-us-east-2", *, only: Iterable[str] | None = None, **observability
) -> MonitoringScope:
    """A committed environment; `only` some of its experiments, and other settings of
    `observability`."""
    whole = hosted.watched(name)
    settings = whole.environment.observability.model_copy(update=observability)
    members = tuple(one for one in whole.experiments if only is None or one.experiment.name in only)
    environment = whole.environment.model_copy(update={"observability": settings})
    return MonitoringScope(environment=environment, experiments=members)


def crowded(count: int) -> MonitoringScope:
    """The post's environment with one experiment of so many speculating variants."""
    plain = watched(only=["post"])
    (watching,) = plain.experiments
    baseline, drafting = watching.experiment.variants
    more = tuple(
        drafting.model_copy(update={"name": f"{drafting.name}-{at:03}"}) for at in range(count - 1)
    )
    experiment = watching.experiment.model_copy(update={"variants": (baseline, *more)})
    return MonitoringScope(
        environment=plain.environment, experiments=(replace(watching, experiment=experiment),)
    )


def of(found: EnvironmentAlarms, what: str, variant: str | None = None) -> MetricAlarm:
    """The one alarm on something; of one variant of the post's experiment."""
    named = f"-{what}-{EXPERIMENT}-{variant}" if variant else f"-{what}"
    (one,) = [
        alarm
        for alarm in found.alarms
        if alarm.anchor == what and re.search(rf"{named}(-|$)", alarm.name)
    ]
    return one


def every(**observability) -> EnvironmentAlarms:
    """All alarms of the post's environment, its experiment alone, with a reference."""
    return build_alarms(watched(only=["post"], **({"reference": REFERENCE} | observability)))


class Happening:
    """A store in which things happen, minute by minute after START."""

    def __init__(self, environment: str = "post-us-east-2", experiment: str = EXPERIMENT) -> None:
        self.series = SeriesStore()
        self._environment = environment
        self._experiment = experiment

    def put(
        self, namespace: str, metric: str, value: float, minutes: Iterable[int], **dimensions: str
    ) -> Happening:
        key = MetricKey.from_dimensions(namespace, metric, tuple(dimensions.items()))
        for minute in minutes:
            self.series.add(key, START + MINUTE * minute, {value: 1})
        return self

    def nodes(self, count: int, minutes: Iterable[int]) -> Happening:
        return self.put(f"Tandem/{self._environment}", "accelerator_nodes", count, minutes)

    def _insights(
        self, metric: str, value: float, minutes: Iterable[int], **dimensions: str
    ) -> Happening:
        place = {
            "Namespace": f"tandem-{self._experiment}",
            "ClusterName": f"tandem-{self._environment}",
        }
        return self.put("ContainerInsights", metric, value, minutes, **dimensions, **place)

    def container(self, variant: str, minutes: Iterable[int], restarts: int = 0) -> Happening:
        """A container of the server's pod is on a node."""
        return self._insights(
            "pod_number_of_container_restarts", restarts, minutes, PodName=variant
        )

    def ready(self, variant: str, minutes: Iterable[int]) -> Happening:
        return self._insights("service_number_of_running_pods", 1, minutes, Service=variant)

    def running(self, pods: int, minutes: Iterable[int]) -> Happening:
        """So many pods of the experiment are in phase Running; of none nothing is sent."""
        return self._insights("namespace_number_of_running_pods", pods, minutes) if pods else self

    def serves(self, variant: str, minutes: Iterable[int]) -> Happening:
        found = list(minutes)
        return self.container(variant, found).ready(variant, found).running(1, found)

    def bench(
        self,
        metric: str,
        values: Iterable[float],
        minute: int,
        *,
        variant: str,
        class_: str = "all",
        load: str = "all",
    ) -> Happening:
        """Values of one turn, all in one minute."""
        cell = {
            "Experiment": self._experiment,
            "Variant": variant,
            "PromptClass": class_,
            "Concurrency": load,
        }
        for value in values:
            self.put(f"Tandem/{self._environment}", metric, value, [minute], **cell)
        return self
