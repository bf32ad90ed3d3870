#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The two ends of reproduce.sh: prompt sets as prompts of `coppice bench`, and its result as a table.

usage: reproduce.py prompts PROGRAM TARGET FOLDER N [--raw] [--no-think]   JSON lines
       reproduce.py table RESULT.json [--raw] [--no-think]
       reproduce.py share PROFILE.json                steps compared with the measured rate of the memory
       reproduce.py line RESULT.json PROFILE.json WHERE   all of it in one line

Chat prompts are built as `coppice chat` builds its first turn (ChatML). Nothing here measures, scores
an answer, or reads the network. The published figures are the only ones that are not measured by the
run itself; each is shown with its source.
"""
import json
import os
import subprocess
import sys

# Name, file, member, and the words around its text, plain and in a chat message. The plain ones are
# those that the published run names.
SETS = (
    ("HumanEval", "HumanEval.jsonl", "prompt", "{}", "{}"),
    ("GSM8K", "gsm8k/test.jsonl", "question", "Question: {}\nAnswer:", "Question: {}\nAnswer:"),
    ("MATH-500", "MATH-500/test.jsonl", "problem", "Problem: {}\nSolution:",
     "{}\n\nPut the final answer in \\boxed{{}}."),
)

# Plain tok/s, tok/s with a tree of budget 22, its accept length and speed-up.
PUBLISHED = {
    "HumanEval": (37.78, 129.52, 8.31, "3.43x"),
    "GSM8K": (37.65, 96.15, 6.14, "2.55x"),
    "MATH-500": (37.71, 110.51, 7.04, "2.93x"),
}
PUBLISHED_CHAIN = ("112.80", "7.67")  # HumanEval only

# Another published run: plain tok/s, tok/s with a tree of budget 22, accept length.
OTHERS = (
    ("RTX 5090, Qwen3.6-27B UD-Q5_K_XL", (58.25, 218.23, 7.12), (58.39, 179.07, 5.88),
     (57.57, 219.06, 7.31)),
)


def fail(text):
    sys.exit(f"reproduce: {text}")


def read_set(path, member):
    """The texts of a published set, one JSON object a line."""
    texts = []
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            if not line.strip():
                continue
            try:
                text = json.loads(line)[member]
            except (ValueError, KeyError, TypeError):
                text = None
            if not isinstance(text, str):
                fail(f'{path}: line {number} has no text "{member}"; get the file again')
            texts.append(text)
    if not texts:
        fail(f"{path}: there is no prompt in it; get the file again")
    return texts


def chat_form(program, target, options):
    """What stands before and after a user's text; two empty strings for plain text."""
    if "--raw" in options:
        return "", ""
    seen = subprocess.run([program, "inspect", target, "--json"], stdout=subprocess.PIPE, check=False)
    if seen.returncode:
        fail(f"{target} cannot be read; the program's own words are above")
    template = json.loads(seen.stdout)["metadata"].get("tokenizer.chat_template", "")
    if not template:
        return "", ""
    if "<|im_start|>" not in template:
        fail(f"the chat template of {target} is not ChatML, the only form known here; give --raw")
    thoughts = "<think>\n\n</think>\n\n" if "--no-think" in options else ""
    return "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n" + thoughts


def prompts(program, target, folder, count, options):
    """Prints the prompts: count of each set at even distances, so that any run takes the same."""
    before, after = chat_form(program, target, options)
    for name, path, member, plain, chat in SETS:
        wording = chat if before else plain
        path = os.path.join(folder, path)
        texts = read_set(path, member)
        take = min(count, len(texts)) or len(texts)
        for i in range(take):
            at = i * len(texts) // take
            text = wording.format(texts[at])
            if before and "<|im_" in text:
                fail(f"{path}: prompt {at + 1} holds a mark of ChatML itself; give --raw")
            print(json.dumps({"id": f"{name}-{at + 1}", "group": name,
                              "prompt": before + text + after}))


def published(name, mode):
    """Cells of a published run: tok/s, accept length, speed-up."""
    plain, tree, accepted, speed_up = PUBLISHED[name]
    if mode == "off":
        return [f"{plain:.2f}", "1.00", "1.00x"]
    if mode == "chain:16" and name == "HumanEval":
        return [*PUBLISHED_CHAIN, "-"]
    if mode == "tree:22":
        return [f"{tree:.2f}", f"{accepted:.2f}", speed_up]
    return ["-"] * 3


def rows(result):
    """One row for each set and way of decoding."""
    head = ("set", "how", "prompts", "tokens", "tok/s", "accept length", "speed-up", "equal",
            "distinct 4-grams", "published tok/s", "published accept length",
            "published speed-up")
    yield head
    yield ["---"] * len(head)
    for name, ways in result["groups"].items():
        for mode, r in ways.items():
            yield [name, mode, f"{r['prompts']:.0f}", f"{r['tokens']:.0f}",
                   f"{r['tokens_per_second']:.2f}", f"{r['accept_length']:.2f}",
                   f"{r['speed_up']:.2f}x", "NO" if r["different"] else "yes",
                   f"{r['distinct_4grams']:.2f}", *published(name, mode)]


def others():
    yield ("published elsewhere: plain tok/s / tree tok/s / accept length", *PUBLISHED)
    yield ["---"] * 4
    for name, *runs in OTHERS:
        yield [name, *("{:.2f} / {:.2f} / {:.2f}".format(*r) for r in runs)]


def show(lines):
    for cells in lines:
        print("| " + " | ".join(cells) + " |")
    print()


def table(path, options):
    with open(path, encoding="utf-8") as f:
        result = json.load(f)
    what = "plain text" if "--raw" in options else "chat turns where the target has a template"
    print(f"Target: {os.path.basename(result['model'])}, kernels: {result['cpu_level']}, "
          f"temperature {result['temperature']:g}; prompts as {what}"
          f"{', thinking switched off' if '--no-think' in options else ''}\n")
    show(rows(result))
    show(others())
    same = result["equal"]
    print("equal: the same tokens from the same logit bits as plain decoding, for every prompt:",
          "yes." if same else "NO. That must never happen: please report it.")
    print("""tok/s: of decoding alone, without the prompt. accept length: tokens per pass of the target.
Published: Luce-Org/lucebox, server/RESULTS.md. The columns are its run on an RTX 3090 with
Qwen3.5-27B Q4_K_M: greedy, budget 22, 10 prompts of each set, at most 256 tokens; means over prompts,
where this table weighs tokens. Its prompts seem to be plain text; --raw puts the same words around them.
Which ten it drew is not reproduced here, so accept lengths are comparable roughly, and speeds on the
same GPU and files only. '-': not published.
Measured by the authors of coppice: none of these figures. No real weights have been measured by them;
this script was tested with the bundled tiny pair and made-up prompts.""")
    return 0 if same else 1


def profiles(path):
    """Each mode of `coppice profile --json` with (ms a step, part that its bytes need), and GB/s of a copy."""
    try:
        with open(path, encoding="utf-8") as f:
            seen = json.load(f)
        steps = {p["mode"]: (p["step_ms"], p["floor_ms"] / p["step_ms"]) for p in seen["profiles"]}
        return steps, seen["copy_bytes_per_second"] / 1e9
    except (OSError, ValueError, KeyError, ZeroDivisionError):
        return {}, 0.0


def share(path):
    steps, rate = profiles(path)
    if not steps:
        print("Share of the memory's rate: not measured; profile.log next to the table says why.")
        return 1
    print(f"A copy moves {rate:,.1f} GB/s here (read and written). At that rate the bytes of a step after 512 random tokens take:")
    for mode, (took, part) in steps.items():
        print(f"  {mode}: {100 * part:.1f} % of {took:.2f} ms")
    return 0


def line(path, profile, where):
    """One line that says what ran where, how fast, and whether the output was that of plain decoding."""
    with open(path, encoding="utf-8") as f:
        result = json.load(f)
    steps, rate = profiles(profile)
    sets = list(result["groups"].items())
    plain = [ways["off"]["tokens_per_second"] for _, ways in sets if "off" in ways]
    words = [where, os.path.basename(result["model"])]
    if plain:
        of_rate = f" ({100 * steps['off'][1]:.0f} % of {rate:,.0f} GB/s)" if "off" in steps else ""
        words.append(f"plain {sum(plain) / len(plain):.1f} tok/s{of_rate}")
    for mode in next((list(ways) for _, ways in sets), []):
        if mode != "off":
            words.append(f"{mode} " + ", ".join(
                f"{name} {ways[mode]['tokens_per_second']:.1f} (AL {ways[mode]['accept_length']:.2f})"
                for name, ways in sets))
    words.append("output equal to plain decoding" if result["equal"] else "OUTPUT DIFFERS")
    print(" | ".join(words))
    return 0


def main(argv):
    options = [a for a in argv if a in ("--raw", "--no-think")]
    words = [a for a in argv[1:] if a not in options]
    if len(words) == 5 and words[0] == "prompts":
        return prompts(words[1], words[2], words[3], int(words[4]), options)
    if len(words) == 2 and words[0] == "table":
        return table(words[1], options)
    if len(words) == 2 and words[0] == "share":
        return share(words[1])
    if len(words) == 4 and words[0] == "line":
        return line(*words[1:])
    return __doc__


sys.exit(main(sys.argv))
