"""clang-tidy over src/, remembering clean files so that only what changed is looked at again."""

import concurrent.futures
import hashlib
import json
import re
import shutil
import subprocess

WANTED_MAJOR = "14"  # other versions have other checks; results would depend on the machine


def find_tidy():
    """Path of a clang-tidy of the wanted version, or None."""
    for name in (f"clang-tidy-{WANTED_MAJOR}", "clang-tidy"):
        path = shutil.which(name)
        if path and f"version {WANTED_MAJOR}." in subprocess.run([path, "--version"], capture_output=True, text=True,
                                                                 check=False).stdout:
            return path
    return None


def included(root, path, seen):
    """`path` and every own header that it includes, directly or not."""
    if path in seen or not path.exists():
        return seen
    seen.add(path)
    for name in re.findall(r'^#include "([^"]+)"', path.read_text(encoding="utf-8"), re.MULTILINE):
        included(root, root / "src" / name, seen)
    return seen


def fingerprint(root, source, command):
    digest = hashlib.sha256((command + (root / ".clang-tidy").read_text(encoding="utf-8")).encode())
    for path in sorted(included(root, source, set())):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def run(root, build, jobs):
    """Returns (clean files, problems, reason why the stage was skipped or "")."""
    tidy = find_tidy()
    if tidy is None:
        return 0, [], f"clang-tidy {WANTED_MAJOR} is not installed"
    stamps = root / "build" / "tidy"
    stamps.mkdir(parents=True, exist_ok=True)
    commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    sources = [c for c in commands if c["file"].startswith(f"{root}/src/") and c["file"].endswith(".cc")]

    def check(entry):
        path = root / entry["file"]
        stamp = stamps / fingerprint(root, path, entry["command"])
        if stamp.exists():
            return ""
        done = subprocess.run([tidy, "--quiet", "-p", str(build), str(path)], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            stamp.touch()
            return ""
        errors = [line for line in done.stdout.splitlines() if ": error:" in line] or [done.stderr.strip()[-300:]]
        return f"{path.relative_to(root)}: " + " | ".join(line.replace(f"{root}/", "") for line in errors[:5])

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        results = list(pool.map(check, sources))
    problems = [r for r in results if r]
    return len(results) - len(problems), problems, ""
