# SPDX-License-Identifier: Apache-2.0
"""The parts of bench/cpu.sh: runs programs, reads their JSON, prints Markdown tables."""
import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = os.path.join(HERE, "..", "models")
PAIR = ["-m", os.path.join(MODELS, "coppice-tiny-q8_0.gguf"),
        "-d", os.path.join(MODELS, "coppice-tiny-dflash-q8_0.gguf")]
PROMPT, TREE = 512, 22
# Shapes of `models`, and how many times llama.cpp's decoding and prompts ours must be.
BESIDE, LEAST = ["qwen3-0.6b", "llama-1b", "qwen3-30b-a3b/8"], (1.1, 1.3)


def run_json(words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)}\nfailed: {done.stderr.strip()[-400:]}")
    return json.loads(done.stdout)


def bench_of(o):
    """bench, beginning cold; programs before that option keep nothing."""
    known = subprocess.run([o.program, "bench", "--help"], capture_output=True, text=True).stdout
    return [o.program, "bench", *(["--price-cache", "off"] if "--price-cache" in known else [])]


def ours(o, model, threads):
    """Tokens per second of decoding and of the prompt, milliseconds of a pass of 23 rows."""
    r = run_json([*bench_of(o), "-m", model, "--prompt-tokens", str(PROMPT), "--modes",
                  f"off,tree:{TREE}", "--drafter", "oracle:al=8", "-n", str(o.tokens), "--threads",
                  str(threads), "--device", "cpu", "--json"])
    plain, tree = r["overall"]["off"], r["overall"][f"oracle tree:{TREE}"]
    if not r["equal"]:
        sys.exit(f"{model}: tokens or logits differ between plain decoding and the tree")
    took = plain["ms"]["total"] - plain["ms"]["prompt"]
    return [1000 * plain["steps"] / took, 1000 * r["prefill_tokens"][0] / r["prefill_ms"][0],
            tree["ms"]["verify"] / tree["steps"]]


def theirs(o, model, threads):
    """The same of llama-bench, decoding after as long a prompt as ours; its pass of 23 rows makes
    the logits of one row only."""
    words = [o.llama_bench, "-m", model, "-t", str(threads), "-r", "1", "-o", "json"]
    r = [*run_json([*words, "-p", f"{PROMPT},{TREE + 1}", "-n", "0"]),
         *run_json([*words, "-p", "0", "-n", str(o.tokens), "-d", str(PROMPT)])]
    speed = {(t["n_prompt"], t["n_gen"]): t["avg_ts"] for t in r}
    return [speed[0, o.tokens], speed[PROMPT, 0], 1000 * (TREE + 1) / speed[TREE + 1, 0]]


def best(runs):
    return [max(r[0] for r in runs), max(r[1] for r in runs), min(r[2] for r in runs)]


def file_of(o, shape, kind):
    """A file of that shape, "NAME" or "NAME/LAYERS"."""
    name, _, layers = shape.partition("/")
    model = os.path.join(o.folder, f"{shape.replace('/', '-')}-{kind}.gguf")
    if not os.path.exists(model):
        cut = ["--layers", layers] if layers else []
        subprocess.run([o.program, "synth", "--shape", name, *cut, "--quant", kind, model],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return model


def row(first, v):
    print(f"| {first} | {v[0]:.1f} | {v[1]:.0f} | {v[2]:.1f} |", flush=True)


def beside(o, shape, kind, threads):
    """Both programs in turns on the same file; how many times theirs our decoding and prompt are."""
    model, mine, his = file_of(o, shape, kind), [], []
    for _ in range(o.runs):
        mine.append(ours(o, model, threads))
        if o.llama_bench:
            his.append(theirs(o, model, threads))
    a = best(mine)
    row(f"{shape} {kind}, {threads} thread{'s' if threads != '1' else ''}", a)
    if not his:
        return None
    b = best(his)
    row("llama.cpp", b)
    print(f"| ratio | {a[0] / b[0]:.2f} | {a[1] / b[1]:.2f} | {b[2] / a[2]:.2f} |", flush=True)
    return a[0] / b[0], a[1] / b[1]


HEAD = "| | decoding, tok/s | prompt, tok/s | 23 rows, ms |\n|---|---|---|---|"


def table(o):
    print(HEAD)
    for shape in o.shapes.split(","):
        for kind in o.types.split(","):
            for threads in o.threads.split(","):
                beside(o, "qwen35-" + shape, kind, threads)
    return 0


def models(o):
    if not o.llama_bench:
        sys.exit("models compares with llama.cpp: name its llama-bench with --llama-bench FILE")
    print(HEAD)
    low = 0
    for shape in BESIDE:
        decoding, prompt = beside(o, shape, "Q4_K_M", o.threads.split(",")[0])
        low += decoding < LEAST[0] or prompt < LEAST[1]
    return 1 if low else 0


def prompt_files():
    folder = os.path.join(HERE, "prompts")
    return [os.path.join(folder, f) for f in sorted(os.listdir(folder)) if f.endswith(".jsonl")]


def pair_bench(o, prompts, modes):
    return run_json([*bench_of(o), *PAIR, "--prompts", prompts, "--modes", modes, "-n",
                     str(o.tokens), "--threads", o.threads.split(",")[0], "--device", "cpu",
                     "--budget", "auto" if o.part == "budget" else str(TREE), "--json"])


def budget(o):
    """Each run of bench decodes every prompt plainly and with --budget auto, one after the other."""
    low = 0
    print("| prompts | worst median | best median | medians below 0.98 |\n|---|---|---|---|")
    for path in prompt_files():
        ratio = {}
        for _ in range(o.pairs):
            took = {}
            for r in pair_bench(o, path, "off,tree")["runs"]:
                took.setdefault(r["id"], []).append(r["ms"]["total"] - r["ms"]["prompt"])
            for name, (plain, auto) in took.items():
                ratio.setdefault(name, []).append(plain / auto)
        medians = {name: statistics.median(r) for name, r in ratio.items()}
        below = [f"{name} {m:.3f}" for name, m in medians.items() if m < 0.98]
        low += len(below)
        print(f"| {os.path.basename(path)} | {min(medians.values()):.3f} | "
              f"{max(medians.values()):.3f} | {', '.join(below) or 'none'} |", flush=True)
    return 1 if low else 0


def pair(o):
    plain = tree = 0.0
    print("| prompts | plain, tok/s | tree, tok/s | ratio | accept length |\n|---|---|---|---|---|")
    for path in prompt_files():
        all_runs = pair_bench(o, path, "off,tree")["overall"]
        name = next(n for n in all_runs if n != "off")
        a, b = all_runs["off"], all_runs[name]
        seconds = [(r["ms"]["total"] - r["ms"]["prompt"]) / 1000 for r in (a, b)]
        plain, tree = plain + seconds[0], tree + seconds[1]
        print(f"| {os.path.basename(path)} | {a['tokens'] / seconds[0]:.0f} | "
              f"{b['tokens'] / seconds[1]:.0f} | {seconds[0] / seconds[1]:.2f} | "
              f"{b['accept_length']:.2f} |", flush=True)
    print(f"| all | | | {plain / tree:.2f} | |")
    return 0 if plain / tree >= 1.4 else 1


def main():
    p = argparse.ArgumentParser()
    p.add_argument("part", choices=["table", "models", "budget", "pair"])
    p.add_argument("program")
    p.add_argument("--shapes", default="0.8b,4b")
    p.add_argument("--types", default="Q4_K_M,Q8_0,BF16")
    p.add_argument("--threads", default="2,1")
    p.add_argument("--runs", type=int, default=1)
    p.add_argument("--pairs", type=int, default=15)
    p.add_argument("--tokens", type=int, default=32)
    p.add_argument("--folder", default="/tmp")
    p.add_argument("--llama-bench", default="")
    o = p.parse_args()
    sys.exit({"table": table, "models": models, "budget": budget, "pair": pair}[o.part](o))


if __name__ == "__main__":
    main()
