"""A run before it is requested: its plan, and everything on which it depends now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from tandem.artifacts.inventory import find_read_fault, read_inventory
from tandem.artifacts.needs import list_needs, merge_needs
from tandem.artifacts.store import ObjectStore
from tandem.artifacts.survey import survey_bucket
from tandem.cli.fleet import format_span
from tandem.cli.image_digests import resolve_digest
from tandem.cli.inputs import CommandInputs
from tandem.cli.project_suites import read_project_suites
from tandem.cli.raise_check import RaiseCheck, build_unarmed_error, check_raise
from tandem.cli.selection import Selection
from tandem.declarations.environment import Environment
from tandem.declarations.experiment import Experiment
from tandem.declarations.names import bucket_name
from tandem.declarations.spec_digest import compute_spec_digest
from tandem.errors import ExternalError, InputError, TandemError
from tandem.guard.fleet_start import RaiseRequest
from tandem.ops.account import AccountClients
from tandem.ops.doctor.context import DoctorContext, Finding
from tandem.ops.doctor.runner import CHECKS, run_checks
from tandem.ops.node_admission import admit_servers
from tandem.ops.status import current_time
from tandem.run import run_plan
from tandem.run.bucket_suites import find_bucket_suites
from tandem.run.run_client import BEAT_LIMIT, RunClient, name_people
from tandem.run.run_estimate import RunEstimate
from tandem.run.run_keys import find_run_id_fault, lease_run
from tandem.run.run_refusals import list_plan_faults, list_refusals
from tandem.run.run_values import RunRecord, RunRequest, estimate_round_s
from tandem.run.suite_findings import judge_bucket_suite
from tandem.shell_command import build_cdk_command, build_tandem_command, quote_command

# what of doctor's checks holds for a run of what is deployed; the others are of a deploy, or ask
# registries
RUN_CHECKS = frozenset(
    {
        "stacks",
        "offering",
        "quota",
        "reservation",
        "block-end",
        "budget",
        "bucket",
        "bucket-key",
        "own-images",
        "suites",
        "fleet",
        "capacity-kind",
        "scaling",
        "schedules",
        "subscriptions",
    }
)
# those that read nothing of the fleet
STAGE_CHECKS = frozenset({"stacks", "bucket", "bucket-key", "own-images"})


@dataclass(frozen=True, kw_only=True)
class RunDraft:
    """A run that may be requested.

    Args:
        inputs: of its plan.
        now: when it was looked at.
        estimate: the plan.
        check: what would stop its fleet, and what is to be known of the reservation.
        faults: why it would be refused now.
        runner_faults: why nobody would take it up.
        findings: of doctor's checks, those that are not ok.
        is_offline: whether no account was read, so that the plan is the files' alone.
    """

    inputs: run_plan.RunPlanInputs
    now: datetime
    estimate: RunEstimate
    check: RaiseCheck
    faults: Sequence[TandemError]
    runner_faults: Sequence[TandemError]
    findings: Sequence[Finding]
    is_offline: bool = False


def draft_offline(
    inputs: CommandInputs, environment: Environment, request: RunRequest, selection: Selection
) -> RunDraft:
    """Return a run as the declared files alone plan it: the bucket counts as empty.

    Raises:
        InputError: the environment hosts no such experiment, the id names no run, or a file of
            prompts that is at hand cannot be used.
    """
    experiment = _find_experiment(inputs, environment, request)
    needs = merge_needs(list_needs(environment.name, [experiment], inputs.catalogue))
    rows = survey_bucket(bucket_name(environment), needs, stored_sets=())
    plan_inputs = run_plan.RunPlanInputs(
        environment=environment,
        experiment=experiment,
        catalogue=inputs.catalogue,
        gaps=run_plan.find_gaps(rows),
        request=request,
        file_suites=read_project_suites(selection, experiment) if request.measures else {},
    )
    plan_inputs = run_plan.complete_hours(plan_inputs)
    return RunDraft(
        inputs=plan_inputs,
        now=current_time(),
        estimate=run_plan.estimate_run(plan_inputs),
        check=RaiseCheck(),
        faults=tuple(list_plan_faults(plan_inputs)),
        runner_faults=(),
        findings=(),
        is_offline=True,
    )


def draft_run(
    client: RunClient,
    inputs: CommandInputs,
    request: RunRequest,
    caller: str,
    earlier_run: RunRecord | None,
) -> RunDraft:
    """Look at everything that a run depends on.

    Raises:
        InputError: no experiment is named, or the id names no run.
        ExternalError: an external service failed.
    """
    now = current_time()
    plan_inputs = _read_plan_inputs(client, inputs, request, is_resumed=earlier_run is not None)
    check = RaiseCheck()
    findings = []
    faults = list(list_refusals(plan_inputs))
    if not faults:
        check_ids = RUN_CHECKS if plan_inputs.needs_nodes else STAGE_CHECKS
        findings = _examine_account(client, plan_inputs, check_ids, now)
        faults += _list_check_faults(findings)
        if plan_inputs.needs_nodes:
            lease = lease_run(request.run, len(earlier_run.leases) + 1 if earlier_run else 1)
            try:
                check = _check_fleet(client, plan_inputs, lease, caller, now)
            except InputError as fault:
                faults.append(fault)
            if check.unarmed_paths and not request.accept_unarmed:
                faults.append(build_unarmed_error(client.environment, check.unarmed_paths))

    return RunDraft(
        inputs=plan_inputs,
        now=now,
        estimate=run_plan.estimate_run(plan_inputs),
        check=check,
        faults=faults,
        runner_faults=tuple(_find_runner_faults(client, plan_inputs.request, now)),
        findings=findings,
    )


def _read_plan_inputs(
    client: RunClient, inputs: CommandInputs, request: RunRequest, *, is_resumed: bool
) -> run_plan.RunPlanInputs:
    environment = client.environment
    catalogue = inputs.catalogue
    experiment = _find_experiment(inputs, environment, request)
    store = ObjectStore(client.config.bucket, client.clients.s3)
    steps = client.read_steps(request.run) if is_resumed else ()
    spec_digest = compute_spec_digest(environment, experiment, catalogue)
    plan_inputs = run_plan.RunPlanInputs(
        environment=environment,
        experiment=experiment,
        catalogue=catalogue,
        gaps=_read_gaps(client, inputs, experiment),
        request=msgspec.structs.replace(request, spec_digest=spec_digest),
        done_steps=frozenset(step.step for step in steps if step.state == "done"),
        measured_minutes=estimate_round_s(steps) / 60,
        file_suites=find_bucket_suites(store, experiment) if request.measures else {},
    )
    return run_plan.complete_hours(plan_inputs)


def _find_experiment(
    inputs: CommandInputs, environment: Environment, request: RunRequest
) -> Experiment:
    """Return the experiment of a request.

    Raises:
        InputError: the environment hosts no such experiment, or the id names no run.
    """
    if sentence := find_run_id_fault(request.run):
        raise InputError(sentence, where="--run", change="write another name")
    return inputs.find_experiment(environment, request.experiment)


def _read_gaps(
    client: RunClient, inputs: CommandInputs, experiment: Experiment
) -> run_plan.BucketGaps:
    """Return what has to be staged and compiled.

    Raises:
        InputError: something is stored that neither mends.
        ExternalError: the bucket cannot be read.
    """
    bucket = client.config.bucket
    needs = merge_needs(list_needs(client.environment.name, [experiment], inputs.catalogue))
    with name_people(client.environment, "engineer"):
        stored_sets = read_inventory(ObjectStore(bucket, client.clients.s3))
        rows = [row for row in survey_bucket(bucket, needs, stored_sets) if row.used_by]
        if fault := find_read_fault(stored_sets):
            raise fault
    for row in rows:
        if row.needs_person:
            listing = build_tandem_command("artifacts list", client.environment.name)
            raise InputError(
                f"{row.name} is {row.state}: {', '.join(row.why)}",
                where=row.prefix,
                change=f"{listing}, docs/artifacts.md",
            )
    return run_plan.find_gaps(rows)


def _check_fleet(
    client: RunClient, inputs: run_plan.RunPlanInputs, lease: str, caller: str, now: datetime
) -> RaiseCheck:
    """Return the start's view of the fleet.

    Raises:
        InputError: fence, lease or window refuse it.
        ExternalError: AWS could not be asked.
    """
    environment = client.environment
    admission = admit_servers(environment, inputs.experiment, inputs.catalogue, nodes=inputs.nodes)
    request = RaiseRequest(
        run=lease,
        hours=inputs.request.hours,
        nodes=inputs.nodes,
        experiment=inputs.experiment.name,
        node_labels=admission.labels,
        who=caller,
        beats=True,
    )
    return check_raise(client.clients, client.session, environment, request, now)


def _examine_account(
    client: RunClient, inputs: run_plan.RunPlanInputs, check_ids: frozenset[str], now: datetime
) -> list[Finding]:
    """Return what these checks of doctor find, but for what is ok."""
    context = DoctorContext(
        environment=client.environment,
        experiments=(inputs.experiment,),
        catalogue=inputs.catalogue,
        now=now,
        resolve_digest=resolve_digest,
        judge_suite=judge_bucket_suite,
    )
    checks = [check for check in CHECKS if check.id in check_ids]
    findings = run_checks(context, AccountClients(client.environment, client.session), checks)
    return [finding for finding in findings if finding.level != "ok"]


def _list_check_faults(findings: Iterable[Finding]) -> Iterator[InputError]:
    for finding in findings:
        if finding.level == "fail":
            where = f"doctor: {finding.check}"
            change = finding.action or finding.command
            yield InputError(finding.message, where=where, change=change)


def _find_runner_faults(
    client: RunClient, request: RunRequest, now: datetime
) -> Iterator[TandemError]:
    """Yield why nobody would take the run up: no runner lives, or it has other specs."""
    environment = client.environment
    beat = client.read_beat()
    where = f"the runner of {environment.name}"
    age = now - datetime.fromisoformat(beat.at) if beat else None
    if beat is None or age is None or age > BEAT_LIMIT:
        silence = f"it has not written for {format_span(age)}" if age else "it has never written"
        kubectl = quote_command("kubectl", "-n", "runner-system", "get", "pods")
        change = f"see its pod (inside the VPC): {kubectl}; or deploy it"
        yield ExternalError(silence, where=where, change=change)
    elif beat.spec_digests.get(request.experiment) != request.spec_digest:
        step = "tandem render, commit, sync"
        if environment.delivery.kind == "cdk":
            step = build_cdk_command("deploy", environment.name, "Workloads")
        problem = f"its files of {request.experiment} differ from these"
        yield InputError(problem, where=where, change=f"deploy or sync first: {step}")
