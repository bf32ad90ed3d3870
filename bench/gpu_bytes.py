#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bytes that a decoding step reads from device memory, against those of its weights.

usage: gpu_bytes.py step TRACE [KERNEL]     prints how many kernels run before a step, and in it
       gpu_bytes.py sum NCU.csv INSPECT...  adds up the counters, and the files' tensors

A step is what lies between two kernels `choose`, which make the target's choices. The one in the
middle of the run is taken; with KERNEL, of the steps that run it (rank: a draft ends with it).
NCU.csv is `ncu --csv --page raw` of dram__bytes_read.sum and dram__bytes_write.sum;
INSPECT is `coppice inspect --json` of the target and, for a step with a draft, of the draft: its
weights are then counted too, and the target's head once more.
"""
import csv
import json
import sys
from collections import Counter

SCALE = {"byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}


def step(trace, needed):
    with open(trace) as f:
        rows = sorted((int(r[0]), r[3]) for r in (line.split(" ", 3) for line in f)
                      if r[2] == "kernel")
    names = [name for _, name in rows]
    ends = [i + 1 for i, name in enumerate(names) if "choose" in name]
    steps = [(a, b) for a, b in zip(ends, ends[1:]) if any(needed in n for n in names[a:b])]
    if len(steps) < 2:
        sys.exit("gpu_bytes.py: the trace has no two steps")
    begin, end = steps[len(steps) // 2]
    print(begin, end - begin)


def counters(path):
    """(kernel, bytes read, bytes written) of every kernel that was counted."""
    with open(path) as f:
        lines = [line for line in f if line.startswith('"')]
    table = list(csv.reader(lines))
    if len(table) < 3:
        sys.exit(f"gpu_bytes.py: {path} has no counters")
    head, units = table[0], table[1]
    name = head.index("Kernel Name")
    read, write = head.index("dram__bytes_read.sum"), head.index("dram__bytes_write.sum")
    value = lambda row, i: float(row[i].replace(",", "")) * SCALE[units[i]]
    return [(row[name], value(row, read), value(row, write)) for row in table[2:]]


def weights(paths):
    """Bytes that a step must read: the target but its embedding, the draft, the head again."""
    files = []
    for path in paths:
        with open(path) as f:
            files.append({t["name"]: t["bytes"] for t in json.load(f)["tensors"]})
    target = files[0]
    head = target.get("output.weight", target["token_embd.weight"])
    total = sum(n for name, n in target.items() if name != "token_embd.weight")
    if "output.weight" not in target:
        total += head
    for draft in files[1:]:
        total += sum(draft.values()) + head
    return total


def main(argv):
    if argv[1:2] == ["step"] and len(argv) in (3, 4):
        return step(argv[2], argv[3] if len(argv) == 4 else "")
    if argv[1:2] != ["sum"] or len(argv) < 4:
        sys.exit(__doc__)
    rows, must = counters(argv[2]), weights(argv[3:])
    read, written = sum(r[1] for r in rows), sum(r[2] for r in rows)
    print(f"{len(rows)} kernels read {read:.0f} bytes and wrote {written:.0f}; the weights of a "
          f"step are {must} bytes: {100 * read / must:.2f} %")
    by_kernel = Counter()
    for name, one, _ in rows:
        by_kernel[name.split("(")[0].replace("void ", "")[:60]] += one
    for name, n in by_kernel.most_common(12):
        print(f"  {n / 1e6:10.1f} MB  {name}")


main(sys.argv)
