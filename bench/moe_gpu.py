#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One shape's figures next to the bytes that a step reads, from what moe_gpu.sh has left.

usage: moe_gpu.py PREFIX [GB_PER_SECOND]   reads PREFIX.{file,short,long}.json

Of the experts a plain step reads those that one row uses; a step with 23 rows the union of their
choices, here as large as it is on average when rows choose alike and independently. The floor is what
reading takes at the rate, by default the copy rate of an H200.
"""
import json
import sys


def main(argv):
    if len(argv) not in (2, 3):
        sys.exit(__doc__)
    file, short, long = (json.load(open(f"{argv[1]}.{part}.json"))
                         for part in ("file", "short", "long"))
    rate = float(argv[2]) if len(argv) == 3 else 4300.0
    meta = file["metadata"]
    arch = meta["general.architecture"]
    experts, used = (meta.get(f"{arch}.expert_{k}", 0) for k in ("count", "used_count"))
    tied = not any(t["name"] == "output.weight" for t in file["tensors"])

    def floor(rows):
        share = 1 - (1 - used / experts) ** rows if experts else 1
        read = sum(t["bytes"] * (share if "_exps." in t["name"] else 1) for t in file["tensors"]
                   if t["name"] != "token_embd.weight" or tied)
        return read, read / rate / 1e6

    off, tree = (short["groups"]["random 512"][m] for m in ("off", "oracle tree:22"))
    plain, plain_ms = floor(1)
    step, step_ms = floor(23)
    verify = tree["ms"]["verify"] / tree["steps"]
    name = argv[1].rsplit("/", 1)[-1]
    print(f"{name}: plain {off['tokens_per_second']:.1f} tok/s, "
          f"{off['tokens_per_second'] * plain_ms / 1000:.2f} of the floor "
          f"({plain / 1e9:.2f} GB a token); 23 rows {verify:.2f} ms, "
          f"{step_ms / verify:.2f} of the floor ({step / 1e9:.2f} GB); prompt of 16,384 tokens "
          f"{long['prefill_tokens'][0] * 1000 / long['prefill_ms'][0]:.0f} tok/s; load "
          f"{short['load_ms'] / 1000:.1f} s; outputs equal: {'yes' if short['equal'] else 'NO'}",
          flush=True)
    return 0 if short["equal"] else 1


sys.exit(main(sys.argv))
