"""Committed environments with other settings of their monitoring."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

import hosted

from tandem.declarations.environment import ReferenceRun, ReferenceValue
from tandem.monitoring.alarm import EnvironmentAlarms, MetricAlarm
from tandem.monitoring.alarms import build_alarms
from tandem.monitoring.scope import MonitoringScope

# limits of CloudWatch that only tests ask for
MAX_NAME_CHARACTERS = 255
MAX_DESCRIPTION_CHARACTERS = 1024
MAX_EVALUATION_S = 86_400  # periods x period_s, for a period below an hour

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
    result = hosted.watched(name)
    settings = result.environment.observability.model_copy(update=observability)
    members = tuple(
        item for item in result.experiments if only is None or item.experiment.name in only
    )
    environment = result.environment.model_copy(update={"observability": settings})
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
    suffix = f"-{what}-{EXPERIMENT}-{variant}" if variant else f"-{what}"
    (result,) = [
        alarm
        for alarm in found.alarms
        if alarm.anchor == what and re.search(rf"{suffix}(-|$)", alarm.name)
    ]
    return result


def hold_texts(alarm: MetricAlarm, environment: str) -> None:
    """Hold that an alarm says what is wrong, why at this level, and what to do."""
    assert len(alarm.description) <= MAX_DESCRIPTION_CHARACTERS
    assert alarm.description.endswith(f"docs/{alarm.page}#{alarm.anchor}")
    assert alarm.sentence.endswith(".")
    assert environment in alarm.sentence
    assert re.search(r"[:;] ", alarm.reason), alarm.reason


def every(**observability) -> EnvironmentAlarms:
    """All alarms of the post's environment, its experiment alone, with a reference."""
    return build_alarms(watched(only=["post"], **({"reference": REFERENCE} | observability)))
