"""Answers of a model over ranks beside those of one rank: rank_answers.py BINARY MODEL [flags of eval ...]

For each way to spread the model the same questions are asked; a line says how many answers have the same text, how many
are right, and how long it took. Exit 1 when a run fails or an answer differs; ways that the flags rule out are told.
  --questions N   questions to ask (64)
  --only TEXT     ways whose flags contain this text
  --allow N       answers of a run that may differ (0)
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
DP = "--enable-dp-attention --dp"
WAYS = ["--tp 2", "--tp 2 --ep 2", "--tp 4", "--tp 4 --ep 2", "--tp 4 --ep 4", f"--tp 2 {DP} 2", f"--tp 4 {DP} 2",
        f"--tp 4 --ep 2 {DP} 2", f"--tp 4 --ep 4 {DP} 4", "--tp 2 --moe-a2a-backend alltoall", "--tp 4 --moe-a2a-backend alltoall",
        f"--tp 2 {DP} 2 --moe-a2a-backend alltoall", f"--tp 4 {DP} 2 --moe-a2a-backend alltoall",
        f"--tp 4 {DP} 4 --moe-a2a-backend alltoall"]


def ask(binary, model, flags, questions, timeout=1800):
    """The result of one evaluation as `--json` has it; None where the flags do not go together."""
    data = ROOT / "models"
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "eval.json"
        done = subprocess.run([binary, "eval", "gsm8k", model, "--data", data / "word_problems.test.jsonl", "--shots",
                               data / "word_problems.shots.jsonl", "--num-questions", str(questions), "--json", out, "-q", *flags],
                              capture_output=True, text=True, check=False, timeout=timeout)
        if done.returncode == 4:
            return None
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(flags)}: exit {done.returncode}: {done.stderr.strip()}")
        return json.loads(out.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("model")
    parser.add_argument("--questions", type=int, default=64)
    parser.add_argument("--only", default="")
    parser.add_argument("--allow", type=int, default=0)
    options, flags = parser.parse_known_args()
    one = ask(options.binary, options.model, flags, options.questions)
    print(f"one rank: {one['right']} of {one['questions']} right, {one['seconds']:.1f} s", flush=True)
    failed = False
    for way in (w for w in WAYS if options.only in w):
        result = ask(options.binary, options.model, [*flags, *way.split()], options.questions)
        if result is None:
            print(f"{way}: refused", flush=True)
            continue
        same = sum(a == b for a, b in zip(result["answers"], one["answers"], strict=True))
        failed = failed or same + options.allow < len(one["answers"])
        print(f"{way}: {same} of {len(one['answers'])} the same, {result['right']} right, {result['seconds']:.1f} s", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
