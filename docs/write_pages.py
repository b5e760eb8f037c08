"""Write the pages that say what the code says: `python docs/write_pages.py [--check]`.

Each page is a template of docs/pages/ and the tables of one module; each policy is a file of JSON.
`--check` writes nothing and exits 1 where a page is stale. Invariant: every key of a schema, every
rule, metric, right and field of the verdict is one row.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import jinja2
import msgspec
from pydantic.fields import FieldInfo

from tandem import cloudwatch_metrics, metrics
from tandem.bench.plan.schedule import FEWEST_ROUNDS
from tandem.cli.inputs import read_inputs
from tandem.cli.selection import Selection
from tandem.cli.show import compute_environment_cost, list_bill_rows
from tandem.declarations.environment import Environment
from tandem.declarations.experiment import Experiment
from tandem.declarations.names import PEOPLE, people_policy_name
from tandem.declarations.record import SpecRecord, describe_allowed_values, list_record_types
from tandem.declarations.workspace import load_workspace
from tandem.judge import schema
from tandem.ops.people import cluster_rights, policies, rights
from tandem.ops.people.policy_targets import build_targets
from tandem.rules.check import RULES
from tandem.rules.contexts import (
    ArmContext,
    DateContext,
    EnvironmentContext,
    ExperimentContext,
    HostingContext,
)
from tandem.rules.rule import Rule

DOCS = Path(__file__).parent
EXAMPLE = "post-us-east-2"
PAID_EXAMPLES = ("post-us-east-2", "dev-trn2-3xlarge")
MONEY_PAGES = ("../README.md", "deploy.md", "reproduce.md")
MONEY_MARKS = ("<!-- money: written by `make docs` -->", "<!-- end of money -->")
REFERENCES: dict[str, type[SpecRecord]] = {
    "reference/environment.md": Environment,
    "reference/experiment.md": Experiment,
}
RULE_SECTIONS = {
    ExperimentContext: (
        "Of an experiment",
        "Judged once, whatever hosts it, and told in the experiment's file.",
    ),
    EnvironmentContext: ("Of an environment", "Told in the environment's file."),
    DateContext: (
        "Of an environment, today",
        (
            "Told in the environment's file, by `tandem check` alone: the same files give the same"
            " templates on every day."
        ),
    ),
    HostingContext: (
        "Of an experiment in an environment",
        "Told in the environment's file, at the entry that hosts the experiment.",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaKey:
    """One key that takes a value.

    Args:
        path: dotted key path, `[]` after a list, `NAME` for a key of the operator's own.
        only_kind: the `kind` that the key belongs to, where a section has several kinds; empty
            otherwise.
        field: type, limits, default and description.
    """

    path: str
    only_kind: str
    field: FieldInfo

    @property
    def takes(self) -> str:
        """Return the allowed values with their limits."""
        return describe_allowed_values(self.field)

    @property
    def default(self) -> str:
        """Return the default as YAML spells it, or `required`."""
        if self.field.is_required():
            return "required"
        value = self.field.get_default(call_default_factory=True, validated_data={})
        spellings = {"None": "null", "True": "true", "False": "false", "()": "[]"}
        return spellings.get(str(value), str(value))

    @property
    def meaning(self) -> str:
        """Return what the key means, and with which kind of its section alone."""
        kind_note = (
            f" (only with `{self.only_kind}`)"
            if self.only_kind and not self.path.endswith(".kind")
            else ""
        )
        return f"{self.field.description}{kind_note}"


def walk_schema_keys(
    record: type[SpecRecord], path: str = "", only_kind: str = "", *, with_groups: bool = False
) -> Iterator[SchemaKey]:
    """Yield every key of a schema that takes a value, in its order.

    Args:
        record: the schema.
        path: dotted key path that it stands under.
        only_kind: the `kind` that its keys belong to.
        with_groups: also yield, before its keys, each list of records in a section, each record
            that may be null, and each list that takes more than records: no key of theirs says
            their limits and default.
    """
    for name, field in record.model_fields.items():
        key_path = f"{path}.{name}" if path else name
        members = list_record_types(field)
        is_list = str(field.annotation).startswith("tuple[")
        is_mixed = is_list and not describe_allowed_values(field).startswith("a list, each a ")
        is_group = is_mixed or (path and (is_list or field.default is None))
        if members and with_groups and is_group:
            yield SchemaKey(path=key_path, only_kind=only_kind, field=field)
        for member in members:
            kind = get_args(member.model_fields["kind"].annotation)[0] if len(members) > 1 else None
            list_path = f"{key_path}[]" if is_list else key_path
            member_kind = f"{key_path}.kind: {kind}" if kind else only_kind
            yield from walk_schema_keys(member, list_path, member_kind, with_groups=with_groups)
        if not members:
            yield SchemaKey(path=key_path, only_kind=only_kind, field=field)


def list_sections(record: type[SpecRecord]) -> list[dict[str, Any]]:
    """Return the tables of a schema's reference: the file's own keys, then each section."""
    keys: dict[str, list[SchemaKey]] = {"": []}
    for key in walk_schema_keys(record, with_groups=True):
        if key.path != "name":
            section, _, inner = key.path.partition(".")
            keys.setdefault(section.removesuffix("[]") if inner else "", []).append(key)
    return [
        {"name": name, "keys": keys[name], "text": describe_section(record, name)} for name in keys
    ]


def describe_section(record: type[SpecRecord], name: str) -> str:
    """Return what a section is for; empty for the file's own keys."""
    if not name:
        return ""
    field = record.model_fields[name]
    text = field.description or ""
    optional = "" if field.is_required() else " May be left out as a whole."
    return f"{text[:1].upper()}{text[1:]}.{optional}"


def list_structs() -> Iterator[dict[str, Any]]:
    """Yield what the page of verdict.json says of each of its structs, the verdict's own first."""
    kinds = [
        kind
        for kind in vars(schema).values()
        if inspect.isclass(kind) and issubclass(kind, msgspec.Struct)
    ]
    for kind in sorted(kinds, key=lambda kind: kind is not schema.Verdict):
        summary, _, fields_text = inspect.cleandoc(kind.__doc__ or "").partition("\n\nArgs:\n")
        yield {
            "name": kind.__name__,
            "summary": summary.replace("\n\n", "\n"),
            "fields_text": inspect.cleandoc(fields_text),
            "fields": [
                (field.encode_name, kind.__annotations__[field.name])
                for field in msgspec.structs.fields(kind)
            ],
        }


def load_example() -> Environment:
    """Return the environment whose policies the page of people shows."""
    workspace = load_workspace(
        DOCS.parent / "environments", DOCS.parent / "experiments", (EXAMPLE,)
    )
    return workspace.environments[EXAMPLE].record


def build_people_values(environment: Environment) -> dict[str, Any]:
    """Return what the page of people shows: the rights, and the Guard stack's policies for them."""
    arns = {name: target.arns for name, target in build_targets(environment).items()}
    all_rights = (*rights.RIGHTS, *rights.RUNNER_RIGHTS)
    wildcard_targets = (right.target for right in all_rights if "*" in "".join(arns[right.target]))
    return {
        "people": PEOPLE,
        "policies": {
            kind: (people_policy_name(environment, kind), policies.build_policy(environment, kind))
            for kind in PEOPLE
        },
        "max_characters": policies.MAX_POLICY_CHARACTERS,
        "commands": rights.COMMANDS,
        "can_run_command": rights.can_run_command,
        "list_rights": rights.list_rights,
        "list_needs": rights.list_needs,
        "cluster_kinds": cluster_rights.CLUSTER_KINDS,
        "cluster_rights": cluster_rights.CLUSTER_RIGHTS,
        "runner_cluster_rights": cluster_rights.RUNNER_CLUSTER_RIGHTS,
        "runner_rights": rights.group_rights(rights.RUNNER_RIGHTS),
        "target_reasons": {target: rights.TARGET_REASONS[target] for target in wildcard_targets},
        "action_reasons": rights.WILDCARD_REASONS,
        "count_characters": policies.count_policy_characters,
    }


def build_money_table() -> str:
    """Return the payer's table: four figures of `tandem show` for each example it names."""
    inputs = read_inputs(
        Selection(
            environments=DOCS.parent / "environments", experiments=DOCS.parent / "experiments"
        )
    )
    columns = []
    for name in PAID_EXAMPLES:
        environment = inputs.workspace.environments[name].record
        cost = compute_environment_cost(inputs, environment)
        assert cost is not None, "no example is refused"
        columns.append(list(list_bill_rows(environment, cost)))
    header = " | ".join(f"`tandem show {name}`" for name in PAID_EXAMPLES)
    lines = [f"| what you pay | {header} |", "|---|" + "---|" * len(columns)]
    for rows in zip(*columns, strict=True):
        label = " / ".join(dict.fromkeys(label for label, _ in rows))
        lines.append(f"| {label} | " + " | ".join(figure for _, figure in rows) + " |")
    return "\n".join(lines)


def fill_marks(text: str, table: str) -> str:
    """Return a page with the table between its marks.

    Raises:
        ValueError: the page has no marks.
    """
    head, _, rest = text.partition(MONEY_MARKS[0])
    _, end, tail = rest.partition(MONEY_MARKS[1])
    if not end:
        raise ValueError(f"the page lacks {MONEY_MARKS}")
    return f"{head}{MONEY_MARKS[0]}\n{table}\n{end}{tail}"


def _list_rule_sections() -> Iterator[tuple[tuple[str, ...], list[Rule]]]:
    """Yield title and text of each section of the rules' page, with its rules."""
    # a rule of a variant is one of its experiment
    kinds: dict[type, type] = {ArmContext: ExperimentContext}
    for kind, texts in RULE_SECTIONS.items():
        yield (
            texts,
            [rule for rule in RULES if kinds.get(rule.context_type, rule.context_type) is kind],
        )


def _build_page_values(people_values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what each template shows, by the page's path below docs/."""
    decisions = {
        path.name: path.read_text().partition("\n")[0]
        for path in (DOCS / "decisions").glob("0*.md")
    }
    references = {name: {"sections": list_sections(record)} for name, record in REFERENCES.items()}
    return references | {
        "reference/rules.md": {"sections": list(_list_rule_sections())},
        "reference/metrics.md": {
            "bench_metrics": metrics.CATALOGUE.values(),
            "post_figures": metrics.POST_FIGURES,
            "other_metrics": cloudwatch_metrics.CLOUDWATCH_METRICS.values(),
            "publishers": cloudwatch_metrics.PUBLISHERS.values(),
        },
        "reference/verdict.md": {
            "schema": schema.SCHEMA,
            "fewest_rounds": FEWEST_ROUNDS,
            "cell_words": get_args(schema.CellWord),
            "variant_findings": get_args(schema.VariantFinding),
            "structs": list(list_structs()),
        },
        "people.md": people_values,
        "reference/rights.md": people_values,
        "decisions/README.md": {"decisions": sorted(decisions.items())},
    }


def render_pages() -> dict[str, str]:
    """Return the text of each page and policy, by its path below docs/."""
    # the pages are Markdown, and nothing in them is a stranger's
    templates = jinja2.Environment(  # noqa: S701
        loader=jinja2.FileSystemLoader(DOCS / "pages"),
        trim_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    templates.filters |= {
        "cell": lambda text: text.replace("|", "\\|"),
        "quote_words": lambda words: ", ".join(f"`{word}`" for word in words),
    }
    example = load_example()
    people_values = build_people_values(example)
    pages = {}
    for name, values in _build_page_values(people_values).items():
        template_name = "decisions.md" if "decisions" in name else Path(name).name
        pages[name] = templates.get_template(template_name).render(values)

    table = build_money_table()
    pages |= {name: fill_marks((DOCS / name).read_text(), table) for name in MONEY_PAGES}
    documents = {kind: policy for kind, (_, policy) in people_values["policies"].items()}
    documents["doctor"] = policies.build_command_policy(example, "doctor")
    return pages | {
        f"reference/policies/{name}.json": f"{json.dumps(document, indent=2)}\n"
        for name, document in documents.items()
    }


def write_pages(pages: dict[str, str], folder: Path, arguments: Iterable[str]) -> int:
    """Write the pages that differ to `folder`, or with `--check` name them.

    Returns:
        0, or with `--check` 1 where a page is stale.
    """
    paths = {folder / name: text for name, text in pages.items()}
    stale = {
        path: text for path, text in paths.items() if not path.is_file() or path.read_text() != text
    }
    if "--check" in arguments:
        sys.stderr.writelines(
            f"{path.relative_to(folder)} is stale: run `make docs`\n" for path in stale
        )
        return int(bool(stale))
    for path, text in stale.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(write_pages(render_pages(), DOCS, sys.argv[1:]))
