# SPDX-License-Identifier: Apache-2.0
"""The files that the tiny scorer's fillers are drawn from.

usage: scorer_sources.py STDLIB SITE

scorer_sources.tsv names every source: package, version, licence of the folders, folders under SITE
(of Python: under STDLIB). Nothing else is read. A package that is not there, is of another version,
or whose metadata names no permissive licence ends the run; left out are copies of other projects
within a package, and every file that names further terms or follows an answer on Stack Overflow
(corpus.py has the rules). Run by itself it prints what would be taken of each source.
"""

import csv
import pathlib
import sys
from importlib.metadata import distributions

import corpus

LIST = pathlib.Path(__file__).with_name("scorer_sources.tsv")
MOST_BYTES = 1_000_000


def check(row, site):
    """Ends the run where the installed package is not what the list names."""
    found = [d for d in distributions(path=[str(site)])
             if d.metadata["Name"].lower() == row["name"].lower()]  # fmt: skip
    if not found:
        raise SystemExit(f"{row['name']} {row['version']} is not installed in {site}")
    if found[0].version.split("+")[0] != row["version"]:
        raise SystemExit(f"{row['name']} is {found[0].version}; the list has {row['version']}")
    if not corpus.licence_of(found[0].metadata):
        raise SystemExit(f"the metadata of {row['name']} names no permissive licence alone")


def fit(path, root):
    """The text of a file that may be taken, else None."""
    within = str(path.relative_to(root))
    apart = ("site-packages", "dist-packages", "test", "tests", "lib2to3", "idlelib")
    if corpus.VENDORED.search(within) or any(p in apart for p in path.relative_to(root).parts):
        return None
    if path.stat().st_size > MOST_BYTES:
        return None
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError):
        return None
    return None if corpus.OTHER_TERMS.search(text) else text


def sources(stdlib, site):
    """Yields (row of the list, [(path, text)]) of every source."""
    with open(LIST) as f:
        rows = list(csv.DictReader(f, delimiter="\t"))
    for row in rows:
        own = row["name"] == "Python"
        root = pathlib.Path(stdlib if own else site)
        if not own:
            check(row, root)
        files = []
        for folder in row["folders"].split():
            here = root / folder
            for path in sorted(p for e in ("py", "h") for p in here.rglob("*." + e)):
                text = fit(path, root)
                if text is not None:
                    files.append((path, text))
        if not files:
            raise SystemExit(f"{row['name']}: nothing to take below {root}")
        yield row, files


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    for row, files in sources(*sys.argv[1:]):
        print(f"{row['name']}\t{row['version']}\t{row['licence']}\t{len(files)} files\t"
              f"{sum(len(t) for _, t in files)} characters")  # fmt: skip


if __name__ == "__main__":
    main()
