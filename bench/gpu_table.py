#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The figures of one GPU on the 27B pair in one table, from results of `coppice bench --json`.

usage: gpu_table.py SHORT.json LONG.json MMA.json   as `gpu.sh table` makes them

SHORT and MMA are after 512 tokens, MMA with --cuda-path mma; LONG is after 16,384 and 65,536.
Goals stand next to the figures: the least that is wanted, and what is aimed at.
"""
import json
import sys


class Run:
    """One mode after one prompt: per-pass milliseconds and rates."""

    def __init__(self, result, tokens, mode):
        r = result["groups"][f"random {tokens}"][mode]
        self.phase = {k: v / r["steps"] for k, v in r["ms"].items()}
        self.step = sum(self.phase[k] for k in ("draft", "verify", "sample", "commit"))
        self.rate, self.accepted = r["tokens_per_second"], r["accept_length"]


def row(name, value, unit, must=None, aim=None, note=""):
    """must and aim: ("<", 8.0) at most, (">", 190) at least."""
    met = lambda goal: goal and (value <= goal[1] if goal[0] == "<" else value >= goal[1])
    show = lambda goal: f"{goal[1]:g}" if goal else ""
    state = "aim" if met(aim) else "met" if met(must) else "NOT MET" if must else ""
    print(f"{name:44} {value:10,.2f} {unit:6} {show(must):>7} {show(aim):>7}  {state:7} {note}")


def decoding(result, slack, aims):
    """The first rows of the table; slack: by how much they may miss what the best path must do."""
    run = lambda mode: Run(result, 512, mode)
    aim = lambda sign, value: (sign, value) if aims else None
    low = lambda ms: ("<", round(ms * slack, 2))
    off, tree = run("off"), run("oracle tree:22")
    row("plain decoding", off.rate, "tok/s", (">", round(190 / slack, 1)), aim(">", 240))
    row("forward, 16 rows", run("oracle chain:16").phase["verify"], "ms", low(5.6), aim("<", 4.2))
    row("forward, 23-node tree", tree.phase["verify"], "ms", low(6.0), aim("<", 4.4))
    row("forward, 64 rows", run("oracle tree:63").phase["verify"], "ms",
        low(11) if aims else None, aim("<", 6.0))
    row("whole step, budget 22", tree.step, "ms", low(8.0), aim("<", 5.6))
    row("tok/s with the oracle", tree.rate, "tok/s", (">", 1000) if aims else None,
        aim(">", 1450), f"accept length {tree.accepted:.2f}")


def prompt_rate(result):
    """Tokens per second of the first prompt."""
    return result["prefill_tokens"][0] * 1000 / result["prefill_ms"][0]


def main(argv):
    if len(argv) != 4:
        sys.exit(__doc__)
    short, long, mma = (json.load(open(path)) for path in argv[1:4])
    print(f"{'':44} {'seen':>10} {'':6} {'must':>7} {'aim':>7}")
    decoding(short, 1, True)
    near, far = Run(short, 512, "oracle tree:22"), Run(long, 65536, "oracle tree:22")
    row("draft at 16K", Run(long, 16384, "oracle tree:22").phase["draft"], "ms", ("<", 1.5),
        ("<", 1.0))
    row("step of budget 22 at 64K over 0.5K", far.step / near.step, "x", ("<", 1.5))
    row("plain step at 64K over 0.5K", Run(long, 65536, "off").step / Run(short, 512, "off").step,
        "x", ("<", 1.5))
    row("prompt, 16,384 tokens", prompt_rate(long), "tok/s", (">", 6000), (">", 9000))
    row("load", short["load_ms"] / 1000, "s", ("<", 12), ("<", 5))
    print("mma.sync, within 1.3x of what the best path must do:")
    decoding(mma, 1.3, False)
    same = all(r["equal"] for r in (short, long, mma))
    print("tokens and logits of all runs equal plain decoding's:", "yes" if same else "NO")
    return 0 if same else 1


sys.exit(main(sys.argv))
