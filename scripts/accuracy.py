"""Reproduces docs/accuracy.md: the bundled models in every format and recipe, against their bf16 originals.

    python scripts/accuracy.py [--build build/cpu] [--models qwen3_moe,...] [--questions 512] [--work FOLDER] [--out docs/accuracy.md]

Quantises each model, then for each recipe that fits: few-shot accuracy (`sluice eval gsm8k`), KL divergence and
log-probabilities against the original (`sluice verify --against`), and whether the reference runner gives the same
answers, text by text. Prints one table row a run, and writes the page when --out is given. With --work, what was
measured stays there and an interrupted run goes on. Exits with 1 when an accuracy is below the bar or an answer differs.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEST, SHOTS = ROOT / "models/word_problems.test.jsonl", ROOT / "models/word_problems.shots.jsonl"
BAR = 0.935
W4A4 = ["nvfp4-w4a4/cutedsl", "nvfp4-w4a4/cutlass"]
# Format, dialect, calibrated, every recipe that fits.
EXPORTS = [
    ("fp8", "compressed-tensors", False, ["fp8-tensor"]),
    ("fp8", "modelopt", True, ["fp8-tensor"]),
    ("fp8-block", "deepseek", False, ["fp8-block"]),
    ("nvfp4", "modelopt", False, ["nvfp4-w4a16"]),
    ("nvfp4", "modelopt", True, [*W4A4, "nvfp4-w4a16"]),
    ("nvfp4", "compressed-tensors", False, ["nvfp4-w4a16"]),
    ("nvfp4", "compressed-tensors", True, [*W4A4, "nvfp4-w4a16"]),
    ("mxfp4", "", False, ["mxfp4-w4a16", "mxfp4-w4a8"]),
]
HEAD = ("| model | stored as | recipe | size | accuracy | mean KL | largest KL | mean change of logprob | same likeliest token | answers as the reference |\n"
        "|---|---|---|---|---|---|---|---|---|---|")


class Bench:
    """Runs the binary; keeps each result as a file of `work`, so that nothing is measured twice."""

    def __init__(self, options, work):
        self.binary, self.options, self.work = pathlib.Path(options.build) / "bin" / "sluice", options, work

    def sluice(self, *arguments):
        done = subprocess.run([str(self.binary), *map(str, arguments)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"sluice {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stderr}")

    def kept(self, name, *command):
        path = self.work / f"{name.replace('/', '-')}.json"
        if not path.exists():
            part = path.with_suffix(".part")
            self.sluice(*command, "--json", part, "-q")
            part.rename(path)
        return json.loads(path.read_text())

    def quantised(self, model, form, dialect, calibrated):
        folder = self.work / f"{model}-{form}-{dialect or 'usual'}{'-calibrated' if calibrated else ''}"
        flags = ["--format", form] + (["--dialect", dialect] if dialect else []) + (["--calibrate", SHOTS] if calibrated else [])
        if not (folder / "config.json").exists():
            self.sluice("quantize", ROOT / "models" / model, folder, "-q", *flags)
        return folder

    def accuracy(self, key, folder, recipe):
        o = self.options
        return self.kept(f"{key}-accuracy-{o.questions}-{o.num_shots}", "eval", "gsm8k", folder, "--data", TEST, "--shots", SHOTS, "--num-shots", o.num_shots,
                         "--num-questions", o.questions, "--recipe", recipe)

    def distance(self, key, model, folder, recipe):
        return self.kept(f"{key}-distance-{self.options.all_texts}", "verify", folder, "--against", ROOT / "models" / model, "--data",
                         TEST if self.options.all_texts else SHOTS, "--recipe", recipe)

    def same_answers(self, key, folder, recipe):
        """How many of the first questions both runners answer with the same text, and of how many."""
        count = self.options.answers
        texts = [self.kept(f"{key}-answers-{count}-{runner}", "eval", "gsm8k", folder, "--data", TEST, "--num-shots", 0, "--num-questions", count, "--recipe",
                           recipe, "--moe-runner-backend", runner)["answers"] for runner in ("cpu", "reference")]
        if min(len(t) for t in texts) != count or not all(texts[0]):
            sys.exit(f"{key}: an answer is missing")
        return sum(a == b for a, b in zip(*texts)), count


def rows_of(bench, model):
    yield bench.work / "none", ROOT / "models" / model, "bf16 (original)", "bf16"
    for form, dialect, calibrated, recipes in EXPORTS:
        folder = bench.quantised(model, form, dialect, calibrated)
        stored = f"{form}, {dialect or ('gpt-oss' if model == 'gpt_oss' else 'compressed-tensors')}" + (", input scales" if calibrated else "")
        for recipe in recipes:
            yield folder, folder, stored, recipe


def measured(bench, model, key, folder, stored, recipe):
    """One row of the table, and what is wrong with it."""
    size = sum(p.stat().st_size for p in folder.glob("model*.safetensors")) / 1e6
    same, asked = bench.same_answers(key, folder, recipe) if bench.options.answers else (0, 0)
    faults = [f"{asked - same} answers differ"] if same != asked else []
    numbers = ""
    if bench.options.questions:
        result, d = bench.accuracy(key, folder, recipe), bench.distance(key, model, folder, recipe)
        numbers = (f"{result['accuracy']:.3f} | {d['mean_kl']:.1e} | {d['max_kl']:.1e} | {d['mean_abs_logprob_difference']:.1e} | "
                   f"{100 * d['same_top_token']:.2f} %")
        faults += [f"accuracy {result['accuracy']} is below {BAR}"] if not result["accuracy"] >= BAR else []
    return f"| {model} | {stored} | {recipe} | {size:.1f} MB | {numbers} | {same} of {asked} |", faults


PAGE = """# Accuracy of the quantised formats

What quantising the experts of the three bundled models costs on the CPU runner, measured with `scripts/accuracy.py`.
"accuracy" is `sluice eval gsm8k` ({questions} questions, {shots} shots, greedy; the bar of the checks is {bar}). The next
columns compare the predictions at every position of the {texts}
with those of the bf16 original: KL(original || quantised) in nats, and the change of the log-probability of the next token.
"answers as the reference": the first {answers} questions without shots, answered by the CPU runner and by the reference
runner from the same file in the same recipe; how many of the texts are equal, character by character.

{table}

How to read it: accuracy on these models is a smoke test (their right answers lead by several logits, see
[models](../models/README.md)); the KL divergence is what tells formats apart. The models are small (K is 128 or 256), so
their outliers are not those of large models; no claim about large models follows. Input scales come from
`--calibrate models/word_problems.shots.jsonl`. The two dialects of NVFP4 hold the same numbers and compute the same bits
(`tests/cli/test_quantized_models.py`), so their rows are equal. Reproduce with:

```
{command}
```

## Read by other software

`tests/gen/foreign_roundtrip.py ours` loads exports of the dialect compressed-tensors with transformers 4.57.1 and compressed-tensors
0.20.1 and compares all 6,291,456 expert weights of qwen3_moe with what our readers make of the same file:

| format | compared as | equal |
|---|---|---|
| fp8, fp8-block | float32 | all |
| mxfp4 | bfloat16, to which the package decodes | all |
| nvfp4 | float32 | within 2 units of the last place |
| nvfp4 | bfloat16, to which the package decodes | all but 10,829 (0.17 %) |

Codes and scales of NVFP4 are the same; the package computes code * (block scale / global scale), we code * block scale *
(1 / global scale), and float32 rounds the two differently. The 10,829 weights lie in four matrices whose values fall exactly into
the middle between two bfloat16 numbers (amax / 2688 of bfloat16 weights can be a short fraction), so that the last unit of float32
decides the rounding; the script asserts that there are no others, and that the package's bfloat16 weights are its float32
formula, rounded. NVFP4 is not equal bit for bit, then, but to the rounding of float32.
"""


def page(options, rows):
    texts = "512 test problems" if options.all_texts else "32 examples of `models/word_problems.shots.jsonl`"
    command = f"python scripts/accuracy.py --questions {options.questions} --num-shots {options.num_shots} --answers {options.answers} --out docs/accuracy.md"
    return PAGE.format(questions=options.questions, shots=options.num_shots, answers=options.answers, texts=texts, bar=BAR, command=command,
                       table="\n".join([HEAD, *rows]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=str(ROOT / "build/cpu"))
    parser.add_argument("--models", default="qwen3_moe,deepseek_v3,gpt_oss")
    parser.add_argument("--questions", type=int, default=512, help="questions of the accuracy; 0 leaves accuracy and distances away")
    parser.add_argument("--num-shots", type=int, default=8)
    parser.add_argument("--answers", type=int, default=64, help="questions asked of both runners; 0 leaves that away")
    parser.add_argument("--all-texts", action="store_true", help="distances over the 512 test problems instead of the 32 examples")
    parser.add_argument("--work", help="folder that keeps quantised models and results, so that an interrupted run goes on")
    parser.add_argument("--out")
    options = parser.parse_args()
    rows, faults = [], []
    print(HEAD)
    with tempfile.TemporaryDirectory() as temporary:
        bench = Bench(options, pathlib.Path(options.work or temporary).resolve())
        bench.work.mkdir(parents=True, exist_ok=True)
        for model in options.models.split(","):
            for place, folder, stored, recipe in rows_of(bench, model):
                row, wrong = measured(bench, model, f"{model}-{place.name}-{recipe}", folder, stored, recipe)
                print(row, flush=True)
                rows.append(row)
                faults += [f"{w}: {row}" for w in wrong]
    if options.out:
        pathlib.Path(options.out).write_text(page(options, rows), encoding="utf-8")
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
