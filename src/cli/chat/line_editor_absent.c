// SPDX-License-Identifier: Apache-2.0
// Stands in for line_editor.c where libedit is not there: lines are then read plainly, and a
// wrapper such as rlwrap can edit them.
#include "cli/chat/line_editor.h"

int line_editor_create(struct line_editor **out, const char *history, struct err *e) {
    (void)history;
    (void)e;
    *out = NULL;
    return 0;
}

void line_editor_destroy(struct line_editor *le) {
    (void)le;
}

int line_editor_read(struct line_editor *le, const char *prompt, struct str *out, struct err *e) {
    (void)le;
    (void)prompt;
    (void)out;
    return err_set(e, ERR_UNSUPPORTED, "this build has no line editor");
}

bool line_editor_waiting(struct line_editor *le) {
    (void)le;
    return false;
}

void line_editor_remember(struct line_editor *le, const char *text) {
    (void)le;
    (void)text;
}
