"""What a clumsy user or a hostile file does: exit codes, messages, no crash, nothing destroyed, nothing lost in silence."""

import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
SLUICE = pathlib.Path(os.environ["SLUICE_BUILD_DIR"]) / "bin" / "sluice"
MODEL = ROOT / "models" / "qwen3_moe"
RUN = ["run", MODEL, "-p", "Question: 1", "-n", "4"]
EVAL = ["eval", "gsm8k", MODEL, "--data", ROOT / "models/word_problems.test.jsonl", "--num-shots", "0",
        "--num-questions", "1"]


def sluice(*args, env=None, **kwargs):
    kwargs.setdefault("capture_output", True)
    return subprocess.run([SLUICE, *map(str, args)], text=True, timeout=300, check=False,
                          env={**os.environ, **(env or {})}, **kwargs)


@pytest.fixture
def model(tmp_path):
    """A copy of the bundled model whose files may be changed."""
    folder = tmp_path / "model"
    shutil.copytree(MODEL, folder)
    for file in folder.iterdir():
        file.chmod(0o644)
    return folder


@pytest.mark.parametrize("flags", [
    ["--max-running-requests", str(2**62)], ["--max-running-requests", "-1"], ["--max-total-tokens", str(2**63 - 1)],
    ["--max-total-tokens", "-3"], ["--chunked-prefill-size", str(2**62 + 16)], ["--chunked-prefill-size", "-2"],
    ["--temperature", "nan"], ["--temperature", "-1"], ["--top-p", "nan"], ["--top-p", "1.5"], ["--min-p", "-3"],
    ["--top-k", "-5"], ["--top-k", str(2**32 + 1)], ["--max-new-tokens", "-5"], ["-c", "-5"], ["-c", "1"], ["--threads", "junk"],
])
def test_values_out_of_range_are_refused_and_named(flags):
    done = sluice("run", MODEL, "-p", "Question: 1", *flags)
    assert done.returncode == 2, done.stderr
    assert done.stdout == "" and "internal error" not in done.stderr
    assert flags[1].lstrip("-") in done.stderr or "context" in done.stderr


@pytest.mark.parametrize("flags", [["--threshold", "nan"], ["--threshold", "-1"], ["--parallel", str(2**62 + 1)]])
def test_a_gate_cannot_be_switched_off_by_a_typo(flags):
    assert sluice(*EVAL, *flags).returncode == 2


@pytest.mark.parametrize("tokens", [str(2**62), str(2**63 - 1), "0", "-1"])
def test_bench_refuses_sizes_that_no_memory_holds(tokens):
    assert sluice("bench", "moe", "--tokens", tokens).returncode == 2


def test_a_whole_context_may_be_one_step():
    assert sluice(*RUN, "--chunked-prefill-size", "-1").returncode == 0


def test_a_closed_or_full_standard_error_changes_nothing():
    with open("/dev/full", "w") as full:
        assert subprocess.run([SLUICE, "run"], stderr=full, stdout=subprocess.DEVNULL, check=False).returncode == 2
        assert subprocess.run([SLUICE, *map(str, RUN)], stderr=full, stdout=subprocess.DEVNULL,
                              check=False).returncode == 0
    closed = subprocess.run(["sh", "-c", f"{SLUICE} run 2>&-"], check=False)
    assert closed.returncode == 2


@pytest.mark.parametrize("command", [["--version"], ["--help"], ["help", "--markdown"], ["doctor"],
                                     ["verify", MODEL], RUN, EVAL])
def test_lost_output_is_no_success(command):
    with open("/dev/full", "w") as full:
        done = subprocess.run([SLUICE, *map(str, command)], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 5 and ("output" in done.stderr or "cannot write" in done.stderr), done.stderr


def test_threads_that_cannot_start_are_a_message():
    def few_threads():
        resource.setrlimit(resource.RLIMIT_AS, (700_000_000, 700_000_000))

    done = sluice(*RUN, "-t", "300", preexec_fn=few_threads)
    assert done.returncode == 5, done.stderr
    assert "thread" in done.stderr or "memory" in done.stderr


def test_json_goes_through_links_and_pipes(tmp_path):
    target, link, part = tmp_path / "target", tmp_path / "link", tmp_path / "link.part"
    target.write_text("old")
    part.write_text("mine")
    link.symlink_to(target)
    assert sluice("verify", MODEL, "--json", link).returncode == 0
    assert link.is_symlink() and json.loads(target.read_text())["ok"] is True and part.read_text() == "mine"
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    assert sluice("doctor", "--json", tmp_path / "pipe").returncode == 0
    assert (tmp_path / "pipe").is_fifo() and os.read(reader, 1) in b"[{"
    os.close(reader)


def test_layer_does_not_replace_a_pipe(tmp_path):
    save_file({"hidden": np.zeros((1, 192), np.float32)}, tmp_path / "in.safetensors")
    os.mkfifo(tmp_path / "pipe")
    done = sluice("layer", MODEL, "--layer", "0", "--hidden", tmp_path / "in.safetensors", "--out", tmp_path / "pipe")
    assert done.returncode != 0 and (tmp_path / "pipe").is_fifo()


def damaged_reference(tmp_path, change):
    tensors = load_file(MODEL / "reference.safetensors")
    change(tensors)
    path = tmp_path / "reference.safetensors"
    save_file(tensors, path)
    return path


@pytest.mark.parametrize("name,value", [("prompt0.last_logits", np.nan), ("prompt1.last_logits", np.inf),
                                        ("prompt0.logprob_of_next", np.nan)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_verify_refuses_references_that_are_not_finite(tmp_path, name, value, dtype):
    def change(tensors):
        tensors[name][3] = value

    done = sluice("verify", MODEL, "--reference", damaged_reference(tmp_path, change), "--dtype", dtype)
    assert done.returncode == 3 and name in done.stderr


def test_verify_fails_on_logits_of_zeros(tmp_path):
    def change(tensors):
        tensors["prompt0.last_logits"][:] = 0

    assert sluice("verify", MODEL, "--reference", damaged_reference(tmp_path, change)).returncode == 1


@pytest.mark.parametrize("change,word", [
    (lambda t: t.update({"prompt0.logprob_of_next": t["prompt0.logprob_of_next"][:-3]}), "logprob_of_next"),
    (lambda t: t["prompt1.input_ids"].__setitem__(2, 5_000_000), "prompt1"),
    (lambda t: [t.pop(k) for k in list(t) if k.startswith("prompt1.")], "prompt1"),
])
def test_verify_names_what_is_wrong_in_a_reference(tmp_path, change, word):
    path = damaged_reference(tmp_path, change)
    done = sluice("verify", MODEL, "--reference", path)
    assert done.returncode == 3 and word in done.stderr and str(path) in done.stderr, done.stderr


@pytest.mark.parametrize("text", ["complete garbage", "[run", "[run]\nthreds = 1\n", "[rum]\nthreads = 1\n"])
def test_a_config_file_with_mistakes_is_refused(tmp_path, text):
    config = tmp_path / "flags.toml"
    config.write_text(text)
    done = sluice("--config", config, *RUN)
    assert done.returncode == 2, done.stdout + done.stderr


def test_a_config_file_sets_flags(tmp_path):
    config = tmp_path / "flags.toml"
    config.write_text("[run]\nthreads = 1\n")
    done = sluice("--config", config, *RUN)
    assert done.returncode == 0 and "1 thread" in done.stderr


def test_the_environment_is_read_for_the_command_that_runs_only():
    assert sluice(*RUN, env={"SLUICE_LAYER": "junk"}).returncode == 0
    assert sluice("doctor", env={"SLUICE_THREADS": "junk"}).returncode == 0
    done = sluice(*RUN, env={"SLUICE_THREADS": "junk"})
    assert done.returncode == 2 and "SLUICE_THREADS" in done.stderr
    assert "1 thread" in sluice(*RUN, env={"SLUICE_THREADS": "1"}).stderr


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"])
@pytest.mark.parametrize("kind", ["fifo", "folder", "loop", "zero"])
def test_text_files_that_are_none(model, name, kind):
    path = model / name
    path.unlink()
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero" if kind == "zero" else name)
    done = sluice("run", model, "-p", "Question: 1", "-n", "2")
    if name != "tokenizer.json" and kind == "loop":
        assert done.returncode in (0, 3)  # a link to nothing is an absent file, which these may be
    else:
        assert done.returncode == 3 and name in done.stderr, done.stderr


@pytest.mark.parametrize("part", ["normalizer", "decoder"])
def test_replacements_that_fill_the_memory_are_stopped(model, part):
    config = json.loads((model / "tokenizer.json").read_text())
    steps = [{"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000} for _ in range(6)]
    config[part] = {"type": "Sequence", f"{part}s": steps}
    (model / "tokenizer.json").write_text(json.dumps(config))
    done = sluice("run", model, "-p", "Question: cats eat a banana", "-n", "40")
    assert done.returncode == 3 and "tokenizer.json" in done.stderr, done.stderr


def test_control_characters_of_files_do_not_reach_the_terminal(model):
    config = json.loads((model / "config.json").read_text())
    config["architectures"] = ["Evil\x1b[2J\nsluice: all is well"]
    config["model_type"] = "evil"
    (model / "config.json").write_text(json.dumps(config))
    done = sluice("run", model, "-p", "x")
    assert done.returncode == 4 and "\x1b" not in done.stderr and done.stderr.count("\n") == 1


def test_a_chat_goes_on_after_a_message_that_is_too_long():
    done = sluice("chat", MODEL, "-c", "200", "-n", "8", input="word " * 400 + "\nQuestion: 1\n/exit \n")
    assert done.returncode == 0
    assert done.stderr.count("/clear starts anew\n") <= 2 and "at most" in done.stderr
    assert done.stdout.strip(), "the second message was not answered"


def cpu_seconds(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) / os.sysconf("SC_CLK_TCK")


def test_an_interrupt_ends_the_reading_of_a_long_prompt():
    def attempt():
        chat = subprocess.Popen([SLUICE, "chat", MODEL, "--dtype", "float32", "--chunked-prefill-size", "64", "-t", "1"],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert "parameters" in chat.stderr.readline()  # the start line: the model is loaded
        before = cpu_seconds(chat)
        chat.stdin.write("Question: one two three " * 380 + "\n")  # some 3,800 tokens, many seconds of work
        chat.stdin.flush()
        while cpu_seconds(chat) < before + 0.3:  # so that it has begun
            time.sleep(0.005)
        chat.send_signal(signal.SIGINT)
        chat.stdin.write("/exit\n")
        chat.stdin.close()
        assert chat.wait(timeout=300) == 0
        return "decode 0 tokens" in chat.stderr.read()
    assert any(attempt() for _ in range(10))


def test_answers_without_a_number_are_refused(tmp_path):
    data = tmp_path / "data.jsonl"
    data.write_text(json.dumps({"question": "How many?", "answer": "none"}) + "\n")
    done = sluice("eval", "gsm8k", MODEL, "--data", data, "--num-shots", "0")
    assert done.returncode == 3 and "data.jsonl:1" in done.stderr


def test_the_models_generation_config_is_applied_or_refused(model):
    ask = ("run", model, "-p", "Question: 1", "-n", "24", "--ignore-eos", "-q")
    config = json.loads((model / "generation_config.json").read_text())
    plain = sluice(*ask).stdout
    (model / "generation_config.json").write_text(json.dumps({**config, "repetition_penalty": 5.0}))
    assert sluice(*ask).stdout != plain
    assert sluice(*ask, "--repetition-penalty", "1").stdout == plain
    (model / "generation_config.json").write_text(json.dumps({**config, "top_p": 0.0}))
    done = sluice("run", model, "-p", "Question: 1", "-n", "2")
    assert done.returncode == 3 and "generation_config.json" in done.stderr


def overwrite(model, tensor, value):
    """Puts bf16 `value` bits over the first half of a tensor."""
    for shard in sorted(model.glob("model-*.safetensors")):
        raw = bytearray(shard.read_bytes())
        size = int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8:8 + size])
        if tensor not in header:
            continue
        begin, end = header[tensor]["data_offsets"]
        count = (end - begin) // 4
        raw[8 + size + begin:8 + size + begin + 2 * count] = value.to_bytes(2, "little") * count
        shard.write_bytes(raw)


@pytest.mark.parametrize("tensor,word", [("model.layers.1.mlp.gate.weight", "layer 1: router"),
                                         ("model.layers.2.input_layernorm.weight", "layer 2: attention_norm"),
                                         ("model.norm.weight", "final_norm")])
@pytest.mark.parametrize("bits", [0x7FC0, 0xFF80])
def test_damage_that_would_only_make_answers_wrong_is_refused(model, tensor, word, bits):
    overwrite(model, tensor, bits)
    done = sluice("run", model, "-p", "Question: 1", "-n", "2")
    assert done.returncode == 3 and word in done.stderr, done.stderr


def test_nan_in_other_weights_ends_the_answer(model):
    overwrite(model, "model.layers.0.self_attn.o_proj.weight", 0x7FC0)
    done = sluice("run", model, "-p", "Question: 1", "-n", "2")
    assert done.returncode == 1 and str(model) in done.stderr and "NaN" in done.stderr
    found = sluice("check", model, "--weights")
    assert found.returncode == 1 and "o_proj" in found.stdout and "NaN" in found.stdout
    assert sluice("check", MODEL, "--weights").returncode == 0


def test_tokens_that_the_model_does_not_have_are_the_files_fault(model):
    config = json.loads((model / "tokenizer.json").read_text())
    config["added_tokens"].append({**config["added_tokens"][0], "id": 60000, "content": "<far>"})
    (model / "tokenizer.json").write_text(json.dumps(config))
    done = sluice("run", model, "-p", "Question: <far>", "-n", "2")
    assert done.returncode == 3 and "60000" in done.stderr and "vocab_size" in done.stderr, done.stderr


@pytest.mark.parametrize("kind", ["folder", "absent"])
def test_calibration_texts_that_are_none(tmp_path, kind):
    texts = tmp_path / "texts"
    if kind == "folder":
        texts.mkdir()
    done = sluice("quantize", MODEL, tmp_path / "out", "--format", "fp8", "--calibrate", texts)
    assert done.returncode == 3 and str(texts) in done.stderr, done.stderr


def test_a_pipe_in_place_of_token_ranks_is_refused(model):
    (model / "tokenizer.json").unlink()
    config = json.loads((model / "tokenizer_config.json").read_text())
    config["auto_map"] = {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", None]}
    (model / "tokenizer_config.json").write_text(json.dumps(config))
    os.mkfifo(model / "tiktoken.model")
    done = sluice("run", model, "-p", "x", "-n", "1")
    assert done.returncode == 3 and "tiktoken.model" in done.stderr, done.stderr
