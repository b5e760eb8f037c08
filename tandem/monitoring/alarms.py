"""All alarms of an environment, and the composites that notify of them.

Invariant: a metric alarm notifies nobody; each belongs to one composite, and every composite is muted while the fleet
is parked. Names are unique, and rules keep CloudWatch's limits however many variants there are.

One composite for each kind of fault: a composite that is in alarm already says nothing of a second alarm, so a slow arm
must not hide a dead one.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tandem.monitoring import bench_alarms as bench
from tandem.monitoring import serving_alarms as serving
from tandem.monitoring.alarm import (
    MAX_CHILDREN,
    MAX_NAME_CHARACTERS,
    MAX_RULE_CHARACTERS,
    CompositeAlarm,
    EnvironmentAlarms,
    MetricAlarm,
)
from tandem.monitoring.scope import MonitoringScope
from tandem.spec import names
from tandem.spec.environment import Environment

CALL_ANCHOR = "when-you-are-called"
# A fleet that is parked takes its servers along: requests fail, pods go, and three minutes later the suppressor says
# so, one or two more being what Container Insights and the log take. Nobody is called within that time.
SUPPRESSOR_WAIT_S = 300
# As long after a fleet woke: what is still in alarm then is told of.
SUPPRESSOR_EXTENSION_S = 300
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
    metric_alarms = _rename_duplicates((*serving.build_serving_alarms(scope), *bench.build_bench_alarms(scope)))
    return EnvironmentAlarms(
        alarms=metric_alarms,
        suppressor=suppressor,
        composites=tuple(_build_composites(scope.environment, metric_alarms, suppressor)),
        coverage_gaps=list_coverage_gaps(scope),
    )


def list_coverage_gaps(scope: MonitoringScope) -> tuple[str, ...]:
    """Return what no alarm of an environment sees: a sentence each, the reason behind its first colon."""
    return (
        *_list_mute_gaps(serving.build_suppressor(scope)),
        *serving.list_coverage_gaps(scope),
        *bench.list_coverage_gaps(scope),
    )


def _list_mute_gaps(suppressor: MetricAlarm | None) -> Iterator[str]:
    if suppressor is None:
        yield "Nothing is muted while the fleet is parked: without Container Insights nobody counts the nodes."


def _rename_duplicates(metric_alarms: Sequence[MetricAlarm]) -> tuple[MetricAlarm, ...]:
    """Tell apart names that are alike, and cut those that are too long.

    Names hold dashes themselves: variant `b-c` of experiment `a` and `c` of `a-b` join to one name.
    """
    name_counts = Counter(alarm.name for alarm in metric_alarms)
    bad_names = {name for name, count in name_counts.items() if count > 1 or len(name) > MAX_NAME_CHARACTERS}
    return tuple(
        replace(alarm, name=_append_digest(alarm)) if alarm.name in bad_names else alarm for alarm in metric_alarms
    )


def _append_digest(alarm: MetricAlarm) -> str:
    digest = hashlib.sha256(repr((alarm.anchor, alarm.lines)).encode()).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{alarm.name[: MAX_NAME_CHARACTERS - len(digest) - 1]}-{digest}"


def _build_composites(
    environment: Environment, metric_alarms: Sequence[MetricAlarm], suppressor: MetricAlarm | None
) -> Iterator[CompositeAlarm]:
    for kind, (anchors, sentence) in COMPOSITE_KINDS.items():
        groups = list(_group_names([alarm.name for alarm in metric_alarms if alarm.anchor in anchors]))
        for group_number, group in enumerate(groups, 1):
            yield CompositeAlarm(
                name=names.alarm_name(
                    environment, names.NOTIFY, kind, *([str(group_number)] if len(groups) > 1 else [])
                ),
                sentence=f"{environment.name}: {sentence}.",
                anchor=CALL_ANCHOR,
                alarms=group,
                suppressor=suppressor.name if suppressor else None,
                wait_s=SUPPRESSOR_WAIT_S if suppressor else 0,
                extension_s=SUPPRESSOR_EXTENSION_S if suppressor else 0,
            )


def _group_names(children: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Split names so that each rule keeps CloudWatch's limits; the rule is measured with ARNs, which are longer."""
    group: list[str] = []
    length = 0
    for child in children:
        child_length = len(f'ALARM("{_LONGEST_ARN}{child}") OR ')
        if group and (len(group) == MAX_CHILDREN or length + child_length > MAX_RULE_CHARACTERS):
            yield tuple(group)
            group, length = [], 0
        group.append(child)
        length += child_length
    if group:
        yield tuple(group)


_LONGEST_ARN = "arn:aws-us-gov:cloudwatch:ap-southeast-4:111122223333:alarm:"
