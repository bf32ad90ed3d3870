# SPDX-License-Identifier: Apache-2.0
"""Turns downloaded wheels and documentation packages into short training pieces.

usage: corpus.py OUT.jsonl SOURCES.tsv --wheels DIR [--docs DIR] [--stdlib DIR] [--only-docs N,..]

A piece is one function, class, run of top-level statements, or documentation section that fits a
few hundred tokens; every piece is a document of its own later, so that the model learns where
things end. Only packages whose metadata names a permissive licence are read; SOURCES.tsv lists
what was taken: name, version, licence, bytes. Exact duplicates (after white-space folding) are
dropped, and so is every file that names a licence with further conditions or says that it
follows an answer on Stack Overflow (CC-BY-SA). Tokenising and mixing are in prepare.py.
"""

import argparse
import ast
import email
import hashlib
import json
import pathlib
import random
import re
import textwrap
import zipfile

ALLOWED = re.compile(
    r"\b(MIT|BSD|Apache|ISC|PSF|Python Software Foundation|Zlib|Unlicense|"
    r"Public Domain|HPND|0BSD|CC0)",
    re.I,
)
REFUSED = re.compile(
    r"GPL|General Public|Mozilla|MPL|EPL|CDDL|Proprietary|Commercial|CC-BY|"
    r"Creative Commons|Affero|SSPL|BUSL|Elastic",
    re.I,
)
# Within a permissive package: a file that carries, or speaks of, other terms is left out whole.
OTHER_TERMS = re.compile(
    r"\b[AL]?GPL|GNU (Lesser |Affero |Library |Free )?(General|Documentation)|Mozilla Public|"
    r"Eclipse Public|\bCC[- ]BY|Creative\s+Commons|(?i:non-?commercial|proprietary)|"
    r"(?i:stackoverflow\.com/(a|q|questions)/)",
)
VENDORED = re.compile(
    r"(^|/)(_?vendor(ed)?|_?vendored_packages|externals?|extern|third_?party|"
    r"_distutils_hack|pip/_internal/cli/x)(/|$)|_pb2|/migrations/|/locale/",
    re.I,
)
# Debian documentation packages and the licence of their text, read in debian/copyright. Others are
# refused: the code of a project may be BSD or Apache while its manual is not (celery: CC-BY-SA-4.0;
# tornado: CC-BY-3.0, said on the manual's first page only).
DOC_LICENCES = {
    "python-aiohttp-doc": "Apache-2.0",
    "python-astropy-doc": "BSD-3-Clause",
    "python-attr-doc": "MIT",
    "python-babel-doc": "BSD-3-Clause",
    "python-click-doc": "BSD-3-Clause",
    "python-flask-doc": "BSD-3-Clause",
    "python-jinja2-doc": "BSD-3-Clause",
    "python-mpmath-doc": "BSD-3-Clause",
    "python-pandas-doc": "BSD-3-Clause",
    "python-pytest-doc": "MIT",
    "python-requests-doc": "Apache-2.0",
    "python-skimage-doc": "BSD-3-Clause",
    "python-sqlalchemy-doc": "MIT",
    "python-sympy-doc": "BSD-3-Clause",
    "python-werkzeug-doc": "BSD-3-Clause",
    "python3.11-doc": "PSF-2.0",
    "sphinx-doc": "BSD-2-Clause",
}
PROJECT_CAP = 7_000_000
PIECE_MIN, PIECE_MAX = 120, 2600


def licence_of(meta):
    """The licence words of a wheel's METADATA, or None if not clearly permissive."""
    words = [meta.get("License-Expression") or ""]
    words += [c for c in meta.get_all("Classifier", []) if c.startswith("License ::")]
    text = " ".join(w for w in words if w)
    if not text:
        text = " ".join((meta.get("License") or "").split())[:120]
    if not ALLOWED.search(text) or REFUSED.search(text):
        return None
    return text.replace("License :: OSI Approved :: ", "").replace("License :: ", "").strip()


def clean(text):
    text = text.replace("\r\n", "\n").replace("\t", "    ")
    return "\n".join(line.rstrip() for line in text.split("\n")).strip("\n") + "\n"


def decent(text):
    lines = text.split("\n")
    if max(map(len, lines)) > 160:
        return False
    if sum(c.isascii() for c in text) < 0.98 * len(text):
        return False
    return sum(c.isalpha() or c in " \n_" for c in text) > 0.62 * len(text)


def segment(lines, node):
    first = min([node.lineno] + [d.lineno for d in getattr(node, "decorator_list", [])])
    return "\n".join(lines[first - 1 : node.end_lineno])


def function_piece(lines, node):
    text = clean(textwrap.dedent(segment(lines, node)))
    args = node.args
    names = [a.arg for a in args.posonlyargs + args.args + args.kwonlyargs]
    return {
        "kind": "func",
        "text": text,
        "name": node.name,
        "args": names,
        "doc": (ast.get_docstring(node) or "").strip(),
    }


def code_pieces(text, rng):
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    lines = text.split("\n")
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, kinds):
            yield function_piece(lines, node)
    if rng.random() < 0.35:
        run = ""
        for node in tree.body:
            part = segment(lines, node)
            gap = "\n\n\n" if isinstance(node, kinds + (ast.ClassDef,)) else "\n"
            if run and len(run) + len(part) > PIECE_MAX:
                yield {"kind": "module", "text": clean(run)}
                run = ""
            run = run + gap + part if run else part
        if run:
            yield {"kind": "module", "text": clean(run)}


HEADING = re.compile(r"(?m)^(?=(#{1,4} \S|[^\s.*|:=~^#`\-].{2,70}\n[=\-~^\"'#*+]{4,}\s*$))")


def doc_pieces(text):
    parts = [p for p in HEADING.split(text) if p and len(p) > 40]
    run = ""
    for part in parts:
        if run and len(run) + len(part) > 2000:
            yield {"kind": "doc", "text": clean(run)}
            run = ""
        run += part if run.endswith("\n") or not run else "\n" + part
    if run:
        yield {"kind": "doc", "text": clean(run)}


class Sink:
    """Writes pieces, drops duplicates and unfit ones, counts per source."""

    def __init__(self, path):
        self.out, self.seen, self.rows = open(path, "w"), set(), []

    def source(self, name, version, licence, pieces):
        size = 0
        for p in pieces:
            text = p["text"]
            if not PIECE_MIN <= len(text) <= PIECE_MAX or not decent(text):
                continue
            key = hashlib.sha1(" ".join(text.split()).encode()).digest()
            if key in self.seen:
                continue
            self.seen.add(key)
            p["project"] = name
            self.out.write(json.dumps(p) + "\n")
            size += len(text)
            if size > PROJECT_CAP:
                break
        if size:
            self.rows.append((name, version, licence, size))


def wheel_pieces(z, meta, rng):
    readme = meta.get_payload() or ""
    if isinstance(readme, str):
        yield from (p for p in doc_pieces(readme) if not OTHER_TERMS.search(p["text"]))
    names = [n for n in z.namelist() if n.endswith(".py") and not VENDORED.search(n)]
    rng.shuffle(names)
    for n in names:
        if 300 <= z.getinfo(n).file_size <= 120_000:
            text = z.read(n).decode("utf-8", "replace")
            if not OTHER_TERMS.search(text):
                yield from code_pieces(text, rng)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("out")
    ap.add_argument("sources")
    ap.add_argument("--wheels")
    ap.add_argument("--docs", help="folder with one unpacked documentation package per folder")
    ap.add_argument("--stdlib")
    ap.add_argument("--only-docs", default="", help="comma list; empty means all known ones")
    ap.add_argument("--skip", default="", help="documentation packages kept for held-out prompts")
    a = ap.parse_args()
    rng, sink = random.Random(7), Sink(a.out)
    for w in sorted(pathlib.Path(a.wheels).glob("*.whl")) if a.wheels else []:
        with zipfile.ZipFile(w) as z:
            m = [n for n in z.namelist() if n.endswith(".dist-info/METADATA")]
            meta = email.message_from_bytes(z.read(m[0]))
            lic = licence_of(meta)
            if lic is None:
                print(
                    "left out (licence):",
                    meta["Name"],
                    meta.get("License-Expression"),
                    (meta.get("License") or "")[:40],
                )
                continue
            sink.source(meta["Name"], meta["Version"], lic, wheel_pieces(z, meta, rng))
    if a.stdlib:
        files = [
            f
            for f in sorted(pathlib.Path(a.stdlib).rglob("*.py"))
            if not re.search(
                r"/(test|tests|site-packages|idlelib/idle_test|lib2to3|" r"ensurepip|encodings)/",
                str(f),
            )
        ]
        texts = (f.read_text("utf-8", "replace") for f in files if f.stat().st_size < 200_000)
        sink.source(
            "python (standard library)",
            pathlib.Path(a.stdlib).name,
            "PSF-2.0",
            (p for t in texts if not OTHER_TERMS.search(t) for p in code_pieces(t, rng)),
        )
    skip, only = set(a.skip.split(",")), set(filter(None, a.only_docs.split(",")))
    for d in sorted(pathlib.Path(a.docs).iterdir()) if a.docs else []:
        if d.name in skip or (only and d.name not in only):
            continue
        if d.name not in DOC_LICENCES:
            print("left out (licence not known):", d.name)
            continue
        files = [f for f in sorted(d.rglob("*")) if f.suffix in (".txt", ".rst") and f.is_file()]
        rng.shuffle(files)
        texts = (f.read_text("utf-8", "replace") for f in files if f.stat().st_size < 400_000)
        sink.source(
            d.name + " (Debian)",
            "bookworm",
            DOC_LICENCES[d.name],
            (p for t in texts if not OTHER_TERMS.search(t) for p in doc_pieces(t)),
        )
    with open(a.sources, "w") as f:
        for row in sorted(sink.rows):
            f.write("\t".join(map(str, row)) + "\n")
    print(
        len(sink.seen),
        "pieces,",
        sum(r[3] for r in sink.rows) / 1e6,
        "MB,",
        len(sink.rows),
        "sources",
    )


if __name__ == "__main__":
    main()
