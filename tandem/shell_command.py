"""Commands printed for people to paste into a shell, and others' text printed next to them.

Names come from AWS, from manifests and from files, and anybody may have written them. Invariant:
standard library only; `shlex.split` of a quoted command gives back its words, and nothing that is
printed moves the cursor, changes a colour or begins a line.
"""

from __future__ import annotations

import shlex

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def quote_command(*words: str) -> str:
    """Return a command as a shell takes it, each word quoted where it needs to be.

    A word with a control character names nothing that can be typed; the character is replaced, so
    that the command fails and does no harm.

    Args:
        words: the program and its arguments, unquoted.
    """
    return shlex.join(clean_text(word) for word in words)


def clean_text(text: str) -> str:
    """Return text with every control character and every invisible one replaced.

    Args:
        text: of a service, a file or a server.
    """
    return "".join(sign if sign.isprintable() else REPLACEMENT for sign in text)


def build_cdk_command(verb: str, environment: str, stack: str = "*", *flags: str) -> str:
    """Return the command with which the CDK deploys or compares stacks of an environment.

    Args:
        verb: `deploy` or `diff`.
        environment: its name.
        stack: Fleet and so on; `*` for all.
        flags: of the CDK, one word each.
    """
    return quote_command(
        "npx", "cdk", verb, f"{environment}/{stack}", "-c", f"env={environment}", *flags
    )


def build_bootstrap_command(place: str, qualifier: str, boundary: str | None) -> str:
    """Return the command that bootstraps the CDK, once for each account and region.

    Args:
        place: `aws://` with account and region.
        qualifier: of the bootstrap; its stack is named after it.
        boundary: permissions boundary of the roles that it makes; None for none.
    """
    words = ["npx", "cdk", "bootstrap", place, "--qualifier", qualifier]
    words += ["--toolkit-stack-name", f"CDKToolkit-{qualifier}"]
    if boundary:
        words += ["--custom-permissions-boundary", boundary]
    return quote_command(*words)


def build_tandem_command(verb: str, environment: str, *flags: str) -> str:
    """Return a command of Tandem's about an environment.

    Args:
        verb: `stop`, `artifacts list` and so on.
        environment: its name.
        flags: one word each.
    """
    return quote_command("tandem", *verb.split(), "--env", environment, *flags)
