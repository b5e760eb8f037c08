"""The page of people's rights, made of page.md and the rights themselves: `python -m tandem.ops.people.doc [--check]`.

Invariant: the page shows the documents that the Guard stack makes of the example, byte for byte as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from jinja2 import Environment as TemplateEnvironment
from jinja2 import StrictUndefined

from tandem.ops.people.cluster_rights import CLUSTER_KINDS, CLUSTER_RIGHTS, DENIED_RIGHTS
from tandem.ops.people.command_calls import COMMAND_CALLS
from tandem.ops.people.policies import MAX_POLICY_CHARACTERS, build_policy, count_policy_characters
from tandem.ops.people.policy_targets import build_targets
from tandem.ops.people.rights import RIGHTS, TARGET_REASONS, WILDCARD_REASONS, can_run_command
from tandem.spec.environment import Environment
from tandem.spec.names import PEOPLE, people_policy_name
from tandem.spec.reference import write_pages
from tandem.spec.workspace import load_workspace

ROOT = Path(__file__).parents[3]
EXAMPLE = "post-us-east-2"


def render_page(environment: Environment) -> str:
    """Return docs/people.md."""
    targets = build_targets(environment)
    # the page is Markdown, and nothing in it is a stranger's
    templates = TemplateEnvironment(trim_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined)  # noqa: S701
    return templates.from_string(Path(__file__).with_name("page.md").read_text()).render(
        people=PEOPLE,
        policies={kind: (people_policy_name(environment, kind), build_policy(environment, kind)) for kind in PEOPLE},
        max_characters=f"{MAX_POLICY_CHARACTERS:,}",
        commands=COMMAND_CALLS,
        can_run_command=can_run_command,
        rights=RIGHTS,
        cluster_kinds=CLUSTER_KINDS,
        cluster_rights=(*CLUSTER_RIGHTS, *DENIED_RIGHTS),
        target_reasons={
            right.target: TARGET_REASONS[right.target]
            for right in RIGHTS
            if any("*" in arn for arn in targets[right.target].arns)
        },
        action_reasons=WILDCARD_REASONS,
        count_characters=count_policy_characters,
        dump_json=json.dumps,
        quote_words=_quote_words,
    )


def _quote_words(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def load_example() -> Environment:
    """Return the environment that the page shows."""
    environment = (
        load_workspace(ROOT / "environments", ROOT / "experiments", (EXAMPLE,)).environments[EXAMPLE].environment
    )
    assert environment is not None, EXAMPLE
    return environment


if __name__ == "__main__":
    sys.exit(write_pages({"people.md": render_page(load_example())}, sys.argv[1:]))
