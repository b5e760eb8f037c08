"""The servers of one experiment on the machine's dashboard: ready or not, and what each says of itself.

Invariant: both arms in one graph, in their colors of every other dashboard.
"""

from __future__ import annotations

from dataclasses import replace

from tandem.metrics import CONTAINER_INSIGHTS, VLLM_SCRAPE
from tandem.spec import names
from tandem.spec.catalogue import catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Variant
from tandem.watch.compared import PERIOD_S, Arms
from tandem.watch.figure import WIDTH, Figure
from tandem.watch.layout import COLUMNS, text
from tandem.watch.source import Cell
from tandem.watch.widget import Expression, Graph, Line, Text

HALF = COLUMNS // 2
_V0 = "nxdi-v0"  # the runtime of vLLM's V0 engine, which has another name for the use of its cache
_READY = Figure(
    metric="service_number_of_running_pods",
    publisher=CONTAINER_INSIGHTS,
    title="Ready servers",
    says="Ready pods behind the arm's Service, least of 5 minutes; nothing sent counts as 0, so the newest point may "
    "read 0 until it is in. Ready is not fast: see the other rows.",
    statistic="Minimum",
)
_PODS = Figure(
    metric="namespace_number_of_running_pods",
    publisher=CONTAINER_INSIGHTS,
    title="Pods running",
    says="Pods of the experiment's namespace in phase Running, ready or not, jobs and the bench included; nothing sent "
    "counts as 0. More than are ready: a server loads, or waits for its artifact.",
    statistic="Minimum",
)
_RUNNING = Figure(
    metric="vllm:num_requests_running",
    publisher=VLLM_SCRAPE,
    title="Requests running",
    says="Requests in the batch, most of 5 readings a minute apart: shorter bursts fall between. In a run it is the "
    "concurrency, or max_num_seqs where that is less.",
    statistic="Maximum",
)
_WAITING = Figure(
    metric="vllm:num_requests_waiting",
    publisher=VLLM_SCRAPE,
    title="Requests waiting",
    says="Requests not yet scheduled, most of 5 readings. Above 0 while running is flat: more streams than the batch "
    "holds, and TTFT is queue.",
    statistic="Maximum",
)
_CACHE = Figure(
    metric="vllm:kv_cache_usage_perc",
    publisher=VLLM_SCRAPE,
    title="KV cache used",
    says="Share of the KV cache in use, most of 5 readings; 1 is all of it. It is no memory of the accelerator: what "
    "weights and graphs take is not in it.",
    statistic="Maximum",
)
_PREEMPTED = Figure(
    metric="vllm:num_preemptions_total",
    publisher=VLLM_SCRAPE,
    title="Requests preempted",
    says="Requests put back because the KV cache was full, in 5 minutes. Any is a run whose latency compares nothing.",
    statistic="Sum",
)
_ENDED = Figure(
    metric="vllm:request_success_total",
    publisher=VLLM_SCRAPE,
    title="Requests ended",
    says="Requests that the server ended by itself in 5 minutes, whatever the reason; those that a client cut are not "
    "in it. More than the bench asked: somebody else asks too.",
    statistic="Sum",
)
_RESTARTS = Figure(
    metric="pod_number_of_container_restarts",
    publisher=CONTAINER_INSIGHTS,
    title="Restarts",
    says="Restarts of a server's containers in 5 minutes; a new pod in the place of one that is gone counts as none. "
    "Any in a run: its rounds around it are suspect.",
    statistic="Sum",
)
_TOKENS = Figure(
    metric="vllm:generation_tokens_total",
    publisher=VLLM_SCRAPE,
    title="Generated tokens",
    says="Counted by the server, mean of 5 minutes, pauses between turns included: lower than the bench's throughput. "
    "On nxdi-v0 a speculating server counts 1 a step, which is too low.",
    statistic="Sum",
    unit="tokens/s",
)
_DRAFTS = Figure(
    metric="vllm:spec_decode_num_drafts_total",
    publisher=VLLM_SCRAPE,
    title="Acceptance length by the server",
    says="1 + accepted / drafts, of all that the server answered in 5 minutes, whoever asked: the bench's own length, "
    "by class, is on the experiment's dashboard.",
    statistic="Sum",
    unit="tokens",
)
_ACCEPTED = replace(_DRAFTS, metric="vllm:spec_decode_num_accepted_tokens_total")


def servers(environment: Environment, arms: Arms) -> tuple[Graph | Text, ...]:
    """Return what is known of every drawn server of an experiment."""
    of = _Servers(environment, arms)
    return (
        of.head(),
        of.ready(),
        of.pods(),
        of.graph(_RESTARTS),
        of.graph(_RUNNING),
        of.graph(_WAITING),
        of.graph(_PREEMPTED),
        of.cache(),
        of.tokens(),
        of.graph(_ENDED, HALF),
        of.acceptance(),
    )


class _Servers:
    """The servers of one experiment, one an arm."""

    def __init__(self, environment: Environment, arms: Arms) -> None:
        self._environment, self._arms = environment, arms
        self._experiment = arms.watching.experiment

    def head(self) -> Text:
        """Return the experiment's heading, and which of its servers are not drawn."""
        undrawn = self._arms.undrawn
        rest = (
            f" {len(undrawn)} further arms are not drawn, from {undrawn[0].name} to {undrawn[-1].name} (all are named "
            "on the experiment's dashboard); their figures are in CloudWatch's metrics, by Service."
            if undrawn
            else ""
        )
        return text(
            f"### Servers of {self._experiment.name}\nNamespace `{names.namespace(self._experiment)}`, a Service for "
            f"each arm.{rest}"
        )

    def graph(self, figure: Figure, width: int = WIDTH) -> Graph:
        """Return a figure of every server."""
        return figure.graph(
            tuple(
                replace(self._line(figure, variant, f"m{number}"), label=variant.name, color=self._arms.color(variant))
                for number, variant in enumerate(self._arms.drawn)
            ),
            width,
        )

    def ready(self) -> Graph:
        """Return how many servers of each arm are ready, none where nothing is sent."""
        return self._each(_READY, "FILL(m{}, 0)")

    def pods(self) -> Graph:
        """Return how many pods of the experiment run at all."""
        running = Cell(self._environment, _PODS.publisher, self._where()).line(_PODS.metric, _PODS.statistic, id_="m")
        filled = Expression(text="FILL(m, 0)", label=self._experiment.name, id="r")
        return _PODS.graph((replace(running, label=None), filled))

    def tokens(self) -> Graph:
        """Return what each server generates in a second."""
        return self._each(_TOKENS, f"m{{}} / {PERIOD_S}", HALF)

    def cache(self) -> Graph | Text:
        """Return the use of the KV cache, or why it is not known."""
        if self._experiment.runtime == _V0:
            return text(
                f"**{_CACHE.title}**: not drawn. vLLM's V0 engine, which {_V0} serves with, has another name for it, "
                "and nobody has recorded what it sends.",
                HALF,
            )
        return self.graph(_CACHE, HALF)

    def acceptance(self) -> Graph | Text:
        """Return the acceptance length by the servers' own counters, or why it is not known."""
        speculating = tuple(variant for variant in self._arms.drawn if variant.mode != "none")
        if not speculating:
            return text(f"**{_DRAFTS.title}**: no arm of this experiment speculates.", HALF)
        runtime = catalogue().runtimes.get(self._experiment.runtime)
        if runtime is None or runtime.counters.speculation.value == "flat":
            return text(
                f"**{_DRAFTS.title}**: not drawn. On {self._experiment.runtime} vLLM's spec_decode counters stay 0. "
                "The bench's acceptance length, from decode steps, is on the experiment's dashboard.",
                HALF,
            )
        return _DRAFTS.graph(
            tuple(
                line
                for number, variant in enumerate(speculating)
                for line in (
                    self._hidden(_DRAFTS, variant, f"d{number}"),
                    self._hidden(_ACCEPTED, variant, f"a{number}"),
                    self._computed(variant, f"IF(d{number} > 0, 1 + a{number} / d{number})", f"r{number}"),
                )
            ),
            HALF,
        )

    def _each(self, figure: Figure, formula: str, width: int = WIDTH) -> Graph:
        """Return a formula over each server's series, which stands for `{}`."""
        return figure.graph(
            tuple(
                line
                for number, variant in enumerate(self._arms.drawn)
                for line in (
                    self._hidden(figure, variant, f"m{number}"),
                    self._computed(variant, formula.format(number), f"r{number}"),
                )
            ),
            width,
        )

    def _where(self) -> dict[str, str]:
        return {"ClusterName": names.cluster(self._environment), "Namespace": names.namespace(self._experiment)}

    def _hidden(self, figure: Figure, variant: Variant, id_: str) -> Line:
        return replace(self._line(figure, variant, id_), label=None, shown=False)

    def _computed(self, variant: Variant, formula: str, id_: str) -> Expression:
        return Expression(text=formula, label=variant.name, id=id_, color=self._arms.color(variant))

    def _line(self, figure: Figure, variant: Variant, id_: str) -> Line:
        """Return a server's series of a figure; Container Insights names a pod by its Deployment."""
        by = "PodName" if figure is _RESTARTS else "Service"
        cell = Cell(self._environment, figure.publisher, self._where() | {by: variant.name})
        return cell.line(figure.metric, figure.statistic, id_=id_, shown=True)
