"""Publication of a folder of records to CloudWatch and S3: destination, rounds and files.

Invariant: figures of simulated servers go to a separate namespace; the run's manifest says whether
servers are.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tandem.bench.figures.datapoints import read_rounds
from tandem.bench.records.manifest import read_manifest
from tandem.errors import TandemError
from tandem.publish.clients import PublishClients, connect
from tandem.publish.publisher import PublishReport, RunDestination, RunPublisher
from tandem.run.run_values import BenchTask

# the last files announce the run, after every file that they name
RUN_FILES = (
    "counters.jsonl",
    "restarts.jsonl",
    "rounds.jsonl",
    "warmup.jsonl",
    "summary.json",
    "manifest.json",
)


def publish_rounds(
    destination: RunDestination,
    folder: Path,
    clients: PublishClients,
    *,
    files: Iterable[str] = (),
    end_s: float = float("inf"),
) -> PublishReport:
    """Publish the unpublished rounds of a folder, then files of it.

    Args:
        destination: in CloudWatch and S3.
        folder: of the run.
        clients: boto3's.
        files: names; missing ones are skipped.
        end_s: limit on the monotonic clock, as for RunPublisher.

    Raises:
        TandemError: the folder cannot be read; AWS refused, or cannot be reached.
    """
    publisher = RunPublisher(destination, folder, clients, end_s=end_s)
    rounds = read_rounds(folder, destination.experiment, publisher.published_rounds)
    return publisher.publish(rounds, [folder / name for name in files if (folder / name).is_file()])


def publish_confirmed(task: BenchTask, folder: Path, *, end_s: float = float("inf")) -> list[str]:
    """Publish the rounds of a task's folder; return sentences on data not yet or never published.

    Args:
        task: names the destination.
        folder: of the run, made of the confirmed rounds; nothing is published from an empty one.
        end_s: limit on the monotonic clock.
    """
    if not task.confirmed:
        return []
    try:
        run = read_manifest(folder)
        destination = RunDestination(
            environment=task.environment,
            account=task.account,
            experiment=task.experiment,
            variants=tuple(arm.name for arm in run.arms),
            run_id=task.run,
            bucket=task.bucket,
            is_simulated=bool(run.simulated),
        )
        clients = connect(task.region, connect_s=3.0, read_s=5.0, attempts=3)
        report = publish_rounds(destination, folder, clients, end_s=end_s)
    except TandemError as fault:
        return [str(fault)]
    return [*report.lost, *report.left, *report.notes]
