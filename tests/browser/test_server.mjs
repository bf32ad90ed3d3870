// SPDX-License-Identifier: Apache-2.0
// The page against the program with the bundled pair: what a new user does first, and the tree's
// counts against the server's.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import { after, before, test } from "node:test";
import { ask, idle, lastAnswer, launch, open, root, saidBy, say, told } from "./browser.mjs";

const program = path.resolve(root, process.env.COPPICE_PROGRAM ?? "build/release/coppice");
const model = (name) => path.join(root, "models", name);
let browser, stop, url;

// Starts the program; -> where it is, and what ends it.
async function serve(...options) {
    const server = spawn(program, ["serve", "--max-ctx", "4096", "-m", model("coppice-tiny-q8_0.gguf"), "-d",
        model("coppice-tiny-dflash-q8_0.gguf"), "--port", "0", ...options],
    { stdio: ["ignore", "ignore", "pipe"] });
    let said = "";
    const where = await new Promise((done, fail) => {
        server.on("exit", () => fail(new Error(`the server ended: ${said}`)));
        server.stderr.setEncoding("utf8").on("data", (text) => {
            said += text;
            const found = /http:\/\/127\.0\.0\.1:\d+/.exec(said);
            if (found) done(found[0] + "/");
        });
    });
    return [where, async () => {
        server.kill();
        const [status] = await once(server, "exit");
        assert.equal(status, 0);
    }];
}

before(async () => {
    browser = await launch();
    [url, stop] = await serve();
});

after(async () => {
    await browser.close();
    await stop();
});

test("a chat, a stop, a reload", async () => {
    const page = await open(browser, url);
    await page.waitForSelector(".model:has-text('coppice-tiny')");
    await ask(page, "Hello!");
    const [first] = await saidBy(page, "assistant");
    assert.match(first, /\w/);
    assert.match((await lastAnswer(page).locator(".stats").innerText()).replaceAll("\u00a0", " "),
        /^\d+ tokens · .* a pass · \d+ % of guesses accepted/);
    await say(page, "Count from 1 to 1000.");
    await page.waitForFunction(() => [...document.querySelectorAll(".prose")].at(-1).innerText.length > 5);
    await page.keyboard.press("Escape");
    await idle(page);
    await page.reload();
    await page.waitForSelector(".message");
    assert.deepEqual(await saidBy(page, "user"), ["Hello!", "Count from 1 to 1000."]);
    assert.equal((await saidBy(page, "assistant"))[0], first);
    await page.done();
});

test("the tree's counts are the server's, and guessing changes no word", async () => {
    const page = await open(browser, url);
    await page.keyboard.press("Alt+Comma");
    await page.locator("#set-seed").fill("7");
    await page.locator("#set-max_tokens").fill("300");
    await page.keyboard.press("Escape");
    await ask(page, "Tell me a story about a tree, and count from 1 to 50.");
    const chunks = await told(page, /completions/);
    const feed = await told(page, /streams/);
    const steps = feed.filter((event) => event.type === "tree");
    const { timings, usage } = feed.at(-1);
    assert.deepEqual(timings, chunks.find((chunk) => chunk.timings).timings);
    assert.deepEqual(usage, chunks.at(-1).usage);
    assert.equal(steps.length, timings.steps);
    const sum = (count) => steps.reduce((all, step) => all + count(step), 0);
    assert.equal(sum((step) => step.token.length - 1), timings.draft_n);
    assert.equal(sum((step) => step.path.length - 1), timings.draft_n_accepted);
    assert.equal(1 + sum((step) => step.path.length), usage.completion_tokens);
    assert.equal(timings.draft_n_accepted, usage.completion_tokens_details.accepted_prediction_tokens);
    for (let i = 1; i < steps.length; i++)
        assert.equal(steps[i - 1].bonus, steps[i].token[0], "the bonus is the next root");
    await page.waitForFunction((count) => document.querySelector(".tree-caption").textContent
        .startsWith(`Step ${count} of ${count}: `), steps.length);
    const figure = (name) => page.locator(`[data-figure=${name}]`).innerText();
    // The server's own is rounded already, and another rounding could end elsewhere.
    const perPass = sum((step) => step.path.length) / steps.length;
    assert.ok(Math.abs(perPass - timings.accept_length) < 0.001, `${perPass} and ${timings.accept_length}`);
    assert.equal(await figure("per-pass"), perPass.toFixed(2));
    assert.equal(await figure("share"), `${Math.round(100 * timings.draft_n_accepted / timings.draft_n)} %`);
    await page.keyboard.press("Alt+Comma");
    await page.locator("#set-speculation").uncheck();
    await page.keyboard.press("Escape");
    await page.keyboard.press("Alt+KeyR");
    await page.locator(".branch").waitFor();
    await idle(page);
    const plain = await told(page, /completions/);
    const text = (all) => all.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("");
    assert.equal(text(plain), text(chunks));
    assert.equal(plain.find((chunk) => chunk.timings).timings.draft_n, 0);
    await page.done();
});

test("what the server refuses is said in its words", async () => {
    const page = await open(browser, url, { expect: /400/ });
    await page.locator("#box").fill("word ".repeat(6000));
    await page.keyboard.press("Enter");
    await page.locator(".note.error").waitFor();
    assert.match(await page.locator(".note.error").innerText(), /4096/);
    await page.done();
});

test("a server with a key shows the page and asks for the key", async () => {
    const [where, end] = await serve("--api-key", "sesame");
    const page = await open(browser, where, { expect: /401/ });
    await page.waitForSelector("dialog[open]:has-text('wants a key')");
    await page.keyboard.type("sesame");
    await page.keyboard.press("Enter");
    await page.waitForSelector(".model:has-text('coppice-tiny')");
    await ask(page, "Hello!");
    assert.match((await saidBy(page, "assistant"))[0], /\w/);
    await page.waitForSelector(".tree-caption:has-text('Step ')");
    await page.done();
    await end();
});
