"""The runbook: a section for every alarm, and commands that exist."""

from __future__ import annotations

import re

import pytest
from alarmed import DRAFTING, EXPERIMENT, REFERENCE, watched
from hosted import ROOT

from charts import chart, serve
from tandem.declarations import names
from tandem.monitoring.alarms import build_alarms
from tandem.monitoring.guard_alarms import STOP_ANCHOR, build_guard_alarms

PAGES = [ROOT / "docs" / name for name in ("runbook.md", "runbook-serving.md", "runbook-guard.md")]
SCOPE = watched(only=["post"], reference=REFERENCE)
ENVIRONMENT = SCOPE.environment
ALARMS = [build_alarms(watched()), build_alarms(SCOPE)]
GUARD = build_guard_alarms(ENVIRONMENT)
FLOOR = build_alarms(watched(only=["post"], reference=None))
CALLED = "when-you-are-called"
# what people do, without an alarm
PROCEDURES = {
    "teardown",
    "fleet-will-not-go-to-zero",
    "block-renewal",
    "a-blocks-end-moves",
    "fleet-update-under-a-lease",
    "break-glass",
}
VARIABLES = {
    "ENV": ENVIRONMENT.name,
    "REGION": ENVIRONMENT.region,
    "EXPERIMENT": EXPERIMENT,
    "VARIANT": DRAFTING,
    "TYPE": ENVIRONMENT.capacity.instance_type,
}


def filled(text: str) -> str:
    """The text as a shell would have it: the variables put in, `$(...)` left alone."""
    return re.sub(r"\$([A-Z]+)", lambda found: VARIABLES[found[1]], text)


def anchor(heading: str) -> str:
    """As GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def sections(text: str) -> dict[str, str]:
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return {anchor(heading): body for heading, body in zip(parts[1::2], parts[2::2], strict=True)}


TEXT = "".join(page.read_text() for page in PAGES)
SECTIONS = sections(TEXT)
BLOCKS = re.findall(r"^```\n(.*?)^```", TEXT, flags=re.DOTALL | re.MULTILINE)
SPELT = re.findall(r"`([^`\n]+)`", TEXT)
LINES = [*(line for block in BLOCKS for line in block.splitlines()), *SPELT]


def commands(program: str) -> list[str]:
    return sorted({line for line in LINES if line.startswith(f"{program} ")})


def wanted() -> set[str]:
    result = {CALLED}
    for item in (*ALARMS, FLOOR):
        assert item.suppressor
        result |= {row.anchor for row in (*item.alarms, *item.composites, item.suppressor)}
    return result | {row.anchor for row in (*GUARD.alarms, *GUARD.composites)}


def test_every_alarm_has_a_section_and_every_section_an_alarm():
    assert set(SECTIONS) == wanted() | PROCEDURES


def test_an_alarm_leads_to_the_page_that_has_its_section():
    alarms = [
        alarm
        for item in (*ALARMS, FLOOR, GUARD)
        for alarm in (*item.alarms, item.suppressor)
        if alarm
    ]
    pages = {alarm.page: sections((ROOT / "docs" / alarm.page).read_text()) for alarm in alarms}
    assert [alarm.name for alarm in alarms if alarm.anchor not in pages[alarm.page]] == []


@pytest.mark.parametrize("section", sorted(wanted() - {CALLED, STOP_ANCHOR, "parked"}))
def test_a_section_has_commands_causes_and_says_when_the_alarm_is_false(section):
    body = SECTIONS[section]
    assert "\n```\n" in body or "Use the commands of" in body
    assert "| likely cause, the likeliest first |" in body
    assert re.search(r"^False when: ", body, flags=re.MULTILINE)


@pytest.mark.parametrize("line", commands("kubectl"))
def test_a_command_of_kubectl_names_what_is_rendered(line):
    text = filled(line)
    containers = re.findall(r" -c ([\w-]+)", text)
    labels = re.findall(r" -l ([\w./-]+)=", text)
    deployments = re.findall(r"deploy[/ ]([\w-]+)", text)

    assert set(containers) <= {serve.CONTAINER, serve.ADMIT, "s3-plugin"}
    assert set(labels) <= {chart.NAME, *chart.PART_OF, "node.kubernetes.io/instance-type"}
    assert set(deployments) <= {DRAFTING}
    assert set(re.findall(r" -n (tandem-[\w-]+)", text)) <= {
        names.experiment_namespace(SCOPE.experiments[0].experiment)
    }


@pytest.mark.parametrize(
    "name",
    [
        names.cluster_name(ENVIRONMENT),
        names.node_group_name(ENVIRONMENT),
        names.bench_namespace(ENVIRONMENT),
        names.function_log_group_name(ENVIRONMENT, "stop"),
        names.function_log_group_name(ENVIRONMENT, "reap"),
        names.dead_letter_queue_name(ENVIRONMENT),
        names.scheduler_role_name(ENVIRONMENT),
        *(composite.name for composite in GUARD.composites),
        names.container_log_group_name(ENVIRONMENT, "application"),
        names.container_log_group_name(ENVIRONMENT, "performance"),
        names.experiment_namespace(SCOPE.experiments[0].experiment),
        names.raise_label(SCOPE.experiments[0].experiment.variants[1]),
        *((ALARMS[0].suppressor and [ALARMS[0].suppressor.name]) or []),
        *(
            composite.name
            for composite in ALARMS[0].composites
            if composite.name.endswith("-serving")
        ),
        names.SERVE_ACCOUNT,
        names.BENCH_ACCOUNT,
    ],
)
def test_a_name_is_the_one_that_is_made(name):
    assert name in filled(
        TEXT.replace("$(", "(").replace("\\$", "").replace("$ENV-notify-KIND", "")
    )
