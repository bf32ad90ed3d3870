# SPDX-License-Identifier: Apache-2.0
"""What chat templates must render: tests/fixtures/templates/{contexts,own,corpus}.jsonl.

Renders every template of a folder with every conversation of template_contexts.py through
transformers (its environment, its filters, and its own entry render_jinja_template beside it) at a
fixed time. Of templates whose text is kept (those in tests/fixtures/templates) short outputs are
kept whole; of others the XXH64 of the text and, for each conversation, length and XXH64 of the output,
so that anybody who has the same template can check. Nothing is fetched.

Usage: python template_fixtures.py [FOLDER_OF_OTHER_TEMPLATES [FOLDER_FOR_WHOLE_OUTPUTS]]
"""
import datetime
import glob
import json
import os
import sys
import warnings

import jinja2
import xxhash
from transformers.utils import chat_template_utils as hf

from template_contexts import build

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "..", "tests", "fixtures", "templates")
KEPT = 600  # bytes of an output that is kept whole


class Clock(datetime.datetime):
    """The time that strftime_now shows."""

    @classmethod
    def now(cls, tz=None):
        return cls(2026, 1, 2, 3, 4, 5)


def render(template, variables):
    """The output, or an object that says how the template was refused."""
    try:
        return template.render(**json.loads(json.dumps(variables)))
    except jinja2.exceptions.TemplateSyntaxError as e:
        return {"refused": str(e)}
    except jinja2.exceptions.TemplateError as e:
        told = type(e) is jinja2.exceptions.TemplateError
        return {"raised" if told else "refused": str(e)}
    except Exception as e:  # whatever Python says about these values
        return {"refused": f"{type(e).__name__}: {e}"}


def by_transformers(text, variables):
    v = json.loads(json.dumps(variables))
    messages, tools, documents = v.pop("messages"), v.pop("tools", None), v.pop("documents", None)
    messages = [{k: x for k, x in m.items() if x is not None} for m in messages]
    generate = v.pop("add_generation_prompt", False)
    try:
        return hf.render_jinja_template([messages], tools or None, documents, text,
                                        add_generation_prompt=generate, **v)[0][0]
    except Exception:
        return None


def short(result, whole):
    """The output itself where it is kept and short, else its length and hash."""
    if isinstance(result, dict):
        return result
    raw = result.encode()
    if whole and len(raw) <= KEPT:
        return result
    return [len(raw), f"{xxhash.xxh64(raw).intdigest():016x}"]


def fixtures(path, contexts, whole, out_folder):
    raw = open(path, "rb").read()
    text = raw.decode()
    name = os.path.basename(path)
    row = {"template": name, "xxh64": f"{xxhash.xxh64(raw).intdigest():016x}", "results": []}
    counts = [0, 0, 0]
    try:
        template = hf._compile_jinja_template(text)
    except jinja2.exceptions.TemplateError as e:
        print(f"{name}: does not compile: {e}")
        return None, counts
    for context, variables in contexts.items():
        result = render(template, variables)
        if out_folder and isinstance(result, str):
            with open(os.path.join(out_folder, f"{name}.{context}"), "wb") as f:
                f.write(result.encode())
        row["results"].append(short(result, whole))
        other = by_transformers(text, variables)
        counts[0] += 1
        counts[1] += isinstance(result, str)
        counts[2] += isinstance(result, str) and result == other
    return row, counts


def main():
    warnings.simplefilter("ignore")
    hf.datetime = Clock
    folder = sys.argv[1] if len(sys.argv) > 1 else None
    out_folder = sys.argv[2] if len(sys.argv) > 2 else None
    contexts = build()
    with open(os.path.join(OUT, "contexts.jsonl"), "w") as f:
        for name, variables in contexts.items():
            f.write(json.dumps({"name": name, "variables": variables}, ensure_ascii=False) + "\n")
    sets = [("own.jsonl", sorted(glob.glob(os.path.join(OUT, "*.jinja"))), True)]
    if folder:
        sets.append(("corpus.jsonl", sorted(glob.glob(os.path.join(folder, "*.jinja*"))), False))
    for target, paths, whole in sets:
        total = [0, 0, 0]
        with open(os.path.join(OUT, target), "w") as f:
            for path in paths:
                row, counts = fixtures(path, contexts, whole, out_folder)
                if row:
                    f.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")
                total = [a + b for a, b in zip(total, counts)]
        print(f"{target}: {len(paths)} templates, {total[0]} renderings, {total[1]} with output, "
              f"{total[2]} of them equal to render_jinja_template with its repairs")


if __name__ == "__main__":
    main()
