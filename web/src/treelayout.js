// SPDX-License-Identifier: Apache-2.0
// Where the words of a tree stand. Depth goes to the right, one column a depth. What stays is one
// straight line; from it the guesses that were cut branch off upwards and downwards, each with its
// own best continuation straight on. No two words share a place and no branch crosses another:
// branches are laid from the deepest to the shallowest, each just outside of those before it.
import { hierarchy } from "d3-hierarchy";

// -> { nodes: [{ row, depth, y, kept, parent }], deepest, top, bottom }; y counts lines of text,
// 0 for the path, negative above it; row is the row of the step's tree, -1 for the bonus; parent is a
// row, null for the root.
export function layout(step) {
    const children = Array.from({ length: step.n }, () => []);
    for (let row = 1; row < step.n; row++) children[step.parent[row]].push(row);
    const kept = new Set(step.path);
    const score = (row) => -row; // rows come in the order of their scores, the best first
    const tree = hierarchy(0, (row) => children[row]);
    const nodes = new Map();
    // Used lines of each column, on either side of the path.
    const used = { "-1": [], 1: [] };

    const place = (node, y, parent) =>
        nodes.set(node.data, { row: node.data, depth: node.depth, y, kept: kept.has(node.data),
            parent });

    // The line for a chain of columns from..to: outside of all that is there.
    const free = (side, from, to) => {
        let line = 0;
        for (let column = from; column <= to; column++) line = Math.max(line, used[side][column] ?? 0);
        line++;
        for (let column = from; column <= to; column++) used[side][column] = line;
        return side * line;
    };

    const best = (node) => (node.children ?? []).reduce((one, other) =>
        !one || score(other.data) > score(one.data) ? other : one, null);

    function branch(head, side, parent) {
        const chain = [];
        for (let node = head; node; node = best(node)) chain.push(node);
        const y = free(side, head.depth, chain.at(-1).depth);
        chain.forEach((node, i) => place(node, y, i === 0 ? parent : chain[i - 1].data));
        for (const node of chain.toReversed()) others(node, chain, () => side);
    }

    function others(node, chain, sideOf) {
        (node.children ?? []).filter((child) => !chain.includes(child))
            .sort((a, b) => score(b.data) - score(a.data))
            .forEach((child) => branch(child, sideOf(child), node.data));
    }

    const trunk = tree.descendants().filter((node) => kept.has(node.data))
        .sort((a, b) => a.depth - b.depth);
    trunk.forEach((node, i) => place(node, 0, i === 0 ? null : trunk[i - 1].data));
    const height = (side) => Math.max(0, ...used[side].filter((line) => line !== undefined));
    for (const node of trunk.toReversed())
        others(node, trunk, () => (height(-1) <= height(1) ? -1 : 1));
    if (step.bonus !== null && step.bonus !== undefined) {
        const end = trunk.at(-1);
        nodes.set(-1, { row: -1, depth: end.depth + 1, y: 0, kept: true, parent: end.data });
    }
    const all = [...nodes.values()];
    return { nodes: all, deepest: Math.max(...all.map((node) => node.depth)), top: height(-1),
        bottom: height(1) };
}
