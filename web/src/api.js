// SPDX-License-Identifier: Apache-2.0
// The requests that the page makes, and what can go wrong with them as one sentence. Knows the
// shapes of the API, nothing of the page.

import * as keep from "./keep.js";

// status 0: the server could not be reached. code: the server's name for what is wrong, or null.
export class ApiError extends Error {
    constructor(status, message, code = null) {
        super(message);
        this.status = status;
        this.code = code;
    }
}

let key = keep.get("key", false) ?? keep.get("key", true) ?? "";

export const hasKey = () => key !== "";

// The key lives as long as the tab, or until it is replaced where `forever` says so.
export function setKey(value, forever) {
    key = value.trim();
    keep.set("key", key || null, false);
    keep.set("key", forever && key ? key : null, true);
}

async function failure(response) {
    let message = "", code = null;
    try {
        ({ message, code } = (await response.json()).error);
    } catch { /* not the API's own shape: a proxy, or another server */ }
    return new ApiError(response.status, message ||
        `The server answered with status ${response.status} ${response.statusText}.`.replace(" .", "."), code);
}

async function call(path, { body, signal } = {}) {
    const headers = {};
    if (key) headers.Authorization = `Bearer ${key}`;
    if (body) headers["Content-Type"] = "application/json";
    let response;
    try {
        response = await fetch(path, { method: body ? "POST" : "GET", headers, signal,
            body: body && JSON.stringify(body), cache: "no-store" });
    } catch (error) {
        if (error.name === "AbortError") throw error;
        throw new ApiError(0, "The server does not answer. Is coppice serve still running?");
    }
    if (!response.ok) throw await failure(response);
    return response;
}

// The values of an event stream's data lines, parsed, up to [DONE] or its end.
async function* events(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    try {
        for (;;) {
            const { value, done } = await reader.read();
            if (done) return;
            const lines = (rest + value).split(/\r?\n/);
            rest = lines.pop();
            for (const line of lines) {
                if (!line.startsWith("data:")) continue;
                const data = line.slice(5).trim();
                if (data === "[DONE]") return;
                yield JSON.parse(data);
            }
        }
    } catch (error) {
        if (error.name === "AbortError" || error instanceof ApiError) throw error;
        throw new ApiError(0, "The connection to the server broke off.");
    } finally {
        reader.cancel().catch(() => {});
    }
}

export const health = (signal) => call("/health", { signal });

export async function models() {
    return (await (await call("/v1/models")).json()).data;
}

// What the server says of itself.
export async function props() {
    return (await call("/props")).json();
}

// Chunks of a chat completion. An error in the midst of the stream is thrown like one before it.
export async function* chat(body, signal) {
    const response = await call("/v1/chat/completions", { body, signal });
    for await (const chunk of events(response)) {
        if (chunk.error) throw new ApiError(response.status, chunk.error.message, chunk.error.code);
        yield chunk;
    }
}

// Trees of a running completion, step by step.
export async function* trees(id, signal) {
    yield* events(await call(`/v1/streams/${encodeURIComponent(id)}/trees`, { signal }));
}
