// SPDX-License-Identifier: Apache-2.0
// Conversations in the browser's own database, settings in its local storage. All conversations are
// held in memory too; a change is written behind, and at once when the page goes away. Where there
// is no database (some private windows) they last as long as the page.
const WRITE_MS = 400;
const conversations = new Map();
const dirty = new Set();
let database = null;
let timer = 0;

const request = (wish) => new Promise((done, fail) => {
    wish.onsuccess = () => done(wish.result);
    wish.onerror = () => fail(wish.error);
});

export async function open() {
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
    max_tokens: null, seed: null, speculation: true, thinking: "default", theme: "auto",
    tree: true, sidebar: true, model: "" };

export const defaults = () => ({ ...DEFAULTS });

export function loadSettings() {
    try {
        return { ...DEFAULTS, ...JSON.parse(localStorage.getItem("coppice.settings") ?? "{}") };
    } catch {
        return { ...DEFAULTS };
    }
}

export function saveSettings(settings) {
    localStorage.setItem("coppice.settings", JSON.stringify(settings));
}
