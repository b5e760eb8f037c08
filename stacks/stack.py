"""What every stack of an environment has in common."""

from __future__ import annotations

import aws_cdk as cdk
from constructs import Construct

from tandem.errors import InputError
from tandem.spec import names
from tandem.spec.environment import Environment


class TemplateLimitError(InputError):
    """What is declared does not fit into a template, or into what CloudFormation makes of it."""


class EnvironmentStack(cdk.Stack):
    """A stack named `<environment>-<kind>`, deployed by the environment's own bootstrap.

    Account, region, tags and permissions boundary come from the stage; the protection is said on every stack,
    because a stage does not hand it down.
    """

    def __init__(self, scope: Construct, kind: str, *, environment: Environment, description: str) -> None:
        super().__init__(
            scope,
            kind,
            stack_name=names.stack_name(environment, kind),
            description=description,
            tags=names.resource_tags(environment),  # the stack itself; what stands in it is tagged by the stage
            termination_protection=environment.termination_protection,
            synthesizer=cdk.DefaultStackSynthesizer(qualifier=environment.bootstrap.qualifier),
            suppress_template_indentation=True,  # a quarter of the bytes of a template with many resources
            analytics_reporting=False,
        )
