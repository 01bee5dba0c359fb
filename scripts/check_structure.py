"""Rules about the shape of the code: layers, sizes, marks, names that the README promises, words that must not appear."""

import re
import subprocess

LAYERS = {"core": 0, "numerics": 1, "comm": 1, "text": 1, "http": 1, "moe": 2, "dispatch": 3, "cpu": 4, "cuda": 4, "checkpoint": 4,
          "model": 5, "engine": 6, "app": 7, "server": 8, "capi": 8, "cli": 9}
MAX_FILE_LINES = 400
MAX_KERNEL_FILE_LINES = 500
MAX_FUNCTION_LINES = 50
HEAVY_HEADERS = {"nlohmann/json.hpp": ["src/core/json.cc"], "CLI/CLI.hpp": ["src/cli/"], "pcre2.h": ["src/text/"],
                 "http_parser.h": ["src/http/parser.cc"], "yaml-cpp/yaml.h": ["src/cli/config_yaml.cc"], "event2/event.h": ["src/http/"],
                 "event2/buffer.h": ["src/http/"]}
# The path of a token, as the README lists it: file, and what it must define or call.
SIX_HOPS = [("src/cli/run.cc", "step"), ("src/engine/engine.cc", "Engine::step"), ("src/model/decoder.cc", "Decoder::forward"),
            ("src/dispatch/moe_layer.cc", "MoeLayer::forward"), ("src/cpu/runner_cpu.cc", "void run(const PreparedExperts"),
            ("src/cpu/isa/", "_mm512_dpbf16_ps")]


# Functions of std that take a string or a container.
NAMES_OF_STD = ("quoted", "setw", "data", "empty", "size", "begin", "end", "swap", "move", "forward", "exchange", "to_string", "stoi", "stod",
                "getline", "erase_if")

# Their work is to start and end the processes of ranks.
MAY_EXIT = {"src/app/ranks.cc", "src/app/ranks_start.cc"}
GENERATED = {"model/families.h"}  # by src/model/CMakeLists.txt


def own_sources(root, folders=("src", "include", "tests", "bench", "examples")):
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".h", ".cc", ".cu", ".cuh") and path.is_file():
                yield path


def is_kernel(path):
    return "/isa/" in str(path) or path.suffix in (".cu", ".cuh")


def layer_problems(root):
    """A file includes its own layer or lower ones; two folders of one layer do not see each other."""
    problems = []
    for path in own_sources(root, ("src",)):
        folder = path.relative_to(root / "src").parts[0]
        if folder not in LAYERS:
            problems.append(f"{path.relative_to(root)}: folder {folder} has no layer in scripts/check_structure.py")
            continue
        for name in re.findall(r'^#include "([^"]+)"', path.read_text(encoding="utf-8"), re.MULTILINE):
            target = name.split("/")[0]
            if target == folder or target not in LAYERS:
                continue
            if LAYERS[target] >= LAYERS[folder]:
                problems.append(f"{path.relative_to(root)} [layer {LAYERS[folder]}] includes {name} [layer {LAYERS[target]}]")
    return problems


def relative_include_problems(root):
    return [f"{path.relative_to(root)}: include {name} as layer/file.h" for path in own_sources(root, ("src",))
            for name in re.findall(r'^#include "([^"]+)"', path.read_text(encoding="utf-8"), re.MULTILINE)
            if not (root / "src" / name).exists() and not (root / "include" / name).exists() and name not in GENERATED]


def heavy_header_problems(root):
    problems = []
    for path in own_sources(root, ("src", "tests")):
        text = path.read_text(encoding="utf-8")
        where = str(path.relative_to(root))
        for header, allowed in HEAVY_HEADERS.items():
            if f"<{header}>" in text and not (path.suffix == ".cc" and any(where.startswith(a) for a in allowed)):
                problems.append(f"{where} includes <{header}>, which belongs to {', '.join(allowed)}")
    return problems


def file_size_problems(root):
    problems = []
    for path in own_sources(root):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        limit = MAX_KERNEL_FILE_LINES if is_kernel(path) else MAX_FILE_LINES
        if lines > limit:
            problems.append(f"{path.relative_to(root)}: {lines} lines, at most {limit}")
    return problems


def function_size_problems(root):
    """Lengths as lizard counts them; kernels are exempt (they are made of named stages)."""
    import lizard
    problems = []
    for path in own_sources(root, ("src", "include")):
        if is_kernel(path):
            continue
        for function in lizard.analyze_file(str(path)).function_list:
            length = function.end_line - function.start_line + 1
            if length > MAX_FUNCTION_LINES:
                problems.append(f"{path.relative_to(root)}: {function.name} has {length} lines, at most {MAX_FUNCTION_LINES}")
    return problems


def mark_problems(root):
    mark = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b(?!\(#\d+\))")
    return [f"{path.relative_to(root)}:{number}: {line.strip()[:80]}" for path in own_sources(root, ("src", "include", "tests"))
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1) if mark.search(line)]


def library_manners_problems(root):
    """The library neither prints nor ends the process; only the command line does."""
    call = re.compile(r"(?<![\w.:>])(?:std::)?(?:abort|exit|_exit|printf|puts|fprintf)\s*\(|std::c(?:out|err)\b")
    problems = []
    for path in own_sources(root, ("src",)):
        if path.relative_to(root / "src").parts[0] in ("cli", "server"):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            found = call.search(line.split("//")[0])
            if found and not (found[0].startswith("_exit") and str(path.relative_to(root)) in MAY_EXIT):
                problems.append(f"{path.relative_to(root)}:{number}: {line.strip()[:80]}")
    return problems


def borrowed_name_problems(root):
    """A free function called with a std::string competes with std's of that name where some header declares it: GCC 13 took std::quoted
    for ours, GCC 12 did not."""
    pattern = re.compile(r"^(?:[\w:<>,&*]+ )+(" + "|".join(NAMES_OF_STD) + r")\(", re.MULTILINE)
    return [f"{path.relative_to(root)}: function {name} is called like one of std" for path in own_sources(root, ("src",))
            for name in pattern.findall(path.read_text(encoding="utf-8"))]


def test_name_problems(root):
    """pytest collects nothing at all where two files of different folders have one name."""
    first = {}
    return [f"{path.relative_to(root)}: named like {first[path.name].relative_to(root)}"
            for path in sorted((root / "tests").rglob("test_*.py")) if first.setdefault(path.name, path) != path]


def token_path_problems(root):
    problems = []
    for where, name in SIX_HOPS:
        place = root / where
        files = sorted(place.iterdir()) if place.is_dir() else [place]
        if not any(f.exists() and name in f.read_text(encoding="utf-8") for f in files):
            problems.append(f"{where} does not contain {name}: the README's path of a token is out of date")
    return problems


def tracked_text(root):
    done = subprocess.run(["git", "grep", "-lI", "", "--", ".", ":!models", ":!tests/*/corpus", ":!tests/fuzz/corpus"], cwd=root,
                          capture_output=True, text=True, check=False)
    return [root / name for name in done.stdout.splitlines()]


def leaked_path_problems(root):
    """Absolute paths of the machine that something was made on have no place in the project."""
    path = re.compile(r"(?<![\w.])/(?:work|home|root|mnt)/\w")
    return [f"{file.relative_to(root)}:{number}: {line.strip()[:80]}" for file in tracked_text(root)
            for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
            if path.search(line)]


def run(root):
    """{rule: [problem, ...]}"""
    return {
        "layers point one way": layer_problems(root),
        "includes are written from src": relative_include_problems(root),
        "heavy headers stay in their files": heavy_header_problems(root),
        "file sizes": file_size_problems(root),
        "function sizes": function_size_problems(root),
        "no open marks": mark_problems(root),
        "the library does not print or exit": library_manners_problems(root),
        "no function is called like one of std": borrowed_name_problems(root),
        "test files have names of their own": test_name_problems(root),
        "path of a token": token_path_problems(root),
        "no paths of a machine": leaked_path_problems(root),
    }
