"""Writes docs/scale.md and docs/scale.svg: memory, traffic and collectives of large models on 8 to 256 GPUs.

    python scripts/scale.py SLUICE_BINARY

Memory comes from `sluice explain`, which cuts checkpoints as loading does, on files of true names and shapes whose data
are holes (tests/gen/sparse_checkpoints.py). Traffic is computed from the formulas that the page states.
"""

import json
import math
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "gen"))
import sparse_checkpoints  # noqa: E402

GPUS = [8, 16, 32, 64, 128, 256]
MODELS = {  # hidden, experts, experts a token, MoE layers, all layers
    "DeepSeek-V3-0324-FP4": (7168, 256, 8, 58, 61),
    "Kimi-K2": (7168, 384, 8, 60, 61),
}
TITLES = {"DeepSeek-V3-0324-FP4": "DeepSeek-V3, experts in NVFP4", "Kimi-K2": "Kimi-K2, FP8 in blocks"}
LAYOUTS = {
    "tp": lambda n: ["--tp", n, "--ep", n] + (["--moe-dense-tp-size", "1"] if int(n) > 128 else []),
    "dp": lambda n: ["--tp", n, "--ep", n, "--dp", n, "--enable-dp-attention"],
}
COLOURS = ["#2b6cb0", "#c05621", "#2f855a", "#6b46c1"]


def explain(binary, folder, flags):
    with tempfile.TemporaryDirectory() as scratch:
        out = pathlib.Path(scratch) / "explain.json"
        done = subprocess.run([binary, "explain", folder, "--json", out, "--quiet", *flags], capture_output=True, text=True)
        if not out.exists():
            sys.exit(f"explain {' '.join(flags)}: {done.stderr}")
        value = json.loads(out.read_text())
    if value["problems"]:
        sys.exit(f"explain {' '.join(flags)}: {value['problems']}")
    return value


def record_bytes(hidden, k, fp4=False):
    """A token on the wire: its row, then k slot ids and weights; a multiple of 16."""
    row = hidden // 2 + hidden // 16 if fp4 else 2 * hidden
    return math.ceil((row + 8 * k) / 16) * 16


def other_ranks(experts, k, ranks):
    """How many other ranks a token's k experts are on, routing uniformly; uneven shares are averaged."""
    share = experts / ranks
    missed = math.prod((experts - share - i) / (experts - i) for i in range(k))
    return (ranks - 1) * (1 - missed)


def traffic(model, n):
    """Bytes that a rank sends for one token of the whole batch in one MoE layer, by way of dispatching."""
    hidden, experts, k, *_ = MODELS[model]
    others = (n - 1) / n
    back = k * others * 2 * hidden
    return {
        "tp": 2 * 2 * others * 4 * hidden,
        "dp": others * (record_bytes(hidden, k) + 4 * hidden),
        "dp, FP4 rows": others * (record_bytes(hidden, k, True) + 4 * hidden),
        "all-to-all": (other_ranks(experts, k, n) * record_bytes(hidden, k) + back) / n,
    }


def gb(value):
    return f"{value / 1e9:.1f}"


def kb(value):
    return f"{value / 1e3:.1f}" if value >= 1e3 else f"{value / 1e3:.2f}"


def memory_rows(binary, name, folder):
    rows = []
    for n in GPUS:
        row = {"gpus": n}
        for layout, flags in LAYOUTS.items():
            value = explain(binary, folder, [str(f) for f in flags(str(n))])
            row[layout] = value["rank_bytes"]
            row["experts"] = value["layer_kinds"][0]["experts_per_rank"]
            row[layout + " notes"] = [note for note in value["notes"] if "attention" in note]
        rows.append(row)
        print(name, n, gb(row["tp"]["weights"]), gb(row["dp"]["weights"]), flush=True)
    return rows


def memory_table(rows):
    lines = ["| GPUs | experts a rank | tp: experts / the rest | tp: together | dp: experts / the rest | dp: together |",
             "|---|---|---|---|---|---|"]
    for row in rows:
        cells = []
        for layout in LAYOUTS:
            m = row[layout]
            cells += [f"{gb(m['experts'])} / {gb(m['linear'] + m['replicated'])}", gb(m["weights"])]
        star = " *" if row["tp notes"] else ""
        lines.append(f"| {row['gpus']} | {row['experts']} | {cells[0]} | {cells[1]}{star} | {cells[2]} | {cells[3]} |")
    return lines


def traffic_table(model):
    hidden, experts, k, moe_layers, _ = MODELS[model]
    ways = list(traffic(model, 8))
    lines = ["| GPUs | other ranks of a token's experts | " + " | ".join(ways) + " | all-to-all, all layers |",
             "|---|---|" + "---|" * (len(ways) + 1)]
    for n in GPUS:
        t = traffic(model, n)
        cells = [kb(t[way]) for way in ways] + [kb(t["all-to-all"] * moe_layers)]
        lines.append(f"| {n} | {other_ranks(experts, k, n):.2f} | " + " | ".join(cells) + " |")
    return lines


def polyline(points, colour):
    return f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>'


def panel(left, title, unit, series):
    """One chart, both axes logarithmic, 300 x 200 with its labels."""
    values = [v for _, line in series for v in line]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    x = lambda n: left + 300 * (math.log2(n) - 3) / 5  # noqa: E731
    y = lambda v: 250 - 200 * (math.log10(v) - low) / (high - low)  # noqa: E731
    out = [f'<text x="{left}" y="32" font-weight="bold">{title}</text>']
    for power in range(low, high + 1):
        at = y(10**power)
        out.append(f'<line x1="{left}" y1="{at:.1f}" x2="{left + 300}" y2="{at:.1f}" stroke="#ccc"/>')
        out.append(f'<text x="{left - 6}" y="{at + 4:.1f}" text-anchor="end">{10**power:g} {unit}</text>')
    for n in GPUS:
        out.append(f'<text x="{x(n):.1f}" y="268" text-anchor="middle">{n}</text>')
    for (name, line), colour in zip(series, COLOURS):
        out.append(polyline([(x(n), y(v)) for n, v in zip(GPUS, line)], colour))
    for i, (name, _) in enumerate(series):
        out.append(f'<rect x="{left}" y="{285 + 18 * i}" width="12" height="4" fill="{COLOURS[i]}"/>')
        out.append(f'<text x="{left + 18}" y="{291 + 18 * i}">{name}</text>')
    return out


def picture(tables):
    memory = [(f"{TITLES[m]}: {layout}", [row[layout]["weights"] / 1e9 for row in rows])
              for m, rows in tables.items() for layout in LAYOUTS]
    model = "DeepSeek-V3-0324-FP4"
    sent = [(way, [traffic(model, n)[way] / 1e3 for n in GPUS]) for way in traffic(model, 8)]
    body = panel(70, "Weights of the fullest rank", "GB", memory)
    body += panel(470, "Sent by a rank for a token, one MoE layer", "kB", sent)
    return ('<svg xmlns="http://www.w3.org/2000/svg" width="800" height="365" font-family="sans-serif" font-size="11">'
            '<rect width="800" height="365" fill="white"/>' + "".join(body) + "</svg>\n")


def page(tables):
    text = (ROOT / "scripts" / "scale.md.in").read_text()
    for model, rows in tables.items():
        key = model.split("-")[0]
        kv = rows[0]["dp"]["kv_per_token"]
        notes = sorted({note for row in rows for note in row["tp notes"]})
        text = text.replace(f"@{key}_MEMORY@", "\n".join(memory_table(rows)))
        text = text.replace(f"@{key}_NOTES@", "\\* " + "; ".join(notes) if notes else "")
        text = text.replace(f"@{key}_KV@", f"{kv / 1e3:.1f}")
        text = text.replace(f"@{key}_TRAFFIC@", "\n".join(traffic_table(model)))
    return text


def main():
    binary, tables = sys.argv[1], {}
    for model in MODELS:
        with tempfile.TemporaryDirectory() as folder:
            sparse_checkpoints.MODELS[model](folder)
            tables[model] = memory_rows(binary, model, folder)
    (ROOT / "docs" / "scale.md").write_text(page(tables))
    (ROOT / "docs" / "scale.svg").write_text(picture(tables))


if __name__ == "__main__":
    main()
