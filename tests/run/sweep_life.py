"""A whole sweep in virtual time: the world of a run, and a judge that finds what a world of drafts and classes says.

It simulates what `virtual_world` simulates, and the evidence of each pair: tests/plan/sweep_worlds.py with its noise.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from committed import workspace
from sweep_worlds import SweepWorld, measure
from virtual_world import RUN, VirtualWorld, list_artifacts

from rehearsal.cluster.pods import PodScript
from tandem.plan.candidate_search import SweepCandidate
from tandem.run.run_values import PairEvidence

SWEEP = workspace().experiments["post-drafts-windows"].record
VARIANTS = {variant.name: variant for variant in SWEEP.all_variants()}
SMALL, LARGE = SWEEP.sweep.drafts
HOURS = {"hours": 8, "rounds": 2, "control_rounds": 0}


class SweepLife(VirtualWorld):
    """One sweep: what is true of its drafts, and the cluster and the account that measure them.

    Attributes:
        acceptance: by draft, the same in every class.
        cost: by draft, of one forward, as a share of a plain step.
    """

    experiment: ClassVar = SWEEP
    DEFAULTS: ClassVar = {
        **VirtualWorld.DEFAULTS, **{name: PodScript(ready_after_s=60, stop_s=5) for name in VARIANTS},
    }  # fmt: skip
    acceptance: ClassVar = {SMALL: 0.5, LARGE: 0.8}
    cost: ClassVar = {SMALL: 0.1, LARGE: 0.1}

    def find_evidence(self, task):
        variant = VARIANTS[task.arms[1].name]
        candidate = SweepCandidate(variant.draft, variant.num_speculative_tokens)
        truth = SweepWorld(
            {
                (draft, class_): share
                for draft, share in self.acceptance.items()
                for class_ in ("json", "code", "chat", "open")
            },
            self.cost,
        )
        rng = np.random.default_rng(len(task.run) + candidate.window)
        result = measure(truth, candidate, rng)
        return PairEvidence(
            score=result.score,
            speed_ups=result.speed_ups,
            tokens=result.tokens,
            log_sd=result.log_sd,
        )

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
