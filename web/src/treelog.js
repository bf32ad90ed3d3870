// SPDX-License-Identifier: Apache-2.0
// What the feed of trees has said about one answer: its steps, and the sums over them. Counts cover
// every step; of the trees themselves the newest KEEP stay, so that a long answer costs a bounded
// amount of memory.
const KEEP = 1500;
const WINDOW_MS = 1000; // speed is that of the last second

export class TreeLog {
    constructor() {
        this.steps = [];   // the newest trees
        this.forgotten = 0; // how many came before steps[0]
        this.tokens = 0;
        this.drafted = 0;
        this.accepted = 0;
        this.missed = 0; // steps that the server dropped because nobody read
        this.bars = []; // new tokens of every step
        this.recent = []; // [time, tokens in all] of the last second
        this.ended = false;
    }

    // An event of the feed: text and parent of the rows, the path, the choice behind its end.
    add({ token: text, parent, path, bonus, lost }, now = performance.now()) {
        const step = { n: text.length, text, parent, path, bonus, drafted: text.length - 1,
            accepted: path.length - 1 };
        this.missed = lost ?? 0;
        this.steps.push(step);
        if (this.steps.length > KEEP) this.forgotten += this.steps.splice(0, KEEP / 10).length;
        this.bars.push(step.path.length);
        this.tokens += step.path.length;
        this.drafted += step.drafted;
        this.accepted += step.accepted;
        this.recent.push([now, this.tokens]);
        while (now - this.recent[0][0] > WINDOW_MS) this.recent.shift();
    }

    get count() {
        return this.bars.length;
    }

    // The tree of step i (from 0), or undefined where it is no longer kept.
    at(i) {
        return this.steps[i - this.forgotten];
    }

    get perPass() {
        return this.count ? this.tokens / this.count : null;
    }

    get share() {
        return this.drafted ? this.accepted / this.drafted : null;
    }

    get perSecond() {
        const [first, last] = [this.recent[0], this.recent.at(-1)];
        if (!first || last[0] - first[0] < 50) return null;
        return 1000 * (last[1] - first[1]) / (last[0] - first[0]);
    }

    // The text that leads up to the root of step i, as far as it is kept; at most `characters`.
    before(i, characters) {
        let text = "";
        for (let at = i - 1; at >= this.forgotten && text.length < characters; at--) {
            const step = this.at(at);
            text = step.path.map((row) => step.text[row]).join("") + text;
        }
        return text.slice(-characters);
    }
}
