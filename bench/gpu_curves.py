#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables and a picture of how a step's time grows.

usage: gpu_curves.py csv budget|context|sequences RESULT.json   a table of `bench --json`
       gpu_curves.py svg FOLDER                                 a picture of FOLDER/*.csv
"""
import csv
import json
import math
import os
import sys

PHASES = ("draft", "verify", "sample", "commit")


def number(x):
    return str(x) if isinstance(x, int) else f"{x:.4g}" if abs(x) < 1000 else f"{x:.1f}"


def table(columns, rows):
    print(",".join(columns))
    for row in rows:
        print(",".join(v if isinstance(v, str) else number(v) for v in row))


def per_pass(run):
    """Milliseconds a pass: all phases together, then draft, verify, commit."""
    ms = {k: run["ms"][k] / run["steps"] for k in PHASES}
    return sum(ms.values()), ms["draft"], ms["verify"], ms["commit"]


def budget(result):
    """Every mode of one group: off counts as no nodes."""
    (group,) = result["groups"].values()
    rows = []
    for mode, run in group.items():
        nodes = 0 if mode == "off" else int(mode.split(":")[1])
        rows.append((nodes, 1 + run["drafted"] / run["steps"], *per_pass(run),
                     run["accept_length"], run["tokens_per_second"]))
    table(("nodes", "rows", "step_ms", "draft_ms", "verify_ms", "commit_ms", "accept_length",
           "tokens_per_second"), rows)


def context(result):
    rows, done = [], 0
    for i, group in enumerate(result["groups"].values()):
        tokens = result["prefill_tokens"][i]
        done += tokens
        speed = tokens * 1000 / result["prefill_ms"][i]
        for mode, run in group.items():
            rows.append((done + 1, mode.replace("oracle ", ""), *per_pass(run), speed))
    table(("context", "mode", "step_ms", "draft_ms", "verify_ms", "commit_ms",
           "prompt_tokens_per_second"), rows)


def sequences(result):
    rows = []
    for run in result:
        n, passes = run["sequences"], run["passes"]
        ms = [run[f"{k}_ms"] / passes for k in PHASES]
        rows.append((n, run["speculate"].replace("oracle ", ""), run["rows"] / passes, sum(ms),
                     ms[0], ms[1], ms[3], run["tokens"] / passes / n,
                     run["tokens"] * 1000 / (sum(ms) * passes)))
    table(("sequences", "mode", "rows", "step_ms", "draft_ms", "verify_ms", "commit_ms",
           "accept_length", "tokens_per_second"), rows)


# The picture: three panels next to each other, lines labelled at their right ends.
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 330, 270, 34, 74, 34, 40
# Okabe and Ito, Color Universal Design, 2008; the last one for plain decoding.
COLOURS, PLAIN = ("#0072b2", "#d55e00", "#cc79a7"), "#009e73"
GREY = "#808080"


def nice_top(most):
    """A round number at or above `most`, and the distance of the lines below it."""
    step = 10 ** math.floor(math.log10(most))
    for part in (0.2, 0.5, 1, 2):
        if most / (step * part) <= 6:
            return math.ceil(most / (step * part)) * step * part, step * part
    return 10 * step, 2 * step


def text(x, y, words, anchor="middle", colour=GREY, size=11):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" '
            f'font-size="{size}">{words}</text>')


def apart(labels, least=13):
    """Moves labels (y, colour, words) down until none covers another."""
    out, at = [], -1e9
    for y, colour, words in sorted(labels):
        at = max(y, at + least)
        out.append((at, colour, words))
    return out


def panel(title, below, lines, ticks, place):
    """lines: (label, [(x, ms)]); ticks: (x, words); place: x to 0..1."""
    w, h = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    top, step = nice_top(max(y for _, points in lines for _, y in points))
    at_x, at_y = lambda x: LEFT + w * place(x), lambda y: TOP + h * (1 - y / top)
    out = [text(LEFT - 26, 16, title, "start", size=13)]
    for i in range(round(top / step) + 1):
        y = at_y(i * step)
        out.append(f'<path d="M{LEFT} {y:.1f}H{LEFT + w}" stroke="{GREY}" stroke-opacity=".3"/>')
        out.append(text(LEFT - 5, y + 4, f"{i * step:g}", "end"))
    out += [text(at_x(x), TOP + h + 15, words) for x, words in ticks]
    out.append(text(LEFT + w / 2, TOP + h + 32, below))
    labels = []
    for colour, (label, points) in zip(COLOURS, lines):
        colour = PLAIN if label == "plain" else colour
        where = " ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y in points)
        out.append(f'<polyline points="{where}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{at_x(x):.1f}" cy="{at_y(y):.1f}" r="2.2" fill="{colour}"/>'
                for x, y in points]
        labels.append((at_y(points[-1][1]) + 4, colour, label))
    out += [text(LEFT + w + 6, y, words, "start", colour) for y, colour, words in apart(labels)]
    return out


def read(folder, name):
    with open(os.path.join(folder, name + ".csv")) as f:
        return list(csv.DictReader(f))


def by_mode(rows, x, names):
    return [(label, [(float(r[x]), float(r["step_ms"])) for r in rows if r["mode"] == mode])
            for mode, label in names]


def picture(folder):
    rows = read(folder, "budget")
    of = lambda column: [(int(r["nodes"]), float(r[column])) for r in rows]
    panels = [panel("ms a step, by the tree's budget", "nodes besides the root",
                    [("step", of("step_ms")), ("verify", of("verify_ms")),
                     ("draft", of("draft_ms"))],
                    [(n, str(n)) for n in (0, 31, 63, 95, 127)], lambda n: n / 127)]
    rows = read(folder, "context")
    lengths = sorted({float(r["context"]) for r in rows})
    low, high = math.log2(lengths[0]), math.log2(lengths[-1])
    panels.append(panel("ms a step, by context", "tokens before it",
                        by_mode(rows, "context", (("tree:22", "budget 22"), ("off", "plain"))),
                        [(n, f"{n / 1024:g}K") for n in lengths],
                        lambda n: (math.log2(n) - low) / (high - low)))
    rows = read(folder, "sequences")
    panels.append(panel("ms a step, by sequences in it", "sequences in one forest",
                        by_mode(rows, "sequences", (("tree:15", "budget 15"),
                                                    ("tree:7", "budget 7"), ("off", "plain"))),
                        [(n, str(n)) for n in range(1, 9)], lambda n: (n - 1) / 7))
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH * len(panels)} {HEIGHT}" '
          'font-family="sans-serif">')
    print("<title>Milliseconds of a decoding step by budget, context and sequences</title>")
    for i, parts in enumerate(panels):
        print(f'<g transform="translate({i * WIDTH})">')
        print("\n".join(parts))
        print("</g>")
    print("</svg>")


def main(argv):
    kinds = {"budget": budget, "context": context, "sequences": sequences}
    if len(argv) == 3 and argv[1] == "svg":
        return picture(argv[2])
    if len(argv) != 4 or argv[1] != "csv" or argv[2] not in kinds:
        sys.exit(__doc__)
    with open(argv[3]) as f:
        kinds[argv[2]](json.load(f))


main(sys.argv)
