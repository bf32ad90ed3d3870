// SPDX-License-Identifier: Apache-2.0
// Tools and calls as text of a prompt, for chat templates that have no place for them: the
// declarations with the form of a call, and calls of earlier answers, in the format of a family
// (formats.h). What it writes, the reader of calls.h reads. Which of it may be control tokens
// is the caller's to say: the words of a description may, names and arguments of calls may not.
#ifndef COPPICE_TEXT_TOOLS_WRITE_H
#define COPPICE_TEXT_TOOLS_WRITE_H

#include "base/err.h"
#include "base/str.h"
#include "text/tools/formats.h"

// A call; borrowed.
struct tool_call_text {
    const char *name, *name_json; // plain, and as JSON
    size_t n_name, n_name_json;
    const char *arguments; // JSON; formats without JSON write what is no object as one text
    size_t n_arguments;
};

// Whether prompts can describe the family: harmony's calls are messages, which only its own
// template writes.
bool tool_family_describable(enum tool_family f);
// Appends the n calls of one message. ERR_MEMORY; a failed `out` is left to the caller.
int tool_calls_write(struct str *out, enum tool_family f, const struct tool_call_text *calls, int n,
                     struct err *e);
// Appends what a system prompt says of tools: the beginning, after which each declaration follows
// as a line of JSON, and the end with the form of a call.
void tool_description_begin(struct str *out);
int tool_description_end(struct str *out, enum tool_family f, struct err *e);

#endif
