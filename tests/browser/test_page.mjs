// SPDX-License-Identifier: Apache-2.0
// The page against the stand-in server: everything that a person can do with it, by mouse and by
// keys, wide and narrow, and what it says when something goes wrong.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { answers, ask, idle, lastAnswer, launch, open, PHONE, running, saidBy, say, told } from "./browser.mjs";
import { start } from "./mock.mjs";

let browser, server;

before(async () => {
    browser = await launch();
    server = await start({ pause: 4 });
});

after(async () => {
    await browser.close();
    server.close();
});

test("an answer is streamed, rendered and counted", async () => {
    const page = await open(browser, server.url, { permissions: ["clipboard-read", "clipboard-write"] });
    server.hold(true); // a browser that has just been started may need seconds for its first page
    await say(page, "What is a coppice?\nTell me.");
    await page.waitForSelector(".prose ol li"); // while it is being written
    assert.equal(await page.locator("#send").getAttribute("aria-label"), "Stop");
    server.hold(false);
    await idle(page);
    assert.deepEqual(await saidBy(page, "user"), ["What is a coppice?\nTell me."]);
    const prose = lastAnswer(page).locator(".prose");
    assert.equal(await prose.locator("strong").first().innerText(), "cut back to the stump");
    assert.equal(await prose.locator("ol li").count(), 3);
    assert.equal(await prose.locator("table .align-right").count(), 4);
    assert.equal(await prose.locator(".hljs-keyword").count() > 3, true);
    assert.equal(await prose.locator("a").getAttribute("rel"), "noopener noreferrer");
    await prose.locator(".copy").click();
    const copied = await page.evaluate(() => navigator.clipboard.readText());
    assert.match(copied, /^\/\/ The child of[^]*return -1;\n}\n$/);
    assert.match((await lastAnswer(page).locator(".stats").innerText()).replaceAll("\u00a0", " "),
        /^328 tokens · .* a second · .* a pass · .* of guesses accepted · first after/);
    assert.match(await page.title(), /^What is a coppice\? · coppice$/);
    assert.deepEqual(server.seen.at(-1).messages, [{ role: "user", content: "What is a coppice?\nTell me." }]);
    await page.done();
});

test("what a model writes stays text: no element, no request, no script", async () => {
    const page = await open(browser, server.url);
    await ask(page, "echo <img src=x onerror=alert(1)> <script>alert(2)</script> " +
        "[a](javascript:alert(3)) ![pixel](https://example.org/p.png) <b style='color:red'>b</b>\n\n" +
        "| a |\n|:-:|\n| <iframe src=//example.org> |\n\n```html\n<script>alert(4)</script>\n```\n");
    assert.equal(await page.locator(".log :is(img, script, iframe, b, [style], [onerror])").count(), 0);
    assert.equal(await page.locator(".prose a").count(), 1);
    assert.equal(await page.locator(".prose a").getAttribute("href"), "https://example.org/p.png");
    assert.match(await page.locator(".prose").innerText(), /<img src=x onerror=alert\(1\)>/);
    await page.done();
});

test("an answer can be stopped, and the server is told", async () => {
    const page = await open(browser, server.url);
    const before = server.left.length;
    await say(page, "slowly, please");
    await page.waitForFunction(() => document.querySelector(".prose").innerText.length > 20);
    await page.locator("#send").click();
    await idle(page);
    assert.match(await lastAnswer(page).locator(".note").innerText(), /^Stopped\./);
    const text = await lastAnswer(page).locator(".prose").innerText();
    assert.equal(text.length > 20 && text.length < 300, true);
    while (server.left.length === before) await page.waitForTimeout(10);
    await ask(page, "hello");
    assert.equal((await saidBy(page, "assistant"))[1], "Hello. What shall we grow?");
    await page.done();
});

test("a reload loses nothing, not even in the midst of an answer", async () => {
    const page = await open(browser, server.url);
    await ask(page, "hello");
    await say(page, "slowly, please");
    await page.waitForFunction(() => [...document.querySelectorAll(".prose")].at(-1).innerText.length > 60);
    const seen = (await saidBy(page, "assistant"))[1];
    await page.reload();
    await page.waitForSelector(".message");
    assert.deepEqual(await saidBy(page, "user"), ["hello", "slowly, please"]);
    const kept = await saidBy(page, "assistant");
    assert.equal(kept[0], "Hello. What shall we grow?");
    assert.equal(kept[1].startsWith(seen.slice(0, 30)), true);
    await ask(page, "hello");
    assert.equal((await saidBy(page, "assistant")).length, 3);
    await page.done();
});

test("another try and an edit are branches, and nothing is lost", async () => {
    const page = await open(browser, server.url);
    await ask(page, "hello");
    await page.keyboard.press("Alt+KeyR");
    await idle(page);
    assert.equal(await lastAnswer(page).locator(".branch").innerText(), "2 of 2");
    await lastAnswer(page).getByLabel("The one before").click();
    assert.equal(await lastAnswer(page).locator(".branch").innerText(), "1 of 2");
    await ask(page, "hello again");
    assert.equal(server.seen.at(-1).messages.length, 3);
    await page.keyboard.press("Alt+KeyE");
    await page.locator(".edit textarea").fill("hello anew");
    await page.keyboard.press("Enter");
    await idle(page);
    assert.deepEqual(await saidBy(page, "user"), ["hello", "hello anew"]);
    assert.deepEqual(server.seen.at(-1).messages.map((message) => message.content),
        ["hello", "Hello. What shall we grow?", "hello anew"]);
    await page.locator(".message.user").last().getByLabel("The one before").click();
    assert.deepEqual(await saidBy(page, "user"), ["hello", "hello again"]);
    await page.reload();
    await page.waitForSelector(".message");
    assert.deepEqual(await saidBy(page, "user"), ["hello", "hello again"]);
    await page.done();
});

test("the tree counts what the server counts, and can be scrubbed", async () => {
    const page = await open(browser, server.url);
    await ask(page, "What is a coppice?");
    const chunks = await told(page, /completions/);
    const { timings } = chunks.find((chunk) => chunk.timings);
    const { usage } = chunks.at(-1);
    const feed = await told(page, /streams/);
    const steps = feed.slice(0, -1);
    assert.deepEqual(feed.at(-1), { type: "end", usage, timings });
    const sum = (count) => steps.reduce((all, step) => all + count(step), 0);
    assert.equal(sum((step) => step.token.length - 1), timings.draft_n);
    assert.equal(sum((step) => step.path.length - 1), timings.draft_n_accepted);
    assert.equal(1 + sum((step) => step.path.length), usage.completion_tokens);
    await page.waitForFunction((count) => document.querySelector(".tree-caption").textContent
        .startsWith(`Step ${count} of ${count}`), steps.length);
    const figure = (name) => page.locator(`[data-figure=${name}]`).innerText();
    assert.equal(timings.steps, steps.length);
    assert.equal(await figure("per-pass"), timings.accept_length.toFixed(2));
    assert.equal(await figure("share"), `${Math.round(100 * timings.draft_n_accepted / timings.draft_n)} %`);
    await page.keyboard.press("Alt+KeyG");
    await page.keyboard.press("Home");
    for (let i = 1; i < 5; i++) await page.keyboard.press("ArrowRight");
    const shown = await page.locator(".tree-strip").getAttribute("aria-valuetext");
    assert.equal(shown, await page.locator(".tree-caption").innerText());
    assert.match(shown, new RegExp(`^Step 5 of ${steps.length}: ${steps[4].token.length - 1} guess(es)?, ` +
        `${steps[4].path.length - 1} kept$`));
    await page.getByText("Newest step").click();
    await page.waitForFunction((count) => document.querySelector(".tree-strip").ariaValueNow === String(count),
        steps.length);
    const ink = await page.locator(".tree-canvas").evaluate((canvas) => canvas.getContext("2d")
        .getImageData(0, 0, canvas.width, canvas.height).data.some((byte) => byte !== 0));
    assert.equal(ink, true, "something is drawn");
    await page.keyboard.press("Alt+KeyT");
    assert.equal(await page.locator(".tree").isVisible(), false);
    await ask(page, "hello");
    assert.equal("coppice" in server.seen.at(-1), false, "nobody looks, nothing is asked for");
    await page.done();
});

test("keys alone do everything", async () => {
    const page = await open(browser, server.url);
    await page.keyboard.type("hello"); // the text field has the focus from the start
    await page.keyboard.press("Enter");
    await answers(page).waitFor();
    await idle(page);
    await page.keyboard.press("Alt+KeyN");
    await page.keyboard.type("slowly");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.querySelector(".prose")?.innerText.length > 10);
    await page.keyboard.press("Escape");
    await idle(page);
    assert.match(await lastAnswer(page).locator(".note").innerText(), /^Stopped\./);
    await page.keyboard.press("Alt+ArrowDown");
    assert.deepEqual(await saidBy(page, "user"), ["hello"]);
    for (const [keys, name] of [["Alt+KeyH", "Shortcuts"], ["Alt+Comma", "Settings"]]) {
        await page.keyboard.press(keys);
        assert.equal(await page.locator("dialog[open] h2").innerText(), name);
        await page.keyboard.press("Escape");
        assert.equal(await page.locator("dialog[open]").count(), 0);
    }
    await page.keyboard.press("Alt+KeyI");
    assert.equal(await page.evaluate(() => document.activeElement.id), "box");
    // Tab reaches every button that can be seen, and each has a name and shows that it is focused.
    const buttons = await page.locator("button:visible:enabled").count();
    const reached = new Set();
    for (let i = 0; i < 80; i++) {
        await page.keyboard.press("Tab");
        const found = await page.evaluate(() => {
            const at = document.activeElement;
            if (at.localName !== "button") return null;
            return [[...document.querySelectorAll("button")].indexOf(at),
                (at.getAttribute("aria-label") || at.innerText).trim(), getComputedStyle(at).outlineStyle];
        });
        if (!found) continue;
        reached.add(found[0]);
        assert.notEqual(found[1], "", "a button has a name");
        assert.equal(found[2], "solid", `${found[1]} shows its focus`);
    }
    assert.equal(reached.size >= buttons, true, `${reached.size} of ${buttons} buttons reached`);
    await page.done();
});

test("conversations are named, exported, deleted and brought back", async () => {
    const page = await open(browser, server.url);
    await ask(page, "hello");
    await page.locator(".item").hover();
    await page.getByLabel("Rename: hello").click();
    await page.keyboard.type("Ein Name: <b>");
    await page.keyboard.press("Enter");
    assert.equal(await page.locator(".item .title").innerText(), "Ein Name: <b>");
    assert.equal(await page.locator("h1").innerText(), "Ein Name: <b>");
    await page.locator(".item").hover();
    const [file] = await Promise.all([page.waitForEvent("download"), page.getByLabel(/^Export as/).click()]);
    assert.equal(file.suggestedFilename(), "ein-name-b.md");
    const text = readFileSync(await file.path(), "utf8");
    assert.match(text, /## You\n\nhello\n\n## Answer\n\nHello. What shall we grow\?\n$/);
    await page.locator(".item").hover();
    await page.getByLabel(/^Delete/).click();
    assert.equal(await page.locator(".item").count(), 0);
    await page.getByText("Undo").click();
    assert.deepEqual(await saidBy(page, "user"), ["hello"]);
    const [all] = await Promise.all([page.waitForEvent("download"), page.getByText("Export all").click()]);
    const written = readFileSync(await all.path());
    await page.locator(".item").hover();
    await page.getByLabel(/^Delete/).click();
    await page.reload();
    await page.waitForSelector(".welcome");
    assert.equal(await page.locator(".item").count(), 0);
    const choose = (name, buffer) => page.locator(".sidebar input[type=file]").setInputFiles(
        { name, mimeType: "application/json", buffer });
    const broken = JSON.parse(written);
    Object.values(broken[0].nodes)[0].parent = broken[0].leaf; // a circle
    await choose("circle.json", Buffer.from(JSON.stringify(broken)));
    await page.waitForSelector(".toast:has-text('circle.json is not what')");
    await choose("all.json", written);
    await page.waitForSelector(".item");
    await page.locator(".item .title").click();
    assert.deepEqual(await saidBy(page, "user"), ["hello"]);
    await page.done();
});

test("two tabs see each other's conversations", async () => {
    const page = await open(browser, server.url);
    const other = await page.context().newPage();
    await other.goto(server.url);
    await ask(page, "hello");
    await other.locator(".item .title").click();
    await ask(other, "hello again");
    await page.waitForFunction(() => document.querySelectorAll(".message").length === 4);
    await ask(page, "hello for the third time");
    assert.deepEqual(await saidBy(page, "user"), ["hello", "hello again", "hello for the third time"]);
    await page.done();
});

test("settings are sent when they are set, and only then", async () => {
    const page = await open(browser, server.url);
    await ask(page, "hello");
    assert.deepEqual(Object.keys(server.seen.at(-1)).sort(),
        ["coppice", "messages", "model", "stream", "stream_options"]);
    assert.deepEqual(server.seen.at(-1).coppice, { trees: true });
    await page.locator("#settings").click();
    const values = { temperature: "0.7", top_p: "0.9", top_k: "40", min_p: "0.05", max_tokens: "5", seed: "7" };
    for (const [name, value] of Object.entries(values)) await page.locator(`#set-${name}`).fill(value);
    await page.locator("#set-system").fill("Be brief.");
    await page.locator("#set-speculation").uncheck();
    await page.locator("#set-thinking").selectOption("off");
    await page.keyboard.press("Escape");
    await page.reload();
    await page.waitForSelector(".message");
    await ask(page, "What is a coppice?");
    const { messages, ...body } = server.seen.at(-1);
    assert.deepEqual(messages[0], { role: "system", content: "Be brief." });
    for (const [name, value] of Object.entries(values)) assert.equal(body[name], Number(value));
    assert.deepEqual(body.coppice, { speculate: "off", trees: true });
    assert.deepEqual(body.chat_template_kwargs, { enable_thinking: false });
    assert.match(await lastAnswer(page).locator(".note").innerText(), /limit of tokens/);
    await page.waitForSelector(".tree-caption:has-text(': nothing was guessed')");
    await page.locator("#settings").click();
    await page.locator("#set-temperature").fill("-3");
    assert.equal(await page.locator("#set-temperature").getAttribute("aria-invalid"), "true");
    await page.locator("dialog[open]").getByText("Reset").click();
    assert.equal(await page.locator("#set-top_k").inputValue(), "");
    await page.keyboard.press("Escape");
    await ask(page, "hello");
    assert.equal("temperature" in server.seen.at(-1), false);
    await page.done();
});

test("thoughts are shown folded", async () => {
    const page = await open(browser, server.url);
    await ask(page, "think about it");
    const thoughts = lastAnswer(page).locator(".reasoning");
    assert.match(await thoughts.locator("summary").innerText(), /^Thought for \d/);
    assert.equal(await thoughts.locator("pre").isVisible(), false);
    await thoughts.locator("summary").click();
    assert.match(await thoughts.locator("pre").innerText(), /^The question is about trees\./);
    await ask(page, "hello");
    assert.equal(JSON.stringify(server.seen.at(-1)).includes("about trees"), false);
    await page.done();
});

test("what goes wrong is said plainly", async () => {
    const page = await open(browser, server.url, { expect: /400/ });
    await page.locator("#box").fill("too long");
    await page.keyboard.press("Enter");
    const error = page.locator(".note.error");
    await error.waitFor();
    assert.match(await error.innerText(), /^The prompt has 5000 tokens and the context holds 4096/);
    await ask(page, "break off in the midst");
    assert.match(await lastAnswer(page).locator(".note.error").innerText(), /^The device failed in a pass/);
    assert.notEqual(await lastAnswer(page).locator(".prose").innerText(), "", "what had come stays");
    await lastAnswer(page).getByText("Try again").click();
    await idle(page);
    assert.equal(await lastAnswer(page).locator(".branch").innerText(), "2 of 2");
    await page.done();
});

test("a server that loads, wants a key, and goes away", async (t) => {
    const other = await start({ pause: 4, key: "sesame-1", loading: true, feed: false });
    t.after(() => other.close());
    const page = await open(browser, other.url, { expect: /40[14]|503|ERR_/ });
    await page.waitForSelector(".banner:has-text('The model is being loaded.')");
    other.loaded();
    await page.waitForSelector("dialog[open]:has-text('wants a key')");
    assert.equal(await page.locator(".banner").isVisible(), false);
    await page.keyboard.type("wrong");
    await page.keyboard.press("Enter");
    await page.waitForSelector("dialog[open] #ask-key");
    await page.locator("dialog[open] input[type=password]").fill("sesame-1");
    await page.keyboard.press("Enter");
    await page.waitForSelector(".model:has-text('coppice-mock')");
    await ask(page, "hello");
    assert.deepEqual(await saidBy(page, "assistant"), ["Hello. What shall we grow?"]);
    await page.waitForSelector(".tree-caption:has-text('This server did not tell its trees: ')");
    const kept = await page.evaluate(() => [JSON.stringify(localStorage), JSON.stringify(sessionStorage)]);
    assert.equal(kept[0].includes("sesame"), false, "a key is not kept unless one says so");
    await say(page, "slowly, please");
    await page.waitForFunction(() => [...document.querySelectorAll(".prose")].at(-1).innerText.length > 10);
    other.close();
    await page.waitForSelector(".note.error:has-text('The connection to the server broke off.')");
    await page.locator(".note.error").getByText("Try again").click();
    await page.waitForSelector(".note.error:has-text('The server does not answer.')");
    await page.done();
});

test("a telephone has room for it", async () => {
    const page = await open(browser, server.url, { viewport: PHONE, hasTouch: true, isMobile: true });
    const fits = async (where) => {
        const over = await page.evaluate(() => [document.documentElement.scrollWidth,
            document.querySelector("#talk").scrollWidth - document.querySelector("#talk").clientWidth]);
        assert.deepEqual(over, [PHONE.width, 0], where);
    };
    await fits("at first sight");
    await page.locator("#box").fill("What is a coppice?");
    await page.locator("#send").tap();
    await answers(page).waitFor();
    await idle(page);
    await fits("with an answer");
    await page.locator("#menu").tap();
    assert.equal(await page.locator(".sidebar").isVisible(), true);
    await page.locator(".new").tap();
    await page.waitForSelector(".welcome");
    await page.waitForFunction(() => !document.body.classList.contains("with-sidebar"));
    await page.locator("#settings").tap();
    await fits("with settings");
    const box = await page.locator("dialog[open]").boundingBox();
    assert.equal(box.width <= PHONE.width, true);
    await page.keyboard.press("Escape");
    const small = await page.locator(".top button:visible, #send").evaluateAll((buttons) => buttons
        .filter((button) => button.offsetWidth < 36 || button.offsetHeight < 36).length);
    assert.equal(small, 0, "buttons are large enough for a thumb");
    assert.equal((await page.locator("#box").boundingBox()).width > 200, true);
    await page.done();
});

test("light and dark follow the system, or the switch, and both can be read", async () => {
    const brightness = (page) => page.evaluate(() => {
        const [r, g, b] = getComputedStyle(document.body).backgroundColor.match(/[\d.]+/g).map(Number);
        return (r + g + b) / 3 / (r + g + b > 3 ? 255 : 1);
    });
    const contrasts = (page) => page.evaluate(() => {
        const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
        const light = (colour) => {
            canvas.fillStyle = colour;
            canvas.fillRect(0, 0, 1, 1);
            const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((byte) => {
                const c = byte / 255;
                return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
            });
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const back = (element) => {
            for (let at = element; at; at = at.parentElement) {
                const colour = getComputedStyle(at).backgroundColor;
                if (!/, 0\)$|transparent/.test(colour)) return colour;
            }
            return getComputedStyle(document.body).backgroundColor;
        };
        const wrong = [];
        for (const element of document.querySelectorAll("#page *")) {
            const says = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
            if (!says || !element.checkVisibility({ opacityProperty: true })) continue;
            const [a, b] = [light(getComputedStyle(element).color), light(back(element))];
            const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
            if (ratio < 4.5) wrong.push(`${element.className || element.localName}: ${ratio.toFixed(2)}`);
        }
        return wrong;
    });
    for (const colorScheme of ["light", "dark"]) {
        const page = await open(browser, server.url, { colorScheme });
        await ask(page, "think, then tell: what is a coppice?");
        assert.equal(await brightness(page) > 0.5, colorScheme === "light");
        assert.deepEqual(await contrasts(page), [], `contrast when it is ${colorScheme}`);
        await page.keyboard.press("Alt+KeyL");
        assert.equal(await brightness(page) > 0.5, true, "light");
        await page.keyboard.press("Alt+KeyL");
        assert.equal(await brightness(page) > 0.5, false, "dark");
        await page.reload();
        await page.waitForSelector(".message");
        assert.equal(await brightness(page) > 0.5, false, "still dark");
        await page.done();
    }
});

test("two conversations can be answered at once", async () => {
    const page = await open(browser, server.url);
    await say(page, "slowly, the first");
    await page.keyboard.press("Alt+KeyN");
    await ask(page, "hello");
    assert.equal(await page.locator(".item.busy").count(), 1);
    await page.locator(".item.busy .title").click();
    await running(page);
    await page.waitForFunction(() => document.querySelector(".prose").innerText.length > 100);
    await page.locator("#send").click();
    await idle(page);
    assert.equal(await answers(page).count(), 1);
    await page.done();
});
