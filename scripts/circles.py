# SPDX-License-Identifier: Apache-2.0
"""Circles between source files, for lint.py. A .c or .cu file needs another one when it names a
function that the other one defines and a header declares; a header needs another one when it
includes it. A circle is a set of files each of which needs every other one, perhaps through others.
"""
import re

WORD = re.compile(r"(?<![\w.])(?<!->)[A-Za-z_]\w*")
CALLED = re.compile(r"(?<![\w.])(?<!->)([A-Za-z_]\w*)\s*\(")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
HEADERS = (".h", ".cuh")


def defined(code):
    """Names of the functions that a file defines; code: without comments and strings."""
    names = set()
    for match in re.finditer(r"^(?!static\b|[A-Z_]+\b)[A-Za-z_][^;={}#]*\)\s*\{$", code, re.M):
        called = CALLED.findall(match.group())
        names.update(called[:1])
    return names


def declared(code):
    """Names that prototypes of a header bring in, several in one declaration included."""
    names = set()
    for match in re.finditer(r"^(?!static\b|typedef\b|#)[A-Za-z_][^;{}=]*;", code, re.M):
        names.update(WORD.findall(match.group()))
    return names


def needs_by_call(files):
    """files: {path: code without comments and strings}. Returns {path: {path it needs: a name}}."""
    public = set().union(*(declared(code) for path, code in files.items() if path.suffix in HEADERS))
    sources = {path: code for path, code in files.items() if path.suffix not in HEADERS}
    own = {path: defined(code) & public for path, code in sources.items()}
    owners = {}
    for path, names in own.items():
        for name in names:
            owners.setdefault(name, []).append(path)
    needs = {path: {} for path in sources}
    for path, code in sources.items():
        for name in sorted(set(WORD.findall(code)) & owners.keys() - own[path]):
            for owner in owners[name]:
                needs[path].setdefault(owner, name)
    return needs


def needs_by_include(files, root):
    """The same for what headers include; files: {path: text}, root: the folder of includes."""
    return {path: {root / name: "#include" for name in INCLUDE.findall(text) if root / name in files}
            for path, text in files.items() if path.suffix in HEADERS}


def modules(files, root):
    """The same for modules, each a source with the header of its name: what either of them includes; a module is its
    path without a suffix. files: {path: text}, root: the folder of includes."""
    names = {path.with_suffix("") for path in files}
    needs = {name: {} for name in names}
    for path, text in files.items():
        for include in INCLUDE.findall(text):
            other = (root / include).with_suffix("")
            if other in names and other != path.with_suffix(""):
                needs[path.with_suffix("")][other] = include
    return needs


def reach(needs, start):
    """Files that start needs, directly or through others."""
    seen, rest = set(), list(needs[start])
    while rest:
        path = rest.pop()
        if path not in seen:
            seen.add(path)
            rest += needs.get(path, {})
    return seen


def circles(needs):
    """The circles, each as a sorted list of its files."""
    far = {path: reach(needs, path) for path in needs}
    found = {tuple(sorted(q for q in far[path] if path in far.get(q, ()))) for path in far
             if path in far[path]}
    return [list(one) for one in sorted(found)]
