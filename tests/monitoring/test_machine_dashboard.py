"""The dashboard of the machine: nodes, readiness of each arm, and the servers' own figures."""

from __future__ import annotations

from hosted import by_part, changed, drawn, graphs, words

from tandem.monitoring.widget import Dashboard


def machine(environment: str) -> Dashboard:
    return drawn(environment)["machine"]


def test_a_runtime_whose_counters_stay_zero_is_said_to_have_no_acceptance_of_its_own():
    result = words(machine("post-us-east-2"))
    assert "On nxdi-v0 vLLM's spec_decode counters stay 0" in result
    assert not [
        graph for graph in graphs(machine("post-us-east-2")) if graph.title.startswith("Acceptance")
    ]


def test_without_container_insights_nothing_is_drawn_and_that_is_said():
    dashboard = by_part(changed("post-us-east-2", observability={"container_insights": False}))[
        "machine"
    ]
    assert graphs(dashboard) == []
    assert "`observability.container_insights` is false" in words(dashboard)
