"""A whole sweep in virtual time: the world of a run, and a judge that finds what a world of drafts
and classes says.

It simulates what `virtual_world` simulates, and the judgment of each pair:
tests/plan/sweep_worlds.py with its noise, the word by the interval of the score, and the same
output. `JudgedSweep` judges records instead.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import ClassVar

import numpy as np
from committed import workspace
from pair_records import PairFault, judge_records
from sweep_worlds import SweepWorld, measure
from virtual_world import RUN, VirtualWorld, list_artifacts
from world_records import QUICK_SHAPE

from rehearsal.cluster.pods import PodScript
from tandem.judge.sweep_record import PairEvidence, PairVerdict
from tandem.plan.candidate_search import SweepCandidate

SWEEP = workspace().experiments["post-drafts-windows"].record
VARIANTS = {variant.name: variant for variant in SWEEP.all_variants()}
SMALL, LARGE = SWEEP.sweep.drafts
HOURS = {"hours": 8, "rounds": 4, "control_rounds": 0}


class SweepLife(VirtualWorld):
    """One sweep: what is true of its drafts, and the cluster and the account that measure them.

    Attributes:
        acceptance: by draft, the same in every class.
        cost: by draft, of one forward, as a share of a plain step.
    """

    experiment: ClassVar = SWEEP
    DEFAULTS: ClassVar = {
        **VirtualWorld.DEFAULTS,
        **{name: PodScript(ready_after_s=60, stop_s=5) for name in VARIANTS},
    }
    acceptance: ClassVar = {SMALL: 0.5, LARGE: 0.8}
    cost: ClassVar = {SMALL: 0.1, LARGE: 0.1}

    def judge_pair(self, task):
        result = self.measure(task)
        _, low, high = result.speed_up_interval
        finding = "no evidence"
        if low > 1:
            finding = "faster"
        elif high < 1:
            finding = "slower"
        evidence = PairEvidence(
            score=result.score,
            speed_ups=result.speed_ups,
            tokens=result.tokens,
            log_sd=result.log_sd,
            position_rates=result.position_rates,
        )
        verdict = PairVerdict(
            finding=finding, output="the same", sentence=finding, rounds=task.rounds
        )
        return {"pair_verdict": verdict, "evidence": evidence}

    def measure(self, task):
        """Return the measurement of a pair's candidate in this world."""
        variant = VARIANTS[task.arms[1].name]
        candidate = SweepCandidate(variant.draft, variant.num_speculative_tokens)
        truth = SweepWorld(
            {
                (draft, class_): (share,)
                for draft, share in self.acceptance.items()
                for class_ in ("json", "code", "chat", "open")
            },
            self.cost,
        )
        rng = np.random.default_rng(len(task.run) + candidate.window)
        return measure(truth, candidate, rng)

    def fail_candidate(self, variant):
        """Let every compile of a variant fail."""
        job = list(list_artifacts(SWEEP))[list(VARIANTS).index(variant)]
        self.scripts[job] = PodScript(run_s=30, exit_code=1)

    def read_decision(self, run=RUN):
        """Return the decision as the journal has it."""
        key = next(
            key
            for key in self.account.objects
            if key.startswith(f"runs/{run}/steps/") and "-judge" in key and "pair" not in key
        )
        return self.account.read(key)["result"]["decision"]


class SmallSweep(SweepLife):
    """A sweep of two drafts and one window."""

    experiment: ClassVar = SWEEP.model_copy(
        update={"sweep": SWEEP.sweep.model_copy(update={"num_speculative_tokens": (7,)})}
    )


class JudgedSweep(SweepLife):
    """A sweep whose pairs are judged by records, each with the fault of its candidate
    (`pair_records`).

    Attributes:
        faults: of the candidates in the order in which their pairs are judged.
        seed: of the records.
        shape: of a pair's records.
        folder: of them.
    """

    faults: tuple[PairFault, ...] = ()
    seed = 0
    shape = QUICK_SHAPE
    folder: Path

    def __init__(self, **settings):
        self.judged_variants: list[str] = []
        super().__init__(**settings)

    def judge_pair(self, task):
        plain, variant = (arm.name for arm in task.arms)
        if variant not in self.judged_variants:
            self.judged_variants.append(variant)
        number = self.judged_variants.index(variant)
        seed = 100 * self.seed + number
        folder = self.folder / f"{self.seed}-{number}"
        verdict, evidence = judge_records(
            folder, self.faults[number], seed, (plain, variant), self.shape
        )
        shutil.rmtree(folder)
        return {"pair_verdict": verdict, "evidence": evidence}
