"""Rules on speculation modes and windows of a runtime, and on the variants of an experiment.

No runtime's data has a largest `num_speculative_tokens`: no source states one. Therefore no rule
refuses a window by runtime. Every window is 1 to 64 (tandem/declarations/experiment.py),
`tokens-by-mode` requires one by mode, and `length-holds` (tandem/rules/lengths.py) refuses a window
that max_model_len does not hold.
"""

from __future__ import annotations

from collections.abc import Iterable

from tandem.declarations.suite_file import find_suite_name
from tandem.rules.contexts import ArmContext, EnvironmentContext, ExperimentContext, HostingContext
from tandem.rules.rule import DATA, LOADER, NXDI, RuleFinding, RuleList, index_paths, join_values

OWN_TASK_NAME = "sums"  # tandem/bench/suites/tasks/sums.jsonl, which is in the image
# above 10 only near-deterministic text gains: (1 - a^k) / (1 - a) over 1 + 0.19 k, arXiv 2211.17192
LONG_WINDOW = 10
# CloudFormation takes a template of 1 MB; a variant with its artifact takes up to 27 KB
MAX_CDK_VARIANTS = 30

_MODES = f"{DATA}/runtimes, modes"
_OWN = "Tandem's own: what an experiment is"
_TEMPLATE_SIZE = (
    "docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/cloudformation-limits.html:"
    " a template's size"
)
_POD_NAMES = "kubernetes.io/docs/concepts/overview/working-with-objects/names"
RULES = RuleList()


@RULES.refuse("mode-served", _MODES, "2026-11-21")
def _find_refused_mode(context: ArmContext) -> Iterable[RuleFinding]:
    """The runtime serves the mode for the target's family."""
    family = context.family
    runtime = context.runtime
    support = context.support
    can_serve = support.verdict.value != "refused"
    # target-family refuses a family that the runtime serves in no mode
    is_known = family in runtime.target_families.value
    if not can_serve or (is_known and not support.serves_family(family)):
        words = f" with a target of family {family}" if can_serve else ""
        got = f"{support.mode} on runtime {runtime.name}{words}: {support.reason}"
        modes = [
            mode
            for mode in runtime.modes
            if mode.verdict.value == "served" and mode.serves_family(family)
        ]
        legal = join_values(mode.mode for mode in modes)
        yield RuleFinding(
            context.paths["mode"], got, legal, f"write {support.nearest}", support.verdict
        )


@RULES.refuse("mode-batch", _MODES, "2026-11-21")
def _find_large_batch(context: ArmContext) -> Iterable[RuleFinding]:
    """The batch is within what the runtime serves in the mode."""
    batch = context.experiment.serving.max_num_seqs
    support = context.support
    limit = context.support.max_num_seqs
    if limit is not None and support.verdict.value != "refused" and batch > limit.value:
        got = f"{batch} with mode {support.mode} on runtime {context.runtime.name}"
        change = f"write {limit.value}, or: {support.nearest}"
        yield RuleFinding("serving.max_num_seqs", got, f"at most {limit.value}", change, limit)


@RULES.refuse_unproven(
    "mode-unproven",
    _MODES,
    "2026-11-21",
    accepted="A mode admitted by accept_unproven has no documented run.",
)
def _find_unproven_mode(context: ArmContext) -> Iterable[RuleFinding]:
    """A documented run of mode and target exists, or the experiment says accept_unproven."""
    target = context.experiment.target
    support = context.support
    verdict = support.verdict
    is_served = verdict.value != "refused" and support.serves_family(context.family)
    if is_served and not support.is_shown(target):
        got = f"{support.mode} with {target} on runtime {context.runtime.name}: {support.reason}"
        legal = "a mode that is served"
        if support.proven_targets and target not in support.proven_targets:
            legal = f"{support.mode} with {join_values(support.proven_targets)}"
        change = f"accept_unproven: true, or: {support.nearest}"
        if context.experiment.accept_unproven:
            change = "prove it on one node first"
        yield RuleFinding(context.paths["mode"], got, legal, change, verdict)


@RULES.refuse("tokens-by-mode", LOADER, "2026-11-21")
def _find_token_mismatch(context: ArmContext) -> Iterable[RuleFinding]:
    """Every mode but none says num_speculative_tokens, and none does not."""
    path = context.paths["num_speculative_tokens"]
    mode = context.variant.mode
    tokens = context.variant.num_speculative_tokens
    if mode == "none" and tokens is not None:
        yield RuleFinding(path, str(tokens), "nothing with mode none", "delete it")
    if mode != "none" and tokens is None:
        change = "write 7 for a plain draft, 3 for a head: the windows that AWS documents"
        yield RuleFinding(path, "", f"1 to 64 with mode {mode}", change)


@RULES.refuse("method-read", LOADER, "2026-11-21")
def _find_unread_method(context: ArmContext) -> Iterable[RuleFinding]:
    """VLLM's `method` is left out, or is what the runtime itself reads for the mode."""
    method = context.variant.method
    mode = context.variant.mode
    read_method = context.spelling.speculation_methods.get(mode)
    if method is not None and method != read_method:
        got = f"{method!r} with mode {mode} on runtime {context.runtime.name}"
        if not read_method and mode != "none":
            got += ", which its loader never reads: what runs is decided by mode"
            if method == "eagle":
                got += f"; the post's `eagle` is such a label, {mode} is what ran"
        legal = f"nothing, or {read_method}" if read_method else "nothing"
        yield RuleFinding(context.paths["method"], got, legal, "delete it")


@RULES.warn("window-gains", f"{NXDI} models/model_base.py _token_gen_forward", "2025-09-22")
def _find_useless_window(context: ArmContext) -> Iterable[RuleFinding]:
    """A window of 1 gains nothing if a step commits no more tokens than the window has."""
    step = context.runtime.counters.tokens_per_step
    path = context.paths["num_speculative_tokens"]
    if (
        context.support.mode != "none"
        and context.variant.num_speculative_tokens == 1
        and step.value == "k"
    ):
        got = f"1: a step on {context.runtime.name} commits 1 token, as without speculation"
        yield RuleFinding(path, got, "2 or more", "write 2 or more", step)


@RULES.warn("window-long", "arXiv 2211.17192, expected tokens per step", "2026-11-21")
def _find_long_window(context: ArmContext) -> Iterable[RuleFinding]:
    """A window above {LONG_WINDOW} is explored by a sweep, not served."""
    path = context.paths["num_speculative_tokens"]
    tokens = context.variant.num_speculative_tokens or 0
    if context.variant.mode != "none" and tokens > LONG_WINDOW and not path.startswith("sweep."):
        change = "write 5 to 7 for mixed text, or find the best window by `sweep`"
        yield RuleFinding(
            path,
            str(tokens),
            f"at most {LONG_WINDOW}, unless the text is near-deterministic",
            change,
        )


@RULES.warn("batch-shown", f"{_MODES}, shown_max_num_seqs", "2026-11-22")
def _find_unshown_batch(context: ArmContext) -> Iterable[RuleFinding]:
    """A documented run shows the mode with so large a batch."""
    batch = context.experiment.serving.max_num_seqs
    limit = context.support.shown_max_num_seqs
    if limit is not None and batch > limit.value:
        got = f"{batch} with mode {context.variant.mode} on runtime {context.runtime.name}"
        change = f"write {limit.value}, or try {batch} on one node first"
        yield RuleFinding(
            "serving.max_num_seqs", got, f"at most {limit.value} is shown to run", change, limit
        )


@RULES.refuse("sweep-declared", _OWN, "2026-11-27")
def _find_undeclared_sweep(context: ExperimentContext) -> Iterable[RuleFinding]:
    """A sweep says by which loads and limits its candidates are compared."""
    experiment = context.experiment
    if experiment.sweep is None:
        return
    if not experiment.concurrency:
        legal = "the closed loops at which candidates are compared, with a sweep"
        yield RuleFinding("concurrency", "", legal, "write [4], the post's load, or your own")
    if experiment.goodput is None or not experiment.goodput.list_limits():
        change = "write goodput: {ttft_ms: ..., tpot_ms: ...}, what your users wait for at most"
        yield RuleFinding("goodput", "", "a limit on ttft_ms, tpot_ms or both with a sweep", change)


@RULES.refuse("task-set", _OWN, "2026-11-28")
def _find_task_faults(context: ExperimentContext) -> Iterable[RuleFinding]:
    """Each task stands once, with the digest of its set; only {OWN_TASK_NAME} needs none."""
    tasks = [task.name for task in context.experiment.quality]
    for index, task in enumerate(context.experiment.quality):
        if task.sha256 is None and task.name != OWN_TASK_NAME:
            change = (
                "stage the set, then write the digest:"
                f" tandem artifacts stage-task {task.name} --env NAME"
            )
            yield RuleFinding(f"quality[{index}].sha256", "", "the SHA-256 of the task set", change)
        if task.name in tasks[:index]:
            yield RuleFinding(
                f"quality[{index}].name", task.name, "each task once", "remove one of them"
            )


@RULES.warn("concurrency-served", _OWN, "2026-11-27")
def _find_excess_concurrency(context: ExperimentContext) -> Iterable[RuleFinding]:
    """A closed loop with more streams than the server's batch measures its queue too."""
    limit = context.experiment.serving.max_num_seqs
    for index, streams in enumerate(context.experiment.concurrency):
        if streams > limit:
            change = f"write at most {limit}, or raise serving.max_num_seqs"
            yield RuleFinding(
                f"concurrency[{index}]", str(streams), f"at most max_num_seqs, {limit}", change
            )


@RULES.refuse("baseline", _OWN, "2026-11-21")
def _find_missing_baseline(context: ExperimentContext) -> Iterable[RuleFinding]:
    """An experiment has a variant without speculation to compare with."""
    if all(arm.variant.mode != "none" for arm in context.arms):
        change = "add a variant with mode none: without a baseline nothing can be called faster"
        yield RuleFinding(
            "variants", "no variant with mode none", "one or more with mode none", change
        )


@RULES.warn("two-variants", _OWN, "2026-11-21")
def _find_single_variant(context: ExperimentContext) -> Iterable[RuleFinding]:
    """An experiment compares at least two variants."""
    if len(context.arms) == 1:
        yield RuleFinding(
            "variants", "one variant", "two or more", "add a variant to compare the first with"
        )


@RULES.refuse_repeats("variant-once", _POD_NAMES, "2026-11-21")
def _list_variant_names(context: ExperimentContext) -> Iterable[tuple[str, str]]:
    """Each variant's name stands once, swept ones included."""
    return [(arm.paths["name"], arm.variant.name) for arm in context.arms]


@RULES.refuse_repeats("suite-once", _OWN, "2026-11-21")
def _list_suites(context: ExperimentContext) -> Iterable[tuple[str, str]]:
    """Each suite's name stands once; a file's name is the last part of its path."""
    return index_paths("suites", map(find_suite_name, context.experiment.suites))


@RULES.warn("claims-suite", _OWN, "2026-11-29")
def _find_unasked_claims(context: ExperimentContext) -> Iterable[RuleFinding]:
    """An experiment with the claims of the post sends the post's prompts, the suite post."""
    experiment = context.experiment
    if experiment.claims == "post" and "post" not in experiment.suites:
        got = "post, but no suite is post: claims about its prompts stay without an answer"
        yield RuleFinding("claims", got, "none, or post with suite post", "add post to suites")


@RULES.refuse("sample-classes", _OWN, "2026-11-29")
def _find_other_samples(context: ExperimentContext) -> Iterable[RuleFinding]:
    """The classes that are stated of a sample have as many prompts as the sample."""
    for index, suite in enumerate(context.experiment.suites):
        if isinstance(suite, str) or suite.sample is None or not suite.classes:
            continue
        count = sum(suite.classes.values())
        if count != suite.sample:
            got = f"{count} prompts, and a sample of {suite.sample}"
            change = "delete the classes; with the file at hand, check prints those of the sample"
            yield RuleFinding(f"suites[{index}].classes", got, "those of the sample", change)


@RULES.refuse("arms-at-once", "Tandem's own: a claim is bound to one node", "2026-11-21")
def _find_excess_arms(context: HostingContext) -> Iterable[RuleFinding]:
    """With schedule simultaneous the fleet holds every variant at once."""
    experiment = context.experiment
    total = context.instance.devices.value
    devices = experiment.serving.devices
    nodes = context.environment.capacity.nodes
    arms = len(context.arms)
    per_node = (total or 0) // devices
    if experiment.schedule == "simultaneous" and per_node and arms > per_node * nodes:
        got = f"{experiment.name!r}, whose {arms} variants of {devices} devices run all at once"
        legal = f"at most {per_node * nodes} variants on {nodes} nodes of {total} devices"
        change = (
            "write schedule: interleaved in the experiment, or capacity.nodes:"
            f" {-(-arms // per_node)}"
        )
        yield RuleFinding(context.path, got, legal, change)


@RULES.refuse("variants-sent", _TEMPLATE_SIZE, "2026-11-21")
def _find_excess_variants(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """With delivery cdk, hosted experiments have at most {MAX_CDK_VARIANTS} variants in all."""
    arms = sum(len(experiment.all_variants()) for experiment in context.experiments)
    if context.environment.delivery.kind == "cdk" and arms > MAX_CDK_VARIANTS:
        legal = f"at most {MAX_CDK_VARIANTS} variants with delivery cdk"
        change = "host fewer experiments here, shorten a sweep, or write delivery.kind: gitops"
        yield RuleFinding(
            "experiments", f"{arms} variants in all, applied by the CDK", legal, change
        )
