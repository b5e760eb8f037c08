"""Which labels a raise sets: for whom, and for how many."""

from __future__ import annotations

import pytest
from committed import experiment
from fleet_seen import SPOT

from tandem.declarations.catalogue import load_catalogue
from tandem.ops.node_admission import admit_compile_jobs, admit_servers


@pytest.mark.parametrize(("nodes", "admitted"), [(1, 2), (2, 4), (8, 9)])
def test_as_many_variants_are_admitted_as_there_are_devices_for(nodes, admitted):
    many = experiment("post-drafts-windows")
    admission = admit_servers(SPOT, many, load_catalogue(), nodes=nodes)
    assert [first.name for first in admission.variants] == [
        first.name for first in many.all_variants()
    ][:admitted]
    assert len(admission.variants) + len(admission.waiting_variants) == len(many.all_variants())


def test_the_labels_are_those_that_the_servers_select():
    admission = admit_servers(SPOT, experiment("post"), load_catalogue(), nodes=1)
    assert admission.labels == {
        "raise.tandem/qwen-vllm": "post",
        "raise.tandem/qwen-sd-vllm": "post",
    }


def test_compile_jobs_are_admitted_alone():
    assert admit_compile_jobs(experiment("post")).labels == {"compile.tandem/experiment": "post"}
