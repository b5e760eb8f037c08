"""Values that cross from one stack to another.

Invariant: a producer exports the same values whoever imports them, so that leaving Fleet or Workloads out,
or moving capacity to another zone, changes no template of the stacks below. CDK's own references would
come and go with their users, and CloudFormation refuses to drop an export that is still imported.
"""

from __future__ import annotations

import aws_cdk as cdk


def export_value(stack: cdk.Stack, id_: str, value: str) -> str:
    """Export `value` as `<stack>-<id_>` and return the expression by which another stack imports it."""
    name = f"{stack.stack_name}-{id_}"
    cdk.CfnOutput(stack, id_, value=value, export_name=name)
    return cdk.Fn.import_value(name)
