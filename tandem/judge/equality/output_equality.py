"""Whether a variant gives the baseline's output: shares, divergence, lengths, broken ones.

Invariant: the baseline is its own yardstick, because a server need not equal itself. Digests decide
which outputs are identical. Only outputs of different pairs are read, and only a bounded number.
The result is `the same` only if a difference would have been found, or is too small to matter. A
broken, cut or rambling output is a difference, whatever the yardstick says. Every result stands
with its figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from tandem.bench.figures.request_table import RequestTable
from tandem.judge import schema
from tandem.judge import text_format as fmt
from tandem.judge.decision import compare_lengths
from tandem.judge.equality import divergence, output_pairs
from tandem.judge.equality.divergence import Encode, OutputDivergence
from tandem.judge.equality.output_pairs import OutputMatcher, OutputPairs, estimate_share
from tandem.judge.equality.permutation_test import (
    OutputStrata,
    PermutationResult,
    run_permutation_test,
)
from tandem.judge.interval import convert_log_ratio, estimate_log_ratio
from tandem.judge.schema import LEVEL

MAX_EXAMPLES = 4

FEWEST_PROMPTS = 4
"""With fewer prompts the interval of the share reaches below one half, even if all their pairs are
identical."""

NEARLY_ALL = 1 - schema.MARGIN
"""If the whole interval of the identical share lies above this, the outputs count as the same."""

ComparisonUnit = Literal["token ids", "the target's tokenizer", "characters"]
EqualityResult = Literal["the same", "differs", "no evidence"]


def compare_outputs(
    table: RequestTable, *, tokenizer: Path | None
) -> tuple[schema.OutputEquality, ...]:
    """Compare every variant's outputs with the baseline's.

    Args:
        table: the run.
        tokenizer: the target's tokenizer.json, for servers that give no token ids; without it
            characters are compared.

    Raises:
        InputError: the file is no tokenizer, or the records changed since they were read.
    """
    encode = None
    equalities = []
    for variant in table.variants:
        matcher = output_pairs.build_matcher(table, variant, *_list_baseline_arms(table))
        if tokenizer is not None and not matcher.uses_token_ids:
            encode = encode or divergence.load_encoder(tokenizer)
        equalities.append(_compare_variant(matcher, variant, encode))
    return tuple(equalities)


def _list_baseline_arms(table: RequestTable) -> tuple[str, ...]:
    if table.control is None:
        return (table.baseline,)
    return table.baseline, table.control


@dataclass(frozen=True, kw_only=True)
class _EqualityFacts:
    """Facts about one variant before it is judged.

    `yardstick` is the baseline's identical share against itself; `alpha` is the level of the
    variant's tests: 5 %, shared by all variants of the run.
    """

    pairs: OutputPairs
    unit: ComparisonUnit
    identical: schema.ShareEstimate | None
    yardstick: schema.ShareEstimate | None
    permutation: PermutationResult | None
    rejections: output_pairs.ContentRejections | None
    lengths: schema.RatioEstimate | None
    prompt_count: int
    difference_count: int
    temperature: float
    alpha: float


def _compare_variant(
    matcher: OutputMatcher, variant: str, encode: Encode | None
) -> schema.OutputEquality:
    table = matcher.table
    pairs = matcher.pair_arms(table.baseline, variant)
    divergences = tuple(
        divergence.read_divergences(table, pairs, by_ids=matcher.uses_token_ids, encode=encode)
    )
    shares = _estimate_shares(table, pairs)
    yardsticks = _estimate_shares(table, _pair_baseline(matcher))
    is_permutable = table.run.temperature == 0 and not pairs.is_same.all()
    facts = _EqualityFacts(
        pairs=pairs,
        unit=_name_unit(matcher, encode),
        identical=shares.pop(None, None),
        yardstick=yardsticks.get(None),
        permutation=_permute_arms(matcher, variant) if is_permutable else None,
        rejections=output_pairs.compare_rejections(table, pairs),
        lengths=_estimate_lengths(table, pairs, divergences),
        prompt_count=len(np.unique(table.prompt[pairs.first])),
        difference_count=int((~pairs.is_same).sum()),
        temperature=table.run.temperature,
        alpha=(1 - LEVEL) / len(table.variants),
    )
    result, reason = next(_list_results(facts))
    near_ties = _count_near_ties(table, divergences)
    return schema.OutputEquality(
        variant=variant,
        by=facts.unit,
        result=result,
        sentence=" ".join([reason, *_list_remarks(pairs, near_ties)]),
        identical=facts.identical,
        yardstick=facts.yardstick,
        classes=tuple(
            schema.ClassEquality(
                class_=table.classes[code], identical=share, yardstick=yardsticks.get(code)
            )
            for code, share in shares.items()
            if code is not None
        ),
        first_divergence=divergence.count_bins([part.position for part in divergences]),
        near_ties=near_ties,
        lengths=facts.lengths,
        garbage=facts.rejections and facts.rejections.variant,
        garbage_of_baseline=facts.rejections and facts.rejections.baseline,
        failed_pairs=pairs.failure_count,
        silent_pairs=pairs.silent_count,
        examples=_choose_examples(table, divergences),
    )


def _name_unit(matcher: OutputMatcher, encode: Encode | None) -> ComparisonUnit:
    if matcher.uses_token_ids:
        return "token ids"
    return "the target's tokenizer" if encode else "characters"


def _pair_baseline(matcher: OutputMatcher) -> OutputPairs | None:
    """Return pairs of the baseline's own outputs; None where it was not asked twice.

    These are its control, which has the same seeds, else its own next answers.
    """
    table = matcher.table
    pairs = None
    if table.control is not None:
        pairs = matcher.pair_arms(table.baseline, table.control)
    if not pairs and table.run.temperature == 0:
        pairs = matcher.pair_repeats(*_list_baseline_arms(table))
    return pairs


def _count_near_ties(
    table: RequestTable, divergences: Sequence[OutputDivergence]
) -> schema.ShareEstimate | None:
    """Return how many pairs part at a near tie, of those whose log-probabilities are known."""
    known_parts = [part for part in divergences if part.near_tie is not None]
    ties = np.array([part.near_tie for part in known_parts], bool)
    prompts = table.prompt[np.array([part.row for part in known_parts], np.intp)]
    return estimate_share(ties, prompts)


def _permute_arms(matcher: OutputMatcher, variant: str) -> PermutationResult | None:
    baseline_rows = np.concatenate(
        [matcher.find_answer_rows(arm) for arm in _list_baseline_arms(matcher.table)]
    )
    sides = [
        OutputStrata(matcher.strata[rows], matcher.digests[rows])
        for rows in (baseline_rows, matcher.find_answer_rows(variant))
    ]
    return run_permutation_test(sides[0], sides[1])


def _estimate_lengths(
    table: RequestTable, pairs: OutputPairs, divergences: tuple[OutputDivergence, ...]
) -> schema.RatioEstimate | None:
    """Return the ratio of the variant's length to the baseline's, as a mean over prompts.

    The mean is geometric, and a pair of identical outputs counts as 1. Length is in tokens, at
    least one. Where no server counts tokens and every pair that differs was read, it is that of
    the outputs that were read.
    """
    tokens = np.maximum(table.tokens, 1)
    logs = np.log(tokens[pairs.second]) - np.log(tokens[pairs.first])
    logs[pairs.is_same] = 0.0
    differs = ~pairs.is_same
    if np.isnan(logs[differs]).all() and len(divergences) == differs.sum():
        logs_by_row = {}
        for part in divergences:
            baseline_length, variant_length = part.lengths
            logs_by_row[part.row] = np.log(max(variant_length, 1) / max(baseline_length, 1))
        logs = np.array([logs_by_row.get(row, 0.0) for row in pairs.first.tolist()], float)
    is_finite = np.isfinite(logs)
    if not is_finite.any():
        return None
    prompts = table.prompt[pairs.first[is_finite]]
    codes = np.unique(prompts, return_inverse=True)[1]
    by_prompt = np.bincount(codes, logs[is_finite]) / np.bincount(codes)
    estimate = estimate_log_ratio(by_prompt)
    if estimate is None:
        return schema.RatioEstimate(value=convert_log_ratio(by_prompt.mean()))
    return estimate.convert()


def _estimate_shares(
    table: RequestTable, pairs: OutputPairs | None
) -> dict[int | None, schema.ShareEstimate]:
    """Return the identical share of all pairs, under None, and of each class that has some."""
    if not pairs:
        return {}
    classes = table.class_[pairs.first]
    prompts = table.prompt[pairs.first]
    shares = {}
    for code in np.unique(classes).tolist():
        mask = classes == code
        shares[code] = estimate_share(pairs.is_same[mask], prompts[mask])
    shares[None] = estimate_share(pairs.is_same, prompts)
    return {code: share for code, share in shares.items() if share is not None}


def _choose_examples(
    table: RequestTable, divergences: tuple[OutputDivergence, ...]
) -> tuple[schema.DivergenceExample, ...]:
    """Return one pair for each of the first few classes; a near tie only if there is no other."""
    parts: dict[int, OutputDivergence] = {}
    for part in sorted(divergences, key=lambda part: bool(part.near_tie)):
        parts.setdefault(int(table.class_[part.row]), part)
    return tuple(_build_example(table, part) for _, part in sorted(parts.items())[:MAX_EXAMPLES])


def _build_example(table: RequestTable, part: OutputDivergence) -> schema.DivergenceExample:
    """Return a pair, without its texts where its suite's are not to be shown."""
    prompt = table.prompts[table.prompt[part.row]]
    is_hidden = prompt.suite in table.run.hidden_suites
    return schema.DivergenceExample(
        class_=table.classes[table.class_[part.row]],
        prompt_id=prompt.prompt_id,
        at=part.position,
        baseline="" if is_hidden else part.baseline,
        measured="" if is_hidden else part.variant,
        near_tie=part.near_tie,
    )


def _list_results(facts: _EqualityFacts) -> Iterator[tuple[EqualityResult, str]]:
    """Yield each possible result and its reason; the first holds."""
    if facts.identical is None:
        yield "no evidence", "No output of the variant can be paired with one of the baseline."
        return
    summary = _summarize_pairs(facts)
    broken_reason = _explain_broken(facts)
    permutation = facts.permutation
    if broken_reason:
        yield "differs", f"{summary}: {broken_reason}."
    if facts.temperature != 0:
        temperature_text = (
            f"at temperature {facts.temperature:g} a server need not repeat itself: run with 0"
        )
        yield "no evidence", f"{summary}; {temperature_text}."
    yardstick_text = "no yardstick was needed, and there is none"
    if facts.yardstick is not None:
        yardstick_count = facts.yardstick.of - facts.yardstick.n
        pairs_text = fmt.count_things(facts.yardstick.of, "pair")
        yardstick_text = f"against itself {yardstick_count} of {pairs_text} differ"
    if permutation is not None and permutation.p <= facts.alpha:
        reason = (
            f"more than the baseline's own, {yardstick_text}, can explain (p {permutation.p:.2g})"
        )
        yield "differs", f"{summary}, {reason}."
    if facts.pairs.failure_count + facts.pairs.silent_count > len(facts.pairs):
        yield "no evidence", f"{summary}; more pairs are left out than are compared."
    if facts.prompt_count < FEWEST_PROMPTS:
        yield (
            "no evidence",
            f"{summary}: too few prompts to conclude from; ask {FEWEST_PROMPTS} or more.",
        )
    result, reason = _judge_greedy(facts, facts.identical, yardstick_text)
    yield result, f"{summary}{reason}."


def _judge_greedy(
    facts: _EqualityFacts, identical: schema.ShareEstimate, yardstick_text: str
) -> tuple[EqualityResult, str]:
    """Judge greedy outputs of enough prompts that are not shown to differ."""
    if not facts.difference_count:
        return "the same", f"; {yardstick_text}"
    if facts.yardstick is None or facts.permutation is None:
        reason = "the baseline was never asked twice, so it is unknown whether it repeats itself"
        return "no evidence", f"; {reason}: run with --control-rounds"
    if not facts.yardstick.n:
        reason = (
            f"so do the baseline's own ({yardstick_text}):"
            " outputs that never repeat cannot show a change"
        )
        return "no evidence", f"; {reason}"
    if facts.permutation.least_p <= facts.alpha:
        return "the same", f", no more than the baseline's own: {yardstick_text}"
    if (identical.low or 0.0) >= NEARLY_ALL:
        return "the same", f", so few that it does not matter; {yardstick_text}"
    return (
        "no evidence",
        f", too few to tell from the baseline's own: {yardstick_text}; ask more rounds",
    )


def _explain_broken(facts: _EqualityFacts) -> str:
    """Return the evidence that outputs are broken, cut or rambling; empty if there is none."""
    rejections = facts.rejections
    ratio = facts.lengths
    if facts.difference_count and rejections is not None and rejections.p <= facts.alpha:
        counts = f"{rejections.variant.n} of {rejections.variant.of} outputs of the variant"
        return f"the content check refused {counts} and {rejections.baseline.n} of the baseline's"
    if not facts.difference_count or ratio is None or ratio.low is None or ratio.high is None:
        return ""
    length = compare_lengths(ratio, schema.MARGIN)
    if length == "alike":
        return ""
    cause = "it is cut short" if length == "shorter" else "it rambles"
    times = f"{fmt.format_number(ratio.value)} times the baseline's length"
    return f"the variant's output has {times} ({fmt.format_interval(ratio)}): {cause}"


def _summarize_pairs(facts: _EqualityFacts) -> str:
    pairs_text = (
        f"{fmt.count_things(len(facts.pairs), 'paired output')} of"
        f" {fmt.count_things(facts.prompt_count, 'prompt')}"
    )
    if not facts.difference_count:
        return f"All {pairs_text} are identical by {facts.unit}"
    percent = fmt.format_percent(facts.difference_count / len(facts.pairs))
    return f"{facts.difference_count} of {pairs_text} differ by {facts.unit} ({percent})"


def _list_remarks(pairs: OutputPairs, ties: schema.ShareEstimate | None) -> Iterator[str]:
    """Yield further remarks as sentences; `ties` are the near ties of pairs that differ."""
    if ties is not None:
        yield f"Of {ties.of} whose log-probabilities are known, {ties.n} part at a near tie."
    counts = (
        (pairs.failure_count, "one side failed"),
        (pairs.silent_count, "neither side has any output"),
    )
    for count, reason in counts:
        if count:
            yield f"Left out, because {reason}: {fmt.count_things(count, 'pair')}."
