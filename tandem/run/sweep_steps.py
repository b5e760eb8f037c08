"""Steps of a sweep: choose the next candidate, start its pair, decide.

Invariant: the journal alone holds the state of a sweep, so that a new runner chooses as the old
one. A fault of a candidate ends its pair, not the sweep; a used budget ends the measurements, and
the sweep decides by the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Literal

import msgspec

from tandem.judge.sweep_record import CandidateRecord, SweepRecord
from tandem.plan.candidate_search import (
    CandidateResult,
    SweepCandidate,
    decide_sweep,
    plan_next,
)
from tandem.plan.forecast import build_load, forecast_cells, rank_cell
from tandem.plan.measurement_rows import SERVED_DENSE, load_published
from tandem.plan.plan_basis import DraftBasis
from tandem.plan.step_cost import fit_step_cost
from tandem.plan.step_tokens import CommitLaw
from tandem.run.fleet_steps import release_fleet
from tandem.run.jobs import close_jobs
from tandem.run.round_steps import ask_tasks, judge_run
from tandem.run.run_keys import RANK_STEP, pair_run, strip_pair
from tandem.run.run_plan import END_MINUTES, JUDGE_MINUTES, READY_MINUTES, SERVE_MINUTES
from tandem.run.run_values import StepRecord
from tandem.run.run_world import LeaseEndError, RunEndError, StepProgress, StepWork
from tandem.run.serving_steps import start_servers
from tandem.run.sweep_pairs import PairState, list_pairs, read_pair_judgment

MAX_FAILED_PAIRS = 3  # in a row: such a fault is hardly a candidate's own


def try_candidate(advance: Callable[[StepWork], StepProgress], work: StepWork) -> StepProgress:
    """Take a look at a pair's step; the candidate's fault or a used budget fails it, not the run.

    Raises:
        LeaseEndError: the rest of the lease is too short.
        ExternalError: AWS or Kubernetes failed.
    """
    # what is measured and answered is not lost
    is_measured = work.name in {"judge", RANK_STEP} or "end" in work.result
    used_budget = "" if is_measured else _describe_used_budget(work)
    if used_budget and work.name == "quality":
        close_jobs(work)
    if used_budget:
        return StepProgress(
            state="skipped" if work.name == "quality" else "failed", note=used_budget
        )
    try:
        return advance(work)
    except LeaseEndError:
        raise
    except RunEndError as end:
        return StepProgress(state="failed", note=end.reason, result=work.result)


def choose_candidate(work: StepWork) -> StepProgress:
    """Choose the candidate of the next pair, or none if the search or the budget is at its end.

    Raises:
        RunEndError: too many pairs in a row failed.
    """
    pairs = list(list_pairs(work.journal.steps))
    last_pairs = pairs[-MAX_FAILED_PAIRS:]
    if len(last_pairs) == MAX_FAILED_PAIRS and all(pair.failure for pair in last_pairs):
        raise RunEndError(
            f"{MAX_FAILED_PAIRS} candidates in a row failed; the last: {last_pairs[-1].failure}",
            "failed",
        )
    variants = _name_candidates(work)
    results = _list_results(work, pairs)
    search = plan_next(_rank_remaining(work, pairs), results, _read_law(work))
    eliminated = {
        variants[row.candidate]: f"at most {row.bound:.2f} times, and {row.best:.2f} is measured"
        for row in search.eliminated
    }
    variant = variants[search.next] if search.next else ""
    reason = search.reason
    budget_fault = _find_budget_fault(work, pairs) if variant else ""
    if budget_fault:
        variant = ""
        reason = budget_fault
    note = f"{variant}: {reason}" if variant else f"no further candidate: {reason}"
    return StepProgress(
        state="done", note=note, result={"variant": variant, "eliminated": eliminated}
    )


def start_pair(work: StepWork) -> StepProgress:
    """Start the servers of a pair, if the lease lasts for their start and a round.

    Raises:
        LeaseEndError: the rest of the lease is too short.
        RunEndError: a server gets no devices.
        ExternalError: Kubernetes failed.
    """
    if not work.attempts:
        minutes = SERVE_MINUTES + READY_MINUTES + work.count_round_minutes()
        work.require_lease_s(60 * minutes, f"pair {work.pair}")
        return StepProgress(note="begins", attempts=1)
    return start_servers(work)


def ask_leader(work: StepWork) -> StepProgress:
    """Ask a pair's servers the tasks; if it was ranked, only where its candidate leads so far.

    Raises:
        LeaseEndError: the rest of the lease is too short.
        ExternalError: AWS or Kubernetes failed.
    """
    rank = work.steps.get(RANK_STEP)
    if rank is None or work.result:
        return ask_tasks(work)

    verdict, evidence = read_pair_judgment(rank)
    if verdict is None or evidence is None or verdict.is_ruled_out:
        return StepProgress(
            state="skipped", note="no answer would let it win", result={"unasked": "ruled out"}
        )
    rivals = [
        pair
        for pair in list_pairs(work.journal.steps)
        if pair.number != work.pair and pair.obstacle is None
    ]
    best = max(
        (pair.evidence.score for pair in rivals if pair.evidence and pair.has_figures), default=0.0
    )
    if evidence.score <= best:
        return StepProgress(
            state="skipped",
            note=f"it is {evidence.score:.2f} times as fast, and {best:.2f} is measured",
            result={"unasked": "behind"},
        )
    return ask_tasks(work)


def judge_pair(work: StepWork) -> StepProgress:
    """Judge a pair; without answers to tasks its rank is its judgment.

    Raises:
        RunEndError: no attempt made a verdict; the records are whole.
        ExternalError: AWS or Kubernetes failed.
    """
    quality = work.steps.get("quality")
    if quality is None or not quality.result.get("unasked"):
        return judge_run(work)
    rank = work.steps[RANK_STEP]
    return StepProgress(state="done", note=rank.note, result=rank.result)


def count_spent_usd(work: StepWork) -> float:
    """Return the USD of the run's nodes until now, at the declared price."""
    run = work.journal.run
    node_s = run.node_s
    if run.has_lease:
        lease = run.leases[-1]
        age = work.world.now() - datetime.fromisoformat(lease.raised_at)
        node_s += lease.nodes * age.total_seconds()
    return node_s / 3600 * work.world.environment.capacity.usd_per_hour


def _describe_used_budget(work: StepWork) -> str:
    """Return that the budget is used, verdict and way to zero included; empty if not or without."""
    budget_usd = work.request.budget_usd
    if budget_usd and _foretell_usd(work) >= budget_usd:
        return f"the budget of {budget_usd:.2f} USD is used"
    return ""


def decide_winner(work: StepWork) -> StepProgress:
    """Set the fleet to zero, then decide what to serve by all pairs.

    Raises:
        ExternalError: AWS or Kubernetes failed.
    """
    if work.has_lease and not release_fleet(work):  # a decision needs no node
        return work.keep_running("the fleet goes to zero first")
    record = build_record(work)
    result = {
        "sentence": record.sentence,
        "is_void": False,
        "decision": msgspec.to_builtins(record),
    }
    return StepProgress(state="done", note=record.sentence, result=result)


def build_record(work: StepWork) -> SweepRecord:
    """Return the decision with the evidence of every candidate."""
    pairs = list(list_pairs(work.journal.steps))
    variants = _name_candidates(work)
    choices = [step for name, step in work.journal.steps.items() if strip_pair(name) == "choose"]
    choices.sort(key=lambda step: step.started_at)
    results = _list_results(work, pairs)
    decision = decide_sweep(_rank_remaining(work, pairs), results, _read_law(work))
    by_variant = {pair.variant: pair for pair in pairs}
    by_candidate = {row.candidate: row for row in results}
    candidates = []
    for candidate, variant in variants.items():
        if variant in by_variant:
            pair = by_variant[variant]
            candidates.append(_record_pair(work, candidate, pair, by_candidate.get(candidate)))
        else:
            candidates.append(_record_unmeasured(candidate, variant, choices))
    is_simulated = any(pair.is_simulated for pair in pairs)
    winner = variants[decision.winner] if decision.winner else ""
    output_note = _describe_output(by_variant[winner]) if winner else ""
    rejections = _count_rejections(pairs)
    sentence = decision.reason
    if not results and rejections:
        sentence = "plain decoding: no candidate can win"
    sentence = "; ".join(part for part in (sentence, output_note, rejections) if part)
    if decision.word == "unfinished":
        sentence = f"unfinished ({choices[-1].note}); so far {sentence}"
    sentence = f"SIMULATED servers: {sentence}" if is_simulated else sentence
    return SweepRecord(
        run=work.run,
        experiment=work.journal.run.experiment,
        word=decision.word,
        sentence=sentence,
        is_simulated=is_simulated,
        winner=winner,
        output_note=output_note,
        candidates=tuple(candidates),
        budget_usd=work.request.budget_usd,
        node_minutes=work.journal.run.node_s / 60,
        compile_minutes=sum(row.compile_minutes for row in candidates),
        usd=count_spent_usd(work),
    )


def _describe_output(pair: PairState) -> str:
    """Return what is known of an output unlike plain decoding's; empty where it is the same."""
    verdict = pair.verdict
    if verdict is None or verdict.output == "the same":
        return ""
    words = ", ".join(f"{task.task}: {task.word}, {task.items} items" for task in verdict.tasks)
    return (
        "its output is not shown to be that of plain decoding, but it answers the tasks as well"
        f" ({words})"
    )


def _count_rejections(pairs: Sequence[PairState]) -> str:
    """Return how many candidates are rejected, and by which verdict words; empty if all can."""
    obstacles = [pair.obstacle for pair in pairs if pair.obstacle and not pair.failure]
    if not obstacles:
        return ""
    counts = Counter(obstacle.word for obstacle in obstacles)
    words = ", ".join(f"{count} {word}" for word, count in counts.items())
    judged_count = sum(pair.verdict is not None for pair in pairs)
    return f"{len(obstacles)} of {judged_count} candidates rejected by their verdicts ({words})"


def _record_pair(
    work: StepWork, candidate: SweepCandidate, pair: PairState, result: CandidateResult | None
) -> CandidateRecord:
    leases = work.leases
    minutes = pair.sum_minutes(leases)
    state: Literal["failed", "rejected", "measured"] = "measured"
    reason = ""
    if pair.failure:
        state = "failed"
        reason = pair.failure
    elif pair.obstacle:
        state = "rejected"
        reason = f"{pair.obstacle.word}: {pair.obstacle.reason}"
        if pair.unasked_reason == "behind":
            reason += f" The reason: {pair.steps['quality'].note}."
    return CandidateRecord(
        variant=pair.variant,
        draft=candidate.draft,
        num_speculative_tokens=candidate.window,
        state=state,
        reason=reason,
        speed_up=result.speed_up_interval if result else None,
        results=pair_run(work.run, pair.number),
        verdict=pair.verdict,
        evidence=pair.evidence,
        node_minutes=minutes,
        compile_minutes=pair.sum_minutes(leases, "compile"),
        usd=_price_minutes(work, minutes),
    )


def _record_unmeasured(
    candidate: SweepCandidate, variant: str, choices: Sequence[StepRecord]
) -> CandidateRecord:
    """Return the record of a candidate without a pair; its first elimination says why and when."""
    record = CandidateRecord(
        variant=variant, draft=candidate.draft, num_speculative_tokens=candidate.window
    )
    for step in choices:
        if variant in step.result["eliminated"]:
            reason = step.result["eliminated"][variant]
            decided_at = step.ended_at or ""
            return msgspec.structs.replace(
                record, state="eliminated", reason=reason, decided_at=decided_at
            )
    return record


def _list_results(work: StepWork, pairs: Sequence[PairState]) -> list[CandidateResult]:
    """Return the figures of the pairs that a search can use."""
    candidates = {variant: candidate for candidate, variant in _name_candidates(work).items()}
    results = []
    for pair in pairs:
        evidence = pair.evidence
        if evidence is None or not pair.has_figures:
            continue
        result = CandidateResult(
            candidate=candidates[pair.variant],
            score=evidence.score,
            speed_ups=evidence.speed_ups,
            tokens=evidence.tokens,
            log_sd=evidence.log_sd,
            can_win=pair.obstacle is None,
            position_rates=evidence.position_rates,
        )
        results.append(result)
    return results


def _name_candidates(work: StepWork) -> dict[SweepCandidate, str]:
    """Return the names of the variants by candidate, in the order of the file."""
    sweep = work.experiment.sweep
    rows = sweep.variants() if sweep else ()
    return {
        SweepCandidate(str(row.draft), row.num_speculative_tokens or 0): row.name for row in rows
    }


def _rank_remaining(work: StepWork, pairs: Sequence[PairState]) -> list[SweepCandidate]:
    """Return the candidates without a pair or with an informative one, the best forecast first.

    The order is that of `tandem plan`: first the window that gains from the shortest plain step on.
    Costs are those of dense targets, whatever the target is: an order is no forecast.
    """
    experiment = work.experiment
    spent = {pair.variant for pair in pairs if pair.is_over and not pair.has_figures}
    load = build_load(experiment, work.world.catalogue, DraftBasis())
    cost = fit_step_cost(load_published(), SERVED_DENSE)

    def rank(candidate: SweepCandidate) -> tuple[float, float, int]:
        windows = [candidate.window]
        return rank_cell(next(forecast_cells(load, (candidate.draft,), windows, [1], cost=cost)))

    remaining = [
        candidate for candidate, variant in _name_candidates(work).items() if variant not in spent
    ]
    return sorted(remaining, key=rank, reverse=True)


def _read_law(work: StepWork) -> CommitLaw:
    return work.world.catalogue.runtimes[work.experiment.runtime].counters.tokens_per_step.value


def _find_budget_fault(work: StepWork, pairs: Sequence[PairState]) -> str:
    """Return why the budget pays for no other pair as costly as the longest; empty if it does."""
    budget_usd = work.request.budget_usd
    minutes = max((pair.sum_minutes(work.leases) for pair in pairs), default=0.0)
    needed_usd = _foretell_usd(work, minutes)
    if not budget_usd or needed_usd <= budget_usd:
        return ""
    return (
        f"another pair would bring the cost to {needed_usd:.2f} USD, above the budget of"
        f" {budget_usd:.2f}"
    )


def _foretell_usd(work: StepWork, minutes: float = 0.0) -> float:
    """Return the USD of the run after so many minutes more, verdict and way to zero included."""
    return count_spent_usd(work) + _price_minutes(work, minutes + JUDGE_MINUTES + END_MINUTES)


def _price_minutes(work: StepWork, minutes: float) -> float:
    return minutes / 60 * work.plan_inputs.nodes * work.world.environment.capacity.usd_per_hour
