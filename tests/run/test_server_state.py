"""The state of a run's servers: late, drained and lost ones are waited for, and what differs is named where it does."""

from __future__ import annotations

import json

from virtual_world import ARTIFACTS, MODELS, NAMESPACE, VARIANT, VirtualWorld

from tandem.run.server_state import LEAD_CHARACTERS, spell_difference

STORED = frozenset({*MODELS.values(), *ARTIFACTS.values()})
CONFIG = {"model": "/mnt/models/" + "x" * 200, "num_speculative_tokens": 7}
ARGUMENTS = ("--port", "8000", json.dumps(CONFIG))


def reach(step, **fields):
    """Return a world in which the run has begun a step; `check` is about to begin."""
    name, states = ("ready", {"done"}) if step == "check" else (step, {"running", "done"})
    world = VirtualWorld(stored=set(STORED))
    world.ask(**fields)
    world.live(until=lambda seen: any(row[0] == name and row[1] in states for row in seen.list_steps()))
    return world


def test_edited_end_of_a_long_argument_is_shown():
    edited = json.dumps(CONFIG | {"num_speculative_tokens": 5})
    text = spell_difference((*ARGUMENTS[:-1], edited), ARGUMENTS)
    assert text == (r'..., \"num_speculative_tokens\": 5}"] runs, ..., \"num_speculative_tokens\": 7}"] is declared')


def test_edited_end_of_a_long_text_is_shown():
    image = "registry.example/" + "folder/" * 30 + "vllm:"
    shown = image[-LEAD_CHARACTERS:]
    assert spell_difference(f"{image}1", f"{image}2") == f"...{shown}1 runs, ...{shown}2 is declared"


def test_variable_that_differs_is_shown_alone():
    declared = {f"NEURON_VARIABLE_{number:02}": "a value" for number in range(20)}
    text = spell_difference(declared | {"NEURON_VARIABLE_19": "another"}, declared)
    assert text == '{"NEURON_VARIABLE_19": "another"} runs, {"NEURON_VARIABLE_19": "a value"} is declared'


def test_appended_argument_is_shown_alone():
    assert spell_difference((*ARGUMENTS, "--eager"), ARGUMENTS) == '["--eager"] runs, [] is declared'


def test_long_rest_is_cut():
    text = spell_difference("a" + "b" * 200, "c")
    assert text == f"a{'b' * 119}... runs, c is declared"


def test_edited_last_argument_of_a_run_is_named():
    world = reach("round-00001")
    body = world.store.get_object("deployments", NAMESPACE, VARIANT)
    arguments = body["spec"]["template"]["spec"]["containers"][0]["args"]
    edited = arguments[-1].replace('"max_model_len": 1024}', '"max_model_len": 2048}')
    assert edited != arguments[-1]
    arguments[-1] = edited
    world.store.replace_object("deployments", NAMESPACE, VARIANT, body)
    reason = world.live()["reason"]
    assert 'max_model_len\\": 2048}"] runs, ' in reason
    assert 'max_model_len\\": 1024}"] is declared' in reason
