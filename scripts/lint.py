#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what the compiler and clang-format do not: licence lines, opening paragraphs, lengths,
parameters, nesting, the layering of includes, circles between files, full folders, documents that comments refer
to, one file per external library, words that must not stay, calls that a library must not make,
options that nothing reads. Prints one line per finding.
"""
import re
import subprocess
import sys
from pathlib import Path

import circles

ROOT = Path(__file__).resolve().parent.parent
# A file may include from its own layer and from those with a lower number.
LAYERS = {"base": 0, "formats": 1, "text": 1, "grammar": 2, "convert": 2, "ops": 2, "state": 3, "models": 4, "spec": 5,
          "compress": 6, "engine": 7, "serve": 8, "api": 8, "cli": 9}
# Siblings of equal rank that may see each other (text reads its tokenizer from a GGUF file).
SIBLINGS = {("text", "formats")}
FILE_LINES = {".c": 1000, ".h": 200, ".cu": 800, ".cuh": 800}
DOCUMENT_LINES = {"README.md": 110, "docs/performance.md": 150}
NOTE_LINES, NOTES_BYTES = 80, 60 * 1024  # of docs/notes: a decision each, and all together
PUBLIC_HEADER, PUBLIC_HEADER_LINES = "include/coppice.h", 250
FUNCTION_LINES = 60  # of C; a kernel is as long as its algorithm
MODULES = 3  # of one folder that may need each other
PARAMETERS = 7
NESTING = 3
COLUMNS = 100
FOLDER_FILES = 25
PREFIX_FILES = 3  # what more files of one folder have in front of their names is a folder's name
LIBRARIES = {"json-c/": "base/json/json.c", "pcre2.h": "text/tokenizer/split.c",
             "utf8proc.h": "text/tokenizer/norm.c", "histedit.h": "cli/chat/line_editor.c",
             "curl/": "base/net/curl.h"}
# A library that a family of files shares: they begin with this.
FAMILIES = {"event2/": "serve/http"}
# Instructions and headers of one vendor of GPUs stand in these places only (docs/extending.md).
INSTRUCTIONS = re.compile(r"\b(asm\b|__(?:shfl|ballot|any|all|reduce|match)_\w*sync\b|__cvta_\w+)")
INSTRUCTIONS_IN = ("src/ops/gpu/matrix/",)
SOURCE = re.compile(r"(?<![\w./<-])[a-z]\w*(?:/\w+)*\.(?:cuh|cu|c|h)\b(?!\w|\.)")
LEFTOVERS = re.compile(r"\b(T" r"ODO|F" r"IXME|X" r"XX|H" r"ACK|W" r"IP)\b")
FORBIDDEN = re.compile(r"(?<![\w.>])(printf|puts|perror|exit|_exit|abort|longjmp|getenv|system)\s*\("
                       r"|\b(stderr|stdout)\b")
CONTROL = re.compile(r"^( +)(?:\} else )?(?:if|for|while|switch|do)\b")
DOCUMENT = re.compile(r"(?<![\w/.-])[\w-][\w/-]*\.md\b|\bDES" r"IGN\b")
findings = []


def finding(path, line, text):
    findings.append(f"{path.relative_to(ROOT)}:{line}: {text}")


def tracked():
    """The repository's files; in an unpacked archive, everything outside hidden and build folders."""
    try:
        out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True,
                             capture_output=True, text=True).stdout
        return [ROOT / name for name in out.splitlines() if (ROOT / name).is_file()]
    except (OSError, subprocess.CalledProcessError):
        return [p for p in sorted(ROOT.rglob("*")) if p.is_file() and not any(
            part == "build" or part[0] == "." for part in p.relative_to(ROOT).parts[:-1])]


def strip_code(text):
    """Blanks comments, strings and character constants, keeping line numbers and columns."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def check_head(path, lines):
    first = 1 if lines and lines[0].startswith("#!") else 0
    if len(lines) <= first or "SPDX-License-Identifier: Apache-2.0" not in lines[first]:
        finding(path, first + 1, "the SPDX line is missing")
    elif path.suffix in FILE_LINES and not lines[first + 1].startswith("// "):
        finding(path, first + 2, "a paragraph must say what the file owns")


def check_includes(path, lines):
    relative = path.relative_to(ROOT)
    layer = relative.parts[1] if relative.parts[0] == "src" and len(relative.parts) > 2 else None
    for number, line in enumerate(lines, 1):
        match = re.match(r'\s*#\s*include\s+([<"])([^>"]+)[>"]', line)
        if not match:
            continue
        name = match.group(2)
        owner = next((f for p, f in LIBRARIES.items() if name.startswith(p)), None)
        if owner and match.group(1) == "<" and str(relative) != "src/" + owner:
            finding(path, number, f"only src/{owner} may include <{name}>")
        family = next((f for p, f in FAMILIES.items() if name.startswith(p)), None)
        if family and not str(relative).startswith("src/" + family):
            finding(path, number, f"only src/{family}*.c may include <{name}>")
        other = name.split("/")[0]
        if layer is None or match.group(1) == "<" or other not in LAYERS:
            continue
        down = LAYERS[other] < LAYERS[layer] or other == layer or (layer, other) in SIBLINGS
        if not down:
            finding(path, number, f"{layer} may not include {name}: includes point down the layers")


def check_instructions(path, code):
    name = str(path.relative_to(ROOT))
    if not name.startswith("src/ops/gpu/") or name.startswith(INSTRUCTIONS_IN):
        return
    for number, line in enumerate(code.split("\n"), 1):
        found = INSTRUCTIONS.search(line)
        if found:
            finding(path, number, f"{found.group(1)} belongs in a function of src/ops/gpu/matrix")


def check_function(path, start, end, signature, tables):
    if path.suffix in (".c", ".h") and end - start + 1 - tables > FUNCTION_LINES:
        finding(path, start, f"function of {end - start + 1 - tables} lines; the limit is {FUNCTION_LINES}")
    inside = signature[signature.find("(") + 1:signature.rfind(")")]
    depth, count = 0, 1
    for char in inside:
        depth += (char == "(") - (char == ")")
        count += char == "," and depth == 0
    theirs = re.search(r"\b(__)?cuda[A-Z]\w*\(", signature)  # a runtime's function that we stand in for
    if count > PARAMETERS and not theirs:
        finding(path, start, f"{count} parameters; more than {PARAMETERS} belong in a struct")


def table_lines(body):
    """Lines of constant tables in a function, which are data and not steps."""
    count, inside = 0, False
    for line in body:
        inside = inside or line.startswith("    static const ")
        count += inside
        inside = inside and not line.endswith("};")
    return count


def check_functions(path, code):
    """Functions as clang-format leaves them: the signature at column 0, a closing brace too."""
    lines = code.split("\n")
    i = 0
    while i < len(lines):
        if not re.match(r"[A-Za-z_]", lines[i]) or lines[i].startswith(("enum", "union")):
            i += 1
            continue
        j = i
        while j < len(lines) and not lines[j].rstrip().endswith((";", "{", "}")):
            j += 1
        signature = " ".join(lines[i:j + 1])
        if j < len(lines) and re.search(r"\)\s*(__attribute__\S*\s*)?\{$", signature.rstrip()):
            end = j + 1
            while end < len(lines) and not lines[end].startswith("}"):
                end += 1
            check_function(path, i + 1, end + 1, signature, table_lines(lines[j + 1:end]))
            check_nesting(path, lines, j + 1, end)
            j = end
        i = j + 1


def check_nesting(path, lines, start, end):
    for number in range(start, end):
        match = CONTROL.match(lines[number])
        if match and len(match.group(1)) // 4 > NESTING:
            finding(path, number + 1, f"more than {NESTING} levels of nesting")


def check_c(path, text, lines):
    relative = path.relative_to(ROOT)
    limit = PUBLIC_HEADER_LINES if str(relative) == PUBLIC_HEADER else FILE_LINES[path.suffix]
    if len(lines) > limit:
        finding(path, limit, f"{len(lines)} lines; the limit for {path.suffix} is {limit}")
    code = strip_code(text)
    check_includes(path, lines)
    check_functions(path, code)
    check_instructions(path, code)
    for number, line in enumerate(code.split("\n"), 1):
        if len(line) > COLUMNS:
            finding(path, number, f"{len(line)} columns; the limit is {COLUMNS}")
        if re.match(r"\s*typedef\s+(struct|enum|union)\b", line):
            finding(path, number, "a struct, enum or union gets no typedef")
        library = relative.parts[0] == "src" and relative.parts[1] != "cli"
        match = FORBIDDEN.search(line) if library else None
        if match:
            finding(path, number, f"a library must not use {match.group().rstrip('(')}")


def check_documents(path, lines, files):
    """What comments refer to is in the tree: a document by its path from the root or from docs, a source by the end of
    its path. files: the ends of all paths."""
    for number, line in enumerate(lines, 1):
        comment = line.partition("//")[2]
        for name in SOURCE.findall(comment):
            if name not in files:
                finding(path, number, f"the file {name} is not in the tree")
        for name in DOCUMENT.findall(line):
            if not any((folder / name).is_file() for folder in (ROOT, ROOT / "docs")):
                finding(path, number, f"the document {name} is not in the tree")


def check_options():
    rows = ROOT / "src/cli/options/rows.h"
    names = re.findall(r"^\s+(OPT_\w+),", rows.read_text(), re.M)
    if not names:
        finding(rows, 1, "there are no options here")
    table = (ROOT / "src/cli/options/table.c").read_text()
    users = "".join(p.read_text() for p in (ROOT / "src/cli").rglob("*.c")
                    if p.parent.name != "options")
    for name in names:
        if f"[{name}]" not in table:
            finding(ROOT / "src/cli/options/table.c", 1, f"{name} has no row")
        elif not re.search(rf"\b{name}\b", users):
            finding(ROOT / "src/cli/options/table.c", 1, f"no subcommand reads {name}")


def check_circles(texts):
    """texts: {path: text} of the sources. Files of a circle are named with what ties them."""
    code = {path: strip_code(text) for path, text in texts.items()}
    for needs in (circles.needs_by_call(code), circles.needs_by_include(texts, ROOT / "src")):
        for one in circles.circles(needs):
            ties = [f"{path.relative_to(ROOT)} -> {other.relative_to(ROOT)} ({name})"
                    for path in one for other, name in sorted(needs[path].items()) if other in one]
            finding(one[0], 1, "a circle: " + ", ".join(ties))


def check_modules(texts):
    """Modules of different folders, or more than a few of one, may not need each other in a circle."""
    needs = circles.modules(texts, ROOT / "src")
    for one in circles.circles(needs):
        if len(one) > MODULES or len({module.parent for module in one}) > 1:
            ties = [f"{module.relative_to(ROOT / 'src')} -> {name}" for module in one
                    for other, name in sorted(needs[module].items()) if other in one]
            finding(one[0], 1, f"a circle of {len(one)} modules: " + ", ".join(ties))


def check_folders(paths):
    """Files flat in a folder, and those that share the first word of their names."""
    folders = {}
    for path in paths:
        if ROOT / "src" in path.parents:
            folders.setdefault(path.parent, []).append(path.name)
    for folder, names in folders.items():
        if len(names) > FOLDER_FILES:
            finding(folder, 1, f"{len(names)} files; the limit of a folder is {FOLDER_FILES}")
        words = [re.split("[_.]", name)[0] for name in names]
        for word in set(words):
            if words.count(word) > PREFIX_FILES:
                finding(folder, 1, f"{words.count(word)} files begin with {word}; more than {PREFIX_FILES} are a folder")


def check_sizes():
    """Of documents that grow by themselves."""
    notes = sorted((ROOT / "docs/notes").glob("*.md"))
    limits = {**{ROOT / name: n for name, n in DOCUMENT_LINES.items()}, **{path: NOTE_LINES for path in notes}}
    for path, limit in limits.items():
        lines = len(path.read_text().splitlines())
        if lines > limit:
            finding(path, lines, f"{lines} lines; the limit is {limit}")
    if (size := sum(path.stat().st_size for path in notes)) > NOTES_BYTES:
        finding(ROOT / "docs/notes", 1, f"{size} bytes together; the limit is {NOTES_BYTES}")


def main():
    sources = {}
    paths = tracked()
    check_folders(paths)
    files = {"/".join(path.parts[-n:]) for path in paths for n in range(1, len(path.relative_to(ROOT).parts) + 1)}
    for path in paths:
        code = path.suffix in FILE_LINES
        if not (code or path.suffix in (".py", ".sh", ".cmake", ".md") or
                path.name in ("CMakeLists.txt", "run")):
            continue
        text = path.read_text(errors="replace")
        lines = text.splitlines()
        if path.suffix != ".md":
            check_head(path, lines)
        for number, line in enumerate(lines, 1):
            match = LEFTOVERS.search(line)
            if match:
                finding(path, number, f"'{match.group()}' must not stay")
        if code:
            check_c(path, text, lines)
            check_documents(path, lines, files)
        if code and ROOT / "src" in path.parents:
            sources[path] = text
    check_circles(sources)
    check_modules(sources)
    check_options()
    check_sizes()
    print("\n".join(findings) if findings else "lint: clean")
    return 1 if findings else 0


sys.exit(main())
