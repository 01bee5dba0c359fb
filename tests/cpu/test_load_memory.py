"""The memory that loading takes: the prepared weights and 5 %, and never the pages of a whole layer (170 MB here) or of a
table of the vocabulary (268 MB), of a file that the page cache keeps in pages of less than 2 MB (docs/performance-cpu.md
says what is mapped of others)."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_loading_keeps_to_its_memory(tmp_path):
    assert (pathlib.Path(os.environ["SLUICE_BUILD_DIR"]) / "bin" / "sluice").exists()
    command = [sys.executable, ROOT / "scripts" / "load_memory.py", "--format", "nvfp4", "--gb", "0.7", "--vocabulary", "65536"]
    options = ["--repeat", "1", "--mapped-mb", "128", "--write-mb", "0", "--folder", tmp_path]
    done = subprocess.run([*command, *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "anonymous" in done.stdout
