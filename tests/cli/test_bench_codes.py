"""What `tandem bench` ends with and prints, for runs that reach their end."""

from __future__ import annotations

import json

import pytest
from bench_cli import however_busy, records, without_page

from tandem.cli.program import main

pytestmark = [
    pytest.mark.xdist_group("bench-codes"),  # its servers and runs are made once
    pytest.mark.usefixtures("no_page", "busy"),
]
FAILS = '#schedule {"fault": "status", "status": 500}'
ENDLESS = '#schedule {"fault": "endless", "fault_at": 1}'
NO_USAGE = '#schedule {"fault": "no_usage"}'


@pytest.fixture(scope="module")
def finished(servers, tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    flags = servers.flags(
        folder, {"code": ["a", "b"]}, "--placement", "a=first-half", "b=second-half"
    )
    with without_page(), however_busy():
        assert main([*flags, "--out", str(folder / "out")]) == 0
    return folder / "out"


@pytest.mark.parametrize(
    ("prompts", "code"),
    [
        ({"code": ["a", "b"], "chat": ["c"]}, 0),
        ({"code": ["a", FAILS], "chat": ["c"]}, 1),
        ({"code": ["a", ENDLESS]}, 1),
        ({"code": ["a"], "chat": [FAILS]}, 3),
        ({"code": ["a"], "chat": [NO_USAGE]}, 0),
    ],
    ids=["all", "some", "endless", "a class without data", "no usage"],
)
def test_a_run_ends_with_what_became_of_its_requests(servers, tmp_path, prompts, code):
    flags = servers.flags(tmp_path, prompts, "--max-tokens", "8")
    assert main([*flags, "--out", str(tmp_path / "out")]) == code
    assert len(records(tmp_path / "out")) == 2 * sum(map(len, prompts.values()))


def test_standard_output_has_the_verdict_alone(servers, tmp_path, capsys):
    main([*servers.flags(tmp_path, {"code": ["a"]}), "--out", str(tmp_path / "out")])
    table, err = capsys.readouterr()
    assert table.startswith("b against a: NO EVIDENCE\n")
    assert err.startswith("plan: a, b; classes: 1, prompts: 1, concurrency 2\n  rounds: 1, ")


def test_with_json_standard_output_is_the_verdict(servers, tmp_path, capsys):
    main([*servers.flags(tmp_path, {"code": ["a"]}, "--json"), "--out", str(tmp_path / "out")])
    verdict = json.loads((tmp_path / "out" / "verdict.json").read_text())
    assert json.loads(capsys.readouterr().out) == verdict | {"exit_code": 0}


def test_report_computes_the_same_summary_and_verdict_again(finished):
    names = ("summary.json", "verdict.json")
    before = {name: (finished / name).read_bytes() for name in names}
    for name in names:
        (finished / name).unlink()

    assert main(["bench", "report", str(finished)]) == 0
    assert {name: (finished / name).read_bytes() for name in names} == before
