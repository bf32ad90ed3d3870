// SPDX-License-Identifier: Apache-2.0
// The tree, drawn: the guesses of a step grow, the path that the model takes stays, the rest is
// cut; the strip below has one bar a step and can be scrubbed. Drawn on two canvases and only when
// something changed: a feed faster than the eye is thinned out to PACE_MS a tree (all of it is
// counted), and nothing moves for people who asked for less motion.
import { h, signButton } from "./dom.js";
import { layout } from "./treelayout.js";
import { isEnd, word } from "./words.js";

const PACE_MS = 130;  // shortest time that a tree is shown while more arrive
const GROW_MS = 720;  // growing, taking and cutting when there is time for it
const FONT = 14;      // of a word, CSS pixels
const LINE = 22;      // between lines of words
const GAP = 44;       // between columns, for the branches
const MARGIN = 10;    // above and below the words
const BAR = 5;        // one step of the strip, its space included
const LEAST_LINE = 11; // below this, words that were cut are shown as dots

// Stands there before there is an answer, so that one sees what will be drawn.
const SAMPLE = { n: 15, drafted: 14, accepted: 4, bonus: " and", path: [0, 1, 3, 5, 7],
    text: ["A", " coppice", " wood", " is", " grows", " cut", " a", " back", " down", " wood", " that",
        " again", " to", " stump", " is"],
    parent: [-1, 0, 0, 1, 1, 3, 3, 5, 5, 6, 2, 4, 8, 6, 10] };

const ease = (t) => 1 - (1 - t) ** 3;
const clamp = (x, low, high) => Math.min(high, Math.max(low, x));
const percent = (x) => `${Math.round(100 * x)} %`;

// Lets what runs off the right edge pale before it gets there.
function fadeRight(context, width, height) {
    const fade = context.createLinearGradient(width - 72, 0, width, 0);
    fade.addColorStop(0, "transparent");
    fade.addColorStop(1, "black");
    context.globalCompositeOperation = "destination-out";
    context.fillStyle = fade;
    context.fillRect(width - 72, 0, 72, height);
    context.globalCompositeOperation = "source-over";
}

export class TreeView {
    constructor(onclose) {
        this.log = null;
        this.live = true;
        this.index = -1;      // the step that is shown
        this.shownAt = 0;
        this.pending = false; // a frame is asked for
        this.drawnAt = 0;
        this.timer = 0;
        this.hover = null;
        this.build(onclose);
        this.tell();
        this.still = matchMedia("(prefers-reduced-motion: reduce)");
        this.resizes = new ResizeObserver(() => this.ask());
        this.resizes.observe(this.canvas);
        matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.recolour());
    }

    build(onclose) {
        const figure = (name, label, unit) => {
            const value = h("b", { "data-figure": name }, "–");
            return [value, h("div", { className: "figure" }, h("span", {}, value, unit),
                h("small", {}, label))];
        };
        const [perPass, perPassBox] = figure("per-pass", "tokens per pass", "");
        const [speed, speedBox] = figure("speed", "tokens per second", "");
        const [share, shareBox] = figure("share", "of guesses accepted", "");
        this.figures = { perPass, speed, share };
        this.caption = h("p", { className: "tree-caption" });
        this.canvas = h("canvas", { className: "tree-canvas", role: "img", tabIndex: -1,
            onpointermove: (event) => this.point(event), onpointerdown: (event) => this.point(event),
            onpointerleave: () => this.point(null) });
        this.tip = h("div", { className: "tree-tip", hidden: true });
        this.strip = h("canvas", { className: "tree-strip", tabIndex: 0, role: "slider",
            "aria-label": "Steps of this answer", "aria-valuemin": "1", "aria-valuemax": "1",
            "aria-valuenow": "1", onkeydown: (event) => this.key(event),
            onpointerdown: (event) => this.scrub(event), onpointermove: (event) =>
                event.buttons && this.scrub(event) });
        this.follow = h("button", { type: "button", className: "chip", hidden: true,
            onclick: () => this.goLive() }, "Newest step");
        this.element = h("section", { className: "tree", id: "tree", "aria-label": "The tree of guesses" },
            h("header", {}, perPassBox, speedBox, shareBox, h("span", { className: "spring" }),
                this.follow, signButton("close", "Hide the tree (Alt+T)", onclose)),
            h("div", { className: "tree-stage" }, this.canvas, this.tip), this.strip, this.caption,
            ...["ink", "faint", "accent", "bud", "line", "surface"].map((name) =>
                h("i", { className: `probe probe-${name}`, hidden: false })));
    }

    // Colours are what the style sheet says now.
    colours() {
        this.palette ??= Object.fromEntries([...this.element.querySelectorAll(".probe")].map((probe) =>
            [probe.className.split("probe-")[1], getComputedStyle(probe).color]));
        return this.palette;
    }

    recolour() {
        this.palette = null;
        this.ask();
    }

    // Shows the steps of another answer, or of none (null).
    show(log) {
        if (log === this.log) return;
        this.log = log;
        this.index = log ? log.count - 1 : -1;
        this.cut = 1;
        this.goLive();
    }

    // Something was added to the log that is shown. Drawn at once when the last time is long enough
    // ago, else when it is.
    update() {
        if (this.timer || this.pending) return;
        this.timer = setTimeout(() => {
            this.timer = 0;
            this.ask();
        }, Math.max(0, PACE_MS - (performance.now() - this.drawnAt)));
    }

    goLive() {
        this.live = true;
        this.follow.hidden = true;
        this.ask();
    }

    select(index) {
        if (!this.log?.count) return;
        const oldest = this.log.forgotten;
        this.index = clamp(index, oldest, this.log.count - 1);
        this.live = this.index === this.log.count - 1;
        this.follow.hidden = this.live;
        this.shownAt = -Infinity;
        this.laid = null;
        this.tell();
        this.ask();
    }

    key(event) {
        const moves = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageUp: 10,
            PageDown: -10, Home: -Infinity, End: Infinity };
        if (!(event.key in moves) || event.altKey || event.ctrlKey || event.metaKey) return;
        event.preventDefault();
        this.select(this.index + moves[event.key]);
    }

    scrub(event) {
        const box = this.strip.getBoundingClientRect();
        this.strip.setPointerCapture(event.pointerId);
        this.select(Math.floor((event.clientX - box.left) / BAR) + this.firstBar());
    }

    point(event) {
        const box = event && this.canvas.getBoundingClientRect();
        const [x, y] = event ? [event.clientX - box.left, event.clientY - box.top] : [];
        const near = (node) => Math.hypot(clamp(x, node.px, node.px + node.width) - x, node.py - y);
        const hit = event && this.laid?.nodes.reduce((best, node) =>
            node.row !== -1 && near(node) < Math.min(14, best ? near(best) : Infinity) ? node : best,
        null);
        this.tip.hidden = !hit;
        if (hit) {
            this.tip.textContent = this.explain(hit);
            const left = clamp(hit.px, 4, box.width - this.tip.offsetWidth - 4);
            this.tip.style.transform = `translate(${left}px, ${hit.py < 40 ? hit.py + 14 :
                hit.py - 14 - this.tip.offsetHeight}px)`;
        }
        if (hit !== this.hover) {
            this.hover = hit;
            this.ask();
        }
    }

    explain(node) {
        const { step } = this.laid;
        const plain = step.text[node.row];
        const text = (isEnd(plain) ? "the end of the answer, " : "") + JSON.stringify(plain);
        if (node.row === 0) return `${text}: the root, chosen in the step before`;
        const fate = node.kept ? "kept" : "cut";
        return `${text}: guess ${node.row}, ${fate}`;
    }

    ask() {
        if (this.pending || !this.element.isConnected || this.element.hidden) return;
        this.pending = true;
        requestAnimationFrame((now) => {
            this.pending = false;
            this.frame(now);
        });
    }

    frame(now) {
        if (!this.canvas.clientWidth) return;
        this.drawnAt = now;
        const last = this.log ? this.log.count - 1 : -1;
        const age = now - this.shownAt;
        if (this.live && last > this.index && age >= PACE_MS) {
            // Only a step that follows the one shown, and that nothing waits behind, is worth a move.
            this.moves = !this.still.matches && last - this.index <= 2 && age > 200;
            // Its root is where the bonus of the one before was, and goes to its place from there.
            this.came = this.moves && last === this.index + 1 &&
                this.laid?.nodes.find((node) => node.row === -1);
            this.index = last;
            this.shownAt = now;
            this.laid = null;
        }
        const passed = this.moves ? clamp((now - this.shownAt) / GROW_MS, 0, 1) : 1;
        this.draw(passed);
        this.drawStrip();
        this.tell();
        if (passed < 1) this.ask();
        else if (this.live && last > this.index) this.update();
    }

    tell() {
        const { log, figures } = this;
        const set = (element, text) => element.textContent !== text && (element.textContent = text);
        const some = (value, show) => (value === null || value === undefined ? "–" : show(value));
        set(figures.perPass, some(log?.perPass, (x) => x.toFixed(2)));
        set(figures.speed, some(log?.speed ?? log?.perSecond, (x) => x.toFixed(x < 100 ? 1 : 0)));
        set(figures.share, some(log?.share, percent));
        const step = log?.at(this.index);
        set(this.caption, this.sentence(step));
        this.canvas.setAttribute("aria-label", this.sentence(step));
        this.strip.setAttribute("aria-valuemin", String((log?.forgotten ?? 0) + 1));
        this.strip.setAttribute("aria-valuemax", String(Math.max(1, log?.count ?? 1)));
        this.strip.setAttribute("aria-valuenow", String(this.index + 1));
        this.strip.setAttribute("aria-valuetext", this.sentence(step));
    }

    sentence(step) {
        if (!step)
            return this.log?.refused ?? "Each step of an answer draws its tree here: guesses grow, " +
                "what the model itself would have said stays, the rest is cut.";
        const of = `Step ${this.index + 1} of ${this.log.count}`;
        const missed = this.log.missed ? ` (${this.log.missed} not seen)` : "";
        if (step.drafted === 0) return `${of}${missed}: nothing was guessed`;
        return `${of}${missed}: ${step.drafted} ${step.drafted === 1 ? "guess" : "guesses"}, ` +
            `${step.accepted} kept`;
    }

    // ---- the tree --------------------------------------------------------------------------------

    prepare(canvas) {
        const { clientWidth: width, clientHeight: height } = canvas;
        const scale = devicePixelRatio;
        if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
            canvas.width = Math.round(width * scale);
            canvas.height = Math.round(height * scale);
        }
        const context = canvas.getContext("2d");
        context.setTransform(scale, 0, 0, scale, 0, 0);
        context.clearRect(0, 0, width, height);
        return { context, width, height };
    }

    // Places every node in pixels; px is the left end of its word, py the middle of its line.
    arrange(context, step, width, height) {
        const laid = layout(step);
        const narrow = width < 560;
        const font = getComputedStyle(this.canvas).fontFamily;
        const line = clamp((height - 2 * MARGIN) / (laid.top + laid.bottom + 1), 4, LINE);
        const size = clamp(line - 3, 10, FONT);
        const start = narrow ? 52 : clamp(width * 0.26, 90, 340);
        const widths = new Array(laid.deepest + 1).fill(0);
        for (const node of laid.nodes) {
            node.text = word(node.row === -1 ? step.bonus : step.text[node.row]);
            node.dot = !node.kept && line < LEAST_LINE;
            context.font = `${node.kept ? 600 : 400} ${node.kept ? FONT : size}px ${font}`;
            node.font = context.font;
            node.width = node.dot ? 3 : Math.min(context.measureText(node.text).width, 120);
            widths[node.depth] = Math.max(widths[node.depth], node.width);
        }
        const path = step.path.length; // the depth of the bonus
        const sum = (from, to) => widths.slice(from, to).reduce((all, one) => all + one, 0);
        // Branches get shorter before words run off the edge, and the path is never what runs off.
        const room = width - start - 12;
        const gap = clamp((room - sum(0, widths.length)) / Math.max(1, laid.deepest), narrow ? 12 : 18, narrow ? 20 : GAP);
        const all = sum(0, widths.length) + gap * laid.deepest;
        const over = Math.max(sum(0, path + 1) + gap * path - room,
            Math.min(all - room, start - (narrow ? 44 : 90)), 0);
        const columns = [];
        let x = start - over;
        for (const one of widths) {
            columns.push(x);
            x += one + gap;
        }
        const middle = MARGIN + line * laid.top + line / 2 +
            Math.max(0, (height - 2 * MARGIN - line * (laid.top + laid.bottom + 1)) / 2);
        for (const node of laid.nodes) {
            node.px = columns[node.depth];
            node.end = columns[node.depth] + widths[node.depth];
            node.py = middle + node.y * line;
        }
        const byRow = new Map(laid.nodes.map((node) => [node.row, node]));
        for (const node of laid.nodes) node.from = node.parent === null ? null : byRow.get(node.parent);
        return { ...laid, step, middle, columns, gap, width, height, runsOff: all - over > room };
    }

    draw(passed) {
        const { context, width, height } = this.prepare(this.canvas);
        const step = this.log ? this.log.at(this.index) : SAMPLE;
        if (!step) {
            this.laid = null;
            return;
        }
        if (!this.laid || this.laid.step !== step || this.laid.width !== width ||
            this.laid.height !== height)
            this.laid = this.arrange(context, step, width, height);
        const slide = this.came ? 1 - ease(clamp(passed / 0.3, 0, 1)) : 0;
        const grow = ease(clamp((passed - 0.12) / 0.38, 0, 1)) * (this.laid.deepest + 1);
        const take = ease(clamp((passed - 0.45) / 0.28, 0, 1)) * step.path.length;
        const cut = ease(clamp((passed - 0.66) / 0.34, 0, 1));
        context.textBaseline = "middle";
        if (slide > 0)
            context.translate(slide * (this.came.px - this.laid.columns[0]),
                slide * (this.came.py - this.laid.middle));
        this.drawTrunk(context);
        for (const kept of [false, true]) {
            for (const node of this.laid.nodes)
                if (node.kept === kept) this.drawBranch(context, node, grow, take, cut);
        }
        for (const node of this.laid.nodes) this.drawWord(context, node, grow, take, cut);
        if (this.laid.runsOff) fadeRight(context, width, height);
    }

    // What was said before, running out of sight to the left.
    drawTrunk(context) {
        const { middle, columns } = this.laid;
        const colours = this.colours();
        const end = columns[0] - 8;
        const said = this.log?.before(this.index, 60).replace(/\s+/g, " ") ?? "";
        if (end < 8) return;
        context.globalAlpha = 1;
        const fade = context.createLinearGradient(0, 0, end, 0);
        fade.addColorStop(0, "transparent");
        fade.addColorStop(0.45, colours.faint);
        fade.addColorStop(1, colours.faint);
        context.fillStyle = fade;
        context.font = `400 ${FONT}px ${getComputedStyle(this.canvas).fontFamily}`;
        context.textAlign = "right";
        context.fillText(said.trimEnd(), end, middle);
        context.textAlign = "left";
    }

    drawBranch(context, node, grow, take, cut) {
        const { from } = node;
        if (!from) return;
        const out = node.row === -1 ? clamp(take - node.depth + 1, 0, 1) : clamp(grow - node.depth + 0.5, 0, 1);
        if (out === 0) return;
        const colours = this.colours();
        const taken = node.kept && take >= node.depth - 0.5;
        const x0 = from.px + from.width + 4;
        const x1 = node.px - 5;
        const bend = Math.max(x0, from.end + 3); // behind every word of the column
        const [y0, y1] = [from.py, node.py];
        context.globalAlpha = node.kept ? 1 : 1 - 0.45 * cut;
        context.strokeStyle = taken ? (node.row === -1 ? colours.bud : colours.accent) : colours.line;
        context.lineWidth = taken ? 2.25 : 1.1;
        context.lineCap = "round";
        context.beginPath();
        context.moveTo(x0, y0);
        context.lineTo(bend, y0);
        const half = (bend + x1) / 2;
        context.bezierCurveTo(half, y0, half, y1, x1, y1);
        context.setLineDash(node.row === -1 ? [1.5, 4] : out < 1 ? [out * 400, 400] : []);
        context.stroke();
        context.setLineDash([]);
    }

    drawWord(context, node, grow, take, cut) {
        const bonus = node.row === -1;
        const seen = node.row === 0 ? 1 : bonus ? clamp((take - node.depth + 1) * 2, 0, 1) : clamp(grow - node.depth + 0.2, 0, 1);
        if (seen === 0) return;
        const colours = this.colours();
        const taken = node.kept && take >= node.depth - 0.5;
        const hovered = this.hover && this.hover.row === node.row;
        context.globalAlpha = seen * (node.kept || hovered ? 1 : 1 - 0.12 * cut);
        context.fillStyle = bonus ? colours.bud : taken ? colours.accent :
            cut > 0 && !hovered ? colours.faint : colours.ink;
        if (node.row === 0) context.fillStyle = colours.ink;
        context.font = node.font;
        if (node.dot) {
            context.beginPath();
            context.arc(node.px + 1.5, node.py, 1.5, 0, 7);
            context.fill();
        } else {
            context.fillText(node.text, node.px, node.py, 120);
        }
        context.globalAlpha = 1;
    }

    // ---- the strip -------------------------------------------------------------------------------

    firstBar() {
        const fit = Math.floor(this.strip.clientWidth / BAR);
        const { count, forgotten } = this.log;
        if (count - forgotten <= fit) return forgotten;
        return clamp(this.index - Math.floor(fit / 2), forgotten, count - fit);
    }

    drawStrip() {
        const { context, width, height } = this.prepare(this.strip);
        if (!this.log?.count) return;
        const colours = this.colours();
        const first = this.firstBar();
        const bars = this.log.bars.slice(first, first + Math.ceil(width / BAR));
        const most = Math.max(6, ...bars);
        bars.forEach((tokens, i) => {
            const here = first + i === this.index;
            const unit = (height - 6) / most;
            const x = i * BAR;
            context.globalAlpha = here ? 1 : 0.55;
            context.fillStyle = colours.accent;
            context.fillRect(x, height - tokens * unit, BAR - 1.5, Math.max(0, (tokens - 1) * unit - 1));
            context.fillStyle = here ? colours.ink : colours.line;
            context.fillRect(x, height - unit, BAR - 1.5, unit);
            if (here) {
                context.fillStyle = colours.ink;
                context.fillRect(x, 0, BAR - 1.5, 2.5);
            }
        });
        context.globalAlpha = 1;
    }
}
