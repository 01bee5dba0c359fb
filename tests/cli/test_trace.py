"""--trace: a document in Chrome's trace event format, whose spans lie in one another as the work does."""

import json
import pathlib
import signal
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "server"))
import served  # noqa: E402

MODEL = ROOT / "models" / "qwen3_moe"
LAYERS = json.loads((MODEL / "config.json").read_text())["num_hidden_layers"]


def sluice(*args):
    return subprocess.run([served.SLUICE, *map(str, args)], text=True, capture_output=True, timeout=300, check=False)


def spans_of(path):
    """Spans by name; every event has the fields that viewers need."""
    spans = {}
    document = json.loads(path.read_text())
    assert document["otherData"]["events_dropped"] == 0
    for event in document["traceEvents"]:
        assert event["ph"] in ("X", "M") and isinstance(event["pid"], int)
        if event["ph"] == "X":
            assert event["ts"] >= 0 and event["dur"] >= 0
            spans.setdefault(event["name"], []).append(event)
    return spans


def lies_in(inner, outers):
    end = inner["ts"] + inner["dur"]
    return any(o["tid"] == inner["tid"] and o["ts"] <= inner["ts"] + 2e-3 and end <= o["ts"] + o["dur"] + 2e-3
               for o in outers)


def check_steps(spans):
    steps = len(spans["forward"])
    assert steps > 0
    for name in ("attention", "moe", "route", "dispatch", "experts", "combine"):
        assert len(spans[name]) == steps * LAYERS, name
    for inner, outer in [("attention", "forward"), ("moe", "forward"), ("output", "forward"), ("embed", "forward"),
                         ("route", "moe"), ("experts", "moe"), ("combine", "moe")]:
        assert all(lies_in(span, spans[outer]) for span in spans[inner]), (inner, outer)
    order = [span["args"]["layer"] for span in sorted(spans["moe"], key=lambda s: s["ts"])]
    assert order == list(range(LAYERS)) * steps


def test_a_run_shows_loading_and_every_step(tmp_path):
    file = tmp_path / "trace.json"
    done = sluice("run", MODEL, "-p", "Question: 1 + 1?", "-n", "5", "--ignore-eos", "--trace", file)
    assert done.returncode == 0, done.stderr
    spans = spans_of(file)
    check_steps(spans)
    assert len(spans["step"]) == 5  # the prompt gives the first token, each further step one
    assert all(lies_in(span, spans["step"]) for name in ("schedule", "forward", "sample") for span in spans[name])
    tokens = [span["args"]["tokens"] for span in sorted(spans["forward"], key=lambda s: s["ts"])]
    assert tokens[0] > 1 and tokens[1:] == [1] * 4
    assert [span["args"]["layer"] for span in spans["load layer"]] == list(range(LAYERS))
    assert max(s["ts"] + s["dur"] for s in spans["load layer"]) <= min(s["ts"] for s in spans["step"])


def test_every_rank_writes_its_own_file(tmp_path):
    file = tmp_path / "trace.json"
    done = sluice("run", MODEL, "-p", "Question: 1 + 1?", "-n", "4", "--tp", "2", "--trace", file)
    assert done.returncode == 0, done.stderr
    for rank, path in enumerate([file, tmp_path / "trace.json.rank1"]):
        check_steps(spans_of(path))
        assert {event["pid"] for event in json.loads(path.read_text())["traceEvents"]} == {rank}


def test_a_command_that_fails_leaves_its_trace_and_its_own_message(tmp_path):
    file = tmp_path / "trace.json"
    done = sluice("run", MODEL, "-p", "Question: 1", "-n", "4", "-c", "2", "--trace", file)
    assert done.returncode == 2 and "context" in done.stderr
    assert "load layer" in spans_of(file)


def test_a_trace_that_cannot_be_written_is_no_success(tmp_path):
    done = sluice("run", MODEL, "-p", "Question: 1", "-n", "1", "--trace", "/dev/full")
    assert done.returncode == 5 and "/dev/full" in done.stderr


@pytest.mark.parametrize("flag", ["--trace", "--json"])
@pytest.mark.parametrize("path", ["missing/out.json", "."])
def test_outputs_that_cannot_be_written_are_told_before_the_work(tmp_path, flag, path):
    done = sluice("eval", "gsm8k", MODEL, "--data", ROOT / "models/word_problems.test.jsonl", "--num-shots", "0",
                  "--num-questions", "1", flag, tmp_path / path)
    assert done.returncode == 5 and str(tmp_path / path) in done.stderr
    assert "recipe" not in done.stderr and done.stdout == ""  # no start line, no result


def test_ranks_make_no_files_beside_a_device(tmp_path):
    device = tmp_path / "device"
    device.symlink_to("/dev/null")
    done = sluice("run", MODEL, "-p", "Question: 1", "-n", "1", "--tp", "2", "--trace", device)
    assert done.returncode == 5 and "device" in done.stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["device"] and not pathlib.Path("/dev/null.rank1").exists()


def test_there_is_nothing_to_trace_where_the_model_runs_elsewhere(tmp_path):
    done = sluice("eval", "gsm8k", "--base-url", "http://127.0.0.1:1", "--data", ROOT / "models/word_problems.test.jsonl",
                  "--trace", tmp_path / "trace.json")
    assert done.returncode == 2 and "--trace" in done.stderr


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_server_writes_its_trace_when_it_ends(tmp_path, end):
    file = tmp_path / "trace.json"
    with served.serving(tmp_path / "log", "--trace", file) as server:
        assert server.post("/v1/completions", {"prompt": "Question: 1 + 1?", "max_tokens": 3}).status_code == 200
        assert server.stop(end) == (128 + end if end == signal.SIGHUP else 0)
    check_steps(spans_of(file))
