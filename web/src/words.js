// SPDX-License-Identifier: Apache-2.0
// How a token is written in the drawing of the tree.
const SIGNS = { "\n": "↵", "\t": "⇥", " ": "␣" };
const END = "∎";

// Tokens that end an answer in the templates in use, beside the one that the server names.
const ENDS = new Set(["<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|end|>",
    "<|return|>", "<|eos|>", "<|eot|>", "<|user|>", "<|END_OF_TURN_TOKEN|>", "<end_of_turn>", "<turn|>", "<eos>",
    "</s>", "[EOS]", "<｜end▁of▁sentence｜>"]);

export const isEnd = (text) => ENDS.has(text);

// text: of the model's own end token, as the server spells it.
export function learnEnd(text) {
    if (text) ENDS.add(text);
}

// A token as a word of the drawing: without the space before it, and never empty.
export function word(text) {
    if (text === "" || isEnd(text)) return END;
    const plain = text.replace(/^ +(?=\S)/, "").replace(/\s+$/, (end) => (text.trim() ? "" : end));
    return plain.replace(/[\n\t ]/g, (sign, at, all) =>
        (all.trim() && sign === " " ? " " : SIGNS[sign])).slice(0, 24);
}
