#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the documents say about the program, held against the program.

Every coppice command in a document must name a subcommand and options that its help lists. Those
in code blocks are run too, word for word, in a scratch folder whose T.gguf, D.gguf, bench/prompts,
... are the bundled pair and one prompt of each group; SKIPPED lists those that are not, and why.
Options, files of this repository and links that a document names anywhere must exist. Output is
not compared, but for logit hashes of one prompt in one document, which must be equal.
Usage: scripts/check_docs.py [PROGRAM] (build/release/coppice)
"""
import glob
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/*.md", "docs/notes/*.md",
             "models/*.md", "bench/*/*.md", "tools/*/*.md"]
# Words of a command that is not run, and why. Each must still match a command.
SKIPPED = {
    "--device cuda": "needs a GPU",
    "--requests requests.jsonl": "needs what a server has kept; tests/server/test_verify.py has it",
    "bench --url": "needs a server; tests/server has one",
    "GGUF:Q4_K_M": "needs the Hub; tests/server/hub.py is one",
    "synth --shape": "writes gigabytes; tests/unit/test_synth.c writes small files",
    "convert pair/": "needs the folders that tools/train makes",
    "convert two/draft": "needs the folder that tools/train makes",
    "convert three/draft": "needs the folder that tools/train makes",
    "quantize three.gguf": "needs what the command before it makes",
    "--prompts all.jsonl -n 128 --min-prob 0 --modes": "needs a published model; takes minutes",
}
# Names that belong to other projects.
FOREIGN = {"--no-mtp", "models/ggml-vocab-*.gguf.inp"}
TARGET, DRAFT = "models/coppice-tiny-q8_0.gguf", "models/coppice-tiny-dflash-q8_0.gguf"
SCORER = "models/coppice-tiny-scorer-q8_0.gguf"
FILES = {TARGET: ["T.gguf", "target.gguf", "MODEL.gguf"], DRAFT: ["D.gguf", "draft.gguf"],
         SCORER: ["SCORER.gguf"],
         "README.md": ["text.txt", "prompt.txt"], "examples/conversation.json": ["conversation.json"],
         "examples/answer.gbnf": ["answer.gbnf"],
         "examples/person.schema.json": ["person.json"],
         "tests/fixtures/templates/tagged.jinja": ["template.jinja"]}
PROMPTS = ["FILE.jsonl", "all.jsonl", "build/all.jsonl"]
SECONDS = 900
OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z0-9-]*|-[a-z])(?![\w-])")
FOLDERS = r"(?:src|tests|docs|scripts|tools|bench|models|include|examples|cmake)"


def blocks_and_spans(text):
    """Lines of code blocks with continuations joined, and code spans; (line number, code)."""
    blocks, prose, fenced, begun = [], [], False, None
    for number, line in enumerate(text.split("\n"), 1):
        fence = line.lstrip().startswith("```")
        fenced ^= fence
        code = not fence and (fenced or line.startswith("    "))
        prose.append("" if code or fence else line)
        if not code:
            continue
        at, before = begun or (number, "")
        whole = before + line.strip()
        begun = (at, whole[:-1]) if whole.endswith("\\") else None
        if not begun:
            blocks.append((at, whole))
    prose = "\n".join(prose)
    spans = [(prose.count("\n", 0, m.start()) + 1, re.sub(r"\s+", " ", m[1]))
             for m in re.finditer(r"`([^`]+)`", prose)]
    return blocks, spans


def commands(code):
    """The words of each coppice command in a line of code."""
    code = re.sub(r"\$\(seq [^)]*\)", "1,2,3", code)
    try:
        lexer = shlex.shlex(code, posix=True, punctuation_chars=";&|<>")
        lexer.whitespace_split = True
        words = list(lexer)
    except ValueError:
        return
    command = []
    for word in words + [";"]:
        if not re.fullmatch(r"[;&|<>]+", word):
            command.append(word)
            continue
        if command and os.path.basename(command[0]) == "coppice":
            yield command
        command = []


def option_names(text):
    return set(OPTION.findall(text))


class Checker:
    def __init__(self, program):
        self.program = program
        self.problems, self.checked, self.ran, self.skipped = [], 0, 0, {}
        self.hashes = {}  # of document, model and prompt, printed by --logit-hash
        self.known = {}
        for name in re.findall(r"^  ([a-z][a-z-]*) ", self.output(["help"]), re.M):
            self.known[name] = option_names(self.output(["help", name]))
        self.known["help"].update(["--help", "--version"])
        # Options of this repository's own scripts and tests.
        self.elsewhere = set()
        for folder in ["scripts", "tools", "tests", "bench"]:
            for path in glob.glob(f"{ROOT}/{folder}/**/*.*", recursive=True):
                if path.endswith((".py", ".sh", ".c", ".txt")):
                    with open(path, encoding="utf-8") as file:
                        self.elsewhere |= option_names(file.read())
        # Spellings of other programs.
        with open(f"{ROOT}/src/cli/options/table.c", encoding="utf-8") as file:
            self.aliases = set(re.findall(r'"(-[^" ]+)"', file.read().split("aliases[] =")[1]))

    def output(self, arguments):
        return subprocess.run([self.program, *arguments], capture_output=True, text=True,
                              check=True, timeout=SECONDS).stdout

    def problem(self, where, text):
        self.problems.append(f"{where}: {text}")

    def command(self, where, words):
        """Subcommand and options of one command; False when it cannot be run."""
        words = [w.strip("[]") for w in words[1:]]
        if not words or words[0].isupper():
            return False
        self.checked += 1
        name = "help" if words[0].startswith("-") else words[0]
        if name not in self.known:
            self.problem(where, f"there is no subcommand '{name}'")
            return False
        known = self.known[name] | {"--help"}
        bad = [w for w in words if OPTION.fullmatch(w.split("=")[0])
               and w.split("=")[0] not in known | self.aliases]
        for word in bad:
            self.problem(where, f"'coppice {name}' has no option '{word}'")
        return not bad

    def hash(self, where, words, output):
        """Logit hashes of one prompt in one document must agree: exactness is what they show."""
        found = re.search(r"logit hash ([0-9a-f]{16})", output)
        if not found:
            self.problem(where, "--logit-hash printed no hash")
            return
        key = (where.split(":")[0], words[words.index("-m") + 1], words[words.index("-p") + 1])
        if self.hashes.setdefault(key, found[1]) != found[1]:
            self.problem(where, f"logit hash {found[1]} differs from {self.hashes[key]}")

    def run(self, where, code, words, folder):
        for text in SKIPPED:
            if text in " ".join(words):
                self.skipped[text] = self.skipped.get(text, 0) + 1
                return
        self.ran += 1
        if words[1] == "serve":
            self.serve(where, code, words, folder)
            return
        try:
            done = subprocess.run([self.program, *words[1:]], cwd=folder, text=True, timeout=SECONDS,
                                  capture_output=True, input="Hello.\n",
                                  env={**os.environ, "HOME": folder, "XDG_STATE_HOME": folder,
                                       "XDG_CACHE_HOME": folder})
            if done.returncode:
                self.problem(where, f"'{code}' ended with status {done.returncode}: "
                                    f"{done.stderr.strip()[-300:]}")
            elif "--logit-hash" in words:
                self.hash(where, words, done.stdout + done.stderr)
        except subprocess.TimeoutExpired:
            self.problem(where, f"'{code}' took more than {SECONDS} seconds")

    def serve(self, where, code, words, folder):
        """A server starts, says how to try it, and ends by SIGTERM with status 0."""
        with subprocess.Popen([self.program, *words[1:], "--port", "0"], cwd=folder, text=True,
                              stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
                              env={**os.environ, "HOME": folder, "XDG_CACHE_HOME": folder}) as server:
            watch = threading.Timer(SECONDS, server.kill)
            watch.start()
            said = ""
            for line in server.stderr:
                said += line
                if line.startswith("Try: curl"):
                    server.terminate()
            status = server.wait()
            watch.cancel()
        if status or "Try: curl" not in said:
            self.problem(where, f"'{code}' ended with status {status}: {said.strip()[-300:]}")

    def names(self, where, span):
        """Options and files that a code span names; a word in capitals stands for any name."""
        if span.split(" ")[0] in FOREIGN or re.search(r"\b[A-Z]{3,}$", span):
            return
        if re.match(r"-{1,2}[a-z]", span):
            every = self.elsewhere.union(*self.known.values())
            for option in option_names(span.split(" ")[0].split("=")[0]):
                if option not in every | self.aliases:
                    self.problem(where, f"no program here has the option '{option}'")
        path = re.fullmatch(rf"({FOLDERS}/[\w./*{{}},<>-]*)", span)
        if path and "..." not in span:
            pattern = re.sub(r"<\w+>", "*", path[1])
            choices = re.search(r"\{([^}]*)\}", pattern)
            for choice in choices[1].split(",") if choices else [""]:
                one = pattern.replace(choices[0], choice) if choices else pattern
                if not glob.glob(os.path.join(ROOT, one)):
                    self.problem(where, f"there is no file '{one}'")

    def document(self, path, folder):
        name = os.path.relpath(path, ROOT)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        blocks, spans = blocks_and_spans(text)
        for line, code in blocks:
            for words in commands(code):
                plain = [list(commands(re.sub(r"\[[^]]*\]", "", code)))]
                if self.command(f"{name}:{line}", words):
                    for one in plain[0]:
                        if one[:2] == words[:2]:
                            self.run(f"{name}:{line}", code, one, folder)
        for line, code in spans:
            for words in commands(code):
                self.command(f"{name}:{line}", words)
            self.names(f"{name}:{line}", code)
        for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
            if not os.path.exists(os.path.join(os.path.dirname(path), link)):
                self.problem(name, f"the link '{link}' leads nowhere")


def fill(folder, program):
    """The files that commands of the documents name."""
    subprocess.run([program, "quantize", os.path.join(ROOT, TARGET), os.path.join(folder, "F16.gguf"), "F16"],
                   check=True, capture_output=True, timeout=SECONDS)
    for source, names in FILES.items():
        for name in names:
            os.symlink(os.path.join(ROOT, source), os.path.join(folder, name))
    os.symlink(os.path.join(ROOT, "models"), os.path.join(folder, "models"))
    os.makedirs(os.path.join(folder, "bench/prompts"))
    os.makedirs(os.path.join(folder, "build"))
    first = ""
    for path in sorted(glob.glob(f"{ROOT}/bench/prompts/*.jsonl")):
        with open(path, encoding="utf-8") as file:
            line = file.readline()
        first += line
        with open(os.path.join(folder, "bench/prompts", os.path.basename(path)), "w",
                  encoding="utf-8") as file:
            file.write(line)
    for name in PROMPTS:
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(first)


def main():
    if len(sys.argv) > 2:
        sys.exit("usage: check_docs.py [PROGRAM]")
    checker = Checker(os.path.abspath(sys.argv[1] if len(sys.argv) == 2 else "build/release/coppice"))
    with tempfile.TemporaryDirectory() as folder:
        fill(folder, checker.program)
        for pattern in DOCUMENTS:
            for path in sorted(glob.glob(os.path.join(ROOT, pattern))):
                checker.document(path, folder)
    for text, why in SKIPPED.items():
        if text not in checker.skipped:
            checker.problem("check_docs.py", f"no command has '{text}' any more")
        print(f"not run: {checker.skipped.get(text, 0)} commands with '{text}': {why}")
    for problem in checker.problems:
        print(problem)
    print(f"{checker.checked} commands checked, {checker.ran} of them run, "
          f"{len(checker.problems)} problems")
    sys.exit(1 if checker.problems or not checker.ran else 0)


if __name__ == "__main__":
    main()
