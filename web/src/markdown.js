// SPDX-License-Identifier: Apache-2.0
// Markdown to elements, also while it is still being written: blocks that are finished are rendered
// once and left alone, only the last one is rendered again as it grows. Raw HTML stays text, images
// become links (nothing may be fetched), and code is highlighted.
import MarkdownIt from "markdown-it";
import { h, icon, copyText } from "./dom.js";

const HIGHLIGHT_MAX = 60000; // characters of one block; more stays plain
const GROWING_MAX = 6000;    // the same while it is being written

let hljs = null; // parsed when the first code block is seen

const md = new MarkdownIt({ html: false, linkify: true, typographer: false, breaks: false });
const escape = md.utils.escapeHtml;

// The policy allows no style attributes, which is how markdown-it aligns columns.
for (const rule of ["th_open", "td_open"]) {
    md.renderer.rules[rule] = (tokens, index, options, env, self) => {
        const style = tokens[index].attrGet("style");
        if (style) tokens[index].attrs = [["class", style.replace("text-align:", "align-")]];
        return self.renderToken(tokens, index, options);
    };
}
md.renderer.rules.table_open = () => '<div class="table"><table>';
md.renderer.rules.table_close = () => "</table></div>";
md.renderer.rules.image = (tokens, index) =>
    `<a href="${escape(tokens[index].attrGet("src"))}" target="_blank" ` +
    `rel="noopener noreferrer">${escape(tokens[index].content || "image")}</a>`;
md.renderer.rules.link_open = (tokens, index, options, env, self) => {
    tokens[index].attrSet("target", "_blank");
    tokens[index].attrSet("rel", "noopener noreferrer");
    return self.renderToken(tokens, index, options);
};
const code = (language, text) => `<div class="code" data-language="${escape(language)}">` +
    `<pre tabindex="0"><code>${escape(text)}</code></pre></div>`;
md.renderer.rules.fence = (tokens, index) =>
    code(tokens[index].info.trim().split(/\s+/)[0] ?? "", tokens[index].content);
md.renderer.rules.code_block = (tokens, index) => code("", tokens[index].content);

// Trusted types: markup comes from here and nowhere else.
const trust = window.trustedTypes?.createPolicy("page", { createHTML: (markup) => markup }) ??
    { createHTML: (markup) => markup };

function elements(markup) {
    const template = document.createElement("template");
    template.innerHTML = trust.createHTML(markup);
    return template.content;
}

function highlight(block, growing) {
    const language = block.dataset.language;
    const element = block.querySelector("code");
    const text = element.textContent;
    if (!hljs) {
        import("highlight.js/lib/common").then((module) => {
            hljs = module.default;
            document.querySelectorAll(".code").forEach((one) => highlight(one, false));
        });
        return;
    }
    if (!hljs.getLanguage(language) || text.length > (growing ? GROWING_MAX : HIGHLIGHT_MAX)) return;
    const markup = hljs.highlight(text, { language, ignoreIllegals: true }).value;
    element.innerHTML = trust.createHTML(markup);
}

function finish(fragment, growing) {
    for (const block of fragment.querySelectorAll(".code")) {
        const button = h("button", { type: "button", className: "copy", title: "Copy this code",
            "aria-label": "Copy this code", onclick: () => copied(button, block) }, icon("copy"));
        block.prepend(h("div", { className: "code-head" },
            h("span", {}, block.dataset.language || "text"), button));
        highlight(block, growing);
    }
    return fragment;
}

async function copied(button, block) {
    await copyText(block.querySelector("code").textContent);
    button.replaceChildren(icon("check"));
    setTimeout(() => button.replaceChildren(icon("copy")), 1500);
}

// One growing text in `element`. update() may be called with ever longer texts; `done` says that
// this one is the last. A text that does not begin with the one before is rendered anew.
export class Markdown {
    constructor(element) {
        this.element = element;
        this.reset();
    }

    reset() {
        this.text = "";
        this.settled = 0;  // characters of the text whose elements stay
        this.growing = []; // nodes of the last block
        this.env = {};
        this.element.replaceChildren();
    }

    update(text, done) {
        if (!text.startsWith(this.text) || (done && this.env.references)) this.reset();
        this.text = text;
        for (const node of this.growing) node.remove();
        const tail = text.slice(this.settled);
        const tokens = md.parse(tail, this.env);
        const last = done ? tokens.length : this.startOfLast(tokens);
        if (last > 0) {
            this.append(tokens.slice(0, last), false);
            if (last < tokens.length) this.settled += offsetOfLine(tail, tokens[last].map[0]);
        }
        this.growing = last < tokens.length ? this.append(tokens.slice(last), true) : [];
    }

    // Index of the token that opens the last top-level block.
    startOfLast(tokens) {
        let at = tokens.length - 1;
        while (at > 0 && !(tokens[at].level === 0 && tokens[at].nesting >= 0)) at--;
        return Math.max(at, 0);
    }

    append(tokens, growing) {
        const fragment = finish(elements(md.renderer.render(tokens, md.options, this.env)), growing);
        const added = [...fragment.childNodes];
        this.element.append(fragment);
        return added;
    }
}

function offsetOfLine(text, line) {
    let at = 0;
    for (; line > 0; line--) at = text.indexOf("\n", at) + 1;
    return at;
}
