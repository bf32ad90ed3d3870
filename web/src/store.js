// SPDX-License-Identifier: Apache-2.0
// Conversations in the browser's own database, settings in its local storage. All conversations are
// held in memory too; a change is written behind, and at once when the page goes away. Other tabs are
// told and read it again. Where there is no database (some private windows) conversations last as
// long as the page.
import * as keep from "./keep.js";

const WRITE_MS = 400;
const conversations = new Map();
const dirty = new Set();
const tabs = new BroadcastChannel("coppice");
let database = null;
let timer = 0;
let refused = () => {};

const request = (wish) => new Promise((done, fail) => {
    wish.onsuccess = () => done(wish.result);
    wish.onerror = () => fail(wish.error);
});

// onrefused: what was to be kept could not be, and why. onchange(ids): another tab changed them.
export async function open(onrefused, onchange) {
    refused = onrefused;
    tabs.onmessage = (event) => read(event.data).then(() => onchange(event.data));
    try {
        const wish = indexedDB.open("coppice", 1);
        wish.onupgradeneeded = () => wish.result.createObjectStore("conversations", { keyPath: "id" });
        database = await request(wish);
        const store = database.transaction("conversations").objectStore("conversations");
        for (const conversation of await request(store.getAll()))
            conversations.set(conversation.id, conversation);
    } catch {
        database = null;
    }
    addEventListener("pagehide", write);
    document.addEventListener("visibilitychange", () => document.hidden && write());
    return database !== null;
}

async function read(ids) {
    if (!database) return;
    const store = database.transaction("conversations").objectStore("conversations");
    const found = await Promise.all(ids.map((id) => request(store.get(id))));
    found.forEach((conversation, i) => {
        if (conversation) conversations.set(ids[i], conversation);
        else conversations.delete(ids[i]);
    });
}

function write() {
    clearTimeout(timer);
    timer = 0;
    if (!database || dirty.size === 0) return;
    const transaction = database.transaction("conversations", "readwrite");
    const store = transaction.objectStore("conversations");
    for (const id of dirty) {
        if (conversations.has(id)) store.put(conversations.get(id));
        else store.delete(id);
    }
    const ids = [...dirty];
    transaction.oncomplete = () => tabs.postMessage(ids);
    transaction.onabort = () => refused(transaction.error?.message ?? "");
    transaction.commit(); // a page that goes away cannot wait for its requests
    dirty.clear();
}

// The newest first.
export const all = () => [...conversations.values()].sort((a, b) => b.updated - a.updated);
export const get = (id) => conversations.get(id);

// `soon`: it grows all the time, and the next moment will do.
export function save(conversation, soon = false) {
    conversations.set(conversation.id, conversation);
    dirty.add(conversation.id);
    if (soon) timer ||= setTimeout(write, WRITE_MS);
    else write();
}

export function remove(id) {
    conversations.delete(id);
    dirty.add(id);
    write();
}

const DEFAULTS = { system: "", temperature: null, top_p: null, top_k: null, min_p: null,
    max_tokens: null, seed: null, schema: "", stop: "", speculation: true, thinking: "default", theme: "auto",
    tree: true, sidebar: true, model: "" };

export const defaults = () => ({ ...DEFAULTS });

export function loadSettings() {
    try {
        return { ...DEFAULTS, ...JSON.parse(keep.get("settings", true) ?? "{}") };
    } catch {
        return { ...DEFAULTS };
    }
}

export function saveSettings(settings) {
    keep.set("settings", JSON.stringify(settings), true);
}
