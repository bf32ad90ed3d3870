// SPDX-License-Identifier: Apache-2.0
// What goes into a request beside the words that are typed, against the stand-in server: files, the form
// of the answer, the beginning of an answer that is to be continued; and what the page says of the context.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { answers, ask, idle, lastAnswer, launch, open, saidBy, say } from "./browser.mjs";
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

// Drops files ([name, text or bytes]) on what the selector finds.
const drop = (page, selector, ...files) => page.locator(selector).evaluate((element, files) => {
    const dataTransfer = new DataTransfer();
    for (const [name, what] of files)
        dataTransfer.items.add(new File([typeof what === "string" ? what : new Uint8Array(what)], name));
    const event = (type) => new DragEvent(type, { dataTransfer, bubbles: true, cancelable: true });
    const taken = !element.dispatchEvent(event("dragover"));
    element.dispatchEvent(event("drop"));
    return taken;
}, files);

// Pastes files ([name, text or bytes, type]) and a text; whether the page took them.
const paste = (page, selector, text, ...files) => page.locator(selector).evaluate((element, [text, files]) => {
    const clipboardData = new DataTransfer();
    for (const [name, what, type] of files)
        clipboardData.items.add(new File([typeof what === "string" ? what : new Uint8Array(what)], name, { type }));
    if (text) clipboardData.setData("text/plain", text);
    return !element.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
}, [text, files]);

const filled = (page, text) => page.waitForFunction((text) => document.querySelector("#box").value === text, text);

test("text files that are dropped or chosen go into the message", async () => {
    const page = await open(browser, server.url);
    await page.locator("#box").fill("Look:");
    assert.equal(await drop(page, "#talk", ["a`b.py", "print(1)\r\n"], ["notes", "```\nfenced\n```\n"]), true);
    const text = "Look:\n\n`a b.py`:\n\n```py\nprint(1)\n```\n\n`notes`:\n\n````\n```\nfenced\n```\n````\n";
    await filled(page, text);
    await page.keyboard.press("Enter");
    await answers(page).waitFor();
    await idle(page);
    assert.equal(server.seen.at(-1).messages.at(-1).content, text.trim());
    const choose = page.getByLabel("Put text files into the message");
    const [chooser] = await Promise.all([page.waitForEvent("filechooser"), choose.press("Enter")]);
    await chooser.setFiles([{ name: "x.txt", mimeType: "text/plain", buffer: Buffer.from("näher") }]);
    await filled(page, "`x.txt`:\n\n```txt\nnäher\n```\n");
    await page.locator("#box").fill("");
    for (const [why, ...files] of [
        ["photo.jpg is not text in UTF-8: only such files can be put into a message.", ["photo.jpg", [255, 216, 255]]],
        ["zero.bin is not text in UTF-8", ["zero.bin", [65, 0, 66]]],
        ["long.txt has 257 KiB and a message takes 256 KiB of files at once", ["long.txt", "x".repeat(256 * 1024 + 1)]],
        ["These files have 300 KiB", ["a", "x".repeat(150 * 1024)], ["b", "x".repeat(150 * 1024)]],
    ]) {
        await drop(page, "#box", ...files);
        await page.locator(".toast", { hasText: why }).waitFor();
        assert.equal(await page.locator("#box").inputValue(), "");
    }
    await page.keyboard.press("Alt+KeyE");
    await page.locator(".edit textarea").fill("");
    await drop(page, ".edit textarea", ["y.c", "int y;"]);
    await page.waitForFunction(() => document.querySelector(".edit textarea").value === "`y.c`:\n\n```c\nint y;\n```\n");
    assert.equal(await page.locator("#box").inputValue(), "");
    await page.done();
});

test("files of the clipboard go into the message as dropped ones do", async () => {
    const page = await open(browser, server.url);
    await page.locator("#box").fill("Look:");
    assert.equal(await paste(page, "#box", "", ["a.py", "print(1)\n", "text/x-python"], ["notes", "more", ""]), true);
    const text = "Look:\n\n`a.py`:\n\n```py\nprint(1)\n```\n\n`notes`:\n\n```\nmore\n```\n";
    await filled(page, text);
    assert.equal(await paste(page, "#talk", "", ["b.txt", "far", "text/plain"]), true);
    await filled(page, `${text}\`b.txt\`:\n\n\`\`\`txt\nfar\n\`\`\`\n`);
    assert.equal(await paste(page, "#box", "words"), false, "text is the browser's");
    assert.equal(await paste(page, "#box", "words", ["w.png", [1], "image/png"]), false, "so is text with its picture");
    await page.locator("#box").fill("");
    assert.equal(await paste(page, "#box", "", ["image.png", [137, 80, 78, 71, 13, 10, 26, 10, 0], "image/png"]), true);
    await page.locator(".toast", { hasText: "image.png is not text in UTF-8" }).waitFor();
    await ask(page, "What is a coppice?");
    await page.keyboard.press("Alt+KeyE");
    await page.locator(".edit textarea").fill("");
    await paste(page, ".edit textarea", "/y.c", ["y.c", "int y;", "text/x-csrc"]);
    await page.waitForFunction(() => document.querySelector(".edit textarea").value === "`y.c`:\n\n```c\nint y;\n```\n");
    await page.done();
});

test("the page says how much of the context is used", async (t) => {
    const small = await start({ pause: 4, context: 400 });
    t.after(() => small.close());
    for (const [where, full] of [[server, false], [small, true]]) {
        const page = await open(browser, where.url);
        const context = page.locator("#context");
        assert.equal(await context.isVisible(), false, "nothing is known of an empty conversation");
        await ask(page, "What is a coppice?");
        // 31 tokens of the prompt and 328 of the answer, as the stand-in counts.
        const said = full ? "Context: 359 of 400 tokens used (89 %)" : "Context: 359 of 4,096 tokens used (8 %)";
        assert.equal(await context.innerText(), said);
        assert.equal(await context.evaluate((element) => element.classList.contains("full")), full);
        await page.reload();
        await page.locator("#context", { hasText: said }).waitFor();
        await say(page, "slowly, please");
        await page.waitForFunction(() => [...document.querySelectorAll(".prose")].at(-1).innerText.length > 5);
        await page.keyboard.press("Escape");
        await idle(page);
        const least = /^Context: at least (\d+) of/.exec(await context.innerText());
        assert.ok(Number(least?.[1]) > 359, "and the part of an answer that was stopped");
        await page.keyboard.press("Alt+KeyN");
        assert.equal(await context.isVisible(), false);
        await page.done();
    }
});

test("a schema and stop strings are sent, and what is no schema is said", async () => {
    const page = await open(browser, server.url);
    const schema = page.locator("#set-schema"), wrong = page.locator(".wrong");
    await page.keyboard.press("Alt+Comma");
    for (const [text, why] of [["{\"type\": ", /^Not used, since it is not JSON: .+\.$/],
        ["[1]", /^Not used, since a schema is an object/]]) {
        await schema.fill(text);
        assert.match(await wrong.innerText(), why);
        assert.equal(await schema.getAttribute("aria-invalid"), "true");
    }
    await page.locator("#set-stop").fill("END\n\n\\n\\n##\n\\\\n");
    await page.keyboard.press("Escape");
    await ask(page, "hello");
    assert.equal("response_format" in server.seen.at(-1), false, "what is no schema is not sent");
    assert.deepEqual(server.seen.at(-1).stop, ["END", "\n\n##", "\\n"]);
    await page.keyboard.press("Alt+Comma");
    await schema.fill("{\"type\": \"object\"}");
    assert.equal(await wrong.isVisible(), false);
    assert.equal(await schema.getAttribute("aria-invalid"), "false");
    await page.locator("#set-stop").fill("");
    await page.keyboard.press("Escape");
    await page.reload();
    await page.waitForSelector(".message");
    await ask(page, "echo {\"a\": \"*b*\"}");
    assert.deepEqual(server.seen.at(-1).response_format, { type: "json_schema",
        json_schema: { name: "answer", strict: true, schema: { type: "object" } } });
    assert.equal("stop" in server.seen.at(-1), false);
    assert.equal((await lastAnswer(page).locator(".prose pre").innerText()).trim(), "{\"a\": \"*b*\"}", "shown as it is");
    await page.done();
});

test("the end of an answer is drawn as a mark", async () => {
    const page = await open(browser, server.url);
    await page.evaluate(() => {
        window.drawn = [];
        const { fillText } = CanvasRenderingContext2D.prototype;
        CanvasRenderingContext2D.prototype.fillText = function (text, ...where) {
            window.drawn.push(text);
            return fillText.call(this, text, ...where);
        };
    });
    await ask(page, "What is a coppice?");
    await page.waitForSelector(".tree-caption:has-text('Step ')");
    const feed = await page.waitForFunction(() => window.told.findLast(([where]) => where.includes("streams")));
    const steps = (await feed.jsonValue())[1].split("\n").filter((line) => line.startsWith("data: {\"type\":\"tree\""));
    const at = steps.findIndex((line) => line.includes("<|im_end|>"));
    assert.notEqual(at, -1, "the stand-in guesses the end somewhere");
    await page.keyboard.press("Alt+KeyG");
    await page.keyboard.press("Home");
    for (let i = 0; i < at; i++) await page.keyboard.press("ArrowRight");
    await page.waitForFunction(() => window.drawn.includes("∎"));
    assert.deepEqual(await page.evaluate(() => window.drawn.filter((text) => text.includes("im_end"))), []);
    await page.done();
});

test("a conversation that is too long is shortened by the scorer, or a new one begins", async (t) => {
    const scorer = await start({ pause: 4, compression: "auto" });
    t.after(() => scorer.close());
    for (const [where, can] of [[server, false], [scorer, true]]) {
        const page = await open(browser, where.url, { expect: /400/ });
        const error = page.locator(".note.error"), buttons = error.locator("button");
        await say(page, "this is too long");
        await error.waitFor();
        assert.deepEqual(await buttons.allInnerTexts(), ["New conversation"], "a question alone was tried already");
        assert.equal(await lastAnswer(page).getByLabel(/^Try again/).isVisible(), false, "it would fail again");
        await page.keyboard.press("Alt+KeyN");
        await ask(page, "hello");
        await say(page, "this is too long");
        await error.waitFor();
        assert.deepEqual(await buttons.allInnerTexts(), can ? ["Shorten what came before", "New conversation"] :
            ["New conversation"]);
        if (can) {
            await buttons.first().click();
            await idle(page);
            assert.deepEqual(where.seen.at(-1).messages, [{ role: "user", content:
                "The conversation so far:\n\nUser: hello\n\nAssistant: Hello. What shall we grow?" },
            { role: "user", content: "this is too long" }]);
            assert.match((await lastAnswer(page).locator(".stats").innerText()).replaceAll("\u00a0", " "),
                /prompt shortened from 5000 to 900 tokens/);
            await ask(page, "and on"); // it stays so
            assert.equal(where.seen.at(-1).messages.length, 2);
        } else {
            await buttons.last().click();
            await page.waitForSelector(".welcome");
            assert.equal(await page.locator("#box").inputValue(), "this is too long");
            assert.equal(await page.evaluate(() => document.activeElement.id), "box");
        }
        await page.done();
    }
});

test("an answer can be edited, kept, and continued", async () => {
    const page = await open(browser, server.url);
    await ask(page, "think, hello");
    const edit = lastAnswer(page).getByLabel("Edit this answer"), box = page.locator(".edit textarea");
    await edit.click();
    await box.fill("Hello. What");
    await page.getByText("Keep", { exact: true }).click();
    const count = server.seen.length;
    assert.equal((await saidBy(page, "assistant"))[0], "Hello. What");
    assert.equal(await lastAnswer(page).locator(".branch").innerText(), "2 of 2");
    await edit.press("Enter");
    await box.fill("A wood is cut.");
    await page.keyboard.press("Control+Enter");
    await page.waitForSelector(".branch:has-text('3 of 3')");
    await idle(page);
    assert.equal(server.seen.length, count + 1, "to keep it, nothing is asked for");
    const body = server.seen.at(-1);
    assert.equal(body.continue_final_message, true);
    assert.deepEqual(body.messages, [{ role: "user", content: "think, hello" }, { role: "assistant",
        content: "A wood is cut.", reasoning_content: "The question is about trees. A short answer with an example will do." }]);
    assert.equal((await saidBy(page, "assistant"))[0], "A wood is cut. And it grows again.");
    await ask(page, "hello"); // an answer of before is not what is continued
    assert.equal("continue_final_message" in server.seen.at(-1), false);
    await page.reload();
    await page.waitForSelector(".message");
    assert.equal((await saidBy(page, "assistant"))[0], "A wood is cut. And it grows again.");
    await say(page, "slowly, please");
    await page.waitForFunction(() => [...document.querySelectorAll(".prose")].at(-1).innerText.length > 10);
    await page.keyboard.press("Escape");
    await idle(page);
    const before = (await saidBy(page, "assistant")).at(-1);
    await lastAnswer(page).getByText("Continue", { exact: true }).click();
    await page.waitForFunction(() => [...document.querySelectorAll(".prose")].at(-1).innerText.endsWith("again."));
    await idle(page);
    assert.equal(await lastAnswer(page).locator(".note").isVisible(), false);
    assert.equal(server.seen.at(-1).messages.at(-1).content.startsWith(before.slice(0, 10)), true);
    await page.done();
});
