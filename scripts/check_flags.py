"""docs/flags.md is made from the flag table in the binary; this tells when it is out of date."""

import subprocess


def generated(root):
    done = subprocess.run([str(root / "build/cpu/bin/sluice"), "help", "--markdown"], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def run(root):
    """{rule: [problem, ...]}"""
    text = generated(root)
    page = root / "docs/flags.md"
    if text is None:
        return {"flag table": ["`sluice help --markdown` failed"]}
    if not page.exists() or page.read_text(encoding="utf-8") != text:
        return {"flag table": ["docs/flags.md is out of date; run: build/cpu/bin/sluice help --markdown > docs/flags.md"]}
    return {"flag table": []}
