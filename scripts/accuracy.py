"""Reproduces docs/accuracy.md: the bundled models in every format and recipe, against their bf16 originals.

    python scripts/accuracy.py [--build build/cpu] [--models qwen3_moe,...] [--questions 512] [--out docs/accuracy.md]

Quantises each model into a temporary folder, then for each recipe that fits: few-shot accuracy (`sluice eval gsm8k`), and
KL divergence and log-probabilities against the original (`sluice verify --against`). Prints one table row a run, and
writes the page when --out is given. Exits with 1 when an accuracy is below the bar.
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
# Format, dialect, calibrated, recipes. The first recipe is what the stored format asks for.
EXPORTS = [
    ("fp8", "compressed-tensors", False, ["fp8-tensor"]),
    ("fp8", "modelopt", True, ["fp8-tensor"]),
    ("fp8-block", "deepseek", False, ["fp8-block"]),
    ("nvfp4", "modelopt", False, ["nvfp4-w4a16"]),
    ("nvfp4", "modelopt", True, ["nvfp4-w4a4/cutedsl", "nvfp4-w4a4/cutlass", "nvfp4-w4a16"]),
    ("nvfp4", "compressed-tensors", True, ["nvfp4-w4a4/cutedsl"]),
    ("mxfp4", "", False, ["mxfp4-w4a16", "mxfp4-w4a8"]),
]
HEAD = ("| model | stored as | recipe | runner | size | accuracy | mean KL | largest KL | mean change of logprob | same likeliest token |\n"
        "|---|---|---|---|---|---|---|---|---|---|")


class Runner:
    def __init__(self, options):
        self.binary, self.options = pathlib.Path(options.build) / "bin" / "sluice", options

    def sluice(self, *arguments, fine=(0,)):
        done = subprocess.run([str(self.binary), *map(str, arguments)], capture_output=True, text=True, check=False)
        if done.returncode not in fine:
            sys.exit(f"sluice {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stderr}")
        return done

    def measure(self, model, folder, recipe, work):
        """One row: accuracy and distance of a quantised folder in one recipe."""
        flags = ["--recipe", recipe] if recipe else []
        self.sluice("eval", "gsm8k", folder, "--data", TEST, "--shots", SHOTS, "--num-shots", self.options.num_shots, "--num-questions",
                    self.options.questions, "--json", work / "eval.json", "-q", *flags)
        self.sluice("verify", folder, "--against", ROOT / "models" / model, "--data", TEST if self.options.all_texts else SHOTS,
                    "--json", work / "distance.json", "-q", *flags)
        return json.loads((work / "eval.json").read_text()), json.loads((work / "distance.json").read_text())

    def runner_name(self, folder, recipe, work):
        self.sluice("explain", folder, "--json", work / "explain.json", "-q", fine=(0, 4))
        kinds = json.loads((work / "explain.json").read_text())["layer_kinds"]
        return next((c["runner"] for c in kinds[0]["candidates"] if c["ok"] and c["recipe"] == recipe), "none")


def row(model, stored, recipe, runner, size, result, distance):
    return (f"| {model} | {stored} | {recipe} | {runner} | {size / 1e6:.1f} MB | {result['accuracy']:.3f} | {distance['mean_kl']:.1e} | "
            f"{distance['max_kl']:.1e} | {distance['mean_abs_logprob_difference']:.1e} | {100 * distance['same_top_token']:.2f} % |")


def bytes_of(folder):
    return sum(p.stat().st_size for p in folder.glob("model*.safetensors"))


def rows_of(run, model, work):
    source = ROOT / "models" / model
    result, distance = run.measure(model, source, "bf16", work)
    yield row(model, "bf16 (original)", "bf16", run.runner_name(source, "bf16", work), bytes_of(source), result, distance), result
    for form, dialect, calibrated, recipes in EXPORTS:
        folder = work / f"{model}-{form}-{dialect}-{calibrated}"
        flags = ["--format", form] + (["--dialect", dialect] if dialect else []) + (["--calibrate", SHOTS] if calibrated else [])
        run.sluice("quantize", source, folder, "-q", *flags)
        name = f"{form}, {dialect or ('gpt-oss' if model == 'gpt_oss' else 'compressed-tensors')}" + (", input scales" if calibrated else "")
        for recipe in recipes:
            result, distance = run.measure(model, folder, recipe, work)
            yield row(model, name, recipe, run.runner_name(folder, recipe, work), bytes_of(folder), result, distance), result


PAGE = """# Accuracy of the quantised formats

What quantising the experts of the three bundled models costs, measured with `scripts/accuracy.py` ({questions} questions,
{shots} shots, greedy; distances over the {texts}). "accuracy" is `sluice eval gsm8k` (the bar of the checks is {bar});
the other columns compare the predictions at every position with those of the bf16 original: KL(original || quantised) in
nats, and the change of the log-probability of the next token of the text.

{table}

How to read it: accuracy on these models is a smoke test (their right answers lead by several logits, see
[models](../models/README.md)); the KL divergence is what tells formats apart. The models are small (K is 128 or 256), so
their outliers are not those of large models; no claim about large models follows. Input scales come from
`--calibrate models/word_problems.shots.jsonl`. Reproduce with:

```
{command}
```
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=str(ROOT / "build/cpu"))
    parser.add_argument("--models", default="qwen3_moe,deepseek_v3,gpt_oss")
    parser.add_argument("--questions", type=int, default=512)
    parser.add_argument("--num-shots", type=int, default=8)
    parser.add_argument("--all-texts", action="store_true", help="distances over the 512 test problems instead of the 32 examples")
    parser.add_argument("--out")
    options = parser.parse_args()
    run, rows, low = Runner(options), [], []
    print(HEAD)
    with tempfile.TemporaryDirectory() as work:
        for model in options.models.split(","):
            for text, result in rows_of(run, model, pathlib.Path(work)):
                print(text, flush=True)
                rows.append(text)
                if not result["accuracy"] >= BAR:
                    low.append(text)
    if options.out:
        texts = "512 test problems" if options.all_texts else "32 examples of `models/word_problems.shots.jsonl`"
        command = f"python scripts/accuracy.py --questions {options.questions} --num-shots {options.num_shots} --out docs/accuracy.md"
        page = PAGE.format(questions=options.questions, shots=options.num_shots, texts=texts, bar=BAR, command=command, table="\n".join([HEAD, *rows]))
        pathlib.Path(options.out).write_text(page, encoding="utf-8")
    for text in low:
        print(f"below {BAR}: {text}", file=sys.stderr)
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
