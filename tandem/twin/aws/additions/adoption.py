# ruff: noqa: SLF001, ANN001, ANN002, ANN003, ANN202 - MiniStack is untyped and has no public interface
"""Lets a change set with ImportExistingResources adopt a retained bucket.

MiniStack finds the bucket and plans its import, and then its own validation refuses the name because it exists; AWS
refuses it only where no import was asked for.
"""

from __future__ import annotations

from contextvars import ContextVar

from ministack.services.cloudformation import changesets, stacks

NEEDS = {changesets: ("_deploy_stack_async",), stacks: ("_validation_errors",)}

_adopted: ContextVar[frozenset] = ContextVar("adopted buckets of this deploy", default=frozenset())


def install(_handlers: dict) -> None:
    """Wrap the deploy, to know what it adopts, and the validation, to leave that alone."""
    deploy, errors = changesets._deploy_stack_async, stacks._validation_errors

    async def deployed(*arguments, imports=None, **more):
        _adopted.set(frozenset(said["BucketName"] for said in (imports or {}).values() if "BucketName" in said))
        await deploy(*arguments, imports=imports, **more)

    def validated(*arguments):
        *rest, owned = arguments
        return errors(*rest, owned | _adopted.get())

    changesets._deploy_stack_async = deployed
    stacks._validation_errors = validated
