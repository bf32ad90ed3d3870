#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Figures of `coppice serve`; see server.sh, which says what each part is."""
import argparse
import json
import os
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TARGET = os.path.join(ROOT, "models/coppice-tiny-q8_0.gguf")
DRAFT = os.path.join(ROOT, "models/coppice-tiny-dflash-q8_0.gguf")
PARTS = ["streams", "added", "clients", "beside", "idle", "memory"]
missed = []


def row(name, value, bound, reached):
    """One line of the table; reached: whether the bound holds, None where there is none."""
    if reached is False:
        missed.append(name)
    print(f"| {name} | {value} | {bound} | {'' if reached is None else 'yes' if reached else 'no'} |", flush=True)


class Server:
    """A server on a free port, ended with the block."""

    def __init__(self, command):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.log = tempfile.TemporaryFile()
        self.child = subprocess.Popen([*command, "--port", str(self.port)], stdout=self.log, stderr=self.log)
        end = time.monotonic() + 120
        while not self.ready():
            if self.child.poll() is not None or time.monotonic() > end:
                self.log.seek(0)
                sys.exit(f"{command[0]} does not serve: {self.log.read().decode(errors='replace')[-2000:]}")
            time.sleep(0.1)

    def ready(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def memory(self):
        with open(f"/proc/{self.child.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.terminate()
        try:
            self.child.wait(20)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        self.log.close()


def prompts():
    """All prompts of bench/prompts in one file, mixed, so that any part of them is of all kinds."""
    lines = []
    folder = os.path.join(ROOT, "bench/prompts")
    for name in sorted(os.listdir(folder)):
        if name.endswith(".jsonl"):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                lines.append(file.read().splitlines())
    file = tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8")
    for group in zip(*lines):
        for line in group:
            file.write(json.dumps({"prompt": json.loads(line)["prompt"], "max_tokens": 128}) + "\n")
    file.flush()
    return file


def bench(o, port, *options):
    command = [o.program, "bench", "--url", f"http://127.0.0.1:{port}", "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        sys.exit(f"{shlex.join(command)}: {done.stderr}")
    result = json.loads(done.stdout)
    if result["failed"]:
        sys.exit(f"{shlex.join(command)}: {done.stderr} {result['errors']}")
    return result


def load(o, port, clients, requests):
    return bench(o, port, "--endpoint", "completions", "--prompts", o.prompts.name, "--clients", str(clients),
                 "--requests", str(requests), "--warmup", str(clients), "--temp", "0", "--ignore-eos",
                 "--extra", '{"cache_prompt":false}')


def ours(o, slots, draft):
    return Server([o.program, "serve", "-m", TARGET, *(["-d", DRAFT] if draft else ["--speculate", "off"]), "--parallel", str(slots),
                   "--cache-ram", "0"])


def llama(o, slots, draft):
    slots = min(slots, o.llama_slots)
    more = ["-md", DRAFT, "--spec-type", "draft-dflash"] if draft else []
    return Server([*shlex.split(o.llama_server), "-m", TARGET, "-np", str(slots), "-c", str(slots * 2048),
                   "--no-webui", *more])


def streams(o):
    with ours(o, 8, True) as s:
        r = bench(o, s.port, "--clients", "256", "--requests", "256", "--warmup", "0", "--input-tokens", "16-256",
                  "--output-tokens", "128", "--ignore-eos")
        row("256 streams at once: completed", r["done"], 256, r["done"] == 256)
        row("their tokens a second, all together", f"{r['output_tokens_per_second']:.0f}", "", None)


def added(o):
    with ours(o, 8, True) as s:
        r = bench(o, s.port, "--endpoint", "completions", "--prompts", o.prompts.name, "--requests", "240",
                  "--temp", "0", "-n", "16")
        row("added to the engine's first token, median, one client", f"{r['added_ms']['p50']:.2f} ms", "5 ms",
            r["added_ms"]["p50"] < 5)
        r = load(o, s.port, 8, 120)
        row("the same with 8 clients", f"{r['added_ms']['p50']:.2f} ms", "5 ms", r["added_ms"]["p50"] < 5)


def clients(o):
    for draft, bound in ((False, 2.5), (True, 1.2)):
        seen = {1: [], 8: []}
        with ours(o, 8, draft) as s:
            for _ in range(o.turns):
                for n, requests in ((1, 60), (8, 120)):
                    seen[n].append(load(o, s.port, n, requests)["output_tokens_per_second"])
        one, eight = statistics.median(seen[1]), statistics.median(seen[8])
        row(f"8 clients over one, drafting {'on' if draft else 'off'}: {one:.0f} and {eight:.0f} tok/s",
            f"{eight / one:.2f}", bound, eight >= bound * one)


def beside(o):
    if not o.llama_server:
        print("beside: skipped, --llama-server FILE was not given", file=sys.stderr)
        return
    for n, requests in ((1, 20), (8, 60), (32, 96)):
        for draft in (False, True):
            seen = {}
            for _ in range(o.turns):
                for name, make in (("ours", ours), ("theirs", llama)):
                    with make(o, n, draft) as s:
                        seen.setdefault(name, []).append(load(o, s.port, n, requests)["output_tokens_per_second"])
            a, b = (statistics.median(seen[name]) for name in ("ours", "theirs"))
            row(f"{n} clients, drafting {'on' if draft else 'off'}: {a:.0f} tok/s, llama-server {b:.0f}",
                f"{a / b:.2f}", 1, a > b)


def idle(o):
    with ours(o, 8, True) as s:
        s.ready()
        before = s.memory()
        held = []
        for _ in range(1000):
            c = socket.create_connection(("127.0.0.1", s.port))
            c.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            c.recv(4096)
            held.append(c)
        each = (s.memory() - before) / 1000
        row("memory of an idle connection, of 1,000", f"{each / 1024:.1f} KiB", "64 KiB", each < 65536)


def memory(o):
    with ours(o, 16, True) as s:
        sizes = []
        for i in range(20):
            bench(o, s.port, "--clients", "16", "--requests", "1000", "--warmup", "0", "--input-tokens", "4-60",
                  "--output-tokens", "2-24", "--seed", str(i))
            sizes.append(s.memory() / 1e6)
        shown = ", ".join(f"{sizes[i]:.0f}" for i in (0, 4, 9, 14, 19))
        row("resident MB after 1,000, 5,000, 10,000, 15,000 and 20,000 requests", shown, "first + 8",
            max(sizes[-5:]) < max(sizes[:5]) + 8)


def main():
    parser = argparse.ArgumentParser(prog="bench/server.sh")
    parser.add_argument("program")
    parser.add_argument("part", nargs="*", default=[])
    parser.add_argument("--llama-server", help="a program or command that takes llama-server's options")
    parser.add_argument("--llama-slots", type=int, default=8, help="its -np at most; 0.7.0 ends with a "
                        "segmentation fault on this model with 32 of them")
    parser.add_argument("--turns", type=int, default=1, help="of parts clients and beside; the median counts")
    o = parser.parse_args()
    for name in o.part:
        if name not in PARTS:
            parser.error(f"there is no part '{name}'; parts are {', '.join(PARTS)}")
    o.program = os.path.abspath(o.program)
    o.prompts = prompts()
    print("| | seen | bound | reached |\n|---|---|---|---|")
    for name in o.part or PARTS:
        globals()[name](o)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
