// SPDX-License-Identifier: Apache-2.0
// Text files as a part of a message: each a fenced block under its name.
export const MOST = 256 * 1024; // bytes of the files that go into a message at once

function block(name, text) {
    const longest = (text.match(/`+/g) ?? []).reduce((most, run) => Math.max(most, run.length), 2);
    const fence = "`".repeat(longest + 1); // what the file holds cannot close it
    const kind = /\.([a-z0-9+#-]{1,12})$/i.exec(name)?.[1] ?? "";
    const shown = name.replace(/[`\s]+/g, " ").trim();
    return `\`${shown}\`:\n\n${fence}${kind}\n${text.replace(/\r\n?/g, "\n").replace(/\n$/, "")}\n${fence}\n`;
}

// Files (File objects) -> their blocks. Throws an Error whose message says which is of no use here, and why.
export async function filesAsText(files) {
    const size = files.reduce((all, file) => all + file.size, 0);
    if (size > MOST)
        throw new Error(`${files.length === 1 ? files[0].name : "These files"} ${files.length === 1 ? "has" : "have"} ` +
            `${Math.ceil(size / 1024)} KiB and a message takes ${MOST / 1024} KiB of files at once: take a part of it.`);
    const blocks = [];
    for (const file of files) {
        let bytes;
        try {
            bytes = await file.arrayBuffer();
        } catch {
            throw new Error(`${file.name} cannot be read: choose a file, not a folder.`);
        }
        let text = "\0";
        try {
            text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
        } catch { /* said below */ }
        if (text.includes("\0"))
            throw new Error(`${file.name} is not text in UTF-8: only such files can be put into a message.`);
        blocks.push(block(file.name, text));
    }
    return blocks.join("\n");
}
