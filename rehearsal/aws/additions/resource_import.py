# ruff: noqa: SLF001, ANN001, ANN002, ANN003, ANN202 - MiniStack is untyped and has no public interface
"""Lets a change set with ImportExistingResources adopt a retained bucket.

MiniStack finds the bucket and plans its import, but then its own validation refuses the name
because it exists. AWS refuses the name only if no import was requested.
"""

from __future__ import annotations

from contextvars import ContextVar

from ministack.services.cloudformation import changesets, stacks

_import_buckets: ContextVar[frozenset] = ContextVar(
    "adopted buckets of this deploy", default=frozenset()
)


def install(_handlers: dict) -> None:
    """Wrap the deploy, to know the adopted resources, and the validation, to skip them."""
    deploy_stack = changesets._deploy_stack_async
    validation_errors = stacks._validation_errors

    async def deploy_with_imports(*arguments, imports=None, **keywords):
        _import_buckets.set(
            frozenset(
                properties["BucketName"]
                for properties in (imports or {}).values()
                if "BucketName" in properties
            )
        )
        await deploy_stack(*arguments, imports=imports, **keywords)

    def validate_with_imports(*arguments):
        *arguments_before, own_resources = arguments
        return validation_errors(*arguments_before, own_resources | _import_buckets.get())

    changesets._deploy_stack_async = deploy_with_imports
    stacks._validation_errors = validate_with_imports
