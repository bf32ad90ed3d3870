#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares schemas as grammars with other readers of JSON Schema. Usage:
    compare.py suite TOOL FOLDER        FOLDER: draft2020-12 of the JSON-Schema-Test-Suite
    compare.py formats TOOL FOLDER      FOLDER: optional/format in it
    compare.py random TOOL N [SEED]     N random schemas; needs the package jsonschema
suite: an instance must be accepted, with its properties in some order, if and only if it is valid.
formats: an instance that is accepted must be valid. random: every text
that random walks through masks give must be valid. Prints what was compared; the exit status is 1
when something disagrees.
"""
import itertools
import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

# Why a valid instance may be none of the grammar's texts.
STRICTER = "whole numbers are written as in the schema, without a point, and with up to 17 digits"
# Of alternatives that hold besides the chosen one, and of an `if` without ends, nothing counts as evaluated.
UNEVALUATED = "unevaluated: what other alternatives evaluate does not count"
# Other documents, and keywords that are only annotations; a format is checked here: --formats.
SKIP_FILES = {"refRemote", "dynamicRef", "vocabulary", "content", "default", "format"}
FORMATS = {"date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri",
           "json-pointer"}
ORDERS = 720


def run(tool, mode, lines):
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    out = subprocess.run([tool, *mode], input=text, capture_output=True, text=True, check=True,
                         timeout=600)
    answers = [json.loads(line) for line in out.stdout.split("\n")[:-1]] # texts may hold U+2028
    assert len(answers) == len(lines), out.stderr
    return answers


def orders(value):
    """The value with the members of its objects in every order, within reason."""
    if isinstance(value, dict):
        parts = [list(orders(v)) for v in value.values()]
        for values in itertools.islice(itertools.product(*parts), ORDERS):
            items = list(zip(value.keys(), values))
            for order in itertools.islice(itertools.permutations(items), ORDERS):
                yield dict(order)
    elif isinstance(value, list):
        parts = [list(orders(v)) for v in value]
        for values in itertools.islice(itertools.product(*parts), ORDERS):
            yield list(values)
    else:
        yield value


def texts(value):
    return [json.dumps(v, ensure_ascii=False) for v in itertools.islice(orders(value), ORDERS)]


def floats(value):
    """Does it hold an integer that is written with a point or an exponent, or a large number?"""
    if isinstance(value, float):
        return value.is_integer()
    if isinstance(value, int) and not isinstance(value, bool):
        return abs(value) >= 10**17
    return any(floats(v) for v in (value.values() if isinstance(value, dict) else
                                   value if isinstance(value, list) else []))


def compare(tool, cases, may_be_stricter=False):
    """cases: (name, schema, [(what, instance, valid)]). Returns the number of disagreements."""
    lines = [{"schema": schema, "texts": [t for _, i, _ in tests for t in texts(i)]}
             for _, schema, tests in cases]
    wrong, counts, refused = 0, Counter(), Counter()
    for (name, schema, tests), answer in zip(cases, run(tool, ["check"], lines)):
        if "error" in answer:
            unsatisfiable = answer["error"].startswith(("no text", "the schema at '#': no value"))
            if unsatisfiable and not any(valid for _, _, valid in tests):
                counts["agree"] += len(tests)
            else:
                refused[answer["error"].split("'")[1 if "'" in answer["error"] else 0].split("/")[-1]
                        + ": " + answer["error"].split(": ")[-1][:60]] += 1
            continue
        counts["schemas"] += 1
        at = 0
        for what, instance, valid in tests:
            n = len(texts(instance))
            accepted = any(answer["accepts"][at:at + n])
            at += n
            if accepted == valid:
                counts["agree"] += 1
            elif valid and may_be_stricter:
                counts["valid and not accepted"] += 1
            elif valid and (floats(instance) or floats(schema)):
                counts[f"stricter ({STRICTER})"] += 1
            elif valid and "unevaluated" in json.dumps(schema):
                counts[f"stricter ({UNEVALUATED})"] += 1
            else:
                wrong += 1
                print(f"{name} / {what}: {json.dumps(instance)[:100]} is "
                      f"{'valid' if valid else 'invalid'} and {'' if accepted else 'not '}accepted "
                      f"under {json.dumps(schema)[:300]}")
    print(f"{counts['schemas']} schemas; instances: "
          + ", ".join(f"{n} {what}" for what, n in counts.items() if what != "schemas"))
    for why, n in sorted(refused.items()):
        print(f"refused: {n} x {why}")
    return wrong


def suite(tool, folder, formats=False):
    cases = []
    for path in sorted(Path(folder).glob("*.json")):
        if path.stem in SKIP_FILES or (formats and path.stem not in FORMATS):
            continue
        for group in json.loads(path.read_text()):
            cases.append((f"{path.stem}: {group['description']}", group["schema"],
                          [(t["description"], t["data"], t["valid"]) for t in group["tests"]]))
    return compare(tool, cases, formats)


# ---- random schemas

NAMES = ["a", "b", "id", "name", "x-y", "caf\u00e9", "with space", 'q"uote', "n\u00famero", "z"]
PATTERNS = ["^[a-z]{1,5}$", "^\\d+(\\.\\d+)?$", "^(foo|bar)+$", "[A-Z]", "^\\w*$", "^[^\"]{0,4}$",
            "^x", "0$", "^\\S{2,6}$", "^\u00e9*$"]
CHECKED = ["date", "ipv4", "ipv6", "uuid", "email"] # by jsonschema alone


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.defs = self.r.randrange(3)

    def maybe(self, p):
        return self.r.random() < p

    def value(self):
        return self.r.choice([None, True, 3, -7, 1.5, "s", "l\u00f6ng \"text\"\n", [], [1, "a"],
                              {}, {"k": [None]}])

    def bounds(self, schema, low, high, least, most):
        a, b = sorted((self.r.randint(least, most), self.r.randint(least, most)))
        if self.maybe(0.5):
            schema[low] = a
        if self.maybe(0.5):
            schema[high] = b

    def number(self):
        s = {"type": self.r.choice(["integer", "number"])}
        a, b = sorted(self.r.choice([self.r.randint(-50, 1000), self.r.uniform(-3, 3),
                                     self.r.randint(-10**9, 10**9)]) for _ in range(2))
        b += 2
        if self.maybe(0.4):
            s[self.r.choice(["minimum", "exclusiveMinimum"])] = a
        if self.maybe(0.4):
            s[self.r.choice(["maximum", "exclusiveMaximum"])] = b
        if self.maybe(0.2):
            s["multipleOf"] = self.r.randint(1, 12)
        return s

    def string(self):
        s = {"type": "string"}
        if self.maybe(0.3):
            s["pattern"] = self.r.choice(PATTERNS)
        elif self.maybe(0.2):
            s["format"] = self.r.choice(CHECKED)
        if self.maybe(0.4) and "format" not in s:
            self.bounds(s, "minLength", "maxLength", 0, 8)
        return s

    def array(self, depth):
        s = {"type": "array"}
        if self.maybe(0.8):
            s["items"] = self.schema(depth - 1)
        if self.maybe(0.3):
            s["prefixItems"] = [self.schema(depth - 1) for _ in range(self.r.randint(1, 3))]
        if self.maybe(0.5):
            self.bounds(s, "minItems", "maxItems", 0, 4)
        elif "prefixItems" not in s and self.maybe(0.15):
            s["contains"] = self.schema(0)
            if self.maybe(0.4):
                s["maxContains"] = self.r.randint(1, 3)
        elif "prefixItems" not in s and self.maybe(0.15):
            s["items"] = {"enum": [1, "a", "b", None, True, 2, "c", "d", "e", "f"][:self.r.randint(1, 10)]}
            s["uniqueItems"] = True
        return s

    def object(self, depth):
        names = self.r.sample(NAMES, self.r.randint(0, 4))
        s = {"type": "object", "properties": {n: self.schema(depth - 1) for n in names}}
        s["required"] = [n for n in self.r.sample(NAMES, 4) if n in names or self.maybe(0.1)]
        if self.maybe(0.6):
            s["additionalProperties"] = False if self.maybe(0.6) else self.schema(depth - 1)
        if self.maybe(0.2):
            s["patternProperties"] = {p: self.schema(depth - 1)
                                      for p in self.r.sample(["^a", "e", "^x", "\\d$"], 2)}
        if self.maybe(0.1):
            s["maxProperties"] = self.r.randint(len(s["required"]), 6)
        if self.maybe(0.1) and s.get("additionalProperties") is False:
            s["minProperties"] = self.r.randint(0, len(names))
        if self.maybe(0.1):
            s["propertyNames"] = self.r.choice([{"maxLength": 3}, {"pattern": "^[a-z]"}, {"enum": names + ["w"]}])
        if len(names) > 1 and self.maybe(0.15):
            s["dependentRequired"] = {names[0]: [names[1]]}
        if names and self.maybe(0.1):
            s["dependentSchemas"] = {names[-1]: self.object(0)}
        if names and self.maybe(0.15):
            s["if"] = {"properties": {names[0]: self.simple()}, "required": names[:self.r.randint(0, 2)]}
            s[self.r.choice(["then", "else"])] = {"properties": {names[-1]: self.simple()}}
        if "additionalProperties" not in s and self.maybe(0.3):
            s["allOf"] = [{"properties": {"id": self.simple()}}]
            s["unevaluatedProperties"] = False
        return s

    def simple(self):
        """A schema that can be negated."""
        return self.r.choice([{"type": "integer"}, {"const": 3}, {"enum": ["x", "y", None]}, {"minLength": 2},
                              {"type": ["string", "null"]}, {"pattern": "^a"}, {"minimum": 3, "maximum": 9},
                              {"required": ["a"]}, {"minItems": 1}, {"anyOf": [{"type": "null"}, {"maximum": 0}]}])

    def without(self):
        return {**self.r.choice([{}, {"type": ["string", "integer"]}, {"type": "object"}]), "not": self.simple()}

    def schema(self, depth):
        if self.maybe(0.05):
            return self.without()
        kind = self.r.randrange(13)
        if depth <= 0:
            kind %= 6
        if kind < 2:
            return self.number()
        if kind < 4:
            return self.string()
        if kind == 4:
            return {"enum": [self.value() for _ in range(self.r.randint(1, 4))]}
        if kind == 5:
            return self.r.choice([{"type": "boolean"}, {"type": "null"}, {"const": self.value()},
                                  True, {"type": ["string", "null"]}])
        if kind < 8:
            return self.array(depth)
        if kind < 10:
            return self.object(depth)
        if kind == 10:
            return {"anyOf": [self.schema(depth - 1) for _ in range(self.r.randint(1, 3))]}
        if kind == 11 and self.defs:
            return {"$ref": f"#/$defs/d{self.r.randrange(self.defs)}"}
        if kind == 11:
            return {"oneOf": [{"type": "string"}, self.number(), {"type": "null"}]}
        parts = [self.object(depth - 1), self.object(depth - 1)]
        if self.maybe(0.5):
            parts = [self.string(), self.string()] if self.maybe(0.5) else [self.number(),
                                                                            self.number()]
        return {"allOf": parts}

    def whole(self):
        s = self.schema(4)
        if s is True:
            s = {}
        if self.defs:
            s["$defs"] = {f"d{i}": self.schema(2) for i in range(self.defs)}
        return s


def random_schemas(tool, n, seed):
    from jsonschema import Draft202012Validator, FormatChecker
    schemas = [Maker(seed + i).whole() for i in range(n)]
    answers = run(tool, ["sample", "6", str(seed)], [{"schema": s} for s in schemas])
    wrong, checked, refused, empty = 0, 0, Counter(), 0
    for schema, answer in zip(schemas, answers):
        if "error" in answer:
            refused[answer["error"].split(": ")[0].split(" '")[0] + ": "
                    + answer["error"].split(": ")[-1].split(" '")[0][:60]] += 1
            continue
        validator = Draft202012Validator(schema, format_checker=FormatChecker(CHECKED))
        empty += not answer["texts"]
        for text in answer["texts"]:
            checked += 1
            try:
                error = next(validator.iter_errors(json.loads(text)), None)
            except RecursionError: # a schema that is a reference to itself
                error = None
            except ValueError as e:
                error = e
            if error is not None:
                wrong += 1
                print(f"{text[:300]!r} under {json.dumps(schema)[:600]}: {str(error)[:200]}")
    print(f"{n} random schemas, {checked} texts checked, {empty} schemas without a text that ended")
    for why, count in sorted(refused.items()):
        print(f"refused: {count} x {why}")
    return wrong + (checked < n)


def main():
    mode, tool, what = sys.argv[1:4]
    if mode in ("suite", "formats"):
        wrong = suite(tool, what, mode == "formats")
    else:
        wrong = random_schemas(tool, int(what), int(sys.argv[4]) if len(sys.argv) > 4 else 1)
    print(f"{wrong} disagree")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
