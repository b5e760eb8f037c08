"""What the charts pass to Tandem's own programs, those programs' parsers accept."""

from __future__ import annotations

import argparse
from importlib import import_module

import pytest
from chart_cases import HOSTED, find_pod, stages

from tandem.artifacts.__main__ import COMMANDS, MODULES
from tandem.artifacts.driver import attempts

DRIVER = "/work/driver.pyz"


def list_containers():
    for hosted in HOSTED:
        for stage, bodies in stages(*hosted).items():
            for body in bodies:
                pod = find_pod(body)
                for container in [*pod.get("initContainers", []), *pod.get("containers", [])]:
                    yield stage, container


def find_parser(container):
    """The function that adds a program's arguments, and what is passed to it."""
    command, arguments = container.get("command", []), container.get("args", [])
    if command:
        return (attempts.add_arguments, arguments) if DRIVER in command else None
    if arguments[0] not in COMMANDS:
        return None
    module = import_module(f"tandem.artifacts.{MODULES.get(arguments[0], arguments[0])}")
    return module.add_arguments, arguments[1:]


@pytest.mark.parametrize("stage", ["stage", "compile", "serve", "llmperf", "quality"])
def test_a_program_of_the_tools_takes_its_rendered_arguments(stage):
    found = [
        found
        for at, container in list_containers()
        if at == stage and (found := find_parser(container))
    ]
    assert found
    for add_arguments, arguments in found:
        parser = argparse.ArgumentParser()
        add_arguments(parser)
        parser.parse_args(arguments)
