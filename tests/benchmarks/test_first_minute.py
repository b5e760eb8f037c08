"""What `make first-minute` counts to which group; its commands take minutes and do not run here."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import first_minute
import pytest


@pytest.mark.parametrize(
    ("line", "extra", "places"),
    [
        ("numpy<3,>=2.4.6", "", [("numpy", "")]),
        ('boto3<2,>=1.43.106; extra == "aws"', "aws", [("boto3", "")]),
        ('boto3<2,>=1.43.106; extra == "aws"', "", []),
        ('tandem[aws]; extra == "all"', "all", [("tandem", ""), ("tandem", "aws")]),
        ("typing_extensions>=4; python_version < '3.12'", "", [("typing-extensions", "")]),
    ],
)
def test_a_requirement_counts_where_its_extra_is_asked_for(line, extra, places):
    assert list(first_minute.list_needed_places(line, extra)) == places


def test_each_package_counts_to_the_first_group_that_needs_it(monkeypatch):
    monkeypatch.setattr(first_minute, "measure_package", lambda _: 1.0)
    sizes = first_minute.measure_packages(Path(sysconfig.get_path("purelib")))

    groups = {package: group for group, packages in sizes.items() for package in packages}
    examples = ("numpy", "tandem", "boto3", "aws-cdk-lib", "lightkube", "pip", "pandas", "sympy")
    assert [groups[package] for package in examples] == [
        "light",
        "light",
        "aws",
        "deploy",
        "rehearsal",
        "installer",
        "checks",
        "checks",
    ]


def test_a_clone_sees_neither_this_checkout_nor_this_home(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", f"{first_minute.ROOT / '.venv/bin'}:/usr/bin")
    monkeypatch.setenv("MAKEFLAGS", "j")
    monkeypatch.setenv("PIP_CERT", "/etc/ssl/own.pem")

    variables = first_minute.build_variables(tmp_path)

    assert (variables["PATH"], variables["HOME"], variables["PIP_CERT"]) == (
        "/usr/bin",
        str(tmp_path),
        "/etc/ssl/own.pem",
    )
    assert "MAKEFLAGS" not in variables


def test_a_commit_that_nobody_knows_is_refused(tmp_path):
    with pytest.raises(first_minute.CommandError, match="git rev-parse"):
        first_minute.measure_commit("no-such-commit", tmp_path, has_test=False)


def test_a_failed_command_keeps_its_seconds_and_shows_its_code(tmp_path, capsys):
    clone = tmp_path / "clone"
    clone.mkdir()
    (clone / "Makefile").write_text("test:\n\t@echo one test failed; exit 3\n")

    seconds, code = first_minute.run_target(clone, "test", {"PATH": "/usr/bin:/bin"})

    figures = first_minute.CommandFigures(
        target="test",
        seconds=7.2,
        processor_s=3.0,
        exit_code=code,
        added_mb=1.0,
    )
    assert (seconds > 0, figures.format_seconds()) == (True, "7, exit code 2")
    assert "one test failed" in capsys.readouterr().err


def test_commits_stand_side_by_side_with_the_name_that_each_has_of_a_target():
    clones = [
        first_minute.CloneFigures(
            commit=commit,
            commands=[
                first_minute.CommandFigures(
                    target=target,
                    seconds=10.0,
                    processor_s=4.0,
                    exit_code=0,
                    added_mb=5.0,
                )
                for target in ("setup", "demo", "demo", last_target)
            ],
            packages_mb={"light": {"numpy": 72.0, "scipy": 142.0}},
        )
        for commit, last_target in (("old", "test-packages"), ("HEAD", "setup-test"))
    ]

    lines = list(first_minute.format_tables(clones))

    assert lines[0] == "| command | old: s | of a processor | MB more | HEAD: s | of a processor | MB more |"
    assert "| `make test-packages` or `make setup-test` | 10 | 4 | 5 | 10 | 4 | 5 |" in lines
    assert "| `make demo` again | 10 | 4 | 5 | 10 | 4 | 5 |" in lines
    assert "| `make demo` on a fresh clone: the first two | 20 | 8 | 10 | 20 | 8 | 10 |" in lines
    assert lines[-1] == "| light | 214 | 214 | scipy 142, numpy 72 |"
