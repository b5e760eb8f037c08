"""Nothing but tandem/guard/fleet_start.py asks EKS for a node; a template's desired size is 0, and
so is a stop's."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ANY_SIZE = re.compile(
    r"[\"']?(?:desired_?[sS]ize|DesiredSize|min_?[sS]ize|MinSize)[\"']?\s*[:=]\s*([^,})\s]+)"
)
# boto3's words
SIZE_CALL = re.compile(
    r"[\"']?(?:desiredSize|DesiredSize|minSize|MinSize)[\"']?\s*[:=]\s*([^,})\s]+)"
)


def ours():
    """Our own programs but for the twin, which plays EKS."""
    folders = ("tandem", "stacks", "lambdas", "charts")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return [path for path in files if "twin" not in path.parts]


def calls():
    return {
        str(path.relative_to(ROOT))
        for path in ours()
        if re.search(r"\.update_nodegroup_config\(", path.read_text())
    }


def sizes(path):
    return set(ANY_SIZE.findall(path.read_text()))


def asked_sizes(path):
    """What boto3 is given; the fields of what was read, `desired_size` and `min_size`, ask for
    nothing."""
    return set(SIZE_CALL.findall(path.read_text()))


def test_three_files_update_the_node_group():
    assert calls() == {
        "tandem/guard/apply.py",
        "tandem/guard/fleet_start.py",
        "tandem/guard/node_labels.py",
    }


def test_a_relabel_knows_no_size():
    assert sizes(ROOT / "tandem/guard/node_labels.py") == set()


def test_the_third_lever_knows_no_size_but_0():
    source = (ROOT / "tandem/guard/apply.py").read_text()
    assert set(re.findall(r"(?:MinSize|DesiredCapacity)=(\w+)", source)) == {"0"}


def test_a_stop_knows_no_size_but_0():
    assert asked_sizes(ROOT / "tandem/guard/apply.py") == {"0"}


def test_a_start_knows_one_size_that_is_not_0():
    assert asked_sizes(ROOT / "tandem/guard/fleet_start.py") == {"0", "self.lease.nodes"}


def test_no_template_asks_for_an_accelerator():
    assert sizes(ROOT / "stacks/fleet.py") == {"0"}


def test_nobody_scales_behind_ekss_back():
    assert [
        path
        for path in ours()
        if re.search(r"set_desired_capacity\(|SetDesiredCapacity", path.read_text())
    ] == []
