#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares regular expressions as grammars with Python's `re`. Usage: compare_regex.py TOOL N [SEED]
N random expressions, half of them as the pattern of a schema, where it may match any part of a string. Each is
written twice, as ECMA-262 has it and as Python does. Texts are those of random walks through the
grammar's masks, which must match, small changes of them, and random ones. Prints what was
compared; the exit status is 1 when something disagrees.
"""
import json
import random
import re
import signal
import sys
from collections import Counter

from compare import run

LAST = 0x10FFFF
CHARS = (list("abcAZz09_- .,/:#\"'\\\n\t\r\0\x1f\x7f^$[](){}*+?|&~<>=!@%;`")
         + ["\x80", "\xa0", "é", "ß", "\u07ff", "\u0800", "\u2028", "\u2029", "名", "\ud7ff", "\ue000",
            "\ufeff", "\uffff", "😀", chr(LAST)])
COMMON = CHARS[:9]
SYNTAX = set("^$\\.*+?()[]{}|/")
LETTERS = {"\n": "\\n", "\t": "\\t", "\r": "\\r"} # \\0 must have no digit after it
DIGITS = [(48, 57)]
WORDS = [(48, 57), (65, 90), (95, 95), (97, 122)]
SPACES = [(9, 13), (32, 32), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029),
          (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)]
LINE_ENDS = [(10, 10), (13, 13), (0x2028, 0x2029)]


def others(ranges):
    ends = [-1] + [end for r in ranges for end in r] + [LAST + 1]
    return [(a + 1, b - 1) for a, b in zip(ends[::2], ends[1::2]) if a + 1 < b]


SETS = {"\\d": DIGITS, "\\D": others(DIGITS), "\\w": WORDS, "\\W": others(WORDS), "\\s": SPACES,
        "\\S": others(SPACES)}


def python_class(ranges, inverted=False):
    return ("[" + "^" * inverted
            + "".join(f"\\U{a:08x}-\\U{b:08x}" for a, b in ranges) + "]")


class Maker:
    """Each method returns an expression twice: for the grammar, and for Python."""

    def __init__(self, r):
        self.r = r

    def maybe(self, p):
        return self.r.random() < p

    def written(self, c, in_class=False):
        """A character, which ECMA-262 can spell in many ways."""
        code, k = ord(c), self.r.random()
        if c in SYNTAX or (in_class and c == "-"):
            return "\\" + c
        if k < 0.1 and code < 256:
            return f"\\x{code:02x}"
        if k < 0.2 and code < 0x10000:
            return f"\\u{code:04X}"
        if k < 0.25 and code >= 0x10000:
            return f"\\u{0xD800 + (code - 0x10000 >> 10):04x}\\u{0xDC00 + (code & 1023):04x}"
        if k < 0.3:
            return f"\\u{{{code:x}}}"
        if k < 0.35 and 1 <= code <= 26:
            return "\\c" + chr(code + 64 + 32 * self.maybe(0.5))
        return LETTERS[c] if c in LETTERS and k < 0.8 else c

    def brackets(self):
        text, ranges, inverted = "", [], self.maybe(0.3)
        for _ in range(self.r.randint(1, 4)):
            k = self.r.random()
            if k < 0.25:
                name = self.r.choice(list(SETS))
                text += name
                ranges += SETS[name]
            elif k < 0.55:
                a, b = sorted(self.r.choices(CHARS, k=2))
                text += self.written(a, True) + "-" + self.written(b, True)
                ranges.append((ord(a), ord(b)))
            else:
                c = self.r.choice(CHARS + ["\b"])
                text += "\\b" if c == "\b" else self.written(c, True)
                ranges.append((ord(c), ord(c)))
        if self.maybe(0.1):
            text += "-"
            ranges.append((45, 45))
        return "[" + "^" * inverted + text + "]", python_class(ranges, inverted)

    def atom(self, depth):
        k = self.r.random()
        if k < 0.45 or (k >= 0.8 and depth == 0):
            c = self.r.choice(COMMON if self.maybe(0.7) else CHARS)
            return self.written(c), re.escape(c)
        if k < 0.55:
            return ".", python_class(LINE_ENDS, True)
        if k < 0.7:
            return self.brackets()
        if k < 0.8:
            name = self.r.choice(list(SETS))
            return name, python_class(SETS[name])
        return self.group(depth, False, False)

    def times(self):
        low, high = sorted((self.r.randint(0, 4), self.r.randint(0, 6)))
        return (self.r.choice(["*", "+", "?", f"{{{low}}}", f"{{{low},}}", f"{{{low},{high}}}"])
                + "?" * self.maybe(0.2))

    def group(self, depth, begins, ends):
        text, python = self.alternatives(depth - 1, begins, ends)
        return self.r.choice(["(", "(?:", f"(?<n{self.r.randrange(10**6)}>"]) + text + ")", f"(?:{python})"

    def alternative(self, depth, begins, ends):
        """begins, ends: an anchor may stand there."""
        parts = []
        count = self.r.choice([0, 1, 1, 2, 2, 3, 4])
        for i in range(count):
            edges = begins and i == 0, ends and i == count - 1
            if depth and any(edges) and self.maybe(0.3):
                parts.append(self.group(depth, *edges))
                continue
            part = self.atom(depth)
            times = self.times() if self.maybe(0.35) else ""
            parts.append((part[0] + times, part[1] + times))
        if begins and self.maybe(0.3):
            parts.insert(0, ("^", r"\A"))
        if ends and self.maybe(0.3):
            parts.append(("$", r"\Z"))
        return "".join(p[0] for p in parts), "".join(p[1] for p in parts)

    def alternatives(self, depth, begins, ends):
        every = [self.alternative(depth, begins, ends) for _ in range(self.r.choice([1, 1, 1, 2, 3]))]
        return "|".join(e[0] for e in every), "|".join(e[1] for e in every)

    def changed(self, text):
        chars = list(text)
        for _ in range(self.r.randint(1, 2)):
            at = self.r.randint(0, len(chars))
            chars[at:at + self.r.randint(0, 1)] = [self.r.choice(CHARS)] * self.r.randint(0, 1)
        return "".join(chars)

    def texts(self, sampled):
        short = [t for t in sampled if len(t) < 200]
        random_ones = ["".join(self.r.choices(CHARS if self.maybe(0.5) else COMMON, k=self.r.randint(0, 6)))
                       for _ in range(4)]
        return list(dict.fromkeys(short + [self.changed(t) for t in short for _ in range(3)]
                                  + random_ones + [""]))


def too_slow(*_):
    raise TimeoutError


def matches(search, text):
    """None: Python tries too many ways."""
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        return bool(search(text))
    except TimeoutError:
        return None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def line(whole, pattern, texts):
    if whole:
        return {"regex": pattern, "texts": texts}
    return {"schema": {"type": "string", "pattern": pattern},
            "texts": [json.dumps(t, ensure_ascii=False) for t in texts]}


def main(tool, count, seed=1):
    r = random.Random(int(seed))
    maker = Maker(r)
    patterns = [(r.random() < 0.5, *maker.alternatives(2, True, True)) for _ in range(int(count))]
    walks = run(tool, ["sample", "6", str(seed)], [line(w, p, []) for w, p, _ in patterns])
    texts = [maker.texts(a.get("texts", []) if w else [json.loads(t) for t in a.get("texts", [])])
             for (w, _, _), a in zip(patterns, walks)]
    answers = run(tool, ["check"], [line(w, p, t) for (w, p, _), t in zip(patterns, texts)])
    counts, wrong = Counter(), 0
    signal.signal(signal.SIGALRM, too_slow)
    for (whole, pattern, python), tried, answer in zip(patterns, texts, answers):
        compiled = re.compile(python)
        search = compiled.fullmatch if whole else compiled.search
        empty = "error" in answer and answer["error"].startswith("no text can satisfy")
        if "error" in answer and not empty:
            wrong += 1
            print(f"{pattern!r}: {answer['error']}")
            continue
        for text, accepted in zip(tried, [False] * len(tried) if empty else answer["accepts"]):
            wanted = matches(search, text)
            counts["left out" if wanted is None else "match" if wanted else "do not match"] += 1
            if wanted is not None and accepted != wanted:
                wrong += 1
                print(f"{pattern!r}{'' if whole else ' somewhere'}: {text!r} is "
                      f"{'' if accepted else 'not '}accepted")
    print(f"{len(patterns)} regular expressions; texts: "
          + ", ".join(f"{n} {what}" for what, n in sorted(counts.items())))
    return wrong > 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
