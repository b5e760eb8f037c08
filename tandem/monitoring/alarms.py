"""All alarms of an environment, and the composites that notify of them.

Invariant: a metric alarm notifies nobody; each belongs to one composite, and every composite is muted while the fleet
is parked. Names are unique, and rules keep CloudWatch's limits however many variants there are.

One composite for each kind of fault: a composite that is in alarm already says nothing of a second alarm, so a slow arm
must not hide a dead one.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from tandem.monitoring import bench_alarms as bench
from tandem.monitoring import serving_alarms as serving
from tandem.monitoring.alarm import MAX_NAME_CHARACTERS, EnvironmentAlarms, MetricAlarm, build_composites
from tandem.monitoring.scope import MonitoringScope

CALL_ANCHOR = "when-you-are-called"
_DIGEST_CHARACTERS = 8

# composite -> the alarms it holds, by their anchor, and what it says
COMPOSITE_KINDS: dict[str, tuple[tuple[str, ...], str]] = {
    "serving": (
        (serving.UNREADY_SERVER, serving.IDLE_NODES),
        "a server does not come up, or nodes live on which nothing runs",
    ),
    # apart, for it is false where only one variant was raised on purpose
    "starting": ((serving.NO_CONTAINER,), "a server runs nothing while another variant runs"),
    "requests": ((bench.ERRORS,), "requests fail"),
    "drafting": ((bench.ACCEPTANCE,), "fewer drafted tokens are accepted"),
    "latency": ((bench.TTFT, bench.TPOT), "an arm is slower than in the reference run"),
    "publishing": ((bench.PUBLISHING_BACKLOG,), "measured rounds do not reach CloudWatch"),
}


def build_alarms(scope: MonitoringScope) -> EnvironmentAlarms:
    """Return every alarm of an environment, what mutes them and what notifies."""
    suppressor = serving.build_suppressor(scope)
    metric_alarms = _rename_duplicates([*serving.build_serving_alarms(scope), *bench.build_bench_alarms(scope)])
    composites = build_composites(scope.environment, COMPOSITE_KINDS, CALL_ANCHOR, metric_alarms, suppressor)
    return EnvironmentAlarms(alarms=metric_alarms, suppressor=suppressor, composites=tuple(composites))


def list_coverage_gaps(scope: MonitoringScope) -> tuple[str, ...]:
    """Return what no alarm of an environment sees: a sentence each, the reason behind its first colon."""
    mute_gap = "Nothing is muted while the fleet is parked: without Container Insights nobody counts the nodes."
    mute_gaps = [] if serving.build_suppressor(scope) else [mute_gap]
    return (*mute_gaps, *serving.list_coverage_gaps(scope), *bench.list_coverage_gaps(scope))


def _rename_duplicates(metric_alarms: Sequence[MetricAlarm]) -> tuple[MetricAlarm, ...]:
    """Tell apart names that are alike, and cut those that are too long.

    Names hold dashes themselves: variant `b-c` of experiment `a` and `c` of `a-b` join to one name.
    """
    counts = Counter(alarm.name for alarm in metric_alarms)
    renamed_alarms = []
    for alarm in metric_alarms:
        name = alarm.name
        if counts[name] > 1 or len(name) > MAX_NAME_CHARACTERS:
            digest = hashlib.sha256(repr((alarm.anchor, alarm.lines)).encode()).hexdigest()[:_DIGEST_CHARACTERS]
            name = f"{name[: MAX_NAME_CHARACTERS - len(digest) - 1]}-{digest}"
        renamed_alarms.append(replace(alarm, name=name))
    return tuple(renamed_alarms)
