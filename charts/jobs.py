"""What every suspended CronJob has in common: a Job's template that somebody instantiates by hand.

Invariant: no schedule ever starts anything. A Job's template can never be changed once made and a synced Job
would run at every deploy, so what runs to an end is declared as a CronJob and started by `kubectl create job`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from charts.manifest import COMPONENT, IGNORED_HEALTH, NAME, PART_OF, labels, wave
from tandem.spec import names

WAVE = 3  # with the servers: a sync that waited for a suspended object would wait for ever
NEVER = "0 0 31 2 *"  # no February has this day; the field must be filled, even of a suspended CronJob
KEPT_S = 7 * 24 * 3600  # a finished Job's status, for whoever looks after a weekend
# A CronJob deletes finished Jobs beyond these, those made by hand too; left out, it keeps 3 and 1
KEPT_JOBS = 10

Spec = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One thing to run to its end.

    Args:
        name, namespace: of the CronJob. component: the label that network policies select by.
        said: annotations for whoever looks at it.
        deadline_s: most seconds from the Job's making, waiting for a node included.
        retries: failures of a container or a pod that are made good before the Job has failed.
        pod_annotations, pod: the pod's.
    """

    name: str
    namespace: str
    component: str
    said: Mapping[str, str]
    deadline_s: int
    retries: int
    pod_annotations: Mapping[str, str]
    pod: Spec


def cron_job(work: Work) -> Spec:
    """Return the suspended CronJob of `work`."""
    marks = {NAME: work.name, COMPONENT: work.component, **PART_OF}
    template: Spec = {"labels": marks}
    if work.pod_annotations:
        template["annotations"] = dict(work.pod_annotations)
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {
            "name": work.name,
            "namespace": work.namespace,
            "labels": labels(work.name, work.component),
            "annotations": {
                **wave(WAVE), **IGNORED_HEALTH, **work.said,
                "tandem/start": names.start_command(work.namespace, work.name),
            },
        },
        "spec": {
            "schedule": NEVER,
            "suspend": True,
            "concurrencyPolicy": "Forbid",
            "successfulJobsHistoryLimit": KEPT_JOBS,
            "failedJobsHistoryLimit": KEPT_JOBS,
            "jobTemplate": {
                "metadata": {"labels": marks},
                "spec": {
                    "activeDeadlineSeconds": work.deadline_s,
                    "backoffLimit": work.retries,
                    # a second pod only once the first is gone: it holds the devices, and what it has on local disk
                    "podReplacementPolicy": "Failed",
                    "ttlSecondsAfterFinished": KEPT_S,
                    "template": {"metadata": template, "spec": work.pod},
                },
            },
        },
    }  # fmt: skip
