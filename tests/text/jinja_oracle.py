"""The reference for templates: jinja2 set up as transformers sets it up, and the probe that runs ours.

jinja2 renders in this process; ours runs in the binary tests/text/jinja_probe of the build folder (SLUICE_BUILD_DIR).
"""

import copy
import datetime
import functools
import json
import os
import pathlib
import subprocess
import tempfile
import warnings

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

NOW = datetime.datetime(2024, 7, 4, 9, 5, 6)


class Generation(jinja2.ext.Extension):
    """{% generation %}: the body is rendered in a scope of its own."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def strftime_now(format):
    return NOW.strftime(format)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment(optimized=True):
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[Generation, jinja2.ext.loopcontrols],
        optimized=optimized,
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


ENVIRONMENT = environment()
# Without constant folding, which turns some errors on constants (5[1:]) into undefined values.
UNFOLDED = environment(optimized=False)


@functools.lru_cache(maxsize=64)
def compiled(template, env):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python comments on the code of odd templates
        return env.from_string(template)


def render(template, variables, env=ENVIRONMENT):
    """("text", output) or ("error", message) of jinja2."""
    try:
        # A copy, because some filters of jinja2 change a list they are given (indent).
        return "text", compiled(template, env).render(**copy.deepcopy(variables))
    except RecursionError:
        return "error", "RecursionError"
    except Exception as error:  # any exception of the template or of Python counts as a refusal
        return "error", f"{type(error).__name__}: {error}"


def probe_path():
    build = os.environ.get("SLUICE_BUILD_DIR")
    assert build, "set SLUICE_BUILD_DIR to the build folder"
    path = pathlib.Path(build) / "tests" / "text" / "jinja_probe"
    assert path.exists(), f"{path} is missing: build the target jinja_probe"
    return path


def run_probe(jobs):
    """Results of ours for a list of jobs: ("text", output) or ("error", message) each."""
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump(jobs, file, ensure_ascii=False)
        file.flush()
        done = subprocess.run([probe_path(), file.name], capture_output=True, timeout=600)
    assert done.returncode == 0, f"jinja_probe failed: {done.returncode} {done.stderr.decode()}"
    results = json.loads(done.stdout.decode("utf-8"))
    assert len(results) == len(jobs)
    return [("text", r["text"]) if "text" in r else ("error", r["error"]) for r in results]


def compare(cases, results):
    """Differences between jinja2 and ours. A case is (template, variables); errors agree whatever they say."""
    differences = []
    for (template, variables), ours in zip(cases, results):
        reference = render(template, variables)
        if reference[0] != ours[0] or (reference[0] == "text" and reference[1] != ours[1]):
            differences.append(f"template: {template!r}\n  jinja2: {reference!r}\n  ours:   {ours!r}")
    return differences
