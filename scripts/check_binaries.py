"""Runs the test binaries of a build whole, for sanitizer builds. Called by check.py.

ctest starts one process for each test; under ThreadSanitizer the start alone takes longer than most tests. Here a binary
runs in a few shards (GTEST_TOTAL_SHARDS), each with a report of its own.
"""

import concurrent.futures
import json
import os
import pathlib
import subprocess

SHARDS = 4  # of each binary: enough that the last one running does not leave the other cores idle for long


def _properties(test):
    return {entry["name"]: entry["value"] for entry in test.get("properties", [])}


def listed(build):
    """{test binary: (folder to run it in, [test, ...], [test with the label gpu, ...])} of everything ctest knows."""
    shown = subprocess.run(["ctest", "--test-dir", str(build), "--show-only=json-v1"], capture_output=True, text=True,
                           check=True).stdout
    binaries = {}
    for test in json.loads(shown)["tests"]:
        properties = _properties(test)
        entry = binaries.setdefault(test["command"][0], (properties["WORKING_DIRECTORY"], [], []))
        needs_gpu = "gpu" in properties.get("LABELS", [])
        entry[2 if needs_gpu else 1].append(test["command"][1].removeprefix("--gtest_filter="))
    return {binary: entry for binary, entry in binaries.items() if entry[1]}


def _run_shard(binary, folder, left_out, shard, reports):
    label = f"{pathlib.Path(binary).name}-{shard}"
    report = reports / f"{label}.xml"
    report.unlink(missing_ok=True)
    env = {**os.environ, "GTEST_TOTAL_SHARDS": str(SHARDS), "GTEST_SHARD_INDEX": str(shard),
           "GTEST_OUTPUT": f"xml:{report}", "GTEST_FILTER": "*-" + ":".join(left_out)}
    with open(reports / f"{label}.log", "w", encoding="utf-8") as log:
        code = subprocess.run([binary], cwd=folder, env=env, stdout=log, stderr=subprocess.STDOUT, check=False).returncode
    return label, code, report


def run(binaries, reports, cores, totals_of, totals):
    """Runs what listed() found. `totals_of(report, label)` reads one report, `totals` receives the sums; a binary that ends
    with an error or without a report counts as failed, and so do tests without a result. Output is in reports/*.log."""
    reports.mkdir(parents=True, exist_ok=True)
    jobs = [(binary, folder, left_out, shard, reports) for binary, (folder, tests, left_out) in
            sorted(binaries.items(), key=lambda item: -len(item[1][1])) for shard in range(SHARDS)]
    seen = 0
    with concurrent.futures.ThreadPoolExecutor(cores) as pool:
        for label, code, report in pool.map(lambda job: _run_shard(*job), jobs):
            part = totals_of(report, label) if report.exists() else None
            if part is None or (code != 0 and part.failed == 0):
                totals.failed += 1
                totals.details.append(f"{label}: ended with code {code}, see {reports / label}.log")
            if part is not None:
                seen += part.passed + part.failed + part.skipped
                totals.passed, totals.failed = totals.passed + part.passed, totals.failed + part.failed
                totals.skipped += part.skipped
                totals.details += part.details
    expected = sum(len(tests) for _, tests, _ in binaries.values())
    if seen != expected:
        totals.failed += 1
        totals.details.append(f"{seen} of {expected} tests have a result")
    return totals
