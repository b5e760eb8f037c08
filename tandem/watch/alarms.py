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

from tandem.spec import names
from tandem.spec.environment import Environment
from tandem.watch import bench_alarms as bench
from tandem.watch import serving_alarms as serving
from tandem.watch.alarm import MOST_CHILDREN, MOST_NAME_CHARACTERS, MOST_RULE_CHARACTERS, Alarm, Alarms, Composite
from tandem.watch.scope import Scope

CALLED = "when-you-are-called"
# A fleet that is parked takes its servers along: requests fail, pods go, and three minutes later the suppressor says
# so, one or two more being what Container Insights and the log take. Nobody is called within that time.
WAIT_S = 300
# As long after a fleet woke: what is still in alarm then is told of.
EXTEND_S = 300
_DIGEST_CHARACTERS = 8

# composite -> the alarms it holds, by their anchor, and what it says
KINDS: dict[str, tuple[tuple[str, ...], str]] = {
    "serving": (
        (serving.NOT_READY, serving.NOTHING_RUNS),
        "a server does not come up, or nodes live on which nothing runs",
    ),
    # apart, for it is false where only one variant was raised on purpose
    "starting": ((serving.NOT_STARTED,), "a server runs nothing while another variant runs"),
    "requests": ((bench.ERRORS,), "requests fail"),
    "drafting": ((bench.ACCEPTANCE,), "fewer drafted tokens are accepted"),
    "latency": ((bench.TTFT, bench.TPOT), "an arm is slower than in the reference run"),
    "publishing": ((bench.UNPUBLISHED,), "measured rounds do not reach CloudWatch"),
}


def alarms(scope: Scope) -> Alarms:
    """Return every alarm of an environment, what mutes them and what notifies."""
    parked = serving.parked(scope)
    named = _unique((*serving.serving_alarms(scope), *bench.bench_alarms(scope)))
    return Alarms(
        alarms=named,
        parked=parked,
        composites=tuple(_composites(scope.environment, named, parked)),
        unwatched=unwatched(scope),
    )


def unwatched(scope: Scope) -> tuple[str, ...]:
    """Return what no alarm of an environment sees: a sentence each, the reason behind its first colon."""
    return (*_unmuted(serving.parked(scope)), *serving.unwatched(scope), *bench.unwatched(scope))


def _unmuted(parked: Alarm | None) -> Iterator[str]:
    if parked is None:
        yield "Nothing is muted while the fleet is parked: without Container Insights nobody counts the nodes."


def _unique(found: Sequence[Alarm]) -> tuple[Alarm, ...]:
    """Tell apart names that are alike, and cut those that are too long.

    Names hold dashes themselves: variant `b-c` of experiment `a` and `c` of `a-b` join to one name.
    """
    seen = Counter(alarm.name for alarm in found)
    spoilt = {name for name, count in seen.items() if count > 1 or len(name) > MOST_NAME_CHARACTERS}
    return tuple(replace(alarm, name=_digested(alarm)) if alarm.name in spoilt else alarm for alarm in found)


def _digested(alarm: Alarm) -> str:
    digest = hashlib.sha256(repr((alarm.anchor, alarm.lines)).encode()).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{alarm.name[: MOST_NAME_CHARACTERS - len(digest) - 1]}-{digest}"


def _composites(environment: Environment, found: Sequence[Alarm], parked: Alarm | None) -> Iterator[Composite]:
    for kind, (anchors, says) in KINDS.items():
        groups = list(_groups([alarm.name for alarm in found if alarm.anchor in anchors]))
        for at, group in enumerate(groups, 1):
            yield Composite(
                name=names.alarm(environment, names.NOTIFY, kind, *([str(at)] if len(groups) > 1 else [])),
                says=f"{environment.name}: {says}.",
                anchor=CALLED,
                alarms=group,
                suppressor=parked.name if parked else None,
                wait_s=WAIT_S if parked else 0,
                extend_s=EXTEND_S if parked else 0,
            )


def _groups(children: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Split names so that each rule keeps CloudWatch's limits; the rule is measured with ARNs, which are longer."""
    group: list[str] = []
    length = 0
    for child in children:
        added = len(f'ALARM("{_LONGEST_ARN}{child}") OR ')
        if group and (len(group) == MOST_CHILDREN or length + added > MOST_RULE_CHARACTERS):
            yield tuple(group)
            group, length = [], 0
        group.append(child)
        length += added
    if group:
        yield tuple(group)


_LONGEST_ARN = "arn:aws-us-gov:cloudwatch:ap-southeast-4:111122223333:alarm:"
