"""Tokenizers and texts for test_tokenizer_oracle.py: small BPE models trained here, in the styles found in the wild."""
import copy
import json
import pathlib
import random
import unicodedata

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).resolve().parent
MODELS = HERE.parent.parent / "models"

QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
          r"|\s+(?!\S)|\s")
UPPER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}"
LOWER = r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
REST = r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+{ENDING}|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*{ENDING}"
         + REST)
NO_HAN = r"&&[^\p{Han}]"
HAN_APART = (rf"[\p{{Han}}]+|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}{NO_HAN}]*[{LOWER}{NO_HAN}]+{ENDING}"
             rf"|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}{NO_HAN}]+[{LOWER}{NO_HAN}]*{ENDING}" + REST)
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def sequence(*steps, key="pretokenizers"):
    return {"type": "Sequence", key: list(steps)}


def corpus():
    return {p.name: p.read_bytes().decode() for p in sorted((HERE / "corpus").glob("*.txt"))}


def added(content, **flags):
    token = {"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
             "special": False}
    token.update(flags)
    return token


ADDED = [
    added("<|endoftext|>", special=True), added("<|im_start|>", special=True), added("<|im_end|>", special=True),
    added("<|im_start|>t", special=True), added("<tool_call>"), added("</tool_call>"), added("<|"),
    added("[WORD]", single_word=True), added("[LEFT]", lstrip=True), added("[RIGHT]", rstrip=True),
    added("[BOTH]", lstrip=True, rstrip=True, special=True), added("café", normalized=True),
    added("word", single_word=True, normalized=True), added("e\u0301", normalized=True), added("  ", normalized=True),
    added("\n\n\n", rstrip=True), added("你好"), added("é", special=True), added("<|eot_id|>", special=True),
]


def train(pre_tokenizer, alphabet, vocab_size=1200, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False,
                                  special_tokens=[model["unk_token"]] if "unk_token" in model else [])
    tokenizer.train_from_iterator([t for text in corpus().values() for t in text.splitlines(keepends=True)], trainer)
    return json.loads(tokenizer.to_str())


def finish(base, pre_tokenizer, decoder, normalizer=None, post_processor=None, add=ADDED, **model):
    """A tokenizer.json of the trained model with other parts around it."""
    out = copy.deepcopy(base)
    out.update(pre_tokenizer=pre_tokenizer, decoder=decoder, normalizer=normalizer, post_processor=post_processor,
               truncation=None, padding=None)
    out["model"].update(model)
    vocab = out["model"]["vocab"]
    next_id = len(vocab)
    out["added_tokens"] = [{"id": vocab[t], **added(t, special=True)} for t in ("<unk>",) if t in vocab]
    for token in add:
        if token["content"] in vocab:
            token = {"id": vocab[token["content"]], **token}
        else:
            token = {"id": next_id, **token}
            next_id += 1
        out["added_tokens"].append(token)
    return out


def bos_template(name, token_id):
    a = {"Sequence": {"id": "A", "type_id": 0}}
    b = {"Sequence": {"id": "B", "type_id": 1}}
    bos = {"SpecialToken": {"id": name, "type_id": 0}}
    return {"type": "TemplateProcessing", "single": [bos, a], "pair": [bos, a, b],
            "special_tokens": {name: {"id": name, "ids": [token_id], "tokens": [name]}}}


def with_bos(out, name="<|endoftext|>"):
    token_id = next(t["id"] for t in out["added_tokens"] if t["content"] == name)
    byte_level = dict(BYTE_LEVEL, trim_offsets=False)
    out["post_processor"] = sequence(byte_level, bos_template(name, token_id), key="processors")
    return out


def byte_level_cases():
    decoder = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    alphabet = pre_tokenizers.ByteLevel.alphabet()

    def base(pattern, **model):
        steps = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                         pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        return train(steps, alphabet, **model)

    def pre(*patterns):
        return sequence(*[split(p) for p in patterns], BYTE_LEVEL)

    qwen2, llama3, o200k = base(QWEN2), base(LLAMA3, ignore_merges=True), base(O200K)
    cases = {
        "qwen2": finish(qwen2, pre(QWEN2), decoder, {"type": "NFC"}),
        "llama3": with_bos(finish(llama3, pre(LLAMA3), decoder)),
        "o200k": finish(o200k, pre(O200K), decoder),
        "cl100k": finish(llama3, pre(CL100K), decoder),
        "han_apart": finish(o200k, pre(HAN_APART), decoder),
        "deepseek": finish(qwen2, pre(*DEEPSEEK), decoder),
        "gpt2": finish(qwen2, dict(BYTE_LEVEL, use_regex=True), decoder),
        "gpt2_prefix": with_bos(finish(qwen2, dict(BYTE_LEVEL, use_regex=True, add_prefix_space=True), decoder)),
        "merges_as_strings": finish(qwen2, pre(QWEN2), decoder),
        "byte_level_first": finish(qwen2, sequence(dict(BYTE_LEVEL), split(r"\p{L}+|Ġ")), decoder),
        "byte_level_twice": finish(qwen2, sequence(BYTE_LEVEL, BYTE_LEVEL), decoder),
        "byte_level_normalizer": finish(qwen2, split(r"\p{L}+"), decoder, {"type": "ByteLevel"}),
    }
    model = cases["merges_as_strings"]["model"]
    model["merges"] = ["#version: 0.2"] + [" ".join(m) for m in model["merges"]]
    # GLM-4.5: the pattern of Llama 3, its prefix tokens are put there by the chat template. OLMoE: GPT-NeoX.
    cases["glm4"] = finish(llama3, pre(LLAMA3), decoder, post_processor=dict(BYTE_LEVEL, trim_offsets=False),
                           add=ADDED + [added("[gMASK]", special=True), added("<sop>", special=True)])
    cases["olmoe"] = finish(qwen2, dict(BYTE_LEVEL, use_regex=True), decoder, {"type": "NFC"},
                            add=ADDED + [added("|||IP_ADDRESS|||", normalized=True)] +
                            [added(" " * n, normalized=True) for n in range(3, 25)])
    cases["deepseek_bos"] = with_bos(finish(qwen2, pre(*DEEPSEEK), decoder, sequence(key="normalizers"),
                                            add=ADDED + [added("<｜begin▁of▁sentence｜>", special=True)]),
                                     "<｜begin▁of▁sentence｜>")
    for form in ("NFD", "NFKC", "NFKD", "Lowercase"):
        cases["normalizer_" + form.lower()] = finish(qwen2, pre(QWEN2), decoder, {"type": form})
    for behavior in ("Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            cases[f"split_{behavior}_{invert}"] = finish(
                qwen2, sequence(split(r"\s|\p{P}", behavior, invert), BYTE_LEVEL), decoder)
    cases.update({
        "split_string": finish(qwen2, sequence(split("e", "MergedWithNext", kind="String"),
                                               split("()", kind="String"), BYTE_LEVEL), decoder),
        "split_string_empty": finish(qwen2, sequence(split("", kind="String"), BYTE_LEVEL), decoder),
        "split_empty_matches": finish(qwen2, sequence(split(r"a*|(?=t)", "Contiguous"), split(r"\b"), BYTE_LEVEL),
                                      decoder),
        "digits": finish(qwen2, sequence({"type": "Digits", "individual_digits": True}, BYTE_LEVEL), decoder),
        "digits_runs": finish(qwen2, sequence({"type": "Digits", "individual_digits": False}, BYTE_LEVEL), decoder),
        "whitespace": finish(qwen2, sequence({"type": "Whitespace"}, BYTE_LEVEL), decoder),
        "whitespace_split": finish(qwen2, sequence({"type": "WhitespaceSplit"}, BYTE_LEVEL), decoder),
        "punctuation": finish(qwen2, sequence({"type": "Punctuation", "behavior": "MergedWithPrevious"}, BYTE_LEVEL),
                              decoder),
        "delimiter": finish(qwen2, sequence({"type": "CharDelimiterSplit", "delimiter": "e"}, BYTE_LEVEL), decoder),
        "no_pre_tokenizer": finish(qwen2, None, None),
    })
    return cases


def fallback_cases():
    mark = "▁"
    spaces = sequence({"type": "Prepend", "prepend": mark}, {"type": "Replace", "pattern": {"String": " "},
                                                             "content": mark}, key="normalizers")
    llama2 = sequence({"type": "Replace", "pattern": {"String": mark}, "content": " "}, {"type": "ByteFallback"},
                      {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}, key="decoders")
    metaspace = {"type": "Metaspace", "replacement": mark, "prepend_scheme": "first", "split": True}
    base = train(pre_tokenizers.Metaspace(), [mark], vocab_size=900, unk_token="<unk>", fuse_unk=True,
                 byte_fallback=True)
    model = base["model"]
    rare = sorted(t for t in model["vocab"] if len(t) == 1 and ord(t) > 0x2FF)[:150]
    merged = {part for m in model["merges"] for part in (m if isinstance(m, list) else m.split(" "))}
    for token in rare:  # leaves characters that only the fallback can spell
        if token not in merged:
            del model["vocab"][token]
    vocab = ["<unk>"] + [f"<0x{b:02X}>" for b in range(256)] + [t for t in model["vocab"] if t != "<unk>"]
    model["vocab"] = {t: i for i, t in enumerate(vocab)}
    no_bytes = copy.deepcopy(base)
    keep = [t for t in vocab if not (t.startswith("<0x") and t not in ("<0xE4>", "<0xBD>"))]
    no_bytes["model"].update(vocab={t: i for i, t in enumerate(keep)})
    strip = {"type": "Strip", "strip_left": True, "strip_right": True}
    replace = {"type": "Replace", "pattern": {"Regex": r"\s+|[aeiou]{2}"}, "content": mark}
    some = [t for t in ADDED if t["content"] != "  "]
    # Mixtral, as first published (normaliser) and as later releases have it (pre-tokeniser).
    mixtral = finish(base, None, llama2, spaces, add=ADDED + [added("<s>", special=True), added("</s>", special=True)])
    mixtral["post_processor"] = bos_template("<s>", next(
        t["id"] for t in mixtral["added_tokens"] if t["content"] == "<s>"))
    later = copy.deepcopy(mixtral)
    later.update(normalizer=None, pre_tokenizer=dict(metaspace, split=False))
    mixtral["model"]["merges"] = [m if isinstance(m, str) else " ".join(m) for m in mixtral["model"]["merges"]]
    return {
        "mixtral": mixtral,
        "mixtral_later": later,
        "llama2": finish(base, None, llama2, spaces),
        "llama2_no_fuse": finish(base, None, llama2, spaces, fuse_unk=False),
        "metaspace": finish(base, metaspace, dict(metaspace)),
        "metaspace_always": finish(base, dict(metaspace, prepend_scheme="always", split=False),
                                   sequence({"type": "ByteFallback"}, dict(metaspace), key="decoders")),
        "metaspace_never": finish(base, dict(metaspace, prepend_scheme="never"),
                                  dict(metaspace, prepend_scheme="never")),
        "some_fallbacks": finish(no_bytes, None, llama2, spaces),
        "some_fallbacks_no_fuse": finish(no_bytes, None, llama2, spaces, fuse_unk=False),
        "no_unknown": finish(no_bytes, metaspace, sequence({"type": "Fuse"}, key="decoders"), unk_token=None),
        "replace_regex": finish(base, None, None, sequence(replace, strip, key="normalizers"), add=some),
        "fallback_over_bytes": finish(no_bytes, sequence(split(r"\s+"), BYTE_LEVEL), BYTE_LEVEL),
    }


def all_cases():
    cases = {**byte_level_cases(), **fallback_cases()}
    for folder in ("qwen3_moe", "deepseek_v3", "gpt_oss"):
        cases["bundled_" + folder] = json.loads((MODELS / folder / "tokenizer.json").read_text(encoding="utf-8"))
    return cases


def stable_characters():
    """Characters whose properties have been the same since Unicode 3.2, so that all libraries agree on them."""
    old = unicodedata.ucd_3_2_0
    return [chr(c) for c in range(0x30000) if not 0xD800 <= c <= 0xDFFF
            and old.category(chr(c)) == unicodedata.category(chr(c)) != "Cn"]


def random_texts(count, seed):
    """Strings that mix random characters with pieces of the corpus, added tokens and white space."""
    rng = random.Random(seed)
    stable = stable_characters()
    groups = {}
    for c in stable:
        groups.setdefault(unicodedata.category(c), []).append(c)
    pieces = [t["content"] for t in ADDED] + [" ", "  ", "\n", "\r\n", "\t", "\u00a0", "'s", "'LL", "▁", "<0xE4>"]
    words = [w for text in corpus().values() for w in text.split(" ") if len(w) < 40]
    out = []
    for _ in range(count):
        text = ""
        for _ in range(rng.randrange(1, 25)):
            kind = rng.randrange(6)
            if kind == 0:
                text += rng.choice(stable)
            elif kind == 1:
                text += rng.choice(groups[rng.choice(sorted(groups))])
            elif kind == 2:
                text += rng.choice(pieces)
            elif kind == 3:
                text += rng.choice(words)
            elif kind == 4:
                text += chr(rng.randrange(0x20, 0x7F)) * rng.randrange(1, 4)
            else:
                text += " " * rng.randrange(3) + rng.choice(words)
        out.append(text)
    return out


def corpus_texts(seed):
    """All files, all lines, and random parts of files."""
    rng = random.Random(seed)
    out = [""]
    for text in corpus().values():
        out.append(text)
        out += text.splitlines(keepends=True)
        for _ in range(20):
            begin = rng.randrange(len(text))
            out.append(text[begin:begin + rng.randrange(1, 200)])
    return out
