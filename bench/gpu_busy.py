#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""When the GPU worked during decoding steps, from the lines of gpu_trace.c.

usage: gpu_busy.py TRACE [--last KERNEL] [--with KERNEL] [--skip N] [--top N]

A step ends with the kernel whose name contains KERNEL (default: choose, which makes the target's
choices); with --with only steps that run that kernel, too (rank: those with a draft). Prints, as medians over the steps with the most common number of kernels: wall time,
time with a kernel running (overlaps counted once), time with only a copy, idle time, and which
kernels and copies the GPU waited in front of.
"""
import re
import statistics
import subprocess
import sys
from collections import Counter, defaultdict


def short(name, known={}):
    """A kernel's name without namespaces of internal linkage and parameters."""
    if name not in known:
        try:
            plain = subprocess.run(["c++filt", name], capture_output=True, text=True).stdout.strip()
        except OSError:
            plain = name
        plain = re.sub(r"\(anonymous namespace\)::|<unnamed>::|^void |_GLOBAL__N__\w+::", "", plain)
        known[name] = re.sub(r"\(.*", "", plain)[:40]
    return known[name]


def read(path):
    with open(path) as f:
        rows = [line.rstrip("\n").split(" ", 3) for line in f]
    return sorted((int(a), int(b), kind, name) for a, b, kind, name in rows)


def cut(rows, last):
    """Steps: rows up to and including each kernel `last`, beginning with the end of the one before."""
    steps, now, begin = [], [], None
    for row in rows:
        now.append(row)
        if row[2] == "kernel" and last in row[3]:
            if begin is not None:
                steps.append((begin, now))
            begin, now = row[1], []
    return steps


def covered(begin, spans):
    total, at = 0, begin
    for a, b in sorted(spans):
        a = max(a, at)
        if b > a:
            total += b - a
            at = b
    return total


def gaps(begin, rows):
    at, before = begin, "choices"
    for a, b, kind, name in rows:
        label = short(name) if kind == "kernel" else f"{kind} {name}"
        if a > at:
            yield label, before, a - at
        if b > at:
            at, before = b, label


def main(argv):
    options = {"--last": "choose", "--with": "", "--skip": "2", "--top": "14"}
    for i in range(2, len(argv), 2):
        options[argv[i]] = argv[i + 1]
    steps = cut(read(argv[1]), options["--last"])[int(options["--skip"]):]
    steps = [s for s in steps if any(options["--with"] in r[3] for r in s[1])]
    count = Counter(sum(r[2] == "kernel" for r in rows) for _, rows in steps)
    if not count:
        sys.exit("no step found")
    usual = count.most_common(1)[0][0]
    same = [s for s in steps if abs(sum(r[2] == "kernel" for r in s[1]) - usual) <= 8]
    wall, busy, copies, idle, waits = [], [], [], [], defaultdict(list)
    spent = defaultdict(list)
    for begin, rows in same:
        kernels = [r[:2] for r in rows if r[2] == "kernel"]
        all_spans = [r[:2] for r in rows]
        wall.append(rows[-1][1] - begin)
        busy.append(covered(begin, kernels))
        copies.append(covered(begin, all_spans) - busy[-1])
        idle.append(wall[-1] - covered(begin, all_spans))
        one, times = Counter(), Counter()
        for label, before, ns in gaps(begin, rows):
            one[label] += ns
        for key, ns in one.items():
            waits[key].append(ns)
        for a, b, kind, name in rows:
            times[short(name) if kind == "kernel" else f"{kind} {name}"] += b - a
        for key, ns in times.items():
            spent[key].append(ns)
    us = lambda x: statistics.median(x) / 1000
    kinds = Counter(f"{r[2]} {r[3]}" if r[2] != "kernel" else "kernel" for r in same[-1][1])
    print(f"{len(same)} of {len(steps)} steps; of the last: " +
          ", ".join(f"{n} {k}" for k, n in sorted(kinds.items())))
    print(f"us a step: wall {us(wall):.1f}, kernels {us(busy):.1f}, only copies {us(copies):.1f}, "
          f"idle {us(idle):.1f}")
    top = int(options["--top"])
    rank = lambda d: sorted(d.items(), key=lambda x: -sum(x[1]))[:top]
    n = len(same)
    print("idle in front of:", ", ".join(f"{k} {sum(v) / n / 1000:.1f}" for k, v in rank(waits)))
    print("time in:", ", ".join(f"{k} {sum(v) / n / 1000:.1f}" for k, v in rank(spent)))


main(sys.argv)
