// SPDX-License-Identifier: Apache-2.0
// Small values that outlive a reload, for the tab or for good. A browser may refuse both; then they
// last as long as the page.
const values = new Map();

function attempt(forever, act) {
    try {
        return act(forever ? localStorage : sessionStorage);
    } catch {
        return undefined;
    }
}

const place = (name, forever) => `${forever ? "l" : "s"}.${name}`;

export function get(name, forever) {
    return attempt(forever, (store) => store.getItem(`coppice.${name}`)) ??
        values.get(place(name, forever)) ?? null;
}

// null: it is kept no longer.
export function set(name, value, forever) {
    values.set(place(name, forever), value);
    attempt(forever, (store) => (value === null ? store.removeItem(`coppice.${name}`) :
        store.setItem(`coppice.${name}`, value)));
}
