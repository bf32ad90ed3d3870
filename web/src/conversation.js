// SPDX-License-Identifier: Apache-2.0
// A conversation is a tree of messages and the leaf that is shown: an edited message or another try
// at an answer is a sibling, so nothing that was said is lost. Plain data, as the browser keeps it.

export function newId() {
    const bytes = crypto.getRandomValues(new Uint8Array(9));
    return Array.from(bytes, (byte) => byte.toString(36).padStart(2, "0")).join("");
}

export function create() {
    const now = Date.now();
    return { id: newId(), title: "", created: now, updated: now, leaf: null, nodes: {} };
}

// Messages from the first to the leaf.
export function path(conversation, leaf = conversation.leaf) {
    const messages = [];
    for (let id = leaf; id !== null; id = conversation.nodes[id].parent)
        messages.unshift(conversation.nodes[id]);
    return messages;
}

export function siblings(conversation, node) {
    return Object.values(conversation.nodes).filter((other) => other.parent === node.parent)
        .sort((a, b) => a.at - b.at);
}

// Adds a message below `parent` (null: the first) and shows it.
export function add(conversation, parent, fields) {
    const last = Object.values(conversation.nodes).reduce((at, node) => Math.max(at, node.at), 0);
    const node = { id: newId(), parent, at: Math.max(Date.now(), last + 1), text: "", ...fields };
    conversation.nodes[node.id] = node;
    conversation.leaf = node.id;
    conversation.updated = Date.now();
    if (!conversation.title && node.role === "user") conversation.title = titleOf(node.text);
    return node;
}

// Shows the branch of `node`, down to what was said last in it.
export function show(conversation, node) {
    for (let at = node; at;) {
        conversation.leaf = at.id;
        at = Object.values(conversation.nodes).filter((other) => other.parent === at.id)
            .sort((a, b) => b.at - a.at)[0];
    }
}

function titleOf(text) {
    const line = text.trim().split("\n")[0].replace(/\s+/g, " ");
    if (line.length <= 48) return line;
    return line.slice(0, 48).replace(/\s+\S*$/, "") + "…";
}

// What the server is sent: without reasoning, which templates want back only within a turn.
export function messagesFor(conversation, leaf, system) {
    const said = path(conversation, leaf).filter((node) => node.text !== "" || node.role === "user")
        .map((node) => ({ role: node.role, content: node.text }));
    const messages = conversation.compress ? fold(said) : said;
    return system ? [{ role: "system", content: system }, ...messages] : messages;
}

// What came before the last question as one text of the user's: a server with a scorer shortens long
// texts, but leaves a conversation alone in which the model has answered.
function fold(messages) {
    const last = messages.findLastIndex((message) => message.role === "user");
    const earlier = messages.slice(0, last);
    if (!earlier.some((message) => message.role === "assistant")) return messages;
    const names = { user: "User", assistant: "Assistant" };
    return [{ role: "user", content: "The conversation so far:\n\n" +
        earlier.map(({ role, content }) => `${names[role]}: ${content.trim()}`).join("\n\n") },
    ...messages.slice(last)];
}

// Tokens of the context that the branch on the page takes, as the newest answer's counts say; `part`: more
// was said after it. null: no count is known.
export function contextUsed(conversation) {
    const said = path(conversation);
    const at = said.findLastIndex((node) => Number.isFinite(node.stats?.prompt ?? NaN));
    if (at === -1) return null;
    const since = said.slice(at + 1).reduce((all, node) => all + (node.stats?.tokens ?? 0), 0); // of an answer that was stopped
    return { tokens: said[at].stats.prompt + said[at].stats.tokens + since, part: at + 1 < said.length };
}

// Whether a value from a file can be used as a conversation.
export function isConversation(value) {
    const nodes = Object.values(value?.nodes ?? {});
    const known = (id) => id === null || typeof value.nodes[id]?.text === "string";
    return typeof value?.id === "string" && typeof value.title === "string" &&
        typeof value.updated === "number" && known(value.leaf) &&
        nodes.every((node) => ["user", "assistant"].includes(node.role) && known(node.parent) &&
            value.nodes[node.id] === node && endsAtRoot(value, node));
}

function endsAtRoot(conversation, node) {
    let steps = Object.keys(conversation.nodes).length;
    for (let at = node; at.parent !== null; at = conversation.nodes[at.parent])
        if (--steps < 0) return false;
    return true;
}

export function toMarkdown(conversation) {
    const names = { user: "You", assistant: "Answer" };
    return `# ${conversation.title || "Conversation"}\n\n` + path(conversation)
        .map((node) => `## ${names[node.role]}\n\n${node.text.trim()}\n`).join("\n");
}
