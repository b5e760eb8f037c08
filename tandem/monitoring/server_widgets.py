"""The servers of one experiment on the machine's dashboard: ready or not, and what each says of itself.

Invariant: both arms in one graph, in their colors of every other dashboard.
"""

from __future__ import annotations

from dataclasses import replace

from tandem.metrics import CONTAINER_INSIGHTS, VLLM_SCRAPE
from tandem.monitoring.dashboard_arms import PERIOD_S, DashboardArms
from tandem.monitoring.layout import COLUMNS, build_text
from tandem.monitoring.metric_figure import FIGURE_WIDTH, MetricFigure
from tandem.monitoring.metric_source import MetricSource
from tandem.monitoring.widget import GraphWidget, MathExpression, MetricLine, TextWidget
from tandem.spec import names
from tandem.spec.catalogue import load_catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Variant

HALF_WIDTH = COLUMNS // 2
_V0 = "nxdi-v0"  # the runtime of vLLM's V0 engine, which has another name for the use of its cache
_READY = MetricFigure(
    metric="service_number_of_running_pods",
    publisher=CONTAINER_INSIGHTS,
    title="Ready servers",
    sentence="Ready pods behind the arm's Service, least of 5 minutes; nothing sent counts as 0, so the newest "
    "point may "
    "read 0 until it is in. Ready is not fast: see the other rows.",
    statistic="Minimum",
)
_PODS = MetricFigure(
    metric="namespace_number_of_running_pods",
    publisher=CONTAINER_INSIGHTS,
    title="Pods running",
    sentence="Pods of the experiment's namespace in phase Running, ready or not, jobs and the bench included; "
    "nothing sent "
    "counts as 0. More than are ready: a server loads, or waits for its artifact.",
    statistic="Minimum",
)
_RUNNING = MetricFigure(
    metric="vllm:num_requests_running",
    publisher=VLLM_SCRAPE,
    title="Requests running",
    sentence="Requests in the batch, most of 5 readings a minute apart: shorter bursts fall between. In a run "
    "it is the "
    "concurrency, or max_num_seqs where that is less.",
    statistic="Maximum",
)
_WAITING = MetricFigure(
    metric="vllm:num_requests_waiting",
    publisher=VLLM_SCRAPE,
    title="Requests waiting",
    sentence="Requests not yet scheduled, most of 5 readings. Above 0 while running is flat: more streams than "
    "the batch "
    "holds, and TTFT is queue.",
    statistic="Maximum",
)
_CACHE = MetricFigure(
    metric="vllm:kv_cache_usage_perc",
    publisher=VLLM_SCRAPE,
    title="KV cache used",
    sentence="Share of the KV cache in use, most of 5 readings; 1 is all of it. It is no memory of the "
    "accelerator: what "
    "weights and graphs take is not in it.",
    statistic="Maximum",
)
_PREEMPTIONS = MetricFigure(
    metric="vllm:num_preemptions_total",
    publisher=VLLM_SCRAPE,
    title="Requests preempted",
    sentence="Requests put back because the KV cache was full, in 5 minutes. Any is a run whose latency "
    "compares nothing.",
    statistic="Sum",
)
_ENDS = MetricFigure(
    metric="vllm:request_success_total",
    publisher=VLLM_SCRAPE,
    title="Requests ended",
    sentence="Requests that the server ended by itself in 5 minutes, whatever the reason; those that a client "
    "cut are not "
    "in it. More than the bench asked: somebody else asks too.",
    statistic="Sum",
)
_RESTARTS = MetricFigure(
    metric="pod_number_of_container_restarts",
    publisher=CONTAINER_INSIGHTS,
    title="Restarts",
    sentence="Restarts of a server's containers in 5 minutes; a new pod in the place of one that is gone counts "
    "as none. "
    "Any in a run: its rounds around it are suspect.",
    statistic="Sum",
)
_TOKENS = MetricFigure(
    metric="vllm:generation_tokens_total",
    publisher=VLLM_SCRAPE,
    title="Generated tokens",
    sentence="Counted by the server, mean of 5 minutes, pauses between turns included: lower than the bench's "
    "throughput. "
    "On nxdi-v0 a speculating server counts 1 a step, which is too low.",
    statistic="Sum",
    unit="tokens/s",
)
_DRAFTS = MetricFigure(
    metric="vllm:spec_decode_num_drafts_total",
    publisher=VLLM_SCRAPE,
    title="Acceptance length by the server",
    sentence="1 + accepted / drafts, of all that the server answered in 5 minutes, whoever asked: the bench's "
    "own length, "
    "by class, is on the experiment's dashboard.",
    statistic="Sum",
    unit="tokens",
)
_ACCEPTANCES = replace(_DRAFTS, metric="vllm:spec_decode_num_accepted_tokens_total")


def build_server_widgets(environment: Environment, arms: DashboardArms) -> tuple[GraphWidget | TextWidget, ...]:
    """Return what is known of every drawn server of an experiment."""
    widgets = _ServerWidgets(environment, arms)
    return (
        widgets.head(),
        widgets.ready(),
        widgets.pods(),
        widgets.graph(_RESTARTS),
        widgets.graph(_RUNNING),
        widgets.graph(_WAITING),
        widgets.graph(_PREEMPTIONS),
        widgets.cache(),
        widgets.tokens(),
        widgets.graph(_ENDS, HALF_WIDTH),
        widgets.acceptance(),
    )


class _ServerWidgets:
    """The servers of one experiment, one an arm."""

    def __init__(self, environment: Environment, arms: DashboardArms) -> None:
        self._environment, self._arms = environment, arms
        self._experiment = arms.experiment_scope.experiment

    def head(self) -> TextWidget:
        """Return the experiment's heading, and which of its servers are not drawn."""
        overflow_variants = self._arms.overflow_variants
        overflow_note = (
            f" {len(overflow_variants)} further arms are not drawn, from {overflow_variants[0].name} to "
            f"{overflow_variants[-1].name} (all are named "
            "on the experiment's dashboard); their figures are in CloudWatch's metrics, by Service."
            if overflow_variants
            else ""
        )
        return build_text(
            f"### Servers of {self._experiment.name}\nNamespace "
            f"`{names.experiment_namespace(self._experiment)}`, a Service for "
            f"each arm.{overflow_note}"
        )

    def graph(self, figure: MetricFigure, width: int = FIGURE_WIDTH) -> GraphWidget:
        """Return a figure of every server."""
        return figure.graph(
            tuple(
                replace(self._line(figure, variant, f"m{number}"), label=variant.name, color=self._arms.color(variant))
                for number, variant in enumerate(self._arms.visible_variants)
            ),
            width,
        )

    def ready(self) -> GraphWidget:
        """Return how many servers of each arm are ready, none where nothing is sent."""
        return self._build_formula_graph(_READY, "FILL(m{}, 0)")

    def pods(self) -> GraphWidget:
        """Return how many pods of the experiment run at all."""
        pods_line = MetricSource(self._environment, _PODS.publisher, self._location()).line(
            _PODS.metric, _PODS.statistic, id_="m"
        )
        fill_line = MathExpression(text="FILL(m, 0)", label=self._experiment.name, id="r")
        return _PODS.graph((replace(pods_line, label=None), fill_line))

    def tokens(self) -> GraphWidget:
        """Return what each server generates in a second."""
        return self._build_formula_graph(_TOKENS, f"m{{}} / {PERIOD_S}", HALF_WIDTH)

    def cache(self) -> GraphWidget | TextWidget:
        """Return the use of the KV cache, or why it is not known."""
        if self._experiment.runtime == _V0:
            return build_text(
                f"**{_CACHE.title}**: not drawn. vLLM's V0 engine, which {_V0} serves with, has another name for it, "
                "and nobody has recorded what it sends.",
                HALF_WIDTH,
            )
        return self.graph(_CACHE, HALF_WIDTH)

    def acceptance(self) -> GraphWidget | TextWidget:
        """Return the acceptance length by the servers' own counters, or why it is not known."""
        speculative_arms = tuple(variant for variant in self._arms.visible_variants if variant.mode != "none")
        if not speculative_arms:
            return build_text(f"**{_DRAFTS.title}**: no arm of this experiment speculates.", HALF_WIDTH)
        runtime = load_catalogue().runtimes.get(self._experiment.runtime)
        if runtime is None or runtime.counters.speculation.value == "flat":
            return build_text(
                f"**{_DRAFTS.title}**: not drawn. On {self._experiment.runtime} vLLM's spec_decode counters stay 0. "
                "The bench's acceptance length, from decode steps, is on the experiment's dashboard.",
                HALF_WIDTH,
            )
        return _DRAFTS.graph(
            tuple(
                line
                for number, variant in enumerate(speculative_arms)
                for line in (
                    self._input_line(_DRAFTS, variant, f"d{number}"),
                    self._input_line(_ACCEPTANCES, variant, f"a{number}"),
                    self._formula_line(variant, f"IF(d{number} > 0, 1 + a{number} / d{number})", f"r{number}"),
                )
            ),
            HALF_WIDTH,
        )

    def _build_formula_graph(self, figure: MetricFigure, formula: str, width: int = FIGURE_WIDTH) -> GraphWidget:
        """Return a formula over each server's series, which stands for `{}`."""
        return figure.graph(
            tuple(
                line
                for number, variant in enumerate(self._arms.visible_variants)
                for line in (
                    self._input_line(figure, variant, f"m{number}"),
                    self._formula_line(variant, formula.format(number), f"r{number}"),
                )
            ),
            width,
        )

    def _location(self) -> dict[str, str]:
        return {
            "ClusterName": names.cluster_name(self._environment),
            "Namespace": names.experiment_namespace(self._experiment),
        }

    def _input_line(self, figure: MetricFigure, variant: Variant, id_: str) -> MetricLine:
        return replace(self._line(figure, variant, id_), label=None, is_visible=False)

    def _formula_line(self, variant: Variant, formula: str, id_: str) -> MathExpression:
        return MathExpression(text=formula, label=variant.name, id=id_, color=self._arms.color(variant))

    def _line(self, figure: MetricFigure, variant: Variant, id_: str) -> MetricLine:
        """Return a server's series of a figure; Container Insights names a pod by its Deployment."""
        dimension = "PodName" if figure is _RESTARTS else "Service"
        source = MetricSource(self._environment, figure.publisher, self._location() | {dimension: variant.name})
        return source.line(figure.metric, figure.statistic, id_=id_, is_visible=True)
