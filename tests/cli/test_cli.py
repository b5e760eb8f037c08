"""The command line as its user meets it: output, exit codes, no traceback."""

from __future__ import annotations

import json
import re

import pytest
from bucket_specs import edit_file, folders

from tandem.cli.program import main

POST = "environments/post-us-east-2.yaml"


def test_check_names_file_line_value_and_allowed(specs, capsys):
    edit_file(specs, "kind: capacity-block", "kind: rented", POST)

    assert main(["check", *folders(specs)]) == 2

    error, choices, *_ = capsys.readouterr().err.splitlines()
    assert error.endswith('post-us-east-2.yaml:21: capacity.kind: got "rented"')
    assert choices == "  allowed  capacity-block, reservation, spot, on-demand"


def test_with_json_an_external_fault_is_a_document(specs, monkeypatch, capsys):
    def fails(*_: object) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr("tandem.cli.program._run_command", fails)

    assert main(["check", "--json", *folders(specs)]) == 3
    sentence = {"error": {"problem": "the disk is gone", "where": "", "change": ""}, "exit_code": 3}
    assert json.loads(capsys.readouterr().out) == sentence


@pytest.mark.parametrize("name", ["x" * 31, "a/b", "gitops"])
def test_new_refuses_a_name_that_is_no_label(tmp_path, name):
    assert main(["new", name, *folders(tmp_path)]) == 2


def test_what_has_no_price_is_named_in_the_same_line(specs, capsys):
    main(["show", "dev-trn2-3xlarge", *folders(specs)])
    text = " ".join(capsys.readouterr().out.split())
    assert re.search(r"parked:? \d+\.\d\d USD.* \+ nodes, NAT: no price for ap-southeast-4", text)


def test_show_tells_the_cdk_where_files_outside_the_repository_are(specs, capsys):
    main(["show", "post-us-east-2", *folders(specs)])
    assert f"-c env=post-us-east-2 -c environments={specs}/environments" in capsys.readouterr().out


def test_show_bootstraps_with_the_declared_boundary(specs, capsys):
    qualifier = "  qualifier: tandem"
    edit_file(specs, qualifier, f"{qualifier}\n  permissions_boundary: TeamBoundary", POST)
    main(["show", "post-us-east-2", *folders(specs)])
    assert "--custom-permissions-boundary TeamBoundary" in capsys.readouterr().out


def test_images_seed_pulls_each_image_through_its_mirror(specs, capsys):
    host = "111122223333.dkr.ecr.us-east-2.amazonaws.com"
    path = specs / "environments" / "post-us-east-2.yaml"
    mirrors = f"registry_mirrors:\n  public.ecr.aws: {host}/public\n  registry.k8s.io: {host}/k8s\n"
    path.write_text(path.read_text() + mirrors)

    main(["images", "--seed", "post-us-east-2", *folders(specs)])

    logins, pulls = [], []
    for line in capsys.readouterr().out.splitlines():
        (logins if line.startswith("aws ecr get-login-password") else pulls).append(line)
    assert [login.split(" | ")[1].split()[0] for login in logins] == ["docker", "helm"]
    assert all(host in line for line in pulls)
    assert not any("library/python" in line for line in pulls)


def test_images_with_strict_gives_1_while_an_image_is_unpinned(specs):
    assert main(["images", "--strict", *folders(specs)]) == 1


def test_a_stale_folder_is_found_and_told_when_it_is_rendered(specs, tmp_path, capsys):
    command = ["render", "dev-trn2-3xlarge", "--out", str(tmp_path / "out"), *folders(specs)]
    main(command)
    codes = [main([*command, "--check"])]
    (tmp_path / "out" / "dev-trn2-3xlarge" / "extra.yaml").write_text("a: 1")
    next((tmp_path / "out").rglob("serve.yaml")).write_text("stale")
    codes.append(main([*command, "--check"]))
    capsys.readouterr()

    main(command)

    lines = capsys.readouterr().out.splitlines()
    assert (codes, [line.split()[0] for line in lines[:-1]]) == ([0, 1], ["wrote", "removed"])


def test_render_of_a_new_experiment_says_to_deploy_workloads(specs, tmp_path, capsys):
    command = ["render", "dev-trn2-3xlarge", "--out", str(tmp_path / "out"), *folders(specs)]

    main(command)
    first = capsys.readouterr().out
    main(command)

    sentence = (
        "deploy Workloads before this is synced: npx cdk deploy dev-trn2-3xlarge/Workloads -c"
        " env=dev-trn2-3xlarge"
    )
    assert (
        sentence in first,
        "tandem-dev, runner-system start and stay without credentials" in first,
    ) == (
        True,
        True,
    )
    assert "Workloads" not in capsys.readouterr().out


def test_render_check_gives_1_for_an_orphan_tree(specs, tmp_path, capsys):
    command = ["render", "--out", str(tmp_path / "out"), *folders(specs)]
    (specs / "environments" / "post-us-east-2.yaml").unlink()  # the largest: two are enough
    main(command)
    (specs / "environments" / "dev-trn2-3xlarge.yaml").unlink()

    assert main([*command, "--check"]) == 1
    assert "orphan dev-trn2-3xlarge" in capsys.readouterr().out


def test_check_alone_judges_dates_by_the_clock(specs, capsys):
    path = specs / "environments" / "post-us-east-2.yaml"
    path.write_text(
        re.sub(r"usd_per_hour_date: \S+", "usd_per_hour_date: 9999-01-01", path.read_text())
    )

    assert main(["check", "post-us-east-2", *folders(specs)]) == 2
    assert "9999-01-01, which is in the future" in capsys.readouterr().err
    assert main(["show", "post-us-east-2", *folders(specs)]) == 0
