"""Everything known of models, runtimes and the platform, read from the dated data files.

Invariant: a data file that cites no source, or leaves a mode out, is refused at load.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar, get_args

from tandem.spec.document import Document, read_document
from tandem.spec.experiment import Mode
from tandem.spec.faults import Fault, SpecError
from tandem.spec.figure import Source, uncited
from tandem.spec.model import Model
from tandem.spec.platform import Digests, DraChart, Instances, Kubernetes, Offerings
from tandem.spec.record import Record, parse
from tandem.spec.runtime import Runtime

DATA = Path(__file__).parent / "data"

R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """The data files, parsed."""

    models: dict[str, Model]
    runtimes: dict[str, Runtime]
    instances: Instances
    offerings: Offerings
    kubernetes: Kubernetes
    dra_chart: DraChart
    digests: Digests


@cache
def catalogue(data: Path = DATA) -> Catalogue:
    """Read the data files below `data`.

    Raises:
        SpecError: a data file is malformed, cites a source it does not list, or omits a mode.
    """
    models = [_read(Model, path) for path in sorted((data / "models").glob("*.yaml"))]
    runtimes = [_runtime(path) for path in sorted((data / "runtimes").glob("*.yaml"))]
    platform = data / "platform"
    return Catalogue(
        models={model.id: model for model in models},
        runtimes={runtime.name: runtime for runtime in runtimes},
        instances=_read(Instances, platform / "instances.yaml"),
        offerings=_read(Offerings, platform / "offerings.yaml"),
        kubernetes=_read(Kubernetes, platform / "kubernetes.yaml"),
        dra_chart=_read(DraChart, platform / "neuron-dra-chart.yaml"),
        digests=_read(Digests, platform / "digests.yaml"),
    )


def _runtime(path: Path) -> Runtime:
    runtime = _read(Runtime, path, name=path.stem)
    missing = sorted(set(get_args(Mode)) - {support.mode for support in runtime.modes})
    if missing:
        raise SpecError([_fault(path, "modes", f"no entry for {', '.join(missing)}", "one entry for every mode")])
    return runtime


def _read(record: type[R], path: Path, **given: str) -> R:
    document: Document = read_document(path, f"{path.parent.name}/{path.name}")
    value = parse(record, document, **given)
    sources: dict[str, Source] = value.sources  # type: ignore[attr-defined]  # every data record has the table
    faults = [
        _fault(path, at, f"the source {key!r}", f"a key of sources: {', '.join(sorted(sources))}")
        for at, key in uncited(value, sources)
    ]
    if faults:
        raise SpecError(faults)
    return value


def _fault(path: Path, at: str, got: str, allowed: str) -> Fault:
    return Fault(
        file=f"{path.parent.name}/{path.name}", path=at, got=got, allowed=allowed, change="complete the data file"
    )
