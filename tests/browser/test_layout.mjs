// SPDX-License-Identifier: Apache-2.0
// How the page stands on screens of several sizes, and whether axe (Deque's checks of WCAG and of good
// practice) finds a fault in what a person comes to see.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { after, before, test } from "node:test";
import { answers, idle, launch, open, PHONE, root, WIDE } from "./browser.mjs";
import { start } from "./mock.mjs";

const axe = readFileSync(createRequire(path.join(root, "build", "web", "package.json"))
    .resolve("axe-core/axe.min.js"), "utf8");
let browser, server;

before(async () => {
    browser = await launch();
    server = await start({ pause: 4 });
});

after(async () => {
    await browser.close();
    server.close();
});

async function send(page, text) {
    const before = await answers(page).count();
    await page.locator("#box").fill(text);
    await page.locator("#send").click();
    await answers(page).nth(before).waitFor({ state: "attached" });
    await idle(page);
}

test("on a small screen the tree is closed at first and takes a third at most", async () => {
    const lying = { width: 915, height: 412 }, low = { width: 640, height: 360 };
    for (const viewport of [PHONE, lying, low]) {
        const page = await open(browser, server.url, { viewport, hasTouch: true });
        const tree = page.locator(".tree"), button = page.getByLabel("The tree (Alt+T)", { exact: true });
        const where = `${viewport.width} x ${viewport.height}`;
        assert.equal(await tree.isVisible(), false, where);
        assert.equal(await button.getAttribute("aria-pressed"), "false", where);
        await send(page, "hello");
        assert.equal("coppice" in server.seen.at(-1), false, "nobody looks, nothing is asked for");
        await button.tap();
        await send(page, "What is a coppice?");
        assert.deepEqual(server.seen.at(-1).coppice, { trees: true });
        await page.waitForSelector(".tree-caption:has-text('Step ')");
        const box = await tree.boundingBox();
        assert.ok(box.height <= viewport.height / 3 + 0.5, `${where}: the tree is ${box.height} high`);
        for (const part of [".tree header", ".tree-canvas", ".tree-strip", ".tree-caption"]) {
            const inner = await page.locator(part).boundingBox();
            assert.ok(inner.height >= 12 && inner.y >= box.y && inner.y + inner.height <= box.y + box.height,
                `${where}: ${part} stands in the tree`);
        }
        await page.reload();
        await page.waitForSelector(".message");
        assert.equal(await tree.isVisible(), false, "closed again after a reload");
        await page.setViewportSize(WIDE);
        await tree.waitFor(); // what was done on the small screen says nothing about the large one
        await page.done();
    }
});

test("axe finds nothing", async () => {
    for (const [viewport, colorScheme] of [[WIDE, "light"], [PHONE, "dark"]]) {
        const page = await open(browser, server.url, { viewport, colorScheme, reducedMotion: "reduce", expect: /400/ });
        await page.evaluate(axe);
        const check = async (where) => {
            const found = await page.evaluate(async () => (await window.axe.run()).violations
                .map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join(" ")}`));
            assert.deepEqual(found, [], `${where}, ${viewport.width} wide`);
        };
        await check("at first sight");
        await send(page, "think, then tell: what is a coppice?");
        await check("with an answer");
        await page.keyboard.press("Alt+KeyS");
        await check("with the list of conversations closed or opened");
        await page.keyboard.press("Alt+KeyS");
        for (const keys of ["Alt+Comma", "Alt+KeyH"]) {
            await page.keyboard.press(keys);
            await page.waitForSelector("dialog[open]");
            await check(keys);
            await page.keyboard.press("Escape");
        }
        await page.keyboard.press("Alt+KeyE");
        await check("with an editor");
        await page.keyboard.press("Escape");
        await page.keyboard.press("Alt+KeyT");
        await check("with the tree closed or opened");
        await send(page, "too long");
        await page.locator(".note.error").waitFor();
        await check("with an error");
        const doubled = await page.evaluate(() => [...document.querySelectorAll("[id]")].map((one) => one.id)
            .filter((id, at, all) => all.indexOf(id) !== at));
        assert.deepEqual(doubled, [], "no id is there twice");
        await page.done();
    }
});
