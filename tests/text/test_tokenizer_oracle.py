"""The tokeniser against the `tokenizers` package: same ids and same text, bit for bit."""
import json
import os
import pathlib
import random
import struct
import subprocess

import pytest
from tokenizers import Tokenizer

import tokenizer_cases

PROBE = pathlib.Path(os.environ["SLUICE_BUILD_DIR"]) / "tests" / "text" / "tokenizer_probe"


def run_probe(mode, folder, data):
    source, result = folder / "in.bin", folder / "out.bin"
    source.write_bytes(data)
    done = subprocess.run([str(PROBE), mode, str(folder), str(source), str(result)], capture_output=True, text=True,
                          timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return result.read_bytes()


def read_numbers(data):
    """Splits (count, numbers)* into lists."""
    out, at = [], 0
    while at < len(data):
        count, = struct.unpack_from("<I", data, at)
        out.append(list(struct.unpack_from(f"<{count}i", data, at + 4)))
        at += 4 + 4 * count
    return out


def read_texts(data):
    out, at = [], 0
    while at < len(data):
        size, = struct.unpack_from("<I", data, at)
        out.append(data[at + 4:at + 4 + size])
        at += 4 + size
    return out


def encode_all(folder, texts, flags):
    data = b"".join(struct.pack("<II", flags, len(t)) + t for t in texts)
    return read_numbers(run_probe("encode", folder, data))


def decode_all(folder, sequences, skip):
    data = b"".join(struct.pack(f"<II{len(s)}i", int(skip), len(s), *s) for s in sequences)
    return read_texts(run_probe("decode", folder, data))


CASES = tokenizer_cases.all_cases()
COMMON = ("qwen2", "llama3", "o200k", "deepseek", "gpt2", "llama2", "bundled_qwen3_moe")  # all texts; the others a third


@pytest.fixture(scope="module")
def texts():
    return tokenizer_cases.corpus_texts(seed=1) + tokenizer_cases.random_texts(count=800, seed=2)


@pytest.fixture(params=sorted(CASES))
def case(request, tmp_path):
    text = json.dumps(CASES[request.param], ensure_ascii=False)
    (tmp_path / "tokenizer.json").write_text(text, encoding="utf-8")
    return request.param, tmp_path, Tokenizer.from_str(text)


def test_same_ids_and_text(case, texts):
    name, folder, reference = case
    texts = texts if name in COMMON else texts[::3]
    raw = [t.encode() for t in texts]
    sequences = []
    for flags in range(4):
        reference.encode_special_tokens = not flags & 2
        expected = [reference.encode(t, add_special_tokens=bool(flags & 1)).ids for t in texts]
        found = encode_all(folder, raw, flags)
        assert len(found) == len(expected)
        for text, e, f in zip(texts, expected, found):
            assert f == e, f"flags {flags}, text {text!r}"
        sequences += expected[::3]
    rng = random.Random(3)
    size = reference.get_vocab_size()
    sequences += [[rng.randrange(size + 3) for _ in range(rng.randrange(40))] for _ in range(800)]
    for skip in (False, True):
        expected = [reference.decode(s, skip_special_tokens=skip) for s in sequences]
        for s, e, f in zip(sequences, expected, decode_all(folder, sequences, skip)):
            assert f.decode() == e, f"skip {skip}, ids {s}"


def test_bytes_of_each_token(case):
    """What a token adds to a text is what the package decodes it to, with broken characters shown as U+FFFD."""
    _, folder, reference = case
    found = read_texts(run_probe("bytes", folder, b""))
    assert len(found) == reference.get_vocab_size()
    decoder = json.loads(reference.to_str())["decoder"]
    drops_space = decoder is not None and any(s in json.dumps(decoder) for s in ('"Strip"', '"Metaspace"'))
    for token_id, data in enumerate(found):
        expected = reference.decode([token_id], skip_special_tokens=False)
        text = data.decode(errors="replace")
        assert text == expected or (drops_space and text.removeprefix(" ") == expected), token_id


def test_invalid_utf8_is_read_as_rust_reads_it(tmp_path):
    """Broken bytes: Python's "replace" follows the same recommendation of Unicode as Rust's from_utf8_lossy."""
    text = json.dumps(CASES["llama3"], ensure_ascii=False)
    (tmp_path / "tokenizer.json").write_text(text, encoding="utf-8")
    reference = Tokenizer.from_str(text)
    rng = random.Random(4)
    raw = [bytes(rng.randrange(256) for _ in range(rng.randrange(1, 30))) for _ in range(500)]
    raw += [t.encode()[rng.randrange(4):-1 - rng.randrange(4)] for t in tokenizer_cases.random_texts(500, seed=5)]
    expected = [reference.encode(b.decode(errors="replace"), add_special_tokens=False).ids for b in raw]
    for b, e, f in zip(raw, expected, encode_all(tmp_path, raw, 2)):
        assert f == e, b
