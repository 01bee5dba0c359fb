"""The sanitizer stages of ./check count what binaries report, and take a crash or a missing result for a failure."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import check  # noqa: E402
import check_binaries  # noqa: E402

# Stands for a test binary: its first shard reports `body` and exits with `code`; the others have no test and succeed.
SCRIPT = """#!/bin/sh
report=${{GTEST_OUTPUT#xml:}}
[ "$GTEST_SHARD_INDEX" = 0 ] && body='{body}' || body=
{write}
[ "$GTEST_SHARD_INDEX" != 0 ] || exit {code}
"""


def binary(folder, name, body, code=0, report=True):
    path = folder / name
    write = 'echo "<testsuites>$body</testsuites>" > "$report"' if report else ":"
    path.write_text(SCRIPT.format(body=body, write=write, code=code), encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def totals(folder, binaries):
    entries = {path: (str(folder), tests, []) for path, tests in binaries.items()}
    return check_binaries.run(entries, folder / "reports", 2, lambda report, label: check.from_junit(report, label, True),
                              check.Totals())


PASSED = '<testcase name="a" classname="A" status="run"/>'
FAILED = '<testcase name="b" classname="A" status="run"><failure message="no"/></testcase>'
SKIPPED = '<testcase name="c" classname="A" status="run"><skipped/></testcase>'


def test_counts(tmp_path):
    one = binary(tmp_path, "one", PASSED + SKIPPED)
    two = binary(tmp_path, "two", PASSED + FAILED, code=1)
    sums = totals(tmp_path, {one: ["A.a", "A.c"], two: ["A.a", "A.b"]})
    assert (sums.passed, sums.failed, sums.skipped) == (2, 1, 1)
    assert len(sums.details) == 1 and "A b" in sums.details[0]


def test_a_report_of_a_sanitizer_fails_although_all_tests_passed(tmp_path):
    sums = totals(tmp_path, {binary(tmp_path, "raced", PASSED, code=66): ["A.a"]})
    assert (sums.passed, sums.failed) == (1, 1)
    assert "raced-0: ended with code 66" in sums.details[0]


def test_a_binary_without_a_report_fails(tmp_path):
    sums = totals(tmp_path, {binary(tmp_path, "crashed", PASSED, code=139, report=False): ["A.a"]})
    assert (sums.passed, sums.failed) == (0, check_binaries.SHARDS + 1)
    assert sums.details[-1] == "0 of 1 tests have a result"


def test_a_test_without_a_result_fails(tmp_path):
    sums = totals(tmp_path, {binary(tmp_path, "less", PASSED): ["A.a", "A.lost"]})
    assert (sums.passed, sums.failed) == (1, 1)
    assert sums.details == ["1 of 2 tests have a result"]
