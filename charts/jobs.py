"""What every suspended CronJob has in common: a Job's template that somebody instantiates by hand.

Invariant: no schedule ever starts anything. A Job's template can never be changed once made and a synced Job
would run at every deploy, so what runs to an end is declared as a CronJob and started by `kubectl create job`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from charts.manifest import COMPONENT, IGNORE_HEALTH, NAME, PART_OF, Object, build_object, object_labels, sync_wave
from tandem.spec import names

WAVE = 3  # with the servers: a sync that waited for a suspended object would wait for ever
NEVER_SCHEDULE = "0 0 31 2 *"  # no February has this day; the field must be filled, even of a suspended CronJob
JOB_TTL_S = 7 * 24 * 3600  # a finished Job's status, for whoever looks after a weekend
# A CronJob deletes finished Jobs beyond these, those made by hand too; left out, it keeps 3 and 1
JOB_HISTORY_LIMIT = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """One thing to run to its end.

    Args:
        name, namespace: of the CronJob. component: the label that network policies select by.
        annotations: annotations for whoever looks at it.
        deadline_s: most seconds from the Job's making, waiting for a node included.
        retries: failures of a container or a pod that are made good before the Job has failed.
        pod_annotations, pod: the pod's.
    """

    name: str
    namespace: str
    component: str
    annotations: Mapping[str, str]
    deadline_s: int
    retries: int
    pod_annotations: Mapping[str, str]
    pod: Object


def build_cron_job(job: JobSpec) -> Object:
    """Return the suspended CronJob of `job`."""
    selector_labels = {NAME: job.name, COMPONENT: job.component, **PART_OF}
    template: Object = {"labels": selector_labels}
    if job.pod_annotations:
        template["annotations"] = dict(job.pod_annotations)
    spec = {
        "schedule": NEVER_SCHEDULE,
        "suspend": True,
        "concurrencyPolicy": "Forbid",
        "successfulJobsHistoryLimit": JOB_HISTORY_LIMIT,
        "failedJobsHistoryLimit": JOB_HISTORY_LIMIT,
        "jobTemplate": {
            "metadata": {"labels": selector_labels},
            "spec": {
                "activeDeadlineSeconds": job.deadline_s,
                "backoffLimit": job.retries,
                # a second pod only once the first is gone: it holds the devices, and what it has on local disk
                "podReplacementPolicy": "Failed",
                "ttlSecondsAfterFinished": JOB_TTL_S,
                "template": {"metadata": template, "spec": job.pod},
            },
        },
    }
    start_command = {"tandem/start": names.start_command(job.namespace, job.name)}
    return build_object(
        "batch/v1", "CronJob", job.name, {"spec": spec}, namespace=job.namespace,
        labels=object_labels(job.name, job.component),
        annotations={**sync_wave(WAVE), **IGNORE_HEALTH, **job.annotations, **start_command},
    )  # fmt: skip
