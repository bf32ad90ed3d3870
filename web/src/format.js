// SPDX-License-Identifier: Apache-2.0
// The form that answers are held to: schema and stop strings as they are typed, and as the server takes
// them.

// -> { schema } where there is one, { error } where the text is none; neither for an empty text.
export function readSchema(text) {
    if (text.trim() === "") return {};
    let schema;
    try {
        schema = JSON.parse(text);
    } catch (error) {
        return { error: `Not used, since it is not JSON: ${error.message.replace(/\.$/, "")}.` };
    }
    if (typeof schema !== "object" || schema === null || Array.isArray(schema))
        return { error: "Not used, since a schema is an object: begin with {\"type\": ...}." };
    return { schema };
}

const ESCAPED = { n: "\n", t: "\t", "\\": "\\" };

// One a line; \n, \t and \\ stand for a line break, a tabulator and a backslash.
export const readStop = (text) => text.split("\n").filter((line) => line !== "")
    .map((line) => line.replace(/\\([nt\\])/g, (all, sign) => ESCAPED[sign]));
