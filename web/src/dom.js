// SPDX-License-Identifier: Apache-2.0
// Elements without markup: h() makes one from a tag, properties and children, icon() draws one of
// the page's few signs. Nothing here parses HTML.
const SVG = "http://www.w3.org/2000/svg";

// Paths on a 20 x 20 grid, drawn as lines.
const ICONS = {
    menu: "M3 6h14M3 10h14M3 14h9",
    plus: "M10 4v12M4 10h12",
    send: "M10 16V4M5 9l5-5 5 5",
    stop: "M6 6h8v8H6z",
    close: "M5 5l10 10M15 5L5 15",
    copy: "M7 7h9v9H7zM4 13V4h9",
    check: "M4 10.5l4 4 8-9",
    retry: "M15.5 8A6 6 0 1 0 16 11.5M16 4v4h-4",
    edit: "M4 16l1-4 8.5-8.5 3 3L8 15z",
    left: "M12 5l-5 5 5 5",
    right: "M8 5l5 5-5 5",
    down: "M10 4v12M5 11l5 5 5-5",
    settings: "M3 6h7M14 6h3M12 4v4M3 14h3M10 14h7M8 12v4",
    tree: "M10 17V9M10 13l5-4M10 11L5 7M10 9L8 3M10 9l3-5",
    theme: "M10 3a7 7 0 1 0 7 7 5.5 5.5 0 0 1-7-7z",
    help: "M7.5 7.5a2.5 2.5 0 1 1 3.6 2.2c-.8.4-1.1.9-1.1 1.8M10 14.5v.1",
    more: "M5 10h.1M10 10h.1M15 10h.1",
    trash: "M4 6h12M8 6V4h4v2M6 6l.7 10h6.6L14 6",
    clip: "M15 9l-5.5 5.5a3.2 3.2 0 0 1-4.5-4.5L11 4a2.1 2.1 0 0 1 3 3l-6 6a1 1 0 0 1-1.5-1.5L11.5 6.5",
    save: "M10 3v9M6 8.5l4 4 4-4M4 16h12",
};

// Properties: on* are listeners, aria-*, data-* and role attributes, the rest properties of the
// element. Children: elements, strings, and null or false, which are left out.
export function h(tag, properties = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
        if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
        else if (name in element && !name.includes("-")) element[name] = value;
        else element.setAttribute(name, value);
    }
    element.append(...children.filter((child) => child !== null && child !== false));
    return element;
}

export function icon(name) {
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("viewBox", "0 0 20 20");
    svg.setAttribute("class", "icon");
    svg.setAttribute("aria-hidden", "true");
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("d", ICONS[name]);
    svg.append(path);
    return svg;
}

// A button with a sign and a name that is read out and shown on hover.
export function signButton(name, label, onclick, properties = {}) {
    return h("button", { type: "button", className: "sign", title: label, "aria-label": label,
        onclick, ...properties }, icon(name));
}

// The clipboard of a page that came over plain HTTP from another machine is reachable only so.
export async function copyText(text) {
    if (navigator.clipboard && window.isSecureContext)
        return navigator.clipboard.writeText(text);
    const area = h("textarea", { value: text, className: "offscreen" });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
}

export function download(name, type, text) {
    const url = URL.createObjectURL(new Blob([text], { type }));
    const link = h("a", { href: url, download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
}
