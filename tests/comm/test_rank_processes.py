"""Ranks as processes: every check of groups over MPI, and faults of one rank. All ranks end, soon, with the cause named.

Faults are put into rank 2 of 3 while all of them sum without end.
"""

import contextlib
import fcntl
import os
import pathlib
import pty
import shutil
import signal
import subprocess
import time

import pytest

LIMIT = 300  # seconds: far above what a run takes, far below a hang
CHECKS = ["SumsAreSerial", "SumOfNegativeZeros", "ElementIsIndependent", "LargeSum", "BarrierAndBroadcast", "Gathers",
          "ReduceScatters", "Exchanges", "ManySmall", "Splits"]


def probe_path():
    build = os.environ.get("SLUICE_BUILD_DIR")
    assert build, "SLUICE_BUILD_DIR must name the build directory"
    path = pathlib.Path(build) / "tests" / "comm" / "ranks_probe"
    assert path.is_file(), f"{path} is missing: build the target ranks_probe"
    return str(path)


def probe(*words, stdin="", env=None):
    return subprocess.run([probe_path(), *map(str, words)], input=stdin, capture_output=True, text=True, timeout=LIMIT,
                          env={**os.environ, **(env or {})}, check=False)


def processes_of(mark):
    """Command lines of live processes that hold `mark`."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0") if entry.name.isdigit() else []
        except OSError:
            continue  # it ended meanwhile
        if mark in words:
            found.append(" ".join(words))
    return found


def gone(mark):
    """Waits until no process holds `mark`: mpirun kills what is left within seconds."""
    end = time.monotonic() + LIMIT
    while processes_of(mark) and time.monotonic() < end:
        time.sleep(0.05)
    return not processes_of(mark)


def alive(pid):
    return pathlib.Path(f"/proc/{pid}").exists()


def traces():
    """Shared memory of runs that have ended. An empty folder may stay when the process that would remove it was killed."""
    found = set()
    for path in pathlib.Path("/dev/shm").glob(f"sluice-{os.getuid()}-*"):
        starter = path.name.split("-")[2]
        if not alive(starter) and (path.is_file() or any(not p.is_dir() for p in path.glob("**/*"))):
            found.add(str(path))
    return found


@pytest.fixture(name="mark")
def fixture_mark(request):
    """A word of the command line that only this test's processes have; none of them may be left, nor their memory."""
    word = f"mark-{os.getpid()}-{request.node.name}"
    before = traces()
    yield word
    assert gone(word), processes_of(word)
    assert not traces() - before


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 8])
def test_conformance(ranks, mark):
    done = probe("conformance", "--tp", ranks, "--limit", 200, "--mark", mark)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{name} {ranks} ok" for name in CHECKS]
    assert done.stderr == ""


def test_parts_longer_than_a_message(mark):
    done = probe("conformance", "--tp", 3, "--limit", 200, "--message", 5003, "--mark", mark)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [f"{name} 3 ok" for name in CHECKS]


def fault(mode, mark, *words):
    done = probe(mode, "--tp", 3, "--who", 2, "--mark", mark, *words)
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr  # once, whoever noticed
    return done, lines[0]


def test_killed_rank(mark):
    done, line = fault("kill", mark, "--limit", 200)
    assert done.returncode == 5
    assert "rank 2 (process" in line and "is dead" in line and "all_reduce 3" in line


def fault_at_the_limit(mode, mark, condition):
    """The fault is named when the limit passes. It may pass before, where ranks get little of the machine: then a longer one is taken."""
    for limit in (2, 8, 32, 128):
        done, line = fault(mode, mark, "--limit", limit)
        assert done.returncode == 5
        assert f"no end within {limit}.0 s" in line
        if condition in line:
            return line
    raise AssertionError(line)


def test_stopped_rank(mark):
    assert "rank 2 (process" in fault_at_the_limit("stop", mark, "is stopped by a signal")


def test_hanging_rank(mark):
    assert "rank 2 (process" in fault_at_the_limit("hang", mark, "is alive; it completed all_reduce 31")


def test_rank_that_fails_tells_why_itself(mark):
    done, line = fault("throw", mark, "--limit", 200)
    assert done.returncode == 3
    assert line == "sluice: rank 2: shard 2 can't be read; expected a readable file"


def test_rank_that_leaves_without_a_word(mark):
    done, line = fault("exit", mark, "--limit", 200)
    assert done.returncode == 5
    assert "rank 2 (process" in line and "is dead" in line


def test_ranks_that_call_different_operations(mark):
    done, line = fault("other", mark, "--limit", 200)
    assert done.returncode == 5
    assert "ranks call different operations" in line and "barrier 32" in line and "all_reduce 32" in line


def test_rank_that_never_joins(mark):
    done, line = fault("exit-early", mark, "--start", 8)
    assert done.returncode == 5
    assert "rank 2 has not joined" in line  # told by a rank at its limit, or by the starter when mpirun is faster


def test_facts_that_differ(mark):
    done, line = fault("facts", mark)
    assert done.returncode == 2
    assert line.startswith("sluice: rank 2 has --quantization fp8, rank 0 has --quantization modelopt_fp4; expected the same")


def test_facts_that_agree(mark):
    done = probe("facts", "--tp", 3, "--who", 9, "--mark", mark)
    assert (done.returncode, done.stderr) == (0, "")


def test_only_rank_0_reads_and_prints(mark):
    done = probe("echo", "--tp", 3, "--mark", mark, stdin="a line\n")
    assert done.returncode == 0
    assert (done.stdout, done.stderr) == ("read a line\n", "note of rank 0\n")


def test_a_verdict_is_no_fault_and_loses_no_output(mark):
    done = probe("verdict", "--tp", 3, "--mark", mark)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == "".join(f"line {i}\n" for i in range(20_000))


def test_a_closed_pipe_is_an_error_of_rank_0(mark):
    run = subprocess.Popen([probe_path(), "verdict", "--tp", "2", "--mark", mark], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           text=True)
    run.stdout.close()
    err = run.stderr.read()
    assert run.wait(LIMIT) == 5
    assert err == "sluice: rank 0: standard output could not be written\n"


def test_rank_0_has_the_files_of_the_user(mark, tmp_path):
    with open(tmp_path / "out", "w", encoding="utf-8") as out:
        done = subprocess.run([probe_path(), "files", "--tp", "2", "--mark", mark], stdout=out, stderr=subprocess.PIPE, text=True,
                              timeout=LIMIT, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "out").read_text().strip() == str(tmp_path / "out")


def test_a_caller_that_ignores_the_end_of_children(mark):
    done = subprocess.run([probe_path(), "echo", "--tp", "2", "--mark", mark], input="a line\n", capture_output=True, text=True,
                          timeout=LIMIT, check=False, preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    assert (done.returncode, done.stdout) == (0, "read a line\n"), done.stderr


def test_input_that_comes_late_is_read(mark):
    run = subprocess.Popen([probe_path(), "echo", "--tp", "2", "--mark", mark], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    time.sleep(1.5)  # long after rank 0 has taken the user's files
    assert run.communicate("late\n", timeout=LIMIT)[0] == "read late\n"
    assert run.returncode == 0


def until_closed(terminal):
    text = b""
    try:
        while part := os.read(terminal, 1000):
            text += part
    except OSError:
        pass  # what a terminal gives when its last process has gone
    return text


def test_what_is_typed_is_read(mark):
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(probe_path(), [probe_path(), "echo", "--tp", "2", "--mark", mark])
    time.sleep(1.5)
    os.write(terminal, b"typed\n")
    assert b"read typed" in until_closed(terminal)
    assert os.waitpid(pid, 0)[1] == 0
    os.close(terminal)


def start(mode, mark):
    """A run of 3 whose rank 0 has said its first word."""
    run = subprocess.Popen([probe_path(), mode, "--tp", "3", "--who", "2", "--limit", "200", "--mark", mark], text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    assert run.stdout.readline() in ("serving\n", "started\n")
    return run


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_reach_rank_0_which_ends_in_order(number, mark):
    run = start("serve", mark)
    run.send_signal(number)
    out, err = run.communicate(timeout=LIMIT)
    assert (run.returncode, out, err) == (0, f"ended by {int(number)}\n", "")


def test_a_signal_to_the_whole_group_ends_in_order(mark):
    run = start("serve", mark)
    os.killpg(run.pid, signal.SIGTERM)
    out, err = run.communicate(timeout=LIMIT)
    assert (run.returncode, out, err) == (0, f"ended by {int(signal.SIGTERM)}\n", "")


def test_a_signal_to_every_process_ends_in_order(mark):
    run = start("serve", mark)
    for pid in [run.pid, *children(run.pid), *ranks_of(run)]:
        with contextlib.suppress(ProcessLookupError):  # the first may have ended the others
            os.kill(pid, signal.SIGTERM)
    out, err = run.communicate(timeout=LIMIT)
    assert (run.returncode, out, err) == (0, f"ended by {int(signal.SIGTERM)}\n", "")


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_that_rank_0_does_not_catch_is_no_fault(number, mark):
    run = start("serve", mark)
    os.killpg(run.pid, number)
    _, err = run.communicate(timeout=LIMIT)
    assert (run.returncode, err) == (128 + number, "")


def children(pid):
    return [int(x) for x in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_killed_starter_takes_all_along(mark):
    run = start("sum", mark)
    run.kill()
    run.communicate(timeout=LIMIT)
    assert gone(mark)
    assert probe("facts", "--tp", 2, "--who", 9, "--mark", mark).returncode == 0  # takes away what nobody was left to remove


def test_leftovers_of_a_dead_starter_go_with_the_next_run(mark):
    dead = subprocess.run(["sh", "-c", "echo $$"], capture_output=True, text=True, check=True).stdout.strip()
    board = pathlib.Path(f"/dev/shm/sluice-{os.getuid()}-{dead}-1")
    folder = pathlib.Path(f"{board}.d")
    alive_folder = pathlib.Path(f"/dev/shm/sluice-{os.getuid()}-{os.getpid()}-1.d")
    for path in (folder, alive_folder):
        (path / "job").mkdir(parents=True)
        (path / "segment").write_bytes(b"x")
    board.write_bytes(b"x")
    try:
        assert probe("facts", "--tp", 2, "--who", 9, "--mark", mark).returncode == 0
        assert not folder.exists() and not board.exists()
        assert alive_folder.exists()
    finally:
        shutil.rmtree(alive_folder)


def test_the_folder_of_a_run_in_another_container_stays(mark):
    gone_here = subprocess.run(["sh", "-c", "echo $$"], capture_output=True, text=True, check=True).stdout.strip()
    folder = pathlib.Path(f"/dev/shm/sluice-{os.getuid()}-{gone_here}-1.d")
    folder.mkdir()
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert probe("facts", "--tp", 2, "--who", 9, "--mark", mark).returncode == 0
        assert folder.exists()
    finally:
        os.close(held)
        folder.rmdir()


def ranks_of(run):
    return [pid for mpirun_pid in children(run.pid) for pid in children(mpirun_pid)]


def status_of(pid):
    return pathlib.Path(f"/proc/{pid}/status").read_text()


def test_killed_launcher_takes_all_along(mark):
    run = start("stop", mark)  # rank 2 can't notice anything by itself
    while not any("T (stopped)" in status_of(pid) for pid in ranks_of(run)):
        time.sleep(0.01)
    os.kill(children(run.pid)[0], signal.SIGKILL)
    _, err = run.communicate(timeout=LIMIT)
    assert run.returncode == 5
    assert err.splitlines() == ["probe: mpirun was killed by signal 9; expected it to live as long as the ranks do, which end with it"]


def mpirun(*words):
    assert shutil.which("mpirun"), "mpirun is missing: install openmpi-bin"
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return subprocess.run(["mpirun", "--oversubscribe", "--quiet", *root, *map(str, words)], capture_output=True, text=True,
                          timeout=LIMIT, check=False)


def test_joins_under_mpirun(mark):
    done = mpirun("-n", 3, probe_path(), "echo", "--tp", 3, "--mark", mark)
    assert (done.returncode, done.stdout) == (0, "read nothing\n")


def test_number_of_ranks_must_match(mark):
    done = mpirun("-n", 3, probe_path(), "echo", "--tp", 2, "--mark", mark)
    assert done.returncode == 2
    assert "the launcher started 3 ranks; expected as many as --tp says, which is 2" in done.stderr
    assert done.stderr.count("sluice:") == 1


def test_missing_mpirun(tmp_path, mark):
    done = probe("echo", "--tp", 2, "--mark", mark, env={"PATH": str(tmp_path)})
    assert done.returncode == 5
    assert "mpirun can't be started" in done.stderr and "apt-get install openmpi-bin" in done.stderr
