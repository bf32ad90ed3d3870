// SPDX-License-Identifier: Apache-2.0
// Settings, the key, the shortcuts and what the page is made of, each a dialog that Escape closes.
import * as api from "./api.js";
import { h, signButton } from "./dom.js";
import { readSchema } from "./format.js";
import * as store from "./store.js";

export const SHORTCUTS = [
    ["Enter", "Send"],
    ["Shift+Enter", "New line"],
    ["Esc", "Stop the answer; close what is open"],
    ["PageUp PageDown", "Scroll the conversation"],
    ["Alt+N", "New conversation"],
    ["Alt+↑ Alt+↓", "Conversation above, below"],
    ["Alt+E", "Edit your last message"],
    ["Alt+R", "Try the last answer again"],
    ["Alt+T", "Show or hide the tree"],
    ["Alt+G", "Go to the steps of the tree; then ← and → step, Home and End jump"],
    ["Alt+S", "Show or hide the conversations"],
    ["Alt+I", "Go to the text field"],
    ["Alt+,", "Settings"],
    ["Alt+L", "Light, dark, as the system"],
    ["Alt+H", "These shortcuts"],
];

function dialog(name, title, ...content) {
    const element = h("dialog", { className: name, "aria-label": title,
        onclick: (event) => event.target === element && element.close() },
    h("div", { className: "sheet" }, h("header", {}, h("h2", {}, title),
        signButton("close", "Close (Esc)", () => element.close())), ...content));
    return element;
}

const FIELDS = [
    ["temperature", "Temperature", 0, 5, 0.05, "0 always takes the likeliest token; higher is freer"],
    ["top_p", "Top-p", 0, 1, 0.01, "only the likeliest tokens that together reach this share"],
    ["top_k", "Top-k", 0, 100000, 1, "only so many of the likeliest tokens; 0 for all"],
    ["min_p", "Min-p", 0, 1, 0.01, "only tokens at least this likely beside the likeliest"],
    ["max_tokens", "Most tokens", 1, 1000000, 1, "length of an answer"],
    ["seed", "Seed", 0, Number.MAX_SAFE_INTEGER, 1, "the same seed gives the same answer again"],
];

export class Settings {
    constructor(settings, onchange) {
        this.settings = settings;
        this.onchange = onchange;
        this.inputs = {};
        const number = ([name, label, min, max, step, hint]) => {
            const input = h("input", { type: "number", min, max, step: name === "seed" || step === 1 ?
                1 : "any", placeholder: "default", id: `set-${name}`, inputMode: "decimal",
            "aria-describedby": `hint-${name}`, oninput: () => this.number(name, input) });
            this.inputs[name] = input;
            return h("div", { className: "field" }, h("label", { htmlFor: `set-${name}` }, label), input,
                h("small", { id: `hint-${name}` }, hint));
        };
        const choice = (name, label, options) => {
            const input = h("select", { id: `set-${name}`, onchange: () => this.set(name, input.value) },
                ...options.map(([value, text]) => h("option", { value }, text)));
            this.inputs[name] = input;
            return h("div", { className: "field" }, h("label", { htmlFor: `set-${name}` }, label), input);
        };
        const system = h("textarea", { id: "set-system", rows: 4, placeholder: "none",
            oninput: () => this.set("system", system.value) });
        this.inputs.system = system;
        const speculation = h("input", { type: "checkbox", id: "set-speculation",
            onchange: () => this.set("speculation", speculation.checked) });
        this.inputs.speculation = speculation;
        const text = (name, label, rows, hint, ...more) => {
            const input = h("textarea", { id: `set-${name}`, rows, placeholder: "none", spellcheck: false,
                "aria-describedby": `hint-${name}`, oninput: () => {
                    this.set(name, input.value);
                    this.checkSchema();
                } });
            this.inputs[name] = input;
            return h("div", { className: "wide" }, h("label", { htmlFor: `set-${name}` }, label), input, ...more,
                h("small", { id: `hint-${name}` }, hint));
        };
        this.wrong = h("p", { className: "wrong", role: "alert", hidden: true });
        this.models = choice("model", "Model", [["", "the server's"]]);
        this.models.hidden = true;
        this.key = new KeyForm("set", () => onchange("key"));
        this.element = dialog("drawer", "Settings",
            h("div", { className: "wide" }, h("label", { htmlFor: "set-system" }, "System text"), system),
            this.models,
            ...FIELDS.map(number),
            text("schema", "JSON schema", 4, "answers are JSON of this form", this.wrong),
            text("stop", "Stop at", 2, "texts that end an answer, one a line; \\n stands for a line break"),
            h("div", { className: "field" }, h("label", { htmlFor: "set-speculation" }, "Speculation"),
                h("span", { className: "check" }, speculation, "guess ahead"),
                h("small", {}, "changes the speed and never a word")),
            choice("thinking", "Thinking", [["default", "as the model does"], ["on", "on"], ["off", "off"]]),
            choice("theme", "Colours", [["auto", "as the system"], ["light", "light"], ["dark", "dark"]]),
            h("div", { className: "wide" }, this.key.element),
            h("div", { className: "row" }, h("small", {}, "What is left empty is the server's to choose."),
                h("span", { className: "spring" }),
                h("button", { type: "button", className: "chip", onclick: () => this.reset() }, "Reset")));
        this.fill();
    }

    fill() {
        for (const [name, input] of Object.entries(this.inputs)) {
            if (input.type === "checkbox") input.checked = this.settings[name];
            else input.value = this.settings[name] ?? "";
            input.removeAttribute("aria-invalid");
        }
        this.checkSchema();
    }

    checkSchema() {
        const { error } = readSchema(this.settings.schema);
        this.inputs.schema.setAttribute("aria-invalid", String(Boolean(error)));
        this.wrong.hidden = !error;
        this.wrong.textContent = error ?? "";
    }

    number(name, input) {
        const valid = input.validity.valid && !(input.value === "" && input.validity.badInput);
        input.setAttribute("aria-invalid", String(!valid));
        if (valid) this.set(name, input.value === "" ? null : Number(input.value));
    }

    set(name, value) {
        this.settings[name] = value;
        store.saveSettings(this.settings);
        this.onchange(name);
    }

    reset() {
        const { tree, sidebar, theme } = this.settings;
        Object.assign(this.settings, store.defaults(), { tree, sidebar, theme });
        this.fill();
        store.saveSettings(this.settings);
        this.onchange("reset");
    }

    offer(names) {
        this.models.hidden = names.length < 2;
        this.inputs.model.replaceChildren(h("option", { value: "" }, names[0] ?? "the server's"),
            ...names.slice(1).map((name) => h("option", { value: name }, name)));
        this.inputs.model.value = this.settings.model;
    }
}

class KeyForm {
    // name: begins the ids, since the page has two of these.
    constructor(name, onset) {
        const box = h("input", { type: "password", id: `${name}-key`, autocomplete: "off",
            placeholder: "only when the server asks for one" });
        const keep = h("input", { type: "checkbox", id: `${name}-keep` });
        this.element = h("form", { className: "key", onsubmit: (event) => {
            event.preventDefault();
            api.setKey(box.value, keep.checked);
            box.value = "";
            box.placeholder = api.hasKey() ? "a key is set" : "none";
            onset();
        } }, h("label", { htmlFor: `${name}-key` }, "Key of the server"),
        h("div", { className: "row" }, box, h("button", { type: "submit", className: "chip primary" }, "Use")),
        h("label", { className: "check" }, keep, "keep it in this browser after the tab is closed"));
        if (api.hasKey()) box.placeholder = "a key is set";
        this.box = box;
    }
}

// Opens when the server answers 401.
export class KeyDialog {
    constructor(onset) {
        this.form = new KeyForm("ask", () => {
            this.element.close();
            onset();
        });
        this.element = dialog("small", "This server wants a key",
            h("p", {}, "It was started with --api-key. The key is sent to this server only."), this.form.element);
    }

    open() {
        if (this.element.open) return;
        this.element.showModal();
        this.form.box.focus();
    }
}

export function helpDialog() {
    return dialog("small", "Shortcuts", h("dl", { className: "keys" },
        ...SHORTCUTS.flatMap(([keys, what]) => [h("dt", {},
            ...keys.split(/\s+/).map((one) => h("kbd", {}, one))), h("dd", {}, what)])));
}

export function aboutDialog() {
    const notices = JSON.parse(document.getElementById("licences").textContent);
    return dialog("small", "About this page",
        h("p", {}, "coppice runs language models on your own machine. This page is part of it: " +
            "it talks to this server and to nobody else, and conversations stay in this browser."),
        h("p", {}, "coppice is under the Apache License 2.0. The page contains:"),
        ...notices.map(({ name, version, license, text }) => h("details", {},
            h("summary", {}, `${name} ${version}, ${license}`), h("pre", {}, text))));
}
