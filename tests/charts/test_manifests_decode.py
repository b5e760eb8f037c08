"""kubectl reads every manifest as the chart has it: what one YAML calls a text, another calls a
number.

Charts are written by cdk8s in JavaScript; kubectl, Flux and Argo CD decode YAML in Go
(sigs.k8s.io/yaml).
"""

from __future__ import annotations

import itertools
import json
import subprocess
from pathlib import Path
from typing import Any

import cdk8s
from cdk8s_plus_36 import k8s

from charts.chart import TandemChart, write_yaml
from tandem.rules.naming import is_read_otherwise

Object = dict[str, Any]
# beside the short ones of the test below
NASTY = [
    "1234e56",
    "n",
    "on",
    "yes",
    "No",
    "TRUE",
    "null",
    "190:20:30",
    "=",
    "<<",
    "",
    "trailing ",
    " leading",
    "trailing\t",
    "line\n",
    "two\nlines",
    "0x1F",
    "-.INF",
    ".nan",
    "2026-11-28T10:00:00Z",
    "a #b",
    "a: b",
    "- a",
    "? a",
    "!a",
    "&a",
    "*a",
    "@a",
    "`a",
    "%a",
    "{a",
    "[a",
    "'a'",
    '"a"',
    "|",
    ">",
    "---",
    "\u00e9",
    "a\\n",
    "1_000",
]


def decode(kubectl: Path, path: Path) -> Object:
    """Return the object in a file as kubectl decodes it, without a cluster."""
    command = [kubectl, "label", "--local", "--filename", path, "--output", "json", "absent-"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def decode_texts(kubectl: Path, folder: Path, texts: list[str]) -> list[str]:
    """Return texts as kubectl reads them in the arguments of a container."""
    chart = TandemChart(cdk8s.App(), "nasty")
    k8s.KubePod(
        chart,
        "pod",
        metadata=chart.build_metadata("nasty", "test"),
        spec=k8s.PodSpec(containers=[k8s.Container(name="nasty", args=texts)]),
    )
    path = folder / "nasty.yaml"
    path.write_text(write_yaml(chart.to_json()))
    return decode(kubectl, path)["spec"]["containers"][0]["args"]


def test_kubectl_reads_nasty_texts_as_texts(kubectl, tmp_path):
    assert decode_texts(kubectl, tmp_path, NASTY) == NASTY


def test_no_short_text_is_read_otherwise_unless_a_rule_refuses_it(kubectl, tmp_path):
    """Every text of up to four letters that numbers, dates and words of YAML are made of."""
    letters = "017_oOxXbBeE.:+-~"
    texts = [
        "".join(word)
        for length in (1, 2, 3, 4)
        for word in itertools.product(letters, repeat=length)
    ]
    legal = [text for text in texts if not is_read_otherwise(text)]

    read = decode_texts(kubectl, tmp_path, legal)

    assert [(text, got) for text, got in zip(legal, read, strict=True) if got != text] == []
