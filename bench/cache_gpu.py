#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the prefix cache takes and costs: cache_gpu.sh makes the model and calls this.
Usage: bench/cache_gpu.py PROGRAM MODEL [--device NAME] [--cache-folder DIR] [--tokens N] [--clients N] [--parts PART,...]
  ram     a prompt whose first 16,384 tokens are in host memory: what an answer of one token takes above the same for a
          prompt of the tokens that had to be run
  disk    the same after a restart: with the files in the page cache, and cold (dropped from it by posix_fadvise)
  saving  tokens per second of streams with the cache, files too, over those without, in turns on two servers
The files go to a new folder in DIR (by default /var/tmp, which should not lie in memory). Standard library only. The exit
status is 1 when a bound is missed.
"""
import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from cache_server import Server, head, missed, row

r = random.Random(1)


def ids(o, n):
    return [r.randrange(256, o.ids) for _ in range(n)]


def ask(server, prompt):
    """(ms until an answer of one token was there, tokens from the cache)"""
    begin = time.monotonic()
    value = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 1, "temperature": 0, "ignore_eos": True})
    took = (time.monotonic() - begin) * 1e3
    return took, value["usage"]["prompt_tokens_details"]["cached_tokens"]


def back(o, server, text, name, bound, times=1):
    """Prompts that begin with each of the texts and go on otherwise, against prompts of what had to be run alone."""
    ask(server, ids(o, 40))  # the first pass of its kind may make something
    found, own = [], []
    for first in text * times:
        prompt = first + ids(o, 24)
        found.append((*ask(server, prompt), len(prompt)))
        own.append(ask(server, ids(o, max(len(prompt) - found[-1][1], 1)))[0])
        time.sleep(0.2)
    cached = min(f[1] for f in found)
    if cached < 0.9 * o.tokens:
        row(name, f"{cached} of {o.tokens} tokens were found", "", False)
        return
    took = statistics.median(f[0] for f in found)
    alone = statistics.median(own)
    each = ", ".join(f"{f[0]:.0f}" for f in found)
    row(name, f"{took - alone:.0f} ms: {took:.0f} ({each}) with {cached} tokens cached, {alone:.0f} for the others alone",
        f"{bound} ms" if bound else "", took - alone <= bound if bound else None)


def load(o, server):
    """Output tokens a second of streams with prompts that no other stream has."""
    out = subprocess.run([o.program, "bench", "--url", server.url, "--endpoint", "completions", "--ignore-eos", "--json",
                          "--clients", str(o.clients), "--requests", str(o.clients), "--warmup", "0", "--temp", "0",
                          "--input-tokens", str(o.tokens // 16), "--output-tokens", str(o.new),
                          "--seed", str(r.randrange(1 << 30))], capture_output=True, text=True, check=False)
    if out.returncode:
        sys.exit(out.stderr)
    value = json.loads(out.stdout)
    return value["output_tokens"] / value["seconds"], value["tpot_ms"]["mean"], value["cached_tokens"]


def saving(o, server):
    """Streams on the server with the cache and on one without, in turns."""
    plain = o.serve("--cache-ram", "0")
    speeds = {plain: [], server: []}
    for one in speeds:
        load(o, one)
    before = server.metric("coppice_cache_files_written_total")
    for one in (plain, server, server, plain) * o.rounds:
        speeds[one].append(load(o, one))
    files = server.metric("coppice_cache_files_written_total") - before
    plain.end()
    without, beside = ([statistics.mean(run[i] for run in speeds[one]) for i in (0, 1)] for one in speeds)
    row(f"{o.clients} streams, {o.tokens // 16} in, {o.new} out",
        f"{beside[0]:.1f} tok/s with the cache ({files:.0f} files written), {without[0]:.1f} without: "
        f"{beside[0] / without[0]:.3f}", "0.97", beside[0] >= 0.97 * without[0])
    row("between tokens", f"{beside[1]:.3f} ms with the cache, {without[1]:.3f} without: {beside[1] / without[1]:.3f}",
        "1.03", beside[1] <= 1.03 * without[1])


def dropped(folder):
    """Drops the folder's files from the page cache."""
    os.sync()
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(o, folder):
    begin = time.monotonic()
    kept = ["--cache-ram", "16G", "--cache-dir", folder, "--cache-disk", "40G"]
    texts = [ids(o, o.tokens + 16) for _ in range(2 if "disk" in o.parts else 1)]
    server = o.serve(*kept)
    for text in texts:
        took, _ = ask(server, text)
        row("a prompt read", f"{len(text)} tokens in {took:.0f} ms")
    if "ram" in o.parts:
        back(o, server, texts[:1], "from host memory", 60, 5)
    if "disk" in o.parts:
        server.written(3)
        server.end()
        size = sum(e.stat().st_size for e in os.scandir(folder))
        row("files", f"{len(os.listdir(folder))}, {size / 2**30:.2f} GiB")
        server = o.serve(*kept)
        back(o, server, texts, "from files in the page cache", 400)
        server.end()
        dropped(folder)
        server = o.serve(*kept)
        back(o, server, texts, "from files, cold", None)
    if "saving" in o.parts:
        saving(o, server)
    server.end()
    row("all of this", f"{time.monotonic() - begin:.0f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--cache-folder", default="/var/tmp")
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--new", type=int, default=384)
    parser.add_argument("--rounds", type=int, default=1, help="of four runs for the cost of saving")
    parser.add_argument("--ids", type=int, default=150000, help="token ids from 256 to this")
    parser.add_argument("--parts", default="ram,saving,disk")
    o = parser.parse_args()
    o.serve = lambda *options: Server(o.program, "-m", o.model, "-d", "none", "--device", o.device, "--parallel",
                                      str(o.clients), "--max-ctx", str(o.tokens + 512), *options)
    folder = tempfile.mkdtemp(prefix="coppice-cache-", dir=o.cache_folder)
    head()
    try:
        measure(o, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if missed else 0)


main()
