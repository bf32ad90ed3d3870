// SPDX-License-Identifier: Apache-2.0
// Messages from standard input: with line editing and history on a terminal, plain lines elsewhere.
// A message may have several lines: pasted ones, those put in by Alt-Enter, those between two marks
// of three quotation marks, and on a terminal lines that arrive together. It does not interpret
// messages.
#ifndef COPPICE_CLI_CHAT_EDIT_H
#define COPPICE_CLI_CHAT_EDIT_H

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

#endif
