// SPDX-License-Identifier: Apache-2.0
// Messages from standard input: with line editing and history on a terminal, plain lines elsewhere.
// A message may have several lines: pasted ones, those put in by Alt-Enter, those between two marks
// of three quotation marks, and on a terminal lines that arrive together. It does not interpret
// messages.
#ifndef COPPICE_CLI_CHAT_TERMINAL_H
#define COPPICE_CLI_CHAT_TERMINAL_H

#include "cli/chat/line_editor.h"

struct edit;

// history: as of line_editor_create.
int edit_create(struct edit **out, const char *history, struct err *e);
void edit_destroy(struct edit *ed); // NULL is allowed

bool edit_on_terminal(const struct edit *ed); // standard input and output are one

// Reads a message into *out (cleared first) without its last line end. An enum edit_result, or a
// negative code.
int edit_read(struct edit *ed, struct str *out, struct err *e);

// Appends the file in which messages are kept unless another is named: below $XDG_STATE_HOME, or
// .local/state in the home folder. The folders are made. Appends nothing when that fails.
void edit_history_file(struct str *out);

// A line at the bottom of the terminal that is redrawn while text is printed above it: the text
// scrolls in all lines but that one. It writes to standard output, where the text goes.
// Zeroed is valid and shows nothing.
struct status {
    int rows, columns; // of the window; 0 rows: nothing is shown
    double shown;      // when it was last drawn, in milliseconds
};

// Takes the bottom line, unless this is no terminal that can do it. The cursor stays where it is.
void status_begin(struct status *s);

// Shows a text of ASCII, cut to the window's width, at most ten times a second.
void status_show(struct status *s, const char *text);

// Gives the bottom line back.
void status_end(struct status *s);

#endif
