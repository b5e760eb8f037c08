"""A file of prompts that an experiment names as one of its suites.

Invariant: the digest stands for the file, so nothing here reads it: rendering works without the
file, and private prompts need not be committed.
"""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Discriminator, Field, Tag

from tandem.declarations.field_type import ClassName, Digest, ProjectFile
from tandem.declarations.record import FILE_TAG, NAME_TAG, SpecRecord

# the keys of BUILT_IN in tandem/bench/suites/suite.py
BuiltInSuite = Literal["post", "real"]
MAX_PROMPTS = 100_000  # of a class or a sample: no round sends as many
_CLASSES_WORDS = (
    "a mapping, each class (lower-case letters, digits and -, not all) to its number of prompts"
)
FieldName = Annotated[
    str, Field(min_length=1, json_schema_extra={"allowed": "text, the name of a column or key"})
]


class SuiteFile(SpecRecord):
    """A file of prompts as a suite: its path, its digest, and how prompts are read from it."""

    file: ProjectFile = Field(
        description="its path from the folder that holds experiments/; its last part is its name"
    )
    sha256: Digest = Field(
        description="of the file's bytes, as `tandem artifacts stage-suite` prints it"
    )
    prompt_column: FieldName | None = Field(
        None, description="column or key of the prompts; null: the form's own"
    )
    class_field: FieldName | None = Field(
        None,
        description=(
            "column or key of the classes; null: `class` of Tandem's own form, else one class,"
            " `prompts`"
        ),
    )
    turns: int | None = Field(
        None, ge=1, le=1000, description="turns of the user that are sent of a conversation"
    )
    sample: int | None = Field(
        None, ge=1, le=MAX_PROMPTS, description="prompts drawn by the seed; null: all"
    )
    seed: int = Field(0, ge=0, lt=2**31, description="of the draw")
    classes: dict[ClassName, Annotated[int, Field(ge=1, le=MAX_PROMPTS)]] = Field(
        {},
        json_schema_extra={"allowed": _CLASSES_WORDS},
        description=(
            "number of prompts by class, as stage-suite prints it; without it the suite is"
            " watched as a whole, and its minutes are not counted without the file"
        ),
    )

    def __hash__(self) -> int:
        """Return a hash without the mapping, which has none."""
        return hash((self.file, self.sha256))

    @property
    def name(self) -> str:
        """The suite's name in records: the last part of the path."""
        return self.file.rpartition("/")[2]

    def list_flags(self) -> list[str]:
        """Return the words by which `tandem artifacts stage-suite` reads the file so."""
        options = self.model_dump(exclude_defaults=True, exclude={"file", "sha256", "classes"})
        words = []
        for name, value in options.items():
            words += [f"--{name.replace('_', '-')}", str(value)]
        return words


def _tag_suite(value: object) -> str:
    return FILE_TAG if isinstance(value, dict | SuiteFile) else NAME_TAG


DeclaredSuite = Annotated[
    Annotated[BuiltInSuite, Tag(NAME_TAG)] | Annotated[SuiteFile, Tag(FILE_TAG)],
    Discriminator(_tag_suite),
    Field(
        json_schema_extra={
            "allowed": f"{', '.join(get_args(BuiltInSuite))}, or a mapping with file and sha256"
        }
    ),
]


def find_suite_name(suite: str | SuiteFile) -> str:
    """Return the name that a suite has in records."""
    return suite if isinstance(suite, str) else suite.name
