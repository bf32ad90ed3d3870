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
    [url, stop] = await serve("--budget", "8", "--min-prob", "0"); // as many guesses as pay may be none
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

// values: texts by the name of the setting.
async function set(page, values) {
    await page.keyboard.press("Alt+Comma");
    for (const [name, value] of Object.entries(values)) await page.locator(`#set-${name}`).fill(value);
    await page.keyboard.press("Escape");
}

test("the context's share is what the server counts, and an edited answer is continued", async () => {
    const page = await open(browser, url);
    await set(page, { temperature: "0", max_tokens: "12" });
    await ask(page, "Tell me a story about a tree.");
    const { prompt_tokens: prompt, completion_tokens: said } = (await told(page, /completions/)).at(-1).usage;
    await page.waitForSelector(`#context:has-text('Context: ${prompt + said} of 4,096 tokens used')`);
    await lastAnswer(page).getByLabel("Edit this answer").click();
    await page.locator(".edit textarea").fill("Once upon a time there was an old oak");
    await page.keyboard.press("Control+Enter");
    await page.waitForSelector(".branch:has-text('2 of 2')");
    await idle(page);
    const text = (await saidBy(page, "assistant"))[0];
    assert.match(text, /^Once upon a time there was an old oak.*[\w.,]/);
    assert.ok(text.length > "Once upon a time there was an old oak".length, text);
    await page.getByText("Continue", { exact: true }).click();
    await page.waitForFunction((length) => document.querySelector(".prose").innerText.length > length, text.length);
    await idle(page);
    assert.ok((await saidBy(page, "assistant"))[0].startsWith(text), "what was there stays");
    await page.done();
});

test("answers are held to a schema and end at a stop string", async () => {
    const page = await open(browser, url);
    await set(page, { temperature: "0", max_tokens: "60", schema: JSON.stringify({ type: "object",
        properties: { tree: { enum: ["oak", "hazel"] } }, required: ["tree"], additionalProperties: false }) });
    await ask(page, "Which tree?");
    const { tree } = JSON.parse(await lastAnswer(page).locator(".prose pre").innerText());
    assert.ok(["oak", "hazel"].includes(tree), tree);
    await set(page, { stop: "ee\": \"" });
    await ask(page, "Which tree?");
    assert.equal((await lastAnswer(page).locator(".prose pre").innerText()).includes("ee\": \""), false);
    await page.done();
});

test("a conversation that is too long is shortened by the server's scorer", async (t) => {
    const [where, end] = await serve("--prefill-compression", "auto", "--prefill-drafter",
        model("coppice-tiny-scorer-q8_0.gguf"), "--prefill-keep-ratio", "0.1");
    t.after(end);
    const page = await open(browser, where, { expect: /400/ });
    await set(page, { max_tokens: "4" });
    await ask(page, `${"The hazel grows by the old stone wall. ".repeat(280)} What grows?`);
    await page.locator("#box").fill(`${"An oak stands in the field. ".repeat(200)} What stands there?`);
    await page.keyboard.press("Enter");
    await page.locator(".note.error").getByText("Shorten what came before").click();
    await page.waitForSelector(".stats:has-text('shortened')");
    await idle(page);
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
