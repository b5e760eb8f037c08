"""What the type checker reads of aws-cdk-lib."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
BETWEEN = {"aws_cdk.interfaces.*"}  # what aws-cdk-lib's own modules say to each other by


def used() -> set[str]:
    """Return the modules of aws-cdk-lib that what is checked imports."""
    modules = {"aws_cdk"}
    for path in [ROOT / "app.py", *(ROOT / "stacks").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "aws_cdk":
                modules |= {
                    f"aws_cdk.{name.name}" for name in node.names if name.name.startswith("aws_")
                }
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("aws_cdk."):
                modules.add(str(node.module))
    return modules


def test_the_imported_modules_of_aws_cdk_are_checked():
    overrides = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["overrides"]
    own_modules = {
        name
        for override in overrides
        if override.get("follow_imports") == "normal"
        for name in override["module"]
    }
    assert own_modules == used() | BETWEEN
