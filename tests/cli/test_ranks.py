"""Commands over ranks: the answers of one rank, and faults of one rank in the middle of a whole command. All ranks end,
soon, with the cause named and the right exit code; nothing is left running.
"""

import fcntl
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import termios
import time

import httpx
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "server"))
import served  # noqa: E402

SLUICE = served.SLUICE
MODEL = ROOT / "models" / "qwen3_moe"
DATA = ROOT / "models" / "word_problems.test.jsonl"
SHOTS = ROOT / "models" / "word_problems.shots.jsonl"
LIMIT = 300  # seconds: far above what a run takes, far below a hang
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
VARIABLE = "SLUICE_TEST_RUN"


def ranks_of(mark):
    """Process ids of the live ranks that were started with this mark, by rank."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        try:
            variables = (entry / "environ").read_bytes().split(b"\0") if entry.name.isdigit() else []
            state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] if variables else ""
        except OSError:
            continue  # it ended meanwhile
        rank = [v.split(b"=")[1] for v in variables if v.startswith(b"OMPI_COMM_WORLD_RANK=")]
        if f"{VARIABLE}={mark}".encode() in variables and rank and state != "Z":
            found[int(rank[0])] = int(entry.name)
    return found


@pytest.fixture(name="mark")
def fixture_mark(request):
    """The value of an environment variable that only this test's ranks have; none of them may be left."""
    word = f"{os.getpid()}-{request.node.name}"
    yield word
    end = time.monotonic() + LIMIT
    while ranks_of(word) and time.monotonic() < end:
        time.sleep(0.05)
    left = ranks_of(word)
    for pid in left.values():
        os.kill(pid, signal.SIGKILL)
    assert not left


def sluice(mark, *words):
    return subprocess.run([str(SLUICE), *map(str, words)], capture_output=True, text=True, timeout=LIMIT, check=False,
                          env={**os.environ, VARIABLE: mark})


def ended_once(text):
    """The only report; mpirun may add a warning of its own."""
    told = [line for line in text.splitlines() if line.startswith("sluice: ")]
    assert len(told) == 1, text
    return told[0]


def evaluate(mark, out, *flags, questions=12):
    done = sluice(mark, "eval", "gsm8k", MODEL, "--data", DATA, "--shots", SHOTS, "--num-shots", 1, "--num-questions", questions,
                  "--max-new-tokens", 120, "--json", out, "-q", *flags)
    assert done.returncode == 0, done.stderr
    return json.loads(out.read_text())["answers"]


def test_answers_are_those_of_one_rank(tmp_path, mark):
    expected = evaluate(mark, tmp_path / "one.json")
    for way in ["--tp 2", "--tp 4 --ep 4 --dp 2 --enable-dp-attention", "--tp 3 --dp 3 --enable-dp-attention --moe-a2a-backend mori"]:
        assert evaluate(mark, tmp_path / "many.json", *way.split()) == expected, way


def test_rank_zero_talks_and_the_start_line_has_the_split(mark):
    done = sluice(mark, "run", MODEL, "-p", "Question:", "-n", 4, "--tp", 2, "--ep", 2)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Qwen3MoeForCausalLM") == 1 and "2 ranks, experts over 2, each whole, partial sums reduced" in done.stderr
    assert sluice(mark, "run", MODEL, "-p", "Question:", "-n", 4).stdout == done.stdout


def at_some_limit(holds, first):
    """That it holds with the limit `first`, or with a longer one where ranks get so little of the machine that others run into it."""
    assert any(holds(first * times) for times in (1, 4, 16))


@pytest.fixture(name="endless", scope="module")
def fixture_endless(tmp_path_factory):
    """A model whose answers do not end while a test looks at them; the flags for such an answer."""
    return [str(served.endless_model(tmp_path_factory.mktemp("endless") / "model")), "-p", "Question:", "-n", str(served.ENDLESS), "--ignore-eos"]


def test_a_slow_source_of_the_prompt_is_no_fault(mark):
    expected = sluice(mark, "run", MODEL, "-p", "Question:", "-n", 4).stdout

    def told(limit):
        run = subprocess.Popen([str(SLUICE), "run", str(MODEL), "-f", "-", "-n", "4", "-q", "--tp", "2", "--dist-timeout", str(limit)],
                               text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env={**os.environ, VARIABLE: mark})
        run.stdin.write("Ques")
        run.stdin.flush()
        time.sleep(3 * limit)
        return run.communicate("tion:", timeout=LIMIT), run.returncode
    at_some_limit(lambda limit: told(limit) == ((expected, ""), 0), 1)


def test_a_reader_that_goes_ends_a_run_quietly(mark, endless):
    run = subprocess.Popen([str(SLUICE), "run", *endless, "-q", "--tp", "2"], text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, VARIABLE: mark})
    assert run.stdout.read(1)
    run.stdout.close()
    assert run.stderr.read() == ""
    assert run.wait(LIMIT) == 128 + signal.SIGPIPE


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_run_quietly(mark, endless, number):
    run = subprocess.Popen([str(SLUICE), "run", *endless, "-q", "--tp", "2"], text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, VARIABLE: mark}, start_new_session=True)
    assert run.stdout.read(1)
    os.killpg(run.pid, number)
    assert (run.communicate(timeout=LIMIT)[1], run.returncode) == ("", 128 + number)


def test_output_that_is_lost_is_told_once(mark):
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([str(SLUICE), "verify", str(MODEL), "-q", "--tp", "2"], stdout=full, stderr=subprocess.PIPE, text=True,
                              timeout=LIMIT, check=False, env={**os.environ, VARIABLE: mark})
    assert done.returncode == 5, done.stderr
    assert "standard output could not be written" in done.stderr
    ended_once(done.stderr)


def test_a_refusal_is_told_once_without_a_rank(mark):
    done = sluice(mark, "run", MODEL, "-p", "Question:", "-n", 4, "--tp", 4, "--context-length", 99_999_999)
    assert done.returncode == 2, done.stderr
    assert ended_once(done.stderr).startswith("sluice: context of 99999999 tokens"), done.stderr


@pytest.fixture(name="start_eval")
def fixture_start_eval(mark, tmp_path):
    """Starts an evaluation that would take long, and waits until it is in work."""
    questions = tmp_path / "questions.jsonl"
    questions.write_text(DATA.read_text() * 50)

    def start(*flags):
        run = subprocess.Popen([str(SLUICE), "eval", "gsm8k", str(MODEL), "--data", str(questions), "--shots", str(SHOTS), *map(str, flags)],
                               stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, VARIABLE: mark})
        while "loaded in" not in (line := run.stderr.readline()):
            assert line or run.poll() is None, "it ended before it was loaded"
        return run
    return start


def ended(run, code, *parts):
    """The run ends within the limit, with this exit code and one report."""
    _, text = run.communicate(timeout=LIMIT)
    assert run.returncode == code, text
    for part in parts:
        assert part in text, text
    assert text.count("sluice: ") == 1, text


@pytest.mark.parametrize("who", [0, 2])
def test_a_killed_rank_ends_an_evaluation(mark, start_eval, who):
    run = start_eval("--tp", "3", "--dp", "3", "--enable-dp-attention")
    os.kill(ranks_of(mark)[who], signal.SIGKILL)
    ended(run, 5, f"rank {who}")


def test_a_stopped_rank_ends_an_evaluation_at_the_limit(mark, start_eval):
    run = start_eval("--tp", "2", "--dist-timeout", 10)
    os.kill(ranks_of(mark)[1], signal.SIGSTOP)
    ended(run, 5, "rank 1")


def two_ranks(mark, first, second):
    """Two ranks with a command line each."""
    line = [*MPIRUN, "-n", "1", str(SLUICE), *map(str, first), ":", "-n", "1", str(SLUICE), *map(str, second)]
    return subprocess.run(line, capture_output=True, text=True, timeout=LIMIT, check=False, env={**os.environ, VARIABLE: mark})


def test_joins_the_ranks_that_mpirun_has_started(mark):
    line = ["run", MODEL, "-p", "Question:", "-n", 4, "--tp", 2]
    done = two_ranks(mark, line, [*line, "--threads", 1])  # threads may differ
    assert done.returncode == 0, done.stderr
    assert done.stdout == sluice(mark, "run", MODEL, "-p", "Question:", "-n", 4).stdout


@pytest.mark.parametrize("lower", [0, 1])
def test_all_ranks_use_the_instruction_set_of_the_lowest(mark, lower):
    line = ["run", MODEL, "-p", "Question:", "-n", 4, "--tp", 2]
    lines = [line, line]
    lines[lower] = [*line, "--isa", "scalar"]
    done = two_ranks(mark, *lines)
    assert done.returncode == 0, done.stderr
    assert f"instruction set scalar on all ranks, the most that rank {lower} may use; rank {1 - lower} could use" in done.stderr
    assert "cpu, scalar" in done.stderr  # of the start line
    assert done.stdout == sluice(mark, "run", MODEL, "-p", "Question:", "-n", 4, "--tp", 2, "--isa", "scalar").stdout


def test_the_only_process_of_a_launcher_is_one_rank_or_starts_its_own(mark):
    line = ["run", str(MODEL), "-p", "Question:", "-n", "4", "-q"]
    expected = sluice(mark, *line).stdout
    alone = {"PMI_RANK": "0", "PMI_SIZE": "1", VARIABLE: mark}
    for launcher, more in (([], alone), ([*MPIRUN, "-n", "1"], {VARIABLE: mark})):
        for flags in ([], ["--tp", "2"]):
            done = subprocess.run([*launcher, str(SLUICE), *line, *flags], capture_output=True, text=True, timeout=LIMIT, check=False,
                                  env={**os.environ, **more})
            assert (done.returncode, done.stdout) == (0, expected), done.stderr


def test_a_launcher_that_contradicts_itself(mark):
    done = subprocess.run([str(SLUICE), "run", str(MODEL), "-p", "Question:", "--tp", "2"], capture_output=True, text=True, timeout=LIMIT,
                          check=False, env={**os.environ, "PMI_RANK": "2", "PMI_SIZE": "2", VARIABLE: mark})
    assert done.returncode == 2 and "rank 2 of 2" in done.stderr, done.stderr


def test_a_rank_that_cannot_read_its_shard(tmp_path, mark):
    shutil.copytree(MODEL, tmp_path / "model")
    shard = max((tmp_path / "model").glob("model*.safetensors"))
    os.truncate(shard, shard.stat().st_size // 2)
    flags = ["-p", "Question:", "-n", 4, "--tp", 2]
    done = two_ranks(mark, ["run", MODEL, *flags], ["run", tmp_path / "model", *flags])
    assert done.returncode == 3, done.stderr
    assert "sluice: rank 1: " in done.stderr and shard.name in done.stderr and done.stdout == ""


@pytest.mark.parametrize("first,second,parts", [
    (["--chunked-prefill-size", 64], ["--chunked-prefill-size", 32], ["--chunked-prefill-size", "64", "32", "rank 1"]),
    (["--ep", 2], [], ["--ep", "rank 1"]),
    (["--dtype", "float32"], [], ["--dtype", "float32", "rank 1"]),
])
def test_flags_that_differ_between_ranks(mark, first, second, parts):
    line = ["run", MODEL, "-p", "Question:", "-n", 4, "--tp", 2]
    done = two_ranks(mark, [*line, *first], [*line, *second])
    assert done.returncode == 2, done.stderr
    for part in parts:
        assert str(part) in done.stderr, done.stderr


def test_another_checkpoint_on_one_rank(mark):
    flags = ["-p", "Question:", "-n", 4, "--tp", 2]
    done = two_ranks(mark, ["run", MODEL, *flags], ["run", ROOT / "models" / "gpt_oss", *flags])
    assert done.returncode == 2 and "checkpoint" in done.stderr, done.stderr


def test_ranks_that_tp_does_not_mention(mark):
    line = ["run", MODEL, "-p", "Question:", "-n", 4]
    done = two_ranks(mark, line, line)
    assert done.returncode == 2 and "--tp" in done.stderr and done.stdout == "", done.stderr


def test_a_server_over_ranks_idles_serves_and_drains(tmp_path, mark):
    body = {"prompt": served.PROMPT, "max_tokens": 8, "temperature": 0}
    line = ["--tp", "2", "--dp", "2", "--enable-dp-attention", "--max-running-requests", "10"]

    def holds(limit):
        try:
            with served.serving(tmp_path / "log", *line, "--dist-timeout", limit, env={VARIABLE: mark}) as server:
                time.sleep(1.5 * limit)  # longer than any rank waits for another one
                assert server.post("/v1/completions", body).json()["choices"][0]["text"]
                assert server.get("/expert_load").json()
                info = server.get("/server_info").json()
                assert (info["tp_size"], info["ep_size"], info["dp_size"], info["max_running_requests"]) == (2, 1, 2, 10)
                assert server.stop() == 0
        except (AssertionError, KeyError, httpx.HTTPError):
            return False
        return True
    at_some_limit(holds, 3)


def pipe_with_room(room):
    """A pipe that takes so many bytes more, and a way to tell how many it has taken."""
    reader, writer = os.pipe()
    size = fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    os.write(writer, b"\n" * (size - room))

    def taken():
        return int.from_bytes(fcntl.ioctl(reader, termios.FIONREAD, bytes(4)), sys.byteorder) - (size - room)

    return reader, writer, taken


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_signal_while_a_server_loads_is_no_fault(mark, ranks):
    reader, writer, taken = pipe_with_room(120)  # for the line of the address; the one that tells of the model has to wait
    server = subprocess.Popen([str(SLUICE), "serve", str(MODEL), "--port", "0", "--tp", str(ranks)], stdout=subprocess.DEVNULL,
                              stderr=writer, env={**os.environ, VARIABLE: mark})
    os.close(writer)
    while taken() == 0:
        assert server.poll() is None
        time.sleep(0.01)
    server.send_signal(signal.SIGTERM)
    assert server.wait(LIMIT) == 0
    with open(reader, encoding="utf-8") as text:
        lines = text.read().split()
    assert "listening" in lines and "loaded" not in lines and "sluice:" not in lines, lines


def test_sizes_of_the_run_and_of_a_group(tmp_path, mark):
    line = ["--tp", "2", "--dp", "2", "--enable-dp-attention", "--max-running-requests", "10", "--max-total-tokens", "2048"]
    with served.serving(tmp_path / "log", *line, env={VARIABLE: mark}) as server:
        info = server.wait_ready().get("/server_info").json()
        assert [info[name] for name in ("max_running_requests", "chunked_prefill_size", "max_total_num_tokens")] == [10, 512, 4096]
        assert info["per_dp_rank"] == {"max_running_requests": 5, "chunked_prefill_size": 256, "max_total_num_tokens": 2048}
        assert "KV cache 4096 tokens, spread over 2 groups of ranks" in server.text() and "2048 tokens in each of 2 groups" in server.text()


@pytest.mark.parametrize("flags", [["--tp", "2", "--ep", "2"], ["--tp", "4", "--ep", "2", "--dp", "2", "--enable-dp-attention"]])
def test_the_load_of_experts_over_ranks_is_that_of_one_rank(tmp_path, mark, flags):
    """In float32, where the order of sums does not change what routing chooses in these prompts."""
    loads, metrics = [], []
    for more in ([], flags):
        server = served.Server(tmp_path / "log", "--dtype", "float32", *more, env={VARIABLE: mark}).wait_ready()
        for text in ("Question: Kira has 3 tickets.", "Wes has 4 tickets.", served.PROMPT):
            server.post("/v1/completions", {"prompt": text, "max_tokens": 8, "temperature": 0, "ignore_eos": True}).raise_for_status()
        loads.append(server.get("/expert_load").json())
        metrics.append(server.get("/metrics").text)
        picture = server.get("/expert_load.svg").text
        assert server.stop() == 0, server.text()
    one, many = loads
    ranks, pieces = int(flags[1]), int(flags[1]) // int(flags[3])
    assert one["tokens"] == many["tokens"] > 24
    for old, new in zip(one["layers"], many["layers"]):
        assert new["choices"] == old["choices"] and sum(new["choices"]) == 4 * many["tokens"]  # top-4
        assert "ranks" not in old and new["slot_rows"] == new["choices"] and new["slot_experts"] == list(range(16))
        rows = [rank["rows"] for rank in new["ranks"]]
        for r, rank in enumerate(new["ranks"]):
            first = 8 * (r // pieces)
            assert (rank["first_slot"], rank["slots"], rank["rows"]) == (first, 8, sum(new["choices"][first:first + 8]))
        assert sum(rows) == pieces * sum(new["choices"])
        assert new["rank_imbalance"] == pytest.approx(max(rows) * ranks / sum(rows))
        for r, count in enumerate(rows):
            assert f'layer="{new["layer"]}",rank="{r}"}} {count}\n' in metrics[1]
            assert f"layer {new['layer']}, rank {r}: {count}<" in picture
    assert "expert_rank" not in metrics[0] and metrics[1].count("sluice:expert_rank_imbalance{") == len(many["layers"])


def test_a_second_signal_ends_a_draining_server(tmp_path, mark):
    server = served.Server(tmp_path / "log", "--tp", "2", "--drain-timeout", "600", "--max-total-tokens", "120k",
                           model=served.endless_model(tmp_path / "model"), env={VARIABLE: mark}).wait_ready()
    held = server.occupy(1)
    server.send()
    server.wait_for("shutting down: 1 requests in work")
    server.send()
    assert server.process.wait(LIMIT) == 128 + signal.SIGTERM
    assert "sluice: " not in server.text()
    held[0].close()


def test_a_server_whose_rank_is_killed_ends(tmp_path, mark):
    server = served.Server(tmp_path / "log", "--tp", "2", env={VARIABLE: mark}).wait_ready()
    os.kill(ranks_of(mark)[1], signal.SIGKILL)
    assert server.process.wait(LIMIT) == 5, server.text()
    assert "rank 1" in server.text()
