// SPDX-License-Identifier: Apache-2.0
// Parts of the page by themselves: where the words of a tree stand, over random trees, and
// Markdown that is rendered while it grows, at every length of a text.
import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { esbuild, launch, root } from "./browser.mjs";

const out = path.join(root, "build", "web", "parts");
let browser;

async function bundle(entry, name, format) {
    mkdirSync(out, { recursive: true });
    const outfile = path.join(out, `${name}.mjs`);
    await esbuild().build({ entryPoints: [path.join(root, "web", "src", entry)], bundle: true, format,
        outfile, globalName: name, nodePaths: [path.join(root, "build", "web", "node_modules")],
        logLevel: "error" });
    return outfile;
}

before(async () => { browser = await launch(); });
after(async () => { await browser.close(); });

// A random tree whose path is one of its chains.
function randomStep(draw) {
    const n = 1 + Math.floor(128 * draw() ** 2);
    const parent = [-1];
    for (let row = 1; row < n; row++) {
        parent.push(Math.floor(draw() * row));
    }
    const path = [0];
    while (draw() < 0.8) {
        const next = parent.indexOf(path.at(-1), 1);
        if (next === -1) break;
        path.push(next);
    }
    return { n, parent, path, bonus: draw() < 0.1 ? null : "x", text: parent.map(String) };
}

test("words of a tree never share a place, and branches never cross", async () => {
    const { layout } = await import(await bundle("treelayout.js", "tree", "esm"));
    let seed = 1;
    const draw = () => (seed = (seed * 48271) % 2147483647) / 2147483647;
    for (let round = 0; round < 400; round++) {
        const step = randomStep(draw);
        const { nodes, deepest, top, bottom } = layout(step);
        assert.equal(nodes.length, step.n + (step.bonus === null ? 0 : 1));
        const byRow = new Map(nodes.map((node) => [node.row, node]));
        const places = new Set(nodes.map((node) => `${node.depth}:${node.y}`));
        assert.equal(places.size, nodes.length, "one word a place");
        for (const node of nodes) {
            assert.equal(node.y >= -top && node.y <= bottom && node.depth <= deepest, true);
            assert.equal(node.y === 0, node.kept, "the path is the straight line, and only the path");
            if (node.parent === null) continue;
            assert.equal(byRow.get(node.parent).depth, node.depth - 1);
        }
        // Between two columns, branches from different words keep their order.
        for (const a of nodes) {
            for (const b of nodes) {
                if (a.depth !== b.depth || a.parent === b.parent || a.parent === null) continue;
                const [from, other] = [byRow.get(a.parent).y, byRow.get(b.parent).y];
                if (from < other) assert.equal(a.y < b.y, true, "branches cross");
            }
        }
    }
});

const TEXT = `# A *title*

A paragraph with \`code\`, **strong** words,
and a second line: https://example.org/a?b=c.

- one
- two

  with a paragraph

  - deeper
- three

1. first
2. second

> quoted
> twice
lazily

Setext
======

\`\`\`js
const a = 1; // <b>

const b = 2;
\`\`\`

    indented

| a | b |
|---|--:|
| 1 | 2 |

***

Uses [a reference][ref] and ends.

[ref]: https://example.org/ref
`;

test("a text that grows is rendered as if it had been there from the start", async () => {
    const page = await browser.newPage();
    await page.setContent("<div id=one></div><div id=two></div>");
    await page.addScriptTag({ path: await bundle("markdown.js", "md", "iife") });
    const wrong = await page.evaluate(async (text) => {
        const one = document.getElementById("one");
        const two = document.getElementById("two");
        const plain = (element) => element.innerHTML.replace(/<div class="code-head">.*?<\/div>/gs, "")
            .replace(/<\/?span[^>]*>/g, "");
        const growing = new md.Markdown(one);
        const wrong = [];
        for (let n = 1; n <= text.length; n++) {
            growing.update(text.slice(0, n), false);
            new md.Markdown(two).update(text.slice(0, n), true);
            if (plain(one) !== plain(two)) wrong.push(n);
        }
        growing.update(text, true);
        new md.Markdown(two).update(text, true);
        await new Promise((done) => setTimeout(done, 50));
        return { wrong, end: plain(one) === plain(two), blocks: one.children.length,
            links: one.querySelectorAll("a").length };
    }, TEXT);
    // The reference is only known at the very end, and the last update renders all again.
    assert.deepEqual(wrong.wrong.filter((n) => n < TEXT.indexOf("[ref]:")), []);
    assert.equal(wrong.end, true);
    assert.equal(wrong.links, 2);
    await page.close();
});
