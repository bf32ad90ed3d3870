// SPDX-License-Identifier: Apache-2.0
// The page: which conversation is open, what is running, and what keys and buttons do. The parts
// draw themselves; this file tells them when.
import * as api from "./api.js";
import * as talk from "./conversation.js";
import { aboutDialog, helpDialog, KeyDialog, Settings } from "./dialogs.js";
import { h, icon, signButton } from "./dom.js";
import { filesAsText } from "./files.js";
import * as keep from "./keep.js";
import { MessageView } from "./messages.js";
import { Run } from "./run.js";
import { Sidebar } from "./sidebar.js";
import * as store from "./store.js";
import { TreeView } from "./treeview.js";
import { learnEnd } from "./words.js";

// Most of the answer stands in the question already: guesses come far.
const RENAME = `Rename the variable \`total\` to \`sum_of_values\` in this function:

\`\`\`python
def average(values, skip=None):
    """Return the mean of the values, leaving out those equal to skip."""
    total = 0.0
    count = 0
    for value in values:
        if value == skip:
            continue
        total += value
        count += 1
    if count == 0:
        raise ValueError("average of nothing")
    return total / count
\`\`\``;
const SPOKEN = 2000; // characters of an answer that a screen reader is given at its end
const KEPT_LOGS = 8; // conversations whose trees can still be looked at
const NEAR_END = 90; // pixels: closer than this to the end, the page follows the answer
const NEARLY_FULL = 0.85; // share of the context from which on the page says so in colour
const settings = store.loadSettings();
const server = { context: null, compresses: false }; // what is known of it
const runs = new Map(); // conversation id -> the Run that writes its answer
const logs = new Map(); // conversation id -> the trees of its newest answer
const narrow = matchMedia("(max-width: 860px)");
const touch = matchMedia("(pointer: coarse)");
const small = matchMedia("(max-width: 860px), (max-height: 560px)"); // as the style sheet's
let current = null; // the conversation on the page
let views = [];     // its messages
let painting = false;
let following = true;
let treeWhereSmall = false; // on a small screen the tree is closed until it is wanted, and that is not kept

const $ = {};

// ---- the frame of the page -------------------------------------------------------------------------

function build() {
    $.sidebar = new Sidebar({ open, create, remove, hide: () => showSidebar(false), about: () =>
        show($.about), renamed: (conversation) => {
        refresh();
        if (conversation === current) $.title.textContent = current.title;
    }, imported: (text) => {
        toast(text);
        redraw();
    } });
    $.tree = new TreeView(() => showTree(false));
    $.settings = new Settings(settings, changed);
    $.key = new KeyDialog(() => connect());
    $.help = helpDialog();
    $.about = aboutDialog();
    $.title = h("h1", {});
    $.model = h("p", { className: "model" });
    $.menu = signButton("menu", "Conversations (Alt+S)", () => showSidebar(), { id: "menu",
        "aria-controls": "sidebar" });
    $.treeButton = signButton("tree", "The tree (Alt+T)", () => showTree(), { "aria-controls": "tree" });
    $.scroll = h("main", { id: "talk", tabIndex: -1, onscroll: () => scrolled() });
    $.log = h("div", { className: "log", role: "log", "aria-live": "off", "aria-label": "Messages" });
    $.scroll.append($.log);
    $.end = signButton("down", "To the end", () => follow(true), { className: "sign to-end", hidden: true });
    $.status = h("p", { className: "offscreen", role: "status" });
    $.banner = h("p", { className: "banner", role: "alert", hidden: true });
    $.scrim = h("div", { className: "scrim", onclick: () => showSidebar(false) });
    $.toast = h("div", { className: "toast", role: "status", hidden: true });
    document.getElementById("page").replaceChildren($.sidebar.element, $.scrim,
        h("div", { className: "stage" },
            h("header", { className: "top" }, $.menu, h("div", { className: "heading" }, $.title, $.model),
                signButton("plus", "New conversation (Alt+N)", create, { className: "sign only-narrow" }),
                $.treeButton,
                signButton("theme", "Light or dark (Alt+L)", nextTheme, { id: "theme" }),
                signButton("settings", "Settings (Alt+,)", () => show($.settings.element), { id: "settings" }),
                signButton("help", "Shortcuts (Alt+H)", () => show($.help), { className: "sign only-wide" })),
            $.banner, h("div", { className: "middle" }, $.scroll, $.end), $.tree.element, composer()),
        $.status, $.toast, $.settings.element, $.key.element, $.help, $.about);
}

function composer() {
    $.box = h("textarea", { id: "box", rows: 1, placeholder: "Say something", "aria-label": "Your message",
        enterKeyHint: touch.matches ? "enter" : "send", oninput: () => grow(), onkeydown: (event) => {
            if (event.key === "PageUp" || event.key === "PageDown") {
                event.preventDefault();
                $.scroll.scrollBy(0, (event.key === "PageUp" ? -0.8 : 0.8) * $.scroll.clientHeight);
            }
            if (event.key !== "Enter" || event.shiftKey || event.isComposing || touch.matches) return;
            event.preventDefault();
            submit();
        } });
    $.send = h("button", { type: "submit", className: "send", id: "send" });
    $.context = h("p", { className: "context", id: "context", hidden: true });
    $.files = h("input", { type: "file", multiple: true, hidden: true, onchange: () => {
        const files = [...$.files.files];
        $.files.value = "";
        takeFiles(files, $.box);
    } });
    return h("form", { className: "composer", "aria-label": "New message", onsubmit: (event) => {
        event.preventDefault();
        if (runs.has(current.id)) stop();
        else submit();
    } }, h("div", { className: "compose" }, $.files, $.box, signButton("clip", "Put text files into the message",
        () => $.files.click()), $.send), $.context);
}

// Puts text files into a text field, where the cursor is.
async function takeFiles(files, box) {
    if (files.length === 0) return;
    try {
        const text = await filesAsText(files);
        const { selectionStart: at, selectionEnd: end, value } = box;
        const apart = at > 0 && value[at - 1] !== "\n" ? "\n\n" : "";
        box.setRangeText(apart + text, at, end, "end");
        grow();
        box.focus();
        announce(`${files.length === 1 ? files[0].name : `${files.length} files`} put into the message.`);
    } catch (error) {
        toast(error.message, "Close", () => box.focus());
    }
}

// The field that files at a place go into: the message that is being edited there, or else the new one.
const boxAt = (place) => place.closest?.(".edit")?.querySelector("textarea") ?? $.box;

// Files of the clipboard, as a file manager puts them there. Beside text a picture is only how that text looks.
function watchPastes() {
    document.addEventListener("paste", (event) => {
        const files = [...event.clipboardData?.files ?? []];
        const picture = files.every((file) => file.type.startsWith("image/"));
        if (files.length === 0 || (picture && event.clipboardData.types.includes("text/plain"))) return;
        if (document.querySelector("dialog[open]") || event.target.closest?.("input")) return;
        event.preventDefault();
        takeFiles(files, boxAt(event.target));
    });
}

// Files may be dropped anywhere; they go into the message that is being edited where they fall on it.
function watchDrops() {
    const carries = (event) => event.dataTransfer?.types.includes("Files");
    const mark = (on) => document.body.classList.toggle("dropping", on);
    document.addEventListener("dragover", (event) => {
        if (!carries(event)) return;
        event.preventDefault();
        const closed = document.querySelector("dialog[open]") !== null;
        event.dataTransfer.dropEffect = closed ? "none" : "copy";
        mark(!closed);
    });
    document.addEventListener("dragleave", (event) => !event.relatedTarget && mark(false));
    document.addEventListener("drop", (event) => {
        mark(false);
        if (!carries(event)) return;
        event.preventDefault();
        if (document.querySelector("dialog[open]")) return;
        takeFiles([...event.dataTransfer.files], boxAt(event.target));
    });
}

function grow() {
    $.box.style.height = "auto";
    $.box.style.height = `${Math.min($.box.scrollHeight, innerHeight * 0.4)}px`;
}

const show = (dialog) => !dialog.open && dialog.showModal();

function setTheme(theme) {
    settings.theme = theme;
    document.documentElement.dataset.theme = theme;
    $.tree?.recolour();
}

function nextTheme() {
    const order = ["auto", "light", "dark"];
    setTheme(order[(order.indexOf(settings.theme) + 1) % 3]);
    store.saveSettings(settings);
    $.settings.fill();
    announce({ auto: "Colours as the system has them", light: "Light", dark: "Dark" }[settings.theme]);
    toast($.status.textContent);
}

function showSidebar(wanted) {
    const open = wanted ?? !document.body.classList.contains("with-sidebar");
    document.body.classList.toggle("with-sidebar", open);
    $.menu.setAttribute("aria-expanded", String(open));
    $.sidebar.element.inert = !open;
    if (!narrow.matches) {
        settings.sidebar = open;
        store.saveSettings(settings);
    } else if (open) {
        $.sidebar.element.querySelector(".new").focus();
    }
}

function showTree(wanted) {
    if (small.matches) {
        treeWhereSmall = wanted ?? !treeWhereSmall;
    } else {
        settings.tree = wanted ?? !settings.tree;
        store.saveSettings(settings);
    }
    placeTree();
}

const treeOpen = () => (small.matches ? treeWhereSmall : settings.tree);

function placeTree() {
    $.tree.element.hidden = !treeOpen();
    $.treeButton.setAttribute("aria-pressed", String(treeOpen()));
    $.tree.show(logs.get(current.id) ?? null);
    $.tree.update();
    if (following) follow();
}

function announce(text) {
    $.status.textContent = text;
}

let toastTimer = 0;

function toast(text, label, action) {
    clearTimeout(toastTimer);
    $.toast.replaceChildren(text);
    if (label)
        $.toast.append(h("button", { type: "button", className: "chip", onclick: () => {
            $.toast.hidden = true;
            action();
        } }, label));
    $.toast.hidden = false;
    toastTimer = setTimeout(() => { $.toast.hidden = true; }, label ? 8000 : 2000);
}

function changed(name) {
    if (name === "key") connect();
    if (name === "theme" || name === "reset") setTheme(settings.theme);
}

// ---- conversations ---------------------------------------------------------------------------------

function refresh() {
    $.sidebar.update(current.id, runs);
}

function open(id, focus = true) {
    current = store.get(id) ?? talk.create();
    keep.set("open", current.id, false);
    if (narrow.matches) showSidebar(false);
    redraw();
    follow(true);
    if (views.length === 0) $.scroll.scrollTop = 0;
    if (focus && !touch.matches) $.box.focus();
}

const create = () => open(null);

function remove(conversation) {
    runs.get(conversation.id)?.stop();
    store.remove(conversation.id);
    if (conversation === current) create();
    else refresh();
    toast(`Deleted: ${conversation.title}`, "Undo", () => {
        store.save(conversation);
        open(conversation.id);
    });
}

// Another tab has written conversations. The one that is open stays where it is being answered here.
function changedElsewhere(ids) {
    for (const id of ids)
        if (runs.has(id)) store.save(runs.get(id).conversation, true);
    if (ids.includes(current.id) && !runs.has(current.id) && !document.querySelector(".edit")) {
        current = store.get(current.id) ?? talk.create();
        redraw();
    } else {
        refresh();
    }
}

// Draws the whole conversation anew.
function redraw() {
    const actions = { retry, edit, rewrite, goOn, compress, canCompress, carryOver, show: (node) => {
        talk.show(current, node);
        store.save(current);
        redraw();
    } };
    views = talk.path(current).map((node) => new MessageView(current, node, actions));
    const run = runs.get(current.id);
    for (const view of views) view.update(run?.node === view.node);
    $.log.replaceChildren(...views.map((view) => view.element));
    document.body.classList.toggle("fresh", views.length === 0);
    if (views.length === 0) $.log.append(welcome());
    $.title.textContent = current.title || "New conversation";
    document.title = current.title ? `${current.title} · coppice` : "coppice";
    placeTree();
    refresh();
    paintSend();
    paintContext();
}

function paintContext() {
    const used = talk.contextUsed(current);
    $.context.hidden = !used || !server.context;
    if ($.context.hidden) return;
    const number = (n) => n.toLocaleString("en");
    const share = Math.floor(100 * used.tokens / server.context);
    $.context.textContent = `Context: ${used.part ? "at least " : ""}${number(used.tokens)} of ` +
        `${number(server.context)} tokens used (${share || "under 1"} %)`;
    $.context.classList.toggle("full", used.tokens >= NEARLY_FULL * server.context);
}

function welcome() {
    const ask = (label, text = label) => h("button", { type: "button", className: "idea", onclick: () => {
        $.box.value = text;
        submit();
    } }, label);
    return h("div", { className: "welcome" }, h("h2", {}, "Cut back to the stump, and grown again at every word."),
        h("p", {}, "A small model guesses a tree of words, the large one says which of them it would have said. " +
            "The answer is the large one's, to the bit; you can watch how it gets there."),
        h("div", { className: "ideas" }, ask("What is a coppice?"),
            ask("Explain speculative decoding in three sentences."),
            ask("Rename a variable in a function.", RENAME)));
}

function paintSend() {
    const running = runs.has(current.id);
    $.send.title = running ? "Stop (Esc)" : "Send (Enter)";
    $.send.setAttribute("aria-label", running ? "Stop" : "Send");
    $.send.classList.toggle("running", running);
    $.send.replaceChildren(icon(running ? "stop" : "send"));
}

// ---- saying something ------------------------------------------------------------------------------

function submit() {
    const text = $.box.value.trim();
    if (!text || runs.has(current.id)) return;
    $.box.value = "";
    grow();
    answer(talk.add(current, current.leaf, { role: "user", text }));
}

function edit(node, text) {
    stop();
    answer(talk.add(current, node.parent, { role: "user", text }));
}

function retry(node) {
    stop();
    if (node.role === "assistant") answer(current.nodes[node.parent]);
}

// Puts other words in place of an answer, in a branch of its own; goOn: the model goes on behind them.
function rewrite({ parent, reasoning, reasonedMs, json }, text, goOn) {
    stop();
    const node = talk.add(current, parent, { role: "assistant", text, reasoning, reasonedMs, json });
    if (goOn) return begin(node);
    node.finish = "edited";
    store.save(current);
    redraw();
}

function goOn(node) {
    stop();
    begin(node);
}

// Only a conversation in which the model has answered: others the server has tried already.
const canCompress = () => server.compresses && !current.compress &&
    talk.path(current).some((node) => node.role === "assistant" && node.text !== "");

function compress(node) {
    current.compress = true;
    retry(node);
}

// The question of an answer that failed, to be asked in a conversation of its own.
function carryOver(node) {
    const { text } = current.nodes[node.parent];
    create();
    $.box.value = text;
    grow();
    $.box.focus();
}

// Has the message `asked` answered, in a branch of its own.
const answer = (asked) => begin(talk.add(current, asked.id, { role: "assistant" }));

// Has an answer written; what it has of words already stays.
function begin(node) {
    const conversation = current;
    const run = new Run(conversation, node, { ...settings, tree: treeOpen() }, grown);
    runs.set(conversation.id, run);
    logs.delete(conversation.id);
    if (run.log) logs.set(conversation.id, run.log);
    if (logs.size > KEPT_LOGS) logs.delete(logs.keys().next().value);
    store.save(conversation);
    redraw();
    follow(true);
    $.box.focus({ preventScroll: true });
    run.go();
}

function stop() {
    runs.get(current.id)?.stop();
    runs.delete(current.id);
}

// A run has something new, or is over.
function grown(run) {
    store.save(run.conversation, run.active);
    if (!run.active) {
        if (runs.get(run.conversation.id) === run) runs.delete(run.conversation.id);
        if (run.node.status === 401) $.key.open();
        announce(run.node.error ?? `${run.node.finish === "stopped" ? "Stopped." : "The answer:"} ` +
            run.node.text.slice(0, SPOKEN));
        paintRun(run);
        if (run.conversation === current) {
            paintSend();
            paintContext();
        }
        refresh();
    } else if (!painting) {
        painting = true;
        requestAnimationFrame(() => {
            painting = false;
            for (const one of runs.values()) paintRun(one);
        });
    }
}

function paintRun(run) {
    if (run.conversation !== current) return;
    views.find((view) => view.node === run.node)?.update(run.active);
    $.tree.update();
    if (following) follow();
}

function scrolled() {
    following = $.scroll.scrollHeight - $.scroll.scrollTop - $.scroll.clientHeight < NEAR_END;
    $.end.hidden = following;
}

function follow(now) {
    if (now) following = true;
    $.scroll.scrollTop = $.scroll.scrollHeight;
    $.end.hidden = true;
}

// ---- keys ------------------------------------------------------------------------------------------

function neighbour(by) {
    const all = store.all();
    const at = all.indexOf(current);
    const next = all[at === -1 ? 0 : at + by];
    if (next) open(next.id);
}

const KEYS = {
    KeyN: create,
    KeyT: () => showTree(),
    KeyG: () => {
        if (!treeOpen()) showTree(true);
        $.tree.strip.focus();
    },
    KeyS: () => showSidebar(),
    KeyI: () => $.box.focus(),
    KeyL: nextTheme,
    KeyH: () => show($.help),
    KeyE: () => views.findLast((view) => view.node.role === "user")?.edit(),
    KeyR: () => {
        const last = views.at(-1);
        if (last?.node.role === "assistant") retry(last.node);
    },
    Comma: () => show($.settings.element),
    ArrowUp: () => neighbour(-1),
    ArrowDown: () => neighbour(1),
};

function keys(event) {
    if (document.querySelector("dialog[open]")) return;
    if (event.key === "Escape") {
        if (narrow.matches && document.body.classList.contains("with-sidebar")) showSidebar(false);
        else if (runs.has(current.id)) stop();
    } else if (event.altKey && !event.ctrlKey && !event.metaKey && KEYS[event.code]) {
        event.preventDefault();
        KEYS[event.code]();
    }
}

// ---- the server ------------------------------------------------------------------------------------

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// Waits until the server has its model, then asks for the model's name.
async function connect() {
    for (let wait = 300; ; wait = Math.min(wait * 1.5, 3000)) {
        try {
            await api.health();
            break;
        } catch (error) {
            $.banner.textContent = error.status === 503 ? "The model is being loaded." : error.message;
            $.banner.hidden = false;
            await sleep(wait);
        }
    }
    $.banner.hidden = true;
    try {
        const models = await api.models();
        const names = models.map((model) => model.id);
        server.context = models[0]?.context_length ?? null;
        paintContext();
        $.model.textContent = names[0] ?? "";
        $.settings.offer(names);
        const props = await api.props();
        learnEnd(props.eos_token);
        server.compresses = ["auto", "always"].includes(props.prefill_compression);
    } catch (error) {
        if (error.status === 401) $.key.open();
        else toast(error.message);
    }
}

async function start() {
    setTheme(settings.theme);
    const kept = await store.open((why) => toast(`This browser did not keep the conversation. ${why}`),
        changedElsewhere);
    build();
    document.addEventListener("keydown", keys);
    watchDrops();
    watchPastes();
    narrow.addEventListener("change", () => showSidebar(narrow.matches ? false : settings.sidebar));
    small.addEventListener("change", placeTree);
    document.body.classList.add("still");
    showSidebar(narrow.matches ? false : settings.sidebar);
    open(keep.get("open", false));
    requestAnimationFrame(() => document.body.classList.remove("still"));
    if (!kept)
        toast("This browser keeps no data for this page: conversations last as long as it is open.");
    connect();
}

start();
