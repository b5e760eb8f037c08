"""A dashboard beyond a limit of CloudWatch is refused before a deploy."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hosted import drawn, graph

from tandem.monitoring import dashboards
from tandem.monitoring.dashboards import build_body, find_limit_faults
from tandem.monitoring.widget import Dashboard


def repeated(count: int, lines: int = 1) -> Dashboard:
    """A dashboard of one graph with so many lines, `count` times; it says nothing, so that its JSON stays small."""
    one = graph(drawn("post-us-east-2")["post"], "TPOT, p50")
    one = replace(one, width=24, sentence="", lines=one.lines[:1] * lines)
    return Dashboard(name="one", widgets=(one,) * count)


def list_faults(dashboard: Dashboard) -> list[str]:
    return list(find_limit_faults(build_body(dashboard, "us-east-2")))


@pytest.mark.parametrize(
    ("within", "beyond", "limit"),
    [(repeated(250), repeated(251), "500"), (repeated(2, lines=1250), repeated(1, lines=2501), "2500")],
)
def test_a_dashboard_is_refused_beyond_a_limit(within: Dashboard, beyond: Dashboard, limit: str, monkeypatch) -> None:
    monkeypatch.setattr(dashboards, "MAX_BODY_BYTES", 10**9)
    assert list_faults(within) == []
    (fault,) = list_faults(beyond)
    assert fault.endswith(f"at most {limit}")


def test_a_body_that_no_template_could_carry_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(dashboards, "MAX_BODY_BYTES", 10_000)
    (fault,) = list_faults(drawn("post-us-east-2")["post"])
    assert fault.endswith("at most 10000")
