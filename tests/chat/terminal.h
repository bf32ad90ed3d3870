// SPDX-License-Identifier: Apache-2.0
// A program on a pseudo-terminal: keys go in, what a person would see comes out. A word that does
// not come within a minute fails the running cmocka test and shows what came instead.
#ifndef COPPICE_TESTS_CHAT_TERMINAL_H
#define COPPICE_TESTS_CHAT_TERMINAL_H

#include <sys/types.h>
#include <termios.h>

#include "base/str.h"

struct terminal {
    pid_t pid;
    int fd;
    struct str out; // all that came
    size_t seen;    // of it, what was waited for
    struct termios before;
};

// 24 rows of 80 columns; HOME is `home`, the terminal's kind `term`. argv ends in NULL.
void terminal_start(struct terminal *t, const char *home, const char *term, char *const *argv);

void terminal_keys(struct terminal *t, const char *keys);

// Waits until text comes after what was seen so far; from then on that is seen. Returns where in
// `out` the text begins.
size_t terminal_wait(struct terminal *t, const char *text);

// Reads on until the program ends and returns its exit status; its modes must be as before.
int terminal_end(struct terminal *t);

// Appends out[from .. to) as it looks: without escape sequences, without what is written to the
// bottom line between saving and restoring the cursor, and without '\r'.
void terminal_text(const struct terminal *t, size_t from, size_t to, struct str *text);

#endif
