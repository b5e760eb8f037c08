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
from tandem.spec.platform import Digests, DraChart, Instances, Kubernetes, Offerings, StandingPrices, WatchPrices
from tandem.spec.record import Record, parse
from tandem.spec.runtime import ProgramCompile, Runtime, Spelling

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
    watch_prices: WatchPrices
    standing_prices: StandingPrices


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
        watch_prices=_read(WatchPrices, platform / "watch-prices.yaml"),
        standing_prices=_read(StandingPrices, platform / "standing-prices.yaml"),
    )


def _runtime(path: Path) -> Runtime:
    runtime = _read(Runtime, path, name=path.stem)
    missing = sorted(set(get_args(Mode)) - {support.mode for support in runtime.modes})
    if missing:
        raise SpecError([_fault(path, "modes", f"no entry for {', '.join(missing)}", "one entry for every mode")])
    flagless = sorted(_compiled_settings(runtime.spelling) - _flagged(runtime.spelling)) if runtime.spelling else []
    if flagless:
        raise SpecError([
            _fault(
                path, "spelling.compile.flags", f"no flag for {', '.join(flagless)}",
                "one for every setting that a server's loader may be told, or an artifact is compiled without it",
            )
        ])  # fmt: skip
    return runtime


def _compiled_settings(spelling: Spelling) -> set[str]:
    """Return every Neuron setting that can reach the compiler, where a program of its own must be told it."""
    how = spelling.compile
    if not isinstance(how, ProgramCompile):
        return set()  # a server is told by its own flags
    sampling = {f"{how.sampling_setting}.{name}" for name in spelling.greedy_sampling}
    by_mode = {setting for settings in spelling.speculation_neuron_config.values() for setting in settings}
    return {
        *how.loader_declared, *how.loader_constants, how.window_setting, how.sampling_setting, *sampling,
        *spelling.constant_neuron_config, *spelling.tuning_defaults, *by_mode,
        *(name for name in spelling.tuning_keys if name not in spelling.tuning_flags),
        *([spelling.async_key] if spelling.async_key else []),
    }  # fmt: skip


def _flagged(spelling: Spelling) -> set[str]:
    return set(spelling.compile.flags) if isinstance(spelling.compile, ProgramCompile) else set()


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
