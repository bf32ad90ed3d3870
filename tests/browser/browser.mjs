// SPDX-License-Identifier: Apache-2.0
// What the tests of the page share: a browser, pages that are watched, and what a person does with
// them. Every page that open() gave is held to the rules that hold always: no message on the
// console, nothing that the policy had to refuse, no request to another host.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { fileURLToPath } from "node:url";

export const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..", "..");
const require = createRequire(path.join(root, "build", "web", "package.json"));
export const esbuild = () => require("esbuild");

const BROWSERS = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
export const WIDE = { width: 1280, height: 800 };
export const PHONE = { width: 360, height: 740 };

export async function launch() {
    const { chromium } = require("playwright-core");
    return chromium.launch({ executablePath: BROWSERS.find(existsSync), args: ["--no-sandbox"] });
}

// A page in a context of its own. `expect`: console messages that the case brings about, as a
// pattern: the browser reports an answer of 400 and above as an error.
export async function open(browser, url, { expect, ...options } = {}) {
    const context = await browser.newContext({ viewport: WIDE, ...options });
    const page = await context.newPage();
    const wrong = [];
    page.on("console", (message) => {
        if (!expect?.test(message.text())) wrong.push(`${message.type()}: ${message.text()}`);
    });
    page.on("pageerror", (error) => wrong.push(String(error)));
    page.on("request", (request) => {
        if (!request.url().startsWith(url) && !request.url().startsWith("data:") &&
            !request.url().startsWith("blob:")) wrong.push(`asks for ${request.url()}`);
    });
    await page.addInitScript(() => {
        // Event streams as they came: [path, text], for those that are over.
        window.told = [];
        const { fetch } = window;
        window.fetch = async (...wish) => {
            const response = await fetch(...wish);
            response.clone().text().then((text) => window.told.push([wish[0], text])).catch(() => {});
            return response;
        };
        addEventListener("securitypolicyviolation", (event) =>
            console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));
    });
    page.done = async () => {
        await context.close();
        assert.deepEqual(wrong, [], "the console is quiet and no other host is asked");
    };
    await page.goto(url);
    await page.waitForSelector("#box");
    return page;
}

export const running = (page) => page.waitForSelector("#send[aria-label=Stop]");
export const idle = (page) => page.waitForSelector("#send[aria-label=Send]", { timeout: 30000 });

// An answer may be over before one looks, so what is waited for is that there is one more.
export async function say(page, text) {
    const before = await answers(page).count();
    await page.locator("#box").fill(text);
    await page.keyboard.press("Enter");
    await answers(page).nth(before).waitFor({ state: "attached" });
}

export async function ask(page, text) {
    await say(page, text);
    await idle(page);
}

// The values of the newest event stream whose path fits, once it is over.
export async function told(page, pattern) {
    const found = await page.waitForFunction((source) =>
        window.told.findLast(([where]) => new RegExp(source).test(where)), pattern.source);
    return (await found.jsonValue())[1].split("\n").filter((line) => line.startsWith("data: {"))
        .map((line) => JSON.parse(line.slice(6)));
}

export const answers = (page) => page.locator(".message.assistant");
export const lastAnswer = (page) => answers(page).last();
export const saidBy = (page, who) => page.locator(`.message.${who} ${who === "user" ? ".said" : ".prose"}`)
    .allInnerTexts();
