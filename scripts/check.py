"""Runs the stages of ./check and adds up their results. Called by ./check, which has set up and built before."""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree

import check_binaries
import check_flags
import check_from_sglang
import check_structure
import check_tidy

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
REPORTS = BUILD / "reports"
CORES = str(len(os.sched_getaffinity(0)))
DEFAULT = ["structure", "format", "tidy", "ctest", "pytest", "fuzz"]


class Totals:
    """Counts of one stage: checks passed, failed and skipped, and what to say about failures."""

    def __init__(self, passed=0, failed=0, skipped=0, details=()):
        self.passed, self.failed, self.skipped, self.details = passed, failed, skipped, list(details)


def from_problems(checks):
    """Totals of {check name: [problem, ...]}: a check passes when it has no problem."""
    bad = [f"{name}: {problem}" for name, problems in checks.items() for problem in problems]
    failed = sum(1 for problems in checks.values() if problems)
    return Totals(len(checks) - failed, failed, 0, bad)


def from_junit(path, what, may_be_empty=False):
    """Totals of a JUnit report. A missing report or one without tests is a failure: it would hide that nothing ran."""
    if not path.exists():
        return Totals(failed=1, details=[f"{what}: no report was written"])
    cases = list(ElementTree.parse(path).getroot().iter("testcase"))
    totals = Totals()
    for case in cases:
        name = f"{what}: {case.get('classname', '')} {case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            totals.failed += 1
            totals.details.append(name)
        elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
            totals.skipped += 1
        else:
            totals.passed += 1
    if not cases and not may_be_empty:
        return Totals(failed=1, details=[f"{what}: no test ran"])
    return totals


def run(command, log, **kwargs):
    """Runs a command with its output in a log file below build/reports; returns the exit code."""
    with open(REPORTS / log, "w", encoding="utf-8") as file:
        return subprocess.run(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, check=False, **kwargs).returncode


def stage_structure(_):
    return from_problems({**check_structure.run(ROOT), **check_flags.run(ROOT), **check_from_sglang.run(ROOT)})


def stage_format(_):
    files = [str(f.relative_to(ROOT)) for folder in ("src", "include", "tests", "bench", "examples")
             for ending in ("h", "cc", "cu", "cuh") for f in sorted((ROOT / folder).rglob(f"*.{ending}"))]
    done = subprocess.run([ROOT / ".venv/bin/clang-format", "--dry-run", "-Werror", *files], cwd=ROOT, capture_output=True,
                          text=True, check=False)
    bad = sorted({line.split(":")[0] for line in done.stderr.splitlines() if ": error:" in line})
    return Totals(len(files) - len(bad), len(bad), 0, [f"not formatted: {f}; run .venv/bin/clang-format -i {f}" for f in bad])


def stage_tidy(_):
    passed, problems, reason = check_tidy.run(ROOT, BUILD / "cpu", int(CORES))
    if reason:
        return Totals(skipped=1, details=[reason])
    return Totals(passed, len(problems), 0, problems)


def run_ctest(preset, options, label):
    report = REPORTS / f"ctest-{preset}.xml"
    report.unlink(missing_ok=True)
    command = ["ctest", "--test-dir", str(BUILD / preset), "-j", CORES, "--output-on-failure", "--output-junit", str(report)]
    if not options.gpu:
        command += ["-LE", "gpu"]
    run(command, f"ctest-{preset}.log")
    return from_junit(report, label)


def stage_ctest(options):
    totals = run_ctest("cpu", options, "unit test")
    listed = subprocess.run(["ctest", "--test-dir", str(BUILD / "cpu"), "-N", "-L", "gpu"], capture_output=True, text=True,
                            check=False).stdout
    if not options.gpu:
        totals.skipped += sum(1 for line in listed.splitlines() if line.strip().startswith("Test #"))
    return totals


def stage_pytest(_):
    report = REPORTS / "pytest.xml"
    report.unlink(missing_ok=True)
    env = {**os.environ, "SLUICE_BUILD_DIR": str(BUILD / "cpu")}
    run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests", f"--junitxml={report}"], "pytest.log", env=env)
    return from_junit(report, "pytest")


def build_preset(preset, *targets):
    """Configures and builds another preset; returns the problem as a list of lines, empty when it worked."""
    folder = BUILD / preset
    if not (folder / "build.ninja").exists() and run(["cmake", "--preset", preset], f"configure-{preset}.log"):
        return [f"configuring {preset} failed, see build/reports/configure-{preset}.log"]
    if run(["ninja", "-C", str(folder), *targets], f"build-{preset}.log"):
        return [f"building {preset} failed, see build/reports/build-{preset}.log"]
    return []


def sanitized(preset):
    problems = build_preset(preset)
    if problems:
        return Totals(failed=1, details=problems)
    os.environ.setdefault("UBSAN_OPTIONS", "print_stacktrace=1")
    os.environ["TSAN_OPTIONS"] = f"halt_on_error=1 suppressions={ROOT}/scripts/tsan.supp"
    return check_binaries.run(check_binaries.listed(BUILD / preset), REPORTS / preset, int(CORES),
                              lambda report, label: from_junit(report, label, may_be_empty=True), Totals())


def stage_asan(_):
    return sanitized("asan")


def stage_tsan(_):
    return sanitized("tsan")


def stage_fuzz(options):
    if shutil.which("clang++") is None:
        return Totals(skipped=1, details=["fuzzers: clang++ is not installed"])
    problems = build_preset("fuzz", "fuzzers")
    if problems:
        return Totals(failed=1, details=problems)
    totals = Totals()
    for fuzzer in sorted((BUILD / "fuzz" / "bin").glob("fuzz_*")):
        name = fuzzer.name.removeprefix("fuzz_")
        grown = BUILD / "fuzz" / "corpus" / name  # new inputs go here, never into the committed corpus
        grown.mkdir(parents=True, exist_ok=True)
        seconds = 60 if options.full else 10
        command = [str(fuzzer), str(grown), str(ROOT / "tests/fuzz/corpus" / name), f"-max_total_time={seconds}",
                   "-timeout=60", "-rss_limit_mb=3000", f"-artifact_prefix={REPORTS}/fuzz-{name}-"]
        code = run(command, f"fuzz-{name}.log")
        log = (REPORTS / f"fuzz-{name}.log").read_text(encoding="utf-8", errors="replace")
        if code == 0 and "DONE" in log:
            totals.passed += 1
        else:
            totals.failed += 1
            totals.details.append(f"fuzzer {name}: see build/reports/fuzz-{name}.log")
    if totals.passed + totals.failed == 0:
        return Totals(failed=1, details=["no fuzzer was built"])
    return totals


STAGES = {name.removeprefix("stage_"): function for name, function in list(globals().items()) if name.startswith("stage_")}


def chosen_stages(options):
    if options.only:
        return options.only.split(",")
    if options.asan or options.tsan:
        return [name for name in ("asan", "tsan") if getattr(options, name)]
    stages = list(DEFAULT)
    if options.quick:
        stages = [name for name in stages if name not in ("tidy", "fuzz")]
    return stages + (["asan", "tsan"] if options.full else [])


def parse_options():
    parser = argparse.ArgumentParser(prog="./check", usage="see ./check --help")
    for flag in ("quick", "full", "asan", "tsan", "gpu"):
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    unknown = [name for name in chosen_stages(options) if name not in STAGES]
    if unknown:
        parser.error(f"unknown stage {', '.join(unknown)}; there are {', '.join(STAGES)}")
    return options


def main():
    options = parse_options()
    REPORTS.mkdir(parents=True, exist_ok=True)
    total = Totals()
    for name in chosen_stages(options):
        print(f"{name:10} ...", flush=True)
        start = time.monotonic()
        stage = STAGES[name](options)
        for line in stage.details[:40]:
            print(f"    {line}")
        print(f"{name:10} {stage.passed} passed, {stage.failed} failed, {stage.skipped} skipped"
              f" in {time.monotonic() - start:.0f} s", flush=True)
        total.passed += stage.passed
        total.failed += stage.failed
        total.skipped += stage.skipped
    if total.failed:
        print("Logs of all stages are in build/reports.")
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped", flush=True)
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
