"""tiktoken.model as Kimi-K2 has it, against the tiktoken package: same ids, same text, same refusals."""

import base64
import json
import random
import subprocess

import pytest
import tiktoken
import tokenizer_cases
from test_tokenizer_oracle import PROBE, decode_all, encode_all
from tokenizers import Regex, pre_tokenizers

# The pattern that the model's own code hands to tiktoken.
PATTERN = tokenizer_cases.HAN_APART.replace("[\\r\\n/]*", "[\\r\\n]*")
SPECIAL = ["[BOS]", "[EOS]", "<|im_end|>", "<|im_user|>", "<|im_assistant|>"]
CONFIG = {"auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", None]}, "bos_token": "[BOS]",
          "eos_token": "[EOS]", "tokenizer_class": "TikTokenTokenizer"}


def byte_of_character():
    """The alphabet in which the tokenizers package spells bytes."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [b for b in range(256) if b not in visible]
    return {**{chr(b): b for b in visible}, **{chr(256 + i): b for i, b in enumerate(hidden)}}


def trained_tokens():
    steps = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(PATTERN), "isolated"),
                                     pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    vocab = tokenizer_cases.train(steps, pre_tokenizers.ByteLevel.alphabet(), vocab_size=1500)["model"]["vocab"]
    table = byte_of_character()
    tokens = [bytes(table[c] for c in token) for token in sorted(vocab, key=vocab.get)]
    return [bytes([b]) for b in range(256)] + [t for t in tokens if len(t) > 1]


def write_model(folder, tokens, config=None):
    lines = [base64.b64encode(t) + b" " + str(i).encode() for i, t in enumerate(tokens)]
    (folder / "tiktoken.model").write_bytes(b"\n".join(lines) + b"\n")
    decoder = {str(len(tokens) + i): {"content": t, "lstrip": False, "normalized": False, "rstrip": False,
                                      "single_word": False, "special": True} for i, t in enumerate(SPECIAL)}
    settings = {**CONFIG, "added_tokens_decoder": decoder} if config is None else config
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return tiktoken.Encoding("kimi", pat_str=PATTERN, mergeable_ranks={t: i for i, t in enumerate(tokens)},
                             special_tokens={t: len(tokens) + i for i, t in enumerate(SPECIAL)})


def texts():
    out = tokenizer_cases.corpus_texts(seed=6) + tokenizer_cases.random_texts(count=600, seed=7)
    return out + [f"a{s}b {s}" for s in SPECIAL] + ["x" * 5000, "ab" * 3000]


# Trained ranks have one way to make each token; ranks in any order have many, and then the leftmost pair comes first.
@pytest.mark.parametrize("order", ["trained", "shuffled"])
def test_same_ids_and_text(tmp_path, order):
    tokens = trained_tokens()
    if order == "shuffled":
        random.Random(8).shuffle(tokens)
    reference = write_model(tmp_path, tokens)
    cases = texts()
    expected = [reference.encode(t, allowed_special="all") for t in cases]
    found = encode_all(tmp_path, [t.encode() for t in cases], 3)
    for text, e, f in zip(cases, expected, found):
        assert f == e, repr(text)
    plain = [reference.encode(t, disallowed_special=()) for t in cases]
    assert encode_all(tmp_path, [t.encode() for t in cases], 0) == plain
    rng = random.Random(9)
    ids = expected[::5] + [[rng.randrange(len(tokens) + len(SPECIAL)) for _ in range(30)] for _ in range(300)]
    for e, f in zip(ids, decode_all(tmp_path, ids, False)):
        assert f.decode() == reference.decode(e), e


def refusal(folder):
    source, result = folder / "in.bin", folder / "out.bin"
    source.write_bytes(b"")
    done = subprocess.run([str(PROBE), "encode", str(folder), str(source), str(result)], capture_output=True, text=True,
                          timeout=300, check=False)
    assert done.returncode != 0
    return done.stderr


def test_refusals_name_file_and_line(tmp_path):
    tokens = trained_tokens()
    write_model(tmp_path, tokens, config={"tokenizer_class": "TikTokenTokenizer"})
    assert "tiktoken.model: how it cuts text" in refusal(tmp_path)
    for line, part in (("QQ== x", "line 2"), ("Q?== 1", "line 2"), ("QQ==", "line 2"), ("QUI 1", "line 2"),
                       ("QQ== 0", "both have the id 0")):
        write_model(tmp_path, tokens)
        (tmp_path / "tiktoken.model").write_text("IQ== 0\n" + line + "\n")
        assert part in refusal(tmp_path), line
    (tmp_path / "tiktoken.model").write_text("\n")
    assert "no tokens" in refusal(tmp_path)
