// SPDX-License-Identifier: Apache-2.0
// One line from a terminal, edited with the usual keys, with a history. The library for it is
// seen in line_editor.c only; a build without it has a stand-in that offers no editor.
#ifndef COPPICE_CLI_CHAT_LINE_EDITOR_H
#define COPPICE_CLI_CHAT_LINE_EDITOR_H

#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"

enum edit_result {
    EDIT_MESSAGE,   // something was typed
    EDIT_CANCELLED, // ctrl-C: what was typed is dropped
    EDIT_END,       // ctrl-D on an empty line, or end of input
};

struct line_editor;

// On standard input and output, a terminal. From then on keys are shown only while a line is read
// and wait for it otherwise; ctrl-C stays a signal. history: file of old lines, NULL for none; one
// that cannot be read is taken as empty. *out is NULL in a build without an editor.
int line_editor_create(struct line_editor **out, const char *history, struct err *e);
void line_editor_destroy(struct line_editor *le); // the terminal is as before; NULL is allowed

// Appends a line (or several: pasted ones, and those ended by Alt-Enter) without its line end to
// out, as well-formed UTF-8. prompt: ASCII, at most 7 characters. An enum edit_result, or a
// negative code.
int line_editor_read(struct line_editor *le, const char *prompt, struct str *out, struct err *e);

// Whether more was typed or pasted already.
bool line_editor_waiting(struct line_editor *le);

// Adds a message to the history and writes its file, as far as that is possible.
void line_editor_remember(struct line_editor *le, const char *text);

#endif
