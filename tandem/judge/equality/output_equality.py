"""Whether a variant gives the baseline's output: identical shares, where outputs part, lengths and broken outputs.

Invariant: the baseline is its own yardstick, because a server need not equal itself. Digests tell what is identical; of
the outputs themselves only pairs that differ are read, and of those a bounded number.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tandem.bench.request_table import RequestTable
from tandem.judge.equality.content_rejections import compare_rejections
from tandem.judge.equality.divergence import (
    Encode,
    OutputDivergence,
    count_bins,
    load_encoder,
    read_divergences,
)
from tandem.judge.equality.equality_result import EqualityFacts, decide_result, list_remarks
from tandem.judge.equality.output_pairs import OutputMatcher, OutputPairs, build_matcher, encode_strata
from tandem.judge.equality.permutation_test import OutputStrata, PermutationResult, run_permutation_test
from tandem.judge.equality.share_interval import estimate_share
from tandem.judge.interval import LEVEL, convert_log_ratio, estimate_log_ratio
from tandem.judge.schema import (
    ClassEquality,
    DivergenceExample,
    OutputEquality,
    RatioEstimate,
    ShareEstimate,
)

MAX_EXAMPLES = 4


def compare_outputs(table: RequestTable, *, tokenizer: Path | None) -> tuple[OutputEquality, ...]:
    """Hold every variant's outputs against the baseline's.

    Args:
        table: the run.
        tokenizer: the target's tokenizer.json, for servers that give no token ids; without it characters are compared.

    Raises:
        BenchError: the tokenizer is none, or the records changed since they were read.
    """
    alpha = (1 - LEVEL) / max(len(table.variants), 1)
    encode: Encode | None = None
    equalities = []
    for variant in table.variants:
        matcher = build_matcher(table, variant, *_baseline_arms(table))
        if tokenizer is not None and not matcher.uses_token_ids:
            encode = encode or load_encoder(tokenizer)
        equalities.append(_build_equality(variant, _collect_facts(matcher, variant, encode, alpha)))
    return tuple(equalities)


def _collect_facts(matcher: OutputMatcher, variant: str, encode: Encode | None, alpha: float) -> EqualityFacts:
    table = matcher.table
    pairs, baseline_pairs = matcher.pair_arms(table.baseline, variant), _pair_baseline(matcher)
    divergences = tuple(read_divergences(table, pairs, by_ids=matcher.uses_token_ids, encode=encode))
    is_greedy = table.run.temperature == 0
    return EqualityFacts(
        table=table,
        pairs=pairs,
        baseline_pairs=baseline_pairs,
        unit="token ids" if matcher.uses_token_ids else "the target's tokenizer" if encode else "characters",
        identical=_estimate_pair_share(table, pairs),
        yardstick=None if baseline_pairs is None else _estimate_pair_share(table, baseline_pairs),
        permutation_result=_permute_arms(matcher, variant) if is_greedy and not pairs.is_same.all() else None,
        rejections=compare_rejections(table, pairs),
        length_ratio=_estimate_length_ratio(table, pairs, divergences),
        divergences=divergences,
        alpha=alpha,
    )


def _pair_baseline(matcher: OutputMatcher) -> OutputPairs | None:
    """Return the baseline against its control, which has the same seeds, else against its own next answers."""
    table = matcher.table
    baseline_pairs = matcher.pair_arms(table.baseline, table.control) if table.control is not None else None
    if not baseline_pairs and table.run.temperature == 0:
        baseline_pairs = matcher.pair_repeats(*_baseline_arms(table))
    return baseline_pairs or None


def _baseline_arms(table: RequestTable) -> tuple[str, ...]:
    return (table.baseline,) if table.control is None else (table.baseline, table.control)


def _estimate_pair_share(table: RequestTable, pairs: OutputPairs) -> ShareEstimate | None:
    return estimate_share(pairs.is_same, table.prompt[pairs.first])


def _permute_arms(matcher: OutputMatcher, variant: str) -> PermutationResult | None:
    table = matcher.table
    baseline_rows, variant_rows = (
        np.concatenate([matcher.find_answer_rows(arm) for arm in _baseline_arms(table)]),
        matcher.find_answer_rows(variant),
    )
    codes = encode_strata(table)
    return run_permutation_test(
        OutputStrata(codes[baseline_rows], matcher.digests[baseline_rows]),
        OutputStrata(codes[variant_rows], matcher.digests[variant_rows]),
    )


def _estimate_length_ratio(
    table: RequestTable, pairs: OutputPairs, divergences: Sequence[OutputDivergence]
) -> RatioEstimate | None:
    """Return the geometric mean over prompts of the ratio of tokens; identical outputs are alike long.

    An output without a token counts as one. Where no server counts tokens, the lengths of the pairs that were read.
    """
    logs = np.log(np.maximum(table.tokens[pairs.second], 1)) - np.log(np.maximum(table.tokens[pairs.first], 1))
    logs[pairs.is_same] = 0.0
    if np.isnan(logs[~pairs.is_same]).all() and len(divergences) == (~pairs.is_same).sum():
        logs_by_row = {
            divergence.row: np.log(max(divergence.lengths[1], 1) / max(divergence.lengths[0], 1))
            for divergence in divergences
        }
        logs = np.array([logs_by_row.get(row, 0.0) for row in pairs.first.tolist()], float)
    is_finite = np.isfinite(logs)
    _, codes = np.unique(table.prompt[pairs.first][is_finite], return_inverse=True)
    if not len(codes):
        return None
    by_prompt = np.bincount(codes, logs[is_finite]) / np.bincount(codes)
    estimate = estimate_log_ratio(by_prompt)
    return estimate.convert() if estimate else RatioEstimate(value=convert_log_ratio(by_prompt.mean()))


def _build_equality(variant: str, facts: EqualityFacts) -> OutputEquality:
    conclusion, reason = decide_result(facts)
    divergences = [divergence for divergence in facts.divergences if divergence.near_tie is not None]
    prompts = (
        facts.table.prompt[[divergence.row for divergence in divergences]] if divergences else np.empty(0, np.intp)
    )
    ties = estimate_share(np.array([divergence.near_tie for divergence in divergences], bool), prompts)
    return OutputEquality(
        variant=variant,
        by=facts.unit,
        result=conclusion,
        sentence=" ".join([reason, *list_remarks(facts, ties)]),
        identical=facts.identical,
        yardstick=facts.yardstick,
        classes=_compare_classes(facts),
        first_divergence=count_bins([divergence.position for divergence in facts.divergences]),
        near_ties=ties,
        lengths=facts.length_ratio,
        garbage=None if facts.rejections is None else facts.rejections.variant,
        garbage_of_baseline=None if facts.rejections is None else facts.rejections.baseline,
        examples=_choose_examples(facts),
    )


def _compare_classes(facts: EqualityFacts) -> tuple[ClassEquality, ...]:
    identical = _estimate_class_shares(facts.table, facts.pairs)
    yardstick = {} if facts.baseline_pairs is None else _estimate_class_shares(facts.table, facts.baseline_pairs)
    return tuple(
        ClassEquality(class_=facts.table.classes[code], identical=identical[code], yardstick=yardstick.get(code))
        for code in sorted(identical)
    )


def _estimate_class_shares(table: RequestTable, pairs: OutputPairs) -> dict[int, ShareEstimate]:
    """Return the identical share of each class that has pairs."""
    classes = table.class_[pairs.first]
    order = np.argsort(classes, kind="stable")
    codes, first = np.unique(classes[order], return_index=True)
    shares = (_estimate_pair_share(table, pairs.select(rows)) for rows in np.split(order, first[1:]))
    return {int(code): class_share for code, class_share in zip(codes, shares, strict=False) if class_share is not None}


def _choose_examples(facts: EqualityFacts) -> tuple[DivergenceExample, ...]:
    """Return a pair of each class, of the first few classes; one that is no near tie before one that is."""
    table, divergence_by_class = facts.table, dict[int, OutputDivergence]()
    for divergence in sorted(facts.divergences, key=lambda divergence: bool(divergence.near_tie)):
        divergence_by_class.setdefault(int(table.class_[divergence.row]), divergence)
    return tuple(
        DivergenceExample(
            class_=table.classes[code],
            prompt_id=table.prompts[table.prompt[divergence.row]].prompt_id,
            at=divergence.position,
            baseline=divergence.baseline,
            measured=divergence.variant,
            near_tie=divergence.near_tie,
        )
        for code, divergence in sorted(divergence_by_class.items())[:MAX_EXAMPLES]
    )
