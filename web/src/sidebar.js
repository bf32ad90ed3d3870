// SPDX-License-Identifier: Apache-2.0
// The list of conversations: open, rename in place, export, delete (which can be undone).
import { isConversation, toMarkdown } from "./conversation.js";
import { download, h, signButton } from "./dom.js";
import * as store from "./store.js";

function fileName(conversation, extension) {
    const name = (conversation.title || "conversation").replace(/[^\p{L}\p{N}]+/gu, "-")
        .replace(/^-|-$/g, "").toLowerCase();
    return `${name.slice(0, 40) || "conversation"}.${extension}`;
}

function age(time) {
    const days = Math.floor((new Date().setHours(23, 59, 59, 999) - time) / 86400000);
    return days === 0 ? "Today" : days === 1 ? "Yesterday" : days < 7 ? "This week" :
        days < 31 ? "This month" : "Earlier";
}

export class Sidebar {
    constructor(actions) {
        this.actions = actions;
        this.picker = h("input", { type: "file", accept: ".json,application/json", hidden: true,
            onchange: () => this.importAll() });
        this.list = h("div", { className: "list" });
        this.element = h("nav", { className: "sidebar", id: "sidebar", "aria-label": "Conversations" },
            h("header", {}, h("a", { className: "name", href: "/" }, "coppice"),
                h("span", { className: "spring" }),
                signButton("close", "Hide the conversations (Alt+S)", actions.hide)),
            h("button", { type: "button", className: "new", title: "New conversation (Alt+N)",
                onclick: actions.create }, "New conversation"),
            this.list,
            h("footer", {}, h("button", { type: "button", className: "quiet",
                onclick: () => this.exportAll() }, "Export all"),
            h("button", { type: "button", className: "quiet",
                onclick: () => this.picker.click() }, "Import"),
            this.picker, h("button", { type: "button", className: "quiet", onclick: actions.about }, "About")));
    }

    exportAll() {
        download("coppice-conversations.json", "application/json",
            JSON.stringify(store.all(), null, 1));
    }

    // Takes in what "Export all" wrote; of a conversation that is here too, the newer one stays.
    async importAll() {
        const [file] = this.picker.files;
        this.picker.value = "";
        let taken = 0;
        try {
            for (const one of JSON.parse(await file.text())) {
                if (!isConversation(one)) throw new Error("not a conversation");
                if ((store.get(one.id)?.updated ?? 0) >= one.updated) continue;
                store.save(one);
                taken++;
            }
            this.actions.imported(`Imported: ${taken} ${taken === 1 ? "conversation" : "conversations"}`);
        } catch {
            this.actions.imported(`${file.name} is not what "Export all" writes.`);
        }
    }

    update(current, running) {
        const items = []; // a heading, and a list of the conversations under it, by turns
        let group = "";
        for (const conversation of store.all()) {
            if (age(conversation.updated) !== group) {
                group = age(conversation.updated);
                items.push(h("h2", {}, group), h("div", { role: "list", "aria-label": group }));
            }
            items.at(-1).append(this.item(conversation, conversation.id === current,
                running.has(conversation.id)));
        }
        if (items.length === 0)
            items.push(h("p", { className: "empty" }, "Conversations stay in this browser, and only there."));
        this.list.replaceChildren(...items);
    }

    item(conversation, open, busy) {
        const title = h("button", { type: "button", className: "title", title: conversation.title,
            "aria-current": open ? "page" : "false",
            onclick: () => this.actions.open(conversation.id),
            ondblclick: () => this.rename(item, conversation) }, conversation.title || "New conversation");
        const act = (sign, label, run) => signButton(sign, `${label}: ${conversation.title}`, run);
        const item = h("div", { className: `item${open ? " open" : ""}${busy ? " busy" : ""}`,
            role: "listitem" }, title, h("span", { className: "acts" },
            act("edit", "Rename", () => this.rename(item, conversation)),
            act("save", "Export as Markdown", () => download(fileName(conversation, "md"),
                "text/markdown", toMarkdown(conversation))),
            act("trash", "Delete", () => this.actions.remove(conversation))));
        return item;
    }

    rename(item, conversation) {
        let ended = false;
        const end = (keep) => {
            if (ended) return;
            ended = true;
            const title = box.value.trim();
            if (keep && title) {
                conversation.title = title;
                store.save(conversation);
            }
            this.actions.renamed(conversation);
        };
        const box = h("input", { value: conversation.title, "aria-label": "Name of the conversation",
            maxLength: 120, onblur: () => end(true), onkeydown: (event) => {
                if (event.key === "Enter") end(true);
                else if (event.key === "Escape") end(false);
                else return;
                event.stopPropagation();
            } });
        item.replaceChildren(box);
        box.focus();
        box.select();
    }
}
