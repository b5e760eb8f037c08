"""All alarms of an environment, and the composites that notify of them.

Invariant: a metric alarm notifies nobody; each belongs to one composite, and every composite is
muted while the fleet is parked. Names are unique, and rules keep CloudWatch's limits however many
variants there are.

Each kind of fault has one composite. A composite that is already in alarm does not report a second
alarm, so a slow arm must not hide a dead one.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tandem.monitoring import bench_alarms as bench
from tandem.monitoring import serving_alarms as serving
from tandem.monitoring.alarm import EnvironmentAlarms, MetricAlarm, build_composites
from tandem.monitoring.scope import MonitoringScope

CALL_ANCHOR = "when-you-are-called"
_DIGEST_CHARACTERS = 8

# composite -> its alarms, by their anchor, and its sentence
COMPOSITE_KINDS: dict[str, tuple[tuple[str, ...], str]] = {
    "serving": (
        (serving.UNREADY_SERVER, serving.IDLE_NODES),
        "a server does not come up, or nodes live on which nothing runs",
    ),
    # separate, because it is false if only one variant was raised on purpose
    "starting": ((serving.NO_CONTAINER,), "a server runs nothing while another variant runs"),
    "requests": ((bench.ERRORS,), "requests fail"),
    "drafting": ((bench.ACCEPTANCE,), "fewer drafted tokens are accepted"),
    "latency": ((bench.TTFT, bench.TPOT), "an arm is slower than in the reference run"),
    "publishing": ((bench.PUBLISHING_BACKLOG,), "measured rounds do not reach CloudWatch"),
}


def build_alarms(scope: MonitoringScope) -> EnvironmentAlarms:
    """Return every alarm of an environment, their suppressor and the composites that notify."""
    suppressor = serving.build_suppressor(scope)
    metric_alarms = _rename_duplicates(
        [*serving.build_serving_alarms(scope), *bench.build_bench_alarms(scope)]
    )
    composites = build_composites(
        scope.environment, COMPOSITE_KINDS, CALL_ANCHOR, metric_alarms, suppressor
    )
    return EnvironmentAlarms(
        alarms=metric_alarms, suppressor=suppressor, composites=tuple(composites)
    )


def list_coverage_gaps(scope: MonitoringScope) -> Iterator[str]:
    """Yield the gaps that no alarm covers, a sentence each, the reason after its first colon."""
    environment = scope.environment
    if not environment.observability.container_insights:
        yield (
            "No server is watched for being ready, and nothing is muted while the fleet is parked:"
            " Container Insights is off."
        )
    for experiment in (member.experiment for member in scope.experiments):
        count = len(experiment.all_variants())
        slots = serving.count_server_slots(environment, experiment)
        if environment.observability.container_insights and not 1 < count <= slots:
            yield (
                f"A server of {experiment.name} that runs nothing (no devices, no mount) is not"
                f" seen while others run: of {count} variants {slots} fit the fleet, and no metric"
                " says which of them was raised."
            )
    if len(scope.experiments) > serving.MAX_NAMESPACES:
        yield (
            "Nodes on which nothing runs are not seen: an alarm reads at most"
            f" {serving.MAX_NAMESPACES} experiments."
        )
    if environment.observability.reference is None:
        yield (
            "No regression of TTFT or TPOT is seen:"
            " observability.reference is null, so there is no level."
        )


def _rename_duplicates(metric_alarms: Sequence[MetricAlarm]) -> tuple[MetricAlarm, ...]:
    """Rename alarms of equal joined names: `b-c` of experiment `a`, and `c` of `a-b`."""
    counts = Counter(alarm.name for alarm in metric_alarms)
    renamed_alarms = []
    for alarm in metric_alarms:
        name = alarm.name
        if counts[name] > 1:
            digest = hashlib.sha256(repr((alarm.anchor, alarm.lines)).encode()).hexdigest()
            name = f"{name}-{digest[:_DIGEST_CHARACTERS]}"
        renamed_alarms.append(replace(alarm, name=name))
    return tuple(renamed_alarms)
