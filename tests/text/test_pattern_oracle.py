"""Split patterns against Oniguruma, through the `tokenizers` package: what a pattern matches is removed from the text.

Every character whose properties have not changed since Unicode 3.2 takes part, so a class that differs in one character
shows. Patterns that are refused are listed in regex_test.cc.
"""
import json

import pytest
from tokenizers import Regex, Tokenizer, pre_tokenizers

import test_tokenizer_oracle as oracle
import tokenizer_cases as cases

CLASSES = [
    r"\s", r"\S", r"\w", r"\W", r"\d", r"\D", r"\h", r"\H", r"[\s]", r"[^\s]", r"[\S]", r"[^\S]", r"[\w-]", r"[\W]",
    r"[^\W\d]", r"[a-c\d]", r"[\p{L}\s&&[^a-z]]", r"[^\p{L}&&[^a-z]]", r"[[a-c][x-z]_]", r"[^[a-c]]", r"\p{^L}",
    r"\P{L}", r"\P{^L}", r"\p{word}", r"\P{word}", r"[\p{word}]", r"[[:word:]]", r"[[:upper:]]", r"[[:lower:]]",
    r"[[:digit:]]", r"[[:space:]]", r"\p{Letter}", r"\p{Uppercase_Letter}", r"\p{Number}", r"\p{Punctuation}",
    r"\p{Symbol}", r"\p{Mark}", r"\p{Separator}", r"\p{Uppercase}", r"\p{lower}", r"\p{White_Space}", r"\p{Emoji}",
    r"\p{Ideographic}", r"(?i:\p{Lu})", r"(?i:\p{Ll})", r"(?i)[a-z]", r"(?i:k)", r"(?i:[^a-z])", r".",
    r"[\p{L}&&\p{Lu}&&[^A-F]]", "[一-龥\u3040-ゟ゠-ヿ]", r"[^\r\n\p{L}\p{P}\p{S}]",
] + [rf"\p{{{name}}}" for name in (
    "L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp C Cc Cf Co Han Hiragana "
    "Katakana Latin Greek Cyrillic Arabic Hebrew Hangul Thai Devanagari Common Inherited").split()]

PATTERNS = [
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)", r"^.", r".$", r"\A.", r".\z", r".\Z", r"\ba", r"a\b", r"\Ba", r"a\B", r"a{2}",
    r"a{2,3}+", r"a{2}+b", r"a{,2}b", r"a{2}?", r"a{2,3}?", r"a{,}", r"a{x", r"a{1,2}{2}", r"(?:ab|a)++b", r"a*+",
    r"(?<=a)b", r"(?<!a)b", r"(?>a+)b", r"(a)(b)?", r"[]a]", r"[a-]", r"[-a]", r"[a\-z]", r"[\]\[]",
    r"\u4e00|\x{4e01}|\x41|\t|\v|\f|\a|\e", r"[\b]", r"a|", r"|a", r"a*|b", r"a.c", r"[^a]b", r"(?i)ab|C",
    r"((?i)ab|C)d", r"(?i:(?-i:a)b)", r"\s+$", r"(?=b)", r"b*?", r"(?:a?)*b", cases.QWEN2, cases.LLAMA3, cases.CL100K,
    cases.O200K, cases.HAN_APART, *cases.DEEPSEEK,
]

TEXTS = ["aaaa aaab abab\naab b a.c\na\nb AB Ab aB C c Cd cd x\n",
         "a{x a{,} aa aaa aaaaaa ba 'S 'LL it'S 'ſ K k \r\nx\r\ny\u2028z\u0085w\x0bv\x0cu", "Aa\u4e00\u4e01\t\x07\x1b\b",
         *(t for t in cases.corpus_texts(seed=6) if len(t) < 300)]


@pytest.fixture(scope="module")
def trained():
    pieces = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(cases.QWEN2), "isolated"),
                                      pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return cases.train(pieces, pre_tokenizers.ByteLevel.alphabet(), vocab_size=300)


def check(trained, folder, pattern, texts):
    step = cases.sequence(cases.split(pattern, "Removed"), cases.BYTE_LEVEL)
    text = json.dumps(cases.finish(trained, step, cases.BYTE_LEVEL, add=[]))
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")
    reference = Tokenizer.from_str(text)
    found = oracle.encode_all(folder, [t.encode() for t in texts], 0)
    for t, f in zip(texts, found):
        left = reference.encode(t).ids
        assert f == left, f"{pattern}: {reference.decode(f)[:300]!r} instead of {reference.decode(left)[:300]!r}"


@pytest.mark.parametrize("pattern", CLASSES)
def test_class(trained, tmp_path, pattern):
    check(trained, tmp_path, pattern, ["\n".join(cases.stable_characters())])


@pytest.mark.parametrize("pattern", PATTERNS)
def test_pattern(trained, tmp_path, pattern):
    check(trained, tmp_path, pattern, TEXTS)
