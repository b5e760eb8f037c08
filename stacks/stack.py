"""Common parts of an environment's stacks: their head, exports, packed files."""

from __future__ import annotations

import shutil
import tempfile
from functools import cache
from pathlib import Path

import aws_cdk as cdk
from constructs import Construct

from tandem.declarations import names
from tandem.declarations.environment import Environment
from tandem.errors import InputError

ROOT = Path(__file__).parent.parent


class TemplateLimitError(InputError):
    """The declaration does not fit a template, or a resource that CloudFormation makes."""


class EnvironmentStack(cdk.Stack):
    """A stack named `<environment>-<kind>`, deployed by the environment's own bootstrap.

    Account, region, tags and permissions boundary come from the stage. The protection is set on
    every stack, because a stage does not pass it on.

    Args:
        has_termination_protection: as the environment says; False for a stack that never has any.

    Attributes:
        name: as stack_name, without a call to Node.
    """

    def __init__(
        self,
        scope: Construct,
        kind: str,
        *,
        environment: Environment,
        description: str,
        has_termination_protection: bool = True,
    ) -> None:
        self.name = names.stack_name(environment, kind)
        super().__init__(
            scope,
            kind,
            stack_name=self.name,
            description=description,
            # for the stack itself; the stage tags its resources
            tags=names.resource_tags(environment),
            termination_protection=environment.termination_protection
            and has_termination_protection,
            # a quarter of the bytes of a template with many resources
            suppress_template_indentation=True,
            analytics_reporting=False,
        )


def export_value(stack: EnvironmentStack, id_: str, value: str) -> str:
    """Export `value` as `<stack>-<id_>` and return the expression for another stack's import.

    A producer exports the same values for any importers. So leaving Fleet or Workloads out, or
    moving capacity to another zone, changes no template of the stacks below. CDK's own references
    would come and go with their users, and CloudFormation refuses to drop an export that is still
    imported.
    """
    name = f"{stack.name}-{id_}"
    cdk.CfnOutput(stack, id_, value=value, export_name=name)
    return cdk.Fn.import_value(name)


@cache
def copy_files(*paths: tuple[str, str]) -> tempfile.TemporaryDirectory[str]:
    """Copy repository files to a new packing folder, each to its path; deleted at process end.

    One folder serves every environment, so that the CDK hashes it once.
    """
    folder = tempfile.TemporaryDirectory()
    for file, target_path in paths:
        target = Path(folder.name) / target_path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / file, target)
    return folder
