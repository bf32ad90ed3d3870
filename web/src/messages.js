// SPDX-License-Identifier: Apache-2.0
// The messages of one conversation as they stand on the page, each with what can be done with it.
// Calls `actions` (retry, edit, show) and changes no data itself.
import { siblings } from "./conversation.js";
import { copyText, h, icon, signButton } from "./dom.js";
import { Markdown } from "./markdown.js";

const ENDS = { stopped: "Stopped.", length: "Cut off: the limit of tokens is reached.",
    context: "Cut off: the context is full." };

const TOO_LONG = "context_length_exceeded"; // the server's code of a prompt that does not fit

export class MessageView {
    constructor(conversation, node, actions) {
        this.node = node;
        this.actions = actions;
        this.element = h("article", { className: `message ${node.role}`, "data-id": node.id,
            "aria-label": node.role === "user" ? "You" : "Answer" });
        if (node.role === "user") this.buildUser(conversation);
        else this.buildAnswer(conversation);
    }

    buildUser(conversation) {
        this.element.append(h("div", { className: "said" }, this.node.text), this.bar(conversation,
            signButton("edit", "Edit and send again (Alt+E edits the last)", () => this.edit())));
    }

    buildAnswer(conversation) {
        this.thought = h("pre", { tabIndex: 0 });
        this.thoughtTitle = h("summary", {});
        this.reasoning = h("details", { className: "reasoning", hidden: true }, this.thoughtTitle,
            this.thought);
        this.body = h("div", { className: "prose" });
        this.markdown = new Markdown(this.body);
        this.wait = h("div", { className: "wait", "aria-hidden": "true" }, h("i"), h("i"), h("i"));
        this.note = h("div", { className: "note", hidden: true });
        this.stats = h("p", { className: "stats", hidden: true });
        this.again = signButton("retry", "Try again (Alt+R)", () => this.actions.retry(this.node));
        this.actionBar = this.bar(conversation, signButton("edit", "Edit this answer", () => this.editAnswer()),
            this.again);
        this.element.append(this.reasoning, this.body, this.wait, this.note, this.actionBar);
        this.actionBar.append(this.stats);
    }

    bar(conversation, ...buttons) {
        const copy = signButton("copy", "Copy", async () => {
            await copyText(this.node.text);
            copy.replaceChildren(icon("check"));
            setTimeout(() => copy.replaceChildren(icon("copy")), 1500);
        });
        const all = siblings(conversation, this.node);
        const at = all.indexOf(this.node);
        const turn = (label, sign, other) => signButton(sign, label, () => this.actions.show(other),
            { disabled: !other });
        const branch = all.length > 1 && h("span", { className: "branch" },
            turn("The one before", "left", all[at - 1]), h("span", {}, `${at + 1} of ${all.length}`),
            turn("The one after", "right", all[at + 1]));
        return h("div", { className: "bar" }, copy, ...buttons, branch);
    }

    // Brings an answer up to date; `running` while it is being written.
    update(running) {
        const { node } = this;
        if (node.role === "user") return;
        if (node.reasoning) {
            this.reasoning.hidden = false;
            this.thoughtTitle.textContent = running && !node.text ? "Thinking" :
                node.reasonedMs ? `Thought for ${(node.reasonedMs / 1000).toFixed(1)} s` : "Thoughts";
            this.reasoning.classList.toggle("busy", running && !node.text);
            if (this.thought.textContent !== node.reasoning) this.thought.textContent = node.reasoning;
        }
        this.markdown.update(node.json && node.text ? `\`\`\`json\n${node.text}` : node.text, !running);
        this.wait.hidden = !running || node.text !== "" || Boolean(node.reasoning);
        this.body.classList.toggle("writing", running);
        this.actionBar.classList.toggle("away", running);
        this.finish(running);
    }

    finish(running) {
        const { node } = this;
        this.again.hidden = node.code === TOO_LONG;
        const end = !running && ENDS[node.finish];
        this.note.hidden = running || !(node.error || end || !node.text);
        if (!this.note.hidden) {
            this.note.className = node.error ? "note error" : "note";
            this.note.replaceChildren(node.error ?? end ?? "The answer is empty.", ...this.choices());
            if (node.error) this.note.setAttribute("role", "alert");
        }
        this.stats.hidden = running || !node.stats;
        if (!this.stats.hidden) this.stats.textContent = statsLine(node.stats);
    }

    // What can be done about an answer that failed or is not whole.
    choices() {
        const { node, actions } = this;
        const chip = (text, onclick) => h("button", { type: "button", className: "chip", onclick }, text);
        // The same request again would be refused again.
        if (node.code === TOO_LONG)
            return [actions.canCompress() && chip("Shorten what came before", () => actions.compress(node)),
                chip("New conversation", () => actions.carryOver(node))].filter(Boolean);
        return [node.error && chip("Try again", () => actions.retry(node)),
            node.text && chip("Continue", () => actions.goOn(node))].filter(Boolean);
    }

    edit() {
        const send = (text) => text.trim() && this.actions.edit(this.node, text.trim());
        this.editor({ label: "Edit this message", rows: 3, hint: "What was said before stays as a branch.",
            submit: ["Send", send], enter: (event) => !event.shiftKey });
    }

    editAnswer() {
        const put = (goOn) => (text) => text.trim() && this.actions.rewrite(this.node, text, goOn);
        this.editor({ label: "Edit this answer", rows: 6, hint: "The answer as it was stays as a branch.",
            submit: ["Continue from here", put(true)], other: ["Keep", put(false)],
            enter: (event) => event.ctrlKey || event.metaKey });
    }

    // submit, other: the word on a button, and what is done with the text.
    editor({ label, rows, hint, submit, other, enter }) {
        const send = () => submit[1](box.value);
        const box = h("textarea", { value: this.node.text, "aria-label": label, rows,
            onkeydown: (event) => {
                if (event.key === "Escape") close();
                else if (event.key === "Enter" && enter(event) && !event.isComposing) send();
                else return;
                event.preventDefault();
                event.stopPropagation();
            } });
        const close = () => {
            form.replaceWith(...kept);
            this.element.classList.remove("editing");
        };
        const kept = [...this.element.childNodes];
        const form = h("form", { className: "edit", onsubmit: (event) => {
            event.preventDefault();
            send();
        } }, box, h("div", { className: "row" },
            h("small", {}, hint), h("span", { className: "spring" }),
            h("button", { type: "button", className: "chip", onclick: close }, "Cancel"),
            other ? h("button", { type: "button", className: "chip", onclick: () => other[1](box.value) }, other[0]) : null,
            h("button", { type: "submit", className: "chip primary" }, submit[0])));
        this.element.classList.add("editing");
        this.element.replaceChildren(form);
        box.focus();
    }
}

export function statsLine({ tokens, perSecond, perPass, drafted, accepted, firstMs, shortened }) {
    const parts = [`${tokens} ${tokens === 1 ? "token" : "tokens"}`];
    if (Number.isFinite(perSecond)) parts.push(`${perSecond.toFixed(perSecond < 100 ? 1 : 0)} a second`);
    if (drafted) {
        parts.push(`${perPass.toFixed(2)} a pass`);
        parts.push(`${Math.round(100 * accepted / drafted)} % of guesses accepted`);
    }
    if (firstMs !== null) parts.push(`first after ${(firstMs / 1000).toFixed(2)} s`);
    if (shortened) parts.push(`prompt shortened from ${shortened[0]} to ${shortened[1]} tokens`);
    return parts.map((part) => part.replaceAll(" ", "\u00a0")).join("\u00a0· ");
}
