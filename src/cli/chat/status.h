// SPDX-License-Identifier: Apache-2.0
// A line at the bottom of the terminal that is redrawn while text is printed above it: the text
// scrolls in all lines but that one. It writes to standard output, where the text goes.
#ifndef COPPICE_CLI_CHAT_STATUS_H
#define COPPICE_CLI_CHAT_STATUS_H

#include <stdbool.h>

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

// Whether this is a terminal that knows such sequences.
bool status_terminal(int fd);

// Whether texts may be dimmed: such a terminal, and no wish for NO_COLOR.
bool status_may_dim(int fd);

#endif
