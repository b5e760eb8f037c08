"""The answers of a judged run to the post's claims, as the judge of `tandem run` stores them."""

from __future__ import annotations

from collections.abc import Mapping

from tandem.bench.figures.request_table import RequestTable
from tandem.judge.pairs import RequestPairing
from tandem.judge.schema import Verdict
from tandem.post.answers import answer_claims, find_obstacles
from tandem.post.llmperf_answers import answer_llmperf
from tandem.post.register import read_register
from tandem.post.schema import ClaimAnswers


def answer_run(table: RequestTable, verdict: Verdict, drafts: Mapping[str, str]) -> ClaimAnswers:
    """Return the answers of a run, or why its servers are not asked.

    Args:
        table: its requests.
        verdict: on it.
        drafts: the draft of each variant that has one.

    Raises:
        InputError: llmperf's files in the run's folder cannot be read.
    """
    obstacles = find_obstacles(table, drafts)
    variants = [variant for variant, obstacle in obstacles.items() if not obstacle]
    if not variants:
        obstacle = next(iter(obstacles.values()))
        return ClaimAnswers(reason=f"The post's claims are not asked of these servers: {obstacle}.")
    pairing = RequestPairing(table, verdict.controls.marked_rounds)
    claims = [
        *answer_claims(pairing, verdict, drafts, read_register().claim, variants),
        *answer_llmperf(table, verdict, drafts, variants),
    ]
    return ClaimAnswers(claims=tuple(claims))
