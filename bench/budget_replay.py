#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Replays --budget auto with other values of its tuned constants (docs/notes/budget-auto.md).

    bench/budget_replay.py                             the figures as they are
    bench/budget_replay.py --set FEW=3                 that value against the sources' own; several are one trial
    bench/budget_replay.py --set FEW=3 / PRIOR=16      trials of their own
    bench/budget_replay.py --table                     the other values of the note's table, each a trial

What is replayed: the figures of tests/unit/test_budget.c, and those of tests/unit/test_budget_texts.c: recorded texts of
two pairs on all simulated devices (of each the slowest text against plain decoding, and all against the best fixed
number of nodes, which is a figure). It needs a release build, which it takes libraries from; sources with other values
are compiled in a temporary folder. Only arithmetic is timed, so any machine gives the same figures.
"""
import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TREE = ROOT / "src/spec/tree"
TABLE = ["FEW=2", "FEW=3", "PRIOR=16", "TRIALS=8", "TRIALS=5", "PAUSE_FIRST=8", "PAUSE_FIRST=10", "CREDIT=1.5",
         "CREDIT=1.7", "CREDIT_SHARE=0.007", "PRICE_STEPS=24", "UNSURE=0.6", "NEAR=0", "NEAR=0.04", "OPTIMISM=0",
         "OPTIMISM=1"]


def compiled(build, folder, values):
    """test_budget and test_budget_texts with the constants' values, in a folder of their own."""
    left = dict(values)
    (folder / "spec/tree").mkdir(parents=True)
    for name in ("price.h", "price.c", "chances.h", "chances.c", "budget.c"):
        text = (TREE / name).read_text()
        for constant in list(left):
            text, found = re.subn(rf"\b({constant} = )[\d.]+(?=[,; ])", rf"\g<1>{left[constant]}", text)
            if found:
                del left[constant]
        (folder / "spec/tree" / name).write_text(text)
    if left:
        sys.exit(f"budget_replay.py: no constant {', '.join(left)} in budget, chances or price of src/spec/tree")
    programs = [folder / "test_budget", folder / "test_budget_texts"]
    for program in programs:
        subprocess.run([os.environ.get("CC", "cc"), "-std=gnu17", "-O2", "-ffp-contract=off", f"-I{folder}",
                        f"-I{ROOT}/src", f"-I{ROOT}/tests", f'-DTEST_DATA="{ROOT}/tests"', "-o", program,
                        *(folder / "spec/tree" / f"{name}.c" for name in ("budget", "chances", "price")),
                        ROOT / "tests/unit/sim_budget.c",
                        ROOT / f"tests/unit/{program.name}.c", build / "src/libcoppice.a", "-lcmocka", "-ljson-c",
                        "-lm"], check=True)
    return programs


def printed(command):
    """Figures by name, in order."""
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {name: float(value) for name, value in re.findall(r"^(.+): (\d+\.\d+)$", out, re.M)}


def replay(build, values):
    """The figures, and the slowest recorded text of each device."""
    with tempfile.TemporaryDirectory() as folder:
        budget, texts = compiled(build, Path(folder), values)
        figures = printed([budget, "--figures"])
        out = subprocess.run([texts, "--figures"], check=True, capture_output=True, text=True).stdout
    slowest = {}
    for name, worst, fixed in re.findall(r"^(.+): worst (\d+\.\d+) .* reach \d+ (\d+\.\d+)$", out, re.M):
        slowest[name] = float(worst)
        figures[name] = float(fixed)
    return figures, slowest


def of_note(name):
    """Whether it stands in the note's table of cases: replies of the oracle's rates and of useless guesses, batches."""
    return re.search(r", (errors [\d.]+|useless), (first|later)|, eight members, ", name) is not None


def compare(trial, before, after):
    (old, old_texts), (new, new_texts) = before, after
    change = {name: 100 * (new[name] / old[name] - 1) for name in old}
    note = min((name for name in change if of_note(name)), key=change.get)
    worst = min(change, key=change.get)
    slow = min(new_texts, key=new_texts.get)
    print(f"{trial}: worst {change[worst]:+.1f} % ({worst}), of the note's cases {change[note]:+.1f} % ({note}), "
          f"mean {sum(change.values()) / len(change):+.2f} %; slowest text {new_texts[slow]:.3f} of plain ({slow}; "
          f"{min(old_texts.values()):.3f} before)", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=Path, default=ROOT / "build/release", help="the release build")
    p.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="a trial; '/' begins the next one")
    p.add_argument("--table", action="store_true", help="the trials of the note's table")
    p.add_argument("-j", type=int, default=1, help="trials at a time")
    o = p.parse_args()
    trials = " ".join(o.set).split(" / ") if o.set else []
    trials += TABLE if o.table else []

    def run(trial):
        return replay(o.build.resolve(), [v.split("=", 1) for v in trial.split()])

    with concurrent.futures.ThreadPoolExecutor(o.j) as pool:
        before = run("")
        if not trials:
            for name, value in {**before[0], **before[1]}.items():
                print(f"{name}: {value:.3f}")
        for trial, after in zip(trials, pool.map(run, trials)):
            compare(trial, before, after)


if __name__ == "__main__":
    main()
