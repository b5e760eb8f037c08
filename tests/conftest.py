"""Shared by all tests: Node from the virtual environment, copies of the committed specs, who runs
beside whom.

What is dear to make is made in one of the processes that pytest starts: the tests that take it are
one group.
"""

from __future__ import annotations

import functools
import gc
import importlib.metadata
import os
import random
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import botocore.session
import pytest
from botocore.client import ClientCreator

ROOT = Path(__file__).parent.parent
MODULES = sorted(
    {
        str(path.parent)
        for path in Path(__file__).parent.rglob("*.py")
        if "doubles" not in path.parts
    }
)
sys.path[:0] = [
    str(ROOT),
    *MODULES,
    str(ROOT / "benchmarks"),
    str(ROOT / "docs"),
]  # a test imports what another folder of tests shares by its bare name

from kubectl_program import unpack_kubectl  # noqa: E402
from local_endpoint import endpoint, enforcing  # noqa: E402, F401
from shipped import copy_examples  # noqa: E402

import _node  # noqa: E402, F401  # before anything imports jsii

# with Python's 700 objects, garbage is a fifth of the time of collecting tests
gc.set_threshold(100_000, 20, 20)

# Fixtures of a whole session that are dear -> the group of the tests that take them. Each takes
# seconds of Node, and one Node serves all; `enforcing` is an endpoint that no other test needs. A
# module's fixtures need no name here.
DEAR = {"assembly": "cdk", "synth": "cdk", "image_of": "cdk", "enforcing": "enforcing"}
LONGEST_NAMED = 200  # characters of a text that stands in the name of its test
# of what every process may read: the charts of the declared environments
SESSION_FOLDER = "TANDEM_TEST_FOLDER"
# groups of a minute and more, which no process may begin at the end
LONG = {"bench-jobs", "endpoint", "run-life"}
# in the folder of a session: whether one of its processes has collected the tests, and so compiled
# what they import
COLLECTED = "collected"
LONGEST_WAIT_S = 120


@pytest.fixture(scope="module")
def proof_seed():
    """The seed of a proof: of the environment, or another each time."""
    return os.environ.get("TANDEM_PROOF_SEED") or str(random.SystemRandom().randrange(10**6))


def pytest_configure(config: pytest.Config) -> None:
    """Make a folder for what all processes of a session share; they get its path by a variable."""
    if hasattr(config, "workerinput"):
        return
    before = os.environ.get(SESSION_FOLDER)
    os.environ[SESSION_FOLDER] = tempfile.mkdtemp(prefix="tandem-tests-")
    config.add_cleanup(functools.partial(remove_session_folder, before))


def remove_session_folder(before: str | None) -> None:
    """Remove the folder of this session, and name again that of a session which started this
    one."""
    shutil.rmtree(os.environ.pop(SESSION_FOLDER))
    if before is not None:
        os.environ[SESSION_FOLDER] = before


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--shuffle SEED`: modules in another order, and their tests, which shows what depends on
    what ran before."""
    parser.addoption(
        "--shuffle",
        type=int,
        metavar="SEED",
        help="run modules, and tests in them, in another order",
    )


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name a long text by its length: a test's name goes from process to process, and into their
    environment."""
    if isinstance(val, str | bytes) and len(val) > LONGEST_NAMED:
        return f"{argname}-{len(val)}"
    return None


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep together what shares a dear fixture or a module, and let begin first what would be
    waited for at the end.

    One group per test would do, but for pytest-xdist, which looks at each group of a process
    whenever a test ends.
    """
    for item in items:
        if isinstance(item, pytest.Function) and not any(item.iter_markers("xdist_group")):
            item.add_marker(pytest.mark.xdist_group(group_of(item)))
    seed = config.getoption("shuffle")
    if seed is None:
        items.sort(key=last)
    else:
        shuffle_items(items, random.Random(seed))  # noqa: S311  # a seed makes the order repeatable


def shuffle_items(items: list[pytest.Item], chance: random.Random) -> None:
    """Shuffle modules, and the tests of each; a module stays together for what its tests share."""
    modules = defaultdict[Path, list[pytest.Item]](list)
    for item in items:
        modules[item.path].append(item)
    paths = list(modules)
    chance.shuffle(paths)
    items.clear()
    for path in paths:
        chance.shuffle(modules[path])
        items += modules[path]


def group_of(item: pytest.Function) -> str:
    """Return the group of a test: of a dear fixture, else its module's."""
    return next((DEAR[name] for name in item.fixturenames if name in DEAR), item.path.stem)


def last(item: pytest.Item) -> int:
    """Return how late a test begins: Node and long groups, then what shares or writes, last what
    only computes."""
    if not isinstance(item, pytest.Function) or not DEAR.keys().isdisjoint(item.fixturenames):
        return 0
    if any(mark.args[0] in LONG for mark in item.iter_markers("xdist_group")):
        return 0
    scopes = {
        name2fixturedef[-1].scope for name2fixturedef in item._fixtureinfo.name2fixturedefs.values()
    }
    return 1 if scopes - {"function"} else 2  # tmp_path is of the session's folder


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Let the first process of a new clone collect before the others, which would all compile the
    same modules."""
    is_compiled = any((ROOT / "tests/judge").glob("__pycache__/*"))
    worker = getattr(session.config, "workerinput", {"workerid": "gw0"})["workerid"]
    if is_compiled or sys.dont_write_bytecode or worker == "gw0":
        return
    end_s = time.monotonic() + LONGEST_WAIT_S
    while not Path(os.environ[SESSION_FOLDER], COLLECTED).exists() and time.monotonic() < end_s:
        time.sleep(0.2)


def pytest_collection_finish() -> None:
    """Keep what collecting made out of every garbage collection: it lives as long as the tests
    do."""
    Path(os.environ[SESSION_FOLDER], COLLECTED).touch()
    gc.collect()
    gc.freeze()


def pytest_sessionstart() -> None:
    """Read and make once a process what botocore has of an AWS service, where it does so once a
    session or a client; look for a package's version once, not each time in the folder of every
    test."""
    importlib.metadata.version = functools.cache(importlib.metadata.version)
    # EC2's model takes half a second
    botocore.session.create_loader = functools.cache(botocore.session.create_loader)
    create_class = ClientCreator._create_client_class
    classes = dict[str, type]()

    def create_class_once(creator: ClientCreator, service: str, model: object) -> type:
        if service not in classes:
            classes[service] = create_class(creator, service, model)
        return classes[service]

    ClientCreator._create_client_class = create_class_once


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Collect once; pytest's own five collections after it then have little to look at."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def kubectl(pytestconfig):
    """The program that the stacks deploy."""
    return unpack_kubectl(pytestconfig.cache)


@pytest.fixture
def root():
    """The repository."""
    return ROOT


@pytest.fixture
def specs(tmp_path):
    """A folder with copies of the shipped environments and experiments, free to be spoilt."""
    copy_examples(tmp_path)
    return tmp_path
