"""What `make first-minute` counts to which group; the commands themselves take minutes and are not run here."""

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
        ('tandem[aws,deploy]; extra == "all"', "all", [("tandem", ""), ("tandem", "aws"), ("tandem", "deploy")]),
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
