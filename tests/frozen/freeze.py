"""Golden files of what a user or an account meets: written by `--write`, compared by
test_frozen.py.

`python tests/frozen/freeze.py --write [SECTION ...]` writes them anew; then `git diff tests/frozen`
is the change. Never written anew: runs/, recorded runs from which verdicts/ is made.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
sys.path[:0] = [
    str(ROOT),
    str(ROOT / "tests"),
    str(ROOT / "tests" / "stacks"),
    str(ROOT / "tests" / "cli"),
    str(ROOT / "tests" / "bench"),
]

import boto3  # noqa: E402 - the paths stand above
import shipped  # noqa: E402
import yaml  # noqa: E402
from bench_cli import without_page  # noqa: E402

from tandem.artifacts.__main__ import main as pod_main  # noqa: E402
from tandem.cli.program import main  # noqa: E402

ENVIRONMENTS = (
    "post-us-east-2",
    "native-us-east-2",
    "dev-trn2-3xlarge",
    "customer-keys",
    "private-charts",
)
RUNS = {
    "measured": ROOT / "tests" / "monitoring" / "measured" / "run",
    "ngram": ROOT / "tests" / "benchmarks" / "real_run" / "ngram",
    "faults": FOLDER / "runs" / "faults",
    "restarts": FOLDER / "runs" / "restarts",
}
ASSET = re.compile(r"(?<!sha256:)\b[0-9a-f]{64}\b")
TAG = re.compile(r"-(tools|llmperf|run|lm-eval):([0-9a-f]{16})\b")
MOMENT = re.compile(r"[0-9-]{10}(?= or earlier)|^[0-9:]{8}(?= )", re.MULTILINE)
Golden = dict[str, str]  # file below this folder to its text


def name_digests(text: str) -> str:
    """Replace what hashes sources: assets by their order in the text, image tags by their image."""
    for image, tag in set(TAG.findall(text)):
        text = re.sub(rf"\b{tag}\b", f"<{image}-tag>", text)
    for number, digest in enumerate(dict.fromkeys(ASSET.findall(text)), 1):
        text = text.replace(digest, f"<asset-{number}>")
    return text


def dump_json(value: Any) -> str:
    """Return JSON with sorted keys."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def format_template(template: Mapping[str, Any]) -> str:
    """Return a template with one resource a line, by logical id."""
    resources = sorted(template["Resources"].items())
    rest = {key: value for key, value in sorted(template.items()) if key != "Resources"}
    lines = [
        f"{json.dumps(key)}: {json.dumps(value, sort_keys=True)}"
        for key, value in [*resources, *rest.items()]
    ]
    return name_digests("{\n" + ",\n".join(lines) + "\n}\n")


def freeze_templates(templates: Mapping[str, Mapping[str, Any]]) -> Golden:
    """Return one file for each stack of ENVIRONMENTS.

    Args:
        templates: by name of the stack; stacks of other environments are left out.
    """
    mine = {
        name: template
        for name, template in sorted(templates.items())
        if name.rpartition("-")[0] in ENVIRONMENTS
    }
    return {f"templates/{name}.json": format_template(template) for name, template in mine.items()}


def freeze_objects(trees: Mapping[str, Mapping[Path, str]]) -> Golden:
    """Return the Kubernetes objects of environments as values, one a line: spelling and order of
    YAML do not count.

    Args:
        trees: by name of the environment, the text of each file by its path.
    """
    golden: Golden = {}
    for name, files in trees.items():
        objects: dict[str, str] = {}
        for path, text in files.items():
            if path.name == "kustomization.yaml":
                continue
            folder = path.parent.relative_to(name)
            for body in yaml.load_all(text, Loader=yaml.CSafeLoader):
                metadata = body["metadata"]
                identity = (
                    f"{folder} {body['kind']} {metadata.get('namespace', '')}/{metadata['name']}"
                )
                assert identity not in objects, identity
                objects[identity] = json.dumps(body, sort_keys=True, ensure_ascii=False)
        lines = [f"{json.dumps(identity)}: {text}" for identity, text in sorted(objects.items())]
        golden[f"objects/{name}.json"] = name_digests("{\n" + ",\n".join(lines) + "\n}\n")
    return golden


def render_objects() -> Golden:
    """Render ENVIRONMENTS; tests take the session's charts instead."""
    import assemblies  # noqa: PLC0415 - of this section alone

    import _node  # noqa: F401, PLC0415 - before anything imports jsii
    from charts.tree import render_files  # noqa: PLC0415 - starts Node

    environments = [place for place in assemblies.places() if place.name in ENVIRONMENTS]
    catalogue = assemblies.inputs().catalogue
    trees = {
        place.name: render_files(place, assemblies.hosted(place), catalogue)
        for place in environments
    }
    return freeze_objects(trees)


def freeze_artifact_keys() -> Golden:
    """Return the key and its fields of each variant of each experiment."""
    from tandem.declarations.catalogue import load_catalogue  # noqa: PLC0415 - of this section alone
    from tandem.declarations.variant_key import compute_artifact_key  # noqa: PLC0415

    declared_experiments = shipped.load_shipped().experiments
    keys = {
        f"{name} {variant.name}": compute_artifact_key(file.record, variant, load_catalogue())
        for name, file in sorted(declared_experiments.items())
        for variant in file.record.all_variants()
    }
    return {
        "artifact_keys.json": dump_json(
            {name: {"key": key.name, **key.as_fields()} for name, key in keys.items()}
        )
    }


def run_command(
    argv: list[str], folder: Path, run: Callable[[list[str]], int] = main
) -> dict[str, Any]:
    """Run `tandem`, or another program, in this process and a folder; what it printed, without this
    machine's paths."""
    out = io.StringIO()
    errors = io.StringIO()
    before = Path.cwd()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors), variables(folder):
        os.chdir(folder)
        try:
            code = run(argv)
        except SystemExit as end:
            code = end.code
        finally:
            os.chdir(before)
    streams = {"out": out.getvalue(), "err": errors.getvalue()}
    for path, name in ((folder, "<folder>"), (ROOT, "<root>"), (Path.home(), "<home>")):
        streams = {key: text.replace(str(path), name) for key, text in streams.items()}
    return {"exit_code": code, **streams}


@contextlib.contextmanager
def variables(folder: Path) -> Iterator[None]:
    """Set a width of 80, and hide this machine's AWS credentials, and those that boto3 has kept,
    for a while."""
    before = dict(os.environ)
    nowhere = str(folder / "no-such-file")
    session_before = boto3.DEFAULT_SESSION
    boto3.DEFAULT_SESSION = None
    for name in [name for name in before if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ |= {"AWS_CONFIG_FILE": nowhere, "AWS_SHARED_CREDENTIALS_FILE": nowhere}
    os.environ |= {"COLUMNS": "80", "AWS_EC2_METADATA_DISABLED": "true"}
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        boto3.DEFAULT_SESSION = session_before


def freeze_run(name: str, folder: Path) -> Golden:
    """Return summary, verdict and printed report of a recorded run.

    Args:
        name: of RUNS.
        folder: an empty one, to copy the run to.
    """
    copy = folder / name
    shutil.copytree(RUNS[name], copy)
    with without_page():
        brief = run_command(["bench", "report", name], folder)
        verbose = run_command(["bench", "report", name, "--verbose"], folder)
    files = {
        file: dump_json(json.loads((copy / file).read_text()))
        for file in ("summary.json", "verdict.json")
    }
    for file, ended_item in (("report.txt", brief), ("report_verbose.txt", verbose)):
        files[file] = f"{ended_item['out']}{ended_item['err']}exit code {ended_item['exit_code']}\n"
    return {f"verdicts/{name}/{file}": body for file, body in files.items()}


def freeze_runs() -> Golden:
    """Return what is said of every run of RUNS."""
    files: Golden = {}
    for name in RUNS:
        with tempfile.TemporaryDirectory() as folder:
            files |= freeze_run(name, Path(folder))
    return files


def synthesize() -> Golden:
    """Synthesize ENVIRONMENTS alone; tests take the session's assembly instead."""
    import assemblies  # noqa: PLC0415 - starts Node

    import app  # noqa: PLC0415

    environments = [place for place in assemblies.places() if place.name in ENVIRONMENTS]
    hosts = [(environment, assemblies.hosted(environment)) for environment in environments]
    with tempfile.TemporaryDirectory() as folder:
        app.build_app(hosts, assemblies.inputs().catalogue, outdir=folder, validate=False).synth()
        return freeze_templates(assemblies.templates(Path(folder)))


def list_commands() -> Iterator[list[str]]:
    """Yield the words of every command and verb, as the frozen help files name them."""
    for path in sorted((FOLDER / "help").glob("*.txt")):
        yield path.stem.split("_")


def freeze_help() -> Golden:
    """Return the help of every command that has a file below help/; a new command needs an empty
    one first."""
    files: Golden = {}
    for words in list_commands():
        run = run_command(
            [*words[1:], "--help"], ROOT, pod_main if words[0] == "artifacts" else main
        )
        files[f"help/{'_'.join(words)}.txt"] = f"{run['out']}{run['err']}"
    return files


def freeze_mistake(name: str, folder: Path) -> dict[str, Any]:
    """Make one mistake of mistakes.json in a folder with copies of environments/, experiments/ and
    a small run."""
    mistake = json.loads((FOLDER / "mistakes.json").read_text())[name]
    shipped.copy_examples(folder)
    shutil.copytree(RUNS["restarts"], folder / "run")
    for file, old, new in mistake.get("edits", ()):
        path = folder / file
        before = path.read_text() if path.exists() else ""
        assert old in before, f"{name}: {file} has no {old!r}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(before.replace(old, new, 1) if old else before + new)
    for file in mistake.get("removed", ()):
        (folder / file).unlink()
    result = run_command(mistake["argv"], folder)
    streams = {key: MOMENT.sub("<moment>", result[key]).splitlines() for key in ("out", "err")}
    return {"exit_code": result["exit_code"], **streams}


def freeze_mistakes() -> Golden:
    """Return what every mistake of mistakes.json is told."""
    results = {}
    for name in json.loads((FOLDER / "mistakes.json").read_text()):
        with tempfile.TemporaryDirectory() as folder:
            results[name] = freeze_mistake(name, Path(folder).resolve())
    return {"mistakes_told.json": dump_json(results)}


# the commonest ends that ask no account or meet no credentials; test_first_screens.py has others
SCREENS = {
    "check": ["check", "post-us-east-2"],
    "check_verbose": ["check", "post-us-east-2", "--verbose"],
    "check_why": ["check", "post-us-east-2", "--why"],
    "show": ["show", "post-us-east-2"],
    "plan": ["plan", "post", "--env", "post-us-east-2"],
    "migrate": ["migrate", "post", "--runtime", "native"],
    "images": ["images", "post-us-east-2"],
    "render": ["render", "post-us-east-2", "--check"],
    "new": ["new", "prod"],
    "doctor": ["doctor", "--env", "native-us-east-2"],
    "status": ["status", "--env", "post-us-east-2"],
    "start": ["start", "--env", "dev-trn2-3xlarge", "--hours", "1", "--experiment", "dev"],
    "stop": ["stop", "--env", "post-us-east-2"],
    "destroy": ["destroy", "--env", "dev-trn2-3xlarge"],
    "run": ["run", "post", "--env", "post-us-east-2", "--hours", "8", "--dry-run"],
    "run_dev": ["run", "dev", "--env", "dev-trn2-3xlarge", "--hours", "4", "--dry-run"],
    "runs": ["runs", "--env", "post-us-east-2"],
    "results": ["results", "RUN", "--env", "post-us-east-2"],
    "artifacts_list": ["artifacts", "list", "--env", "post-us-east-2"],
    "bench_run": [
        "bench",
        "run",
        "--baseline",
        "http://127.0.0.1:9",
        "--variant",
        "b=http://127.0.0.1:9",
        "--model",
        "m",
        "--out",
        "out",
    ],
    "bench_compare": ["bench", "compare", "run", "again"],
}


def freeze_screen(name: str, folder: Path) -> Golden:
    """Return what a command of SCREENS prints, where copies lie of what is declared and rendered,
    and two runs."""
    shipped.copy_shipped(folder)
    for environment in shipped.ENVIRONMENTS:
        shutil.copytree(ROOT / "manifests" / environment, folder / "manifests" / environment)
    for run in ("run", "again"):
        shutil.copytree(RUNS["restarts"], folder / run)
    manifest = folder / "again" / "manifest.json"
    manifest.write_text(
        manifest.read_text().replace('"created_utc": "2026', '"created_utc": "2027')
    )
    result = run_command(SCREENS[name], folder)
    head = f"$ {shlex.join(['tandem', *SCREENS[name]])}\n"
    text = MOMENT.sub("<moment>", f"{result['out']}{result['err']}")
    return {f"screens/{name}.txt": name_digests(f"{head}{text}exit code {result['exit_code']}\n")}


def freeze_screens() -> Golden:
    """Return every screen of SCREENS."""
    files: Golden = {}
    for name in SCREENS:
        with tempfile.TemporaryDirectory() as folder:
            files |= freeze_screen(name, Path(folder).resolve())
    return files


SECTIONS: dict[str, Callable[[], Golden]] = {
    "templates": synthesize,
    "objects": render_objects,
    "artifact_keys": freeze_artifact_keys,
    "runs": freeze_runs,
    "help": freeze_help,
    "mistakes": freeze_mistakes,
    "screens": freeze_screens,
}


def write_sections() -> None:
    """Write the sections that the command line names, all where it names none."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--write", nargs="*", choices=list(SECTIONS), required=True, metavar="SECTION"
    )
    for section in parser.parse_args().write or SECTIONS:
        for file, text in SECTIONS[section]().items():
            path = FOLDER / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            print(path.relative_to(ROOT))  # noqa: T201 - a program


if __name__ == "__main__":
    write_sections()
