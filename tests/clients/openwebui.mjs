// SPDX-License-Identifier: Apache-2.0
// Open WebUI in headless Chromium, as its user clicks. Lines on standard input are prompts; each answer comes back as a JSON
// line once it is whole. "/stop WORDS" sends words and presses the stop button as soon as it is there.
// Usage: node openwebui.mjs URL MODEL CHROMIUM
import { chromium } from "playwright-core";
import { createInterface } from "node:readline";

const [url, model, executablePath] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-background-networking",
  "--disable-component-update", "--no-proxy-server"] });
const page = await browser.newPage();
page.setDefaultTimeout(120000);
await page.goto(`${url}/?models=${model}`);
const input = page.locator("#chat-input");
await input.waitFor();
const news = page.getByRole("button", { name: /Okay, Let's Go/i });
await news.click({ timeout: 5000 }).catch(() => {});
const send = page.locator("#send-message-button");
const stop = page.locator('button:has(svg path[d^="M2.25 12c0-5.385"])');
const answers = page.locator("[class*=chat-assistant]");

console.log(JSON.stringify({ ready: true }));
for await (const line of createInterface({ input: process.stdin })) {
  const stopping = line.startsWith("/stop ");
  const before = await answers.count();
  await input.fill(stopping ? line.slice(6) : line);
  await send.click();
  await stop.waitFor();
  if (stopping) {
    await page.waitForTimeout(1500);
    await stop.click();
  }
  await stop.waitFor({ state: "detached" });
  const found = await answers.allInnerTexts();
  console.log(JSON.stringify({ answer: found.slice(before).join("\n") }));
}
await browser.close();
