"""The driver: one deadline, retries by class, and nothing tried twice in vain."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tandem.artifacts import driver
from tandem.artifacts.driver.failure import KINDS, classify_failure
from tandem.artifacts.driver.outcome import CompileOutcome, hash_request, read_outcome
from tandem.artifacts.driver.program import ProgramGroup
from tandem.artifacts.fetch import build_driver_archive

FOLDER = Path(driver.__file__).parent
ROOT = FOLDER.parents[2]
INTERPRETER = getattr(sys, "_base_executable", sys.executable)
BARE = [INTERPRETER, "-I", "-S"]  # without any package
SOURCE = (
    f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tandem.artifacts.driver import attempts; "
)
SOURCE += "sys.exit(attempts.main())"
FROM_SOURCE = ["-c", SOURCE]


class Bench:
    """A pod's folders and a program in Python; runs the driver as the pod does.

    It is run from its source, whose bytecode is kept; whoever asks for the archive runs that.
    """

    def __init__(self, folder):
        self.folder = folder
        self.output = folder / "artifact/current"
        self.cache = folder / "work/compiler-cache"
        self.outcome_file = folder / "work/outcome.json"
        self.memory_events = folder / "memory.events"
        self.program = folder / "program.py"
        self.driver = folder / "driver.pyz"
        self.driver.write_bytes(ARCHIVE)

    def says(self, code):
        """The program: `output`, `cache` and `attempt` (from 1) are there; it ends with 0 unless it
        says otherwise."""
        head = f"""
            import os, signal, subprocess, sys, time
            from pathlib import Path
            output, cache, folder = Path({str(self.output)!r}), Path({str(self.cache)!r}), Path({str(self.folder)!r})
            with (folder / "tries").open("a") as file:
                file.write("x")
            attempt = len((folder / "tries").read_text())
        """
        self.program.write_text(textwrap.dedent(head) + textwrap.dedent(code))

    def command(self, *more, deadline_s=60):
        return [
            *BARE,
            *FROM_SOURCE,
            *self.arguments(*more, deadline_s=deadline_s),
            *self.compiler(),
        ]

    def arguments(self, *more, deadline_s=60):
        return [
            "--outcome",
            str(self.outcome_file),
            "--output",
            str(self.output),
            "--cache",
            str(self.cache),
            "--deadline-s",
            str(deadline_s),
            "--memory-events",
            str(self.memory_events),
            *more,
            "--",
        ]

    def compiler(self):
        return [*BARE, "-u", str(self.program)]

    def run(self, *more, deadline_s=60, ended_by=None, **environment):
        """Run the driver to its end, or send it this signal once the program has begun."""
        process = subprocess.Popen(
            self.command(*more, deadline_s=deadline_s),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={"PATH": os.environ["PATH"], **environment},
        )
        if ended_by is not None:
            until(lambda: self.tries == 1)
            process.send_signal(ended_by)
        output, _ = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, output)

    @property
    def tries(self):
        file = self.folder / "tries"
        return len(file.read_text()) if file.exists() else 0

    @property
    def outcome(self):
        return json.loads(self.outcome_file.read_text())

    @property
    def classes(self):
        return [attempt["kind"] for attempt in self.outcome["attempts"]]


ARCHIVE = build_driver_archive()


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


WRITE = "(output / 'model.pt').write_text('whole')\n"


def last(output):
    return json.loads(output.strip().splitlines()[-1])


def alive(pid):
    """Whether the process runs; a dead one that nobody has buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def run_command(command, **how):
    return subprocess.run(command, capture_output=True, text=True, check=False, **how)


def until(fact):
    ends = time.monotonic() + 20
    while not fact():
        assert time.monotonic() < ends, "it never came"
        time.sleep(0.02)


def test_the_archive_compiles_in_an_interpreter_without_any_package(bench):
    bench.says(WRITE)
    command = [*BARE, str(bench.driver), *bench.arguments(), *bench.compiler()]
    run = run_command(command, cwd="/", env={})
    assert (run.returncode, run.stderr, bench.outcome["result"]) == (0, "", "compiled")


def test_the_program_inherits_nothing_of_the_driver(bench):
    bench.says(
        "import json; (folder / 'seen').write_text(json.dumps([dict(os.environ), sys.path]))\n"
        + WRITE
    )
    program = [INTERPRETER, "-u", str(bench.program)]
    plain = run_command(program, env={"GIVEN": "1"}).returncode
    alone = (bench.folder / "seen").read_text()

    run = run_command(
        [*BARE, str(bench.driver), *bench.arguments(), *program],
        env={"GIVEN": "1"},
    )

    assert plain != 0
    assert run.returncode == 0
    assert (bench.folder / "seen").read_text() == alone


def test_without_a_device_the_compile_counts_as_cpu(bench):
    assert not list(Path("/dev").glob("neuron[0-9]*"))
    bench.says(WRITE)

    bench.run("--unproven", "nobody has loaded it")

    assert bench.outcome["where"] == "cpu"
    assert [sentence[:30] for sentence in bench.outcome["unproven"]] == [
        "nobody has loaded it",
        "it was compiled where no Neuro",
    ]


def test_a_file_that_says_present_spares_everything(bench):
    (bench.folder / "present").touch()
    bench.says("raise SystemExit(1)")
    run = bench.run("--skip-if", str(bench.folder / "present"))
    assert (run.returncode, bench.tries) == (0, 0)
    assert not bench.outcome_file.exists()


def test_what_is_compiled_is_not_compiled_again_by_a_restart(bench):
    bench.says(WRITE)
    codes = [bench.run().returncode, bench.run().returncode]
    assert (codes, bench.tries) == ([0, 0], 1)


def test_an_output_that_is_gone_is_compiled_again(bench):
    bench.says(WRITE)
    bench.run()
    (bench.output / "model.pt").unlink()
    assert (bench.run().returncode, bench.tries, bench.classes) == (0, 2, ["compiled"])


LOGS = {
    "transient": "neuronx-cc compilation failed with 70.\nline 1318, in tp_barrier",
    "compiler error": "[ERROR] [NCC_IXCG856] Internal error\nin tp_barrier",
    "bad arguments": "inference_demo: error: unrecognized arguments: --nonsense",
    "unknown": "RuntimeError: something nobody has seen",
}
TRIES = {"transient": 3, "unknown": 2}


@pytest.mark.parametrize("kind", LOGS)
def test_a_failure_is_tried_again_by_its_class_alone(bench, kind):
    bench.says(f"print({LOGS[kind]!r}); sys.exit(70)")

    run = bench.run("--attempts", "3")

    tries = TRIES.get(kind, 1)
    assert (bench.tries, bench.classes) == (tries, [kind] * tries)
    assert (run.returncode, last(run.stdout)["level"]) == (
        2 if kind == "bad arguments" else 3,
        "error",
    )
    assert last(run.stdout)["change"] == KINDS[kind].change


@pytest.mark.parametrize(
    ("log", "kind"),
    [
        (
            (
                "An Internal Compiler Error has occurred\n[F137] neuronx-cc was forcibly killed\nin"
                " tp_barrier"
            ),
            "out of memory",
        ),
        ("[ERROR] [NCC_EOOM002] The combined memory needed exceeds the limit", "device memory"),
        ("[NCC_EVRF001] cannot write\nOSError: [Errno 28] No space left on device", "disk full"),
        (
            (
                "ERROR NRT:nrt_allocate_neuron_cores NeuronCore(s) not available - Requested:nc1"
                " Available:0"
            ),
            "no device",
        ),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "out of memory"),
        ("RuntimeError: neuronx-cc failed with -9", "out of memory"),
        ("run.sh: line 3:   123 Killed                  inference_demo", "out of memory"),
        (
            "[F134] neuronx-cc terminated abnormally - Please open a support ticket",
            "compiler error",
        ),
        (
            "2024-10-31T18:44:17Z [NLA001]  Unhandled exception with message: === BIR verification",
            "compiler error",
        ),
        ("Got a cached failed neff at /x/model.neff. Will skip compilation", "compiler error"),
        (
            "ValueError: max_model_len=2048 cannot be larger than target_max_model_len=1024",
            "bad arguments",
        ),
        (
            "[gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.1]:22947",
            "transient",
        ),
        ("Killed by the reviewer's remarks no one was", "out of memory"),
        ("nothing was Killed here", "unknown"),
    ],
)
def test_the_signs_are_read_from_lines_as_programs_print_them(log, kind):
    group = ProgramGroup(["printf", "%s", log])
    group.wait(10)
    # kill_all would kill every child of this process, the endpoint of other tests too
    group._reader.join(10)
    assert (
        classify_failure(group.sign_lines, group.last_line, 1, oom_kills=0, free_bytes=1 << 40)[
            0
        ].name
        == kind
    )


def test_a_transient_failure_begins_again_from_clean_folders(bench):
    bench.says(
        """
        seen = sorted(str(path.relative_to(folder)) for root in (output, cache) for path in root.rglob("*"))
        (folder / f"seen-{attempt}").write_text(chr(10).join(seen))
        if attempt == 1:
            (output / "weights").mkdir()
            (output / "weights/tp0.safetensors").write_text("half")
            for name, files in {"MODULE_1+a": ["model.done", "model.neff"], "MODULE_2+a": ["model.log"],
                                "MODULE_3+a": ["model.hlo_module.pb", "model.hlo_module.pb.lock"]}.items():
                (cache / "neuronxcc-2.21" / name).mkdir(parents=True)
                for file in files:
                    (cache / "neuronxcc-2.21" / name / file).write_text("x")
            (cache / "neuronxcc-2.21/MODULE_1+a/model.hlo_module.pb.lock").touch()
            print("in tp_barrier")
            sys.exit(1)
        """
        + WRITE
    )

    run = bench.run()

    cache = "work/compiler-cache/neuronxcc-2.21"
    remaining = [
        cache,
        f"{cache}/MODULE_1+a",
        f"{cache}/MODULE_1+a/model.done",
        f"{cache}/MODULE_1+a/model.neff",
    ]
    assert (run.returncode, bench.classes) == (0, ["transient", "compiled"])
    assert (bench.folder / "seen-2").read_text().splitlines() == remaining


def test_a_killed_program_is_out_of_memory(bench):
    bench.says("os.kill(os.getpid(), signal.SIGKILL)")

    run = bench.run()

    assert (run.returncode, bench.classes, bench.tries) == (3, ["out of memory"], 1)
    assert bench.outcome["attempts"][0]["exit"] == -9
    assert "compile.memory_gib" in last(run.stdout)["change"]


def test_kernels_own_count_shows_memory_where_the_log_does_not(bench):
    bench.memory_events.write_text("low 0\noom 1\noom_kill 2\n")
    bench.says(
        "(folder / 'memory.events').write_text('oom_kill 5'); print('in tp_barrier'); sys.exit(70)"
    )

    bench.run()

    assert bench.classes == ["out of memory"]
    assert "killed 3 process(es)" in bench.outcome["attempts"][0]["line"]


def test_killed_container_is_out_of_memory_at_its_restart(bench):
    bench.says("time.sleep(60)")
    bench.run(ended_by=signal.SIGKILL)

    again = bench.run()

    assert (again.returncode, bench.classes, bench.tries) == (3, ["out of memory"], 1)


def test_a_machine_that_restarted_in_the_middle_is_no_failure(bench):
    bench.says("time.sleep(60 if attempt == 1 else 0)\n" + WRITE)
    bench.run(ended_by=signal.SIGKILL)
    bench.outcome_file.write_text(json.dumps({**bench.outcome, "boot": "an earlier start"}))

    assert (bench.run().returncode, bench.classes) == (0, ["compiled"])


def test_sigterm_ends_the_program_and_a_restart_begins_again(bench):
    bench.says("time.sleep(60 if attempt == 1 else 0)\n" + WRITE)
    first_run = bench.run(ended_by=signal.SIGTERM)

    again = bench.run("--attempts", "1")

    assert (
        first_run.returncode,
        last(first_run.stdout)["event"],
        last(first_run.stdout)["line"],
    ) == (
        3,
        "stopped",
        "SIGTERM arrived",
    )
    assert (again.returncode, bench.classes) == (0, ["stopped", "compiled"])


def test_deadline_kills_a_program_that_ignores_sigterm(bench):
    bench.says("""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for session in (False, True):
            child = subprocess.Popen([sys.executable, "-c", "import signal, time\\n"
                "signal.signal(signal.SIGTERM, signal.SIG_IGN)\\ntime.sleep(60)"], start_new_session=session)
            with (folder / "children").open("a") as file:
                file.write(f"{child.pid}\\n")
        time.sleep(60)
        """)

    run = bench.run("--grace-s", "0.5", deadline_s=4)

    children = (bench.folder / "children").read_text().split()
    assert (run.returncode, bench.classes) == (3, ["deadline"])
    assert "compile.deadline_hours" in last(run.stdout)["change"]
    assert [pid for pid in children if alive(int(pid))] == []


def test_the_deadline_counts_over_restarts(bench):
    bench.says("time.sleep(60)")
    bench.run(deadline_s=30, ended_by=signal.SIGTERM)
    bench.outcome_file.write_text(json.dumps({**bench.outcome, "began": time.time() - 31}))

    run = bench.run(deadline_s=30)

    assert (run.returncode, bench.tries, last(run.stdout)["event"]) == (
        3,
        1,
        "not compiled: deadline",
    )


def test_deferred_failure_ends_well_and_is_recorded(bench):
    bench.says("print('something nobody has seen'); sys.exit(1)")

    runs = [bench.run("--defer") for _ in range(2)]

    outcome = read_outcome(bench.outcome_file)
    assert outcome is not None
    assert outcome.failure is not None
    assert (outcome.failure["event"], outcome.failure["exit_code"]) == ("not compiled: unknown", 3)
    assert [run.returncode for run in runs] == [0, 0]
    assert all(last(run.stdout).items() >= outcome.failure.items() for run in runs)
    assert bench.tries == 2


def test_request_is_hashed_without_what_kubernetes_adds():
    neighbours = {
        "HOSTNAME": "pod-2",
        "API_SERVICE_HOST": "10.0.0.1",
        "API_PORT_8000_TCP_ADDR": "10.0.0.1",
        "KUBERNETES_PORT": "tcp://x",
    }
    request = hash_request(["compile"], {"LNC": "2"})

    assert hash_request(["compile"], {"LNC": "2", **neighbours}) == request
    assert hash_request(["compile"], {"LNC": "1"}) != request
    assert hash_request(["compile", "more"], {"LNC": "2"}) != request


@pytest.mark.parametrize("version", [0, 2])
def test_an_outcome_of_another_schema_is_not_continued(tmp_path, version):
    path = tmp_path / "outcome.json"
    CompileOutcome(request="r").write(path)
    current = read_outcome(path)
    path.write_text(path.read_text().replace('"schema_version": 1', f'"schema_version": {version}'))

    assert current is not None
    assert read_outcome(path) is None


def test_deferred_a_driver_that_is_told_to_end_still_fails(bench):
    bench.says("time.sleep(60)")
    first_run = bench.run("--defer", ended_by=signal.SIGTERM)

    outcome = read_outcome(bench.outcome_file)
    assert outcome is not None
    assert (first_run.returncode, outcome.failure) == (3, None)


FULL = f"""
import errno, os, sys
sys.path.insert(0, {str(ROOT)!r})
from tandem.artifacts.driver import attempts, outcome
write = outcome.CompileOutcome.write
def full(current, path):
    if any(path.parents[1].glob("artifact/current/*")):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    write(current, path)
outcome.CompileOutcome.write = full
sys.exit(attempts.main())
"""


def test_disk_without_room_for_the_outcome_is_cleaned_and_named(bench):
    bench.says(WRITE)

    run = run_command([*BARE, "-c", FULL, *bench.arguments(), *bench.compiler()], cwd=ROOT)

    assert (run.returncode, bench.classes) == (3, ["disk full"])
    assert last(run.stdout)["event"] == "not compiled: disk full"


def test_a_program_that_is_not_there_is_bad_input(bench):
    options = [*BARE, *FROM_SOURCE, *bench.arguments()]
    run = run_command([*options, "inference_demo_that_is_not_there"])
    assert (run.returncode, bench.classes) == (2, ["bad arguments"])
    assert "inference_demo_that_is_not_there: No such file" in last(run.stdout)["line"]


def test_signs_of_life_say_time_and_bytes(bench):
    bench.says(WRITE + "time.sleep(1)")

    output = bench.run("--heartbeat-s", "0.3").stdout

    beats = [json.loads(line) for line in output.splitlines() if "still compiling" in line]
    assert beats
    assert beats[-1]["output_bytes"] == len("whole")
    assert 0 < beats[-1]["left_s"] <= 60


def test_a_place_where_nothing_can_be_written_is_no_traceback(bench):
    bench.says(WRITE)
    bench.output.parent.mkdir()
    bench.output.write_text("a file where a folder should be")

    run = bench.run()

    assert (run.returncode, bench.tries) == (3, 0)
    assert "Traceback" not in run.stdout
    assert str(bench.output) in last(run.stdout)["line"]


def test_long_line_and_bytes_that_are_no_text_pass_through(bench):
    bench.says("sys.stdout.buffer.write(b'\\xff' + b'=' * 200_000 + b'\\rend')\n" + WRITE)

    process = subprocess.run(bench.command(), capture_output=True, check=False)

    assert process.returncode == 0
    assert b"\xff" + b"=" * 200_000 + b"\rend" in process.stdout


def test_what_only_its_owner_may_read_is_opened_to_others(bench):
    bench.says(
        "(output / 'weights').mkdir(mode=0o700); p = output / 'weights/tp0'; p.write_text('x');"
        " p.chmod(0o600)"
    )
    bench.run()
    modes = [
        stat.S_IMODE((bench.output / name).stat().st_mode) for name in ("weights", "weights/tp0")
    ]
    assert modes == [0o755, 0o644]


SERVER = """
import http.server, threading
entry = output / "neuron/compile_cache" / ("a" * 32)
def finish():
    part = entry.with_name("part")
    part.mkdir(parents=True)
    (part / "graph_a.neff").write_text("neff")
    (part / ".compilation_complete").write_text("completed:1\\nneff_size:4\\n")
    (output / "neuron/compile_cache/a.lock").touch()
    part.rename(entry)  # healthy from here on: the end may come at once
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if entry.exists() else 503)
        self.end_headers()
    def log_message(self, *_):
        pass
def serve(port):
    server = http.server.HTTPServer(("127.0.0.1", port), Health)
    threading.Thread(target=server.serve_forever, daemon=True).start()
"""


@pytest.fixture
def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def until_healthy(port, **more):
    extra = [
        word for name, value in more.items() for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    return ["--until-healthy", f"http://127.0.0.1:{port}/health", "--ask-s", "0.05", *extra]


def test_a_server_is_ended_in_order_once_it_is_healthy(bench, port):
    bench.says(
        SERVER
        + f"""
serve({port})
def end(*_):
    (output / "written-at-the-end").write_text("x")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
time.sleep(0.5)
finish()
time.sleep(60)
"""
    )

    run = bench.run(*until_healthy(port), http_proxy="http://127.0.0.1:9")

    assert (run.returncode, bench.classes) == (0, ["compiled"])
    assert (bench.output / "written-at-the-end").exists()
    assert list(bench.output.rglob("*.lock")) == []


def test_a_servers_workers_are_left_to_the_server(bench, port):
    bench.says(
        SERVER
        + f"""
worker = os.fork()
if not worker:
    signal.signal(signal.SIGTERM, lambda *_: (folder / "worker-was-told").touch())
    while True:
        time.sleep(0.02)
def end(*_):
    time.sleep(0.2)
    os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
serve({port})
finish()
time.sleep(60)
"""
    )

    assert bench.run(*until_healthy(port)).returncode == 0
    assert not (bench.folder / "worker-was-told").exists()


def test_a_server_that_ends_before_it_is_healthy_has_failed(bench, port):
    bench.says("print('nothing to see'); sys.exit(0)")
    run = bench.run(*until_healthy(port), "--attempts", "1")
    assert (run.returncode, bench.classes) == (3, ["unknown"])
    assert "before it was healthy: nothing to see" in last(run.stdout)["line"]


def test_server_that_does_not_end_is_killed_and_noted(bench, port):
    bench.says(
        SERVER
        + f"signal.signal(signal.SIGTERM, signal.SIG_IGN)\nserve({port})\nfinish()\ntime.sleep(60)"
    )

    run = bench.run(*until_healthy(port, grace_s=0.5), "--unproven", "the rule itself")

    assert (run.returncode, bench.classes) == (0, ["compiled"])
    assert bench.outcome["unproven"][0] == "the rule itself"
    assert "did not end within 0.5 s" in bench.outcome["unproven"][-1]


def test_a_healthy_server_without_a_finished_graph_has_failed(bench, port):
    bench.says(SERVER + f"serve({port})\nentry.mkdir(parents=True)\ntime.sleep(60)")
    run = bench.run(*until_healthy(port))
    assert (run.returncode, bench.classes) == (3, ["nothing left"])
    assert "left no finished graph" in last(run.stdout)["line"]


def test_finished_graphs_of_a_server_outlive_a_transient_failure(bench, port):
    bench.says(
        SERVER
        + f"""
(folder / f"seen-{{attempt}}").write_text(" ".join(sorted(path.name for path in output.rglob("graph*"))))
if attempt == 1:
    finish()
    (output / "neuron/compile_cache" / ("b" * 32)).mkdir()
    (output / "neuron/compile_cache" / ("b" * 32) / "graph.hlo").touch()
    print("in tp_barrier"); sys.exit(1)
serve({port})
time.sleep(60)
"""
    )

    run = bench.run(*until_healthy(port))

    assert run.returncode == 0
    assert (bench.folder / "seen-2").read_text() == "graph_a.neff"
