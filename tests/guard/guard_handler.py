"""A guard's Lambda function in the account in memory."""

from __future__ import annotations

import importlib.util
from datetime import datetime
from pathlib import Path
from types import ModuleType

import pytest
from guard_world import GUARDED, World

from tandem.guard.config import AwsClients, GuardConfig

LAMBDAS = Path(__file__).resolve().parents[2] / "lambdas"


def load_handler(
    name: str, world: World, monkeypatch: pytest.MonkeyPatch, config: GuardConfig = GUARDED
) -> ModuleType:
    """Return the module of a function, with its variables, in the account and at its time."""
    spec = importlib.util.spec_from_file_location(f"{name}_handler", LAMBDAS / name / "handler.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    for variable, value in config.to_variables().items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setattr(AwsClients, "create", classmethod(lambda *_: world.clients))
    clock = type("Clock", (datetime,), {"now": staticmethod(lambda _: world.now)})
    monkeypatch.setattr(module, "datetime", clock)
    return module
