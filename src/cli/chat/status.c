// SPDX-License-Identifier: Apache-2.0
// The bottom line; see status.h. A window of another size is noticed at the next line that is
// shown. Sequences are those of the VT100: scrolling region, save and restore of the cursor.
#include "cli/chat/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"

enum { FEWEST_ROWS = 4, EVERY_MS = 100 };

bool status_terminal(int fd) {
    const char *term = getenv("TERM");
    return isatty(fd) && term && term[0] && strcmp(term, "dumb") != 0;
}

bool status_may_dim(int fd) {
    const char *no = getenv("NO_COLOR");
    return status_terminal(fd) && !(no && no[0]);
}

void status_begin(struct status *s) {
    struct winsize w;
    *s = (struct status){0};
    if (!status_terminal(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) ||
        w.ws_row < FEWEST_ROWS || w.ws_col == 0)
        return;
    s->rows = w.ws_row;
    s->columns = w.ws_col;
    // A line end and one step up: the cursor is then above the bottom line, whatever it was.
    printf("\n\033[A\0337\033[1;%dr\0338", s->rows - 1);
    fflush(stdout);
}

static void follow_size(struct status *s) {
    struct winsize w;
    if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) && w.ws_row >= FEWEST_ROWS && w.ws_col > 0 &&
        (w.ws_row != s->rows || w.ws_col != s->columns)) {
        status_end(s);
        status_begin(s);
    }
}

void status_show(struct status *s, const char *text) {
    double now = clock_ms();
    if (!s->rows || now - s->shown < (double)EVERY_MS)
        return;
    follow_size(s);
    s->shown = now;
    bool dim = status_may_dim(STDOUT_FILENO);
    printf("\0337\033[%d;1H%s%.*s%s\033[K\0338", s->rows, dim ? "\033[2m" : "", s->columns - 1,
           text, dim ? "\033[0m" : "");
    fflush(stdout);
}

void status_end(struct status *s) {
    if (!s->rows)
        return;
    printf("\0337\033[r\033[%d;1H\033[K\0338", s->rows);
    fflush(stdout);
    s->rows = 0;
}
