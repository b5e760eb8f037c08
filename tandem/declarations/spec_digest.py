"""One digest of all that a run stands on, and a record as the YAML it could have been read from.

The runner has its specs from a ConfigMap, the user of a run has files: where both digests are
equal, both mean the same environment, experiment and artifacts, whichever comments and defaults
their files have.
"""

from __future__ import annotations

import hashlib
import json

import yaml

from tandem.declarations.catalogue import Catalogue
from tandem.declarations.environment import Environment
from tandem.declarations.experiment import Experiment
from tandem.declarations.record import SpecRecord
from tandem.declarations.variant_key import compute_artifact_key

DIGEST_CHARACTERS = 16


def compute_spec_digest(
    environment: Environment, experiment: Experiment, catalogue: Catalogue
) -> str:
    """Return the first characters of a SHA-256 over both records and all variants' artifact keys.

    Which experiments the environment hosts is left out: another one changes nothing of this one's
    runs. So is the plan of a Capacity Block's hours: EC2 alone says when it ends, and whoever notes
    an extension deploys nothing. The experiment must have passed the rules: its runtime is rendered
    and its models are known.
    """
    fields = {
        "environment": environment.model_dump(
            mode="json", exclude={"experiments": True, "capacity": {"block"}}
        ),
        "experiment": experiment.model_dump(mode="json"),
        "artifacts": {
            variant.name: compute_artifact_key(experiment, variant, catalogue).as_fields()
            for variant in experiment.all_variants()
        },
    }
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_CHARACTERS]


class _QuotingDumper(yaml.SafeDumper):
    """Quotes every text: what a plain one would be read as differs between readers of YAML."""


_QuotingDumper.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')
)


def dump_record_yaml(record: SpecRecord) -> str:
    """Return a record as a file that `load_workspace` reads back to an equal one.

    Every default stands in it, so that no later default changes what was declared. The name does
    not: the file's name is the record's.
    """
    fields = record.model_dump(mode="json", exclude={"name"})
    return yaml.dump(
        fields, Dumper=_QuotingDumper, sort_keys=False, allow_unicode=True, width=1_000_000
    )
