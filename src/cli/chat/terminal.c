// SPDX-License-Identifier: Apache-2.0
// Messages and the status line at a terminal; see terminal.h. The editor reads single lines, or
// several at once when they were pasted. A window of another size is noticed at the next status
// that is shown. Sequences are those of the VT100: scrolling region, save and restore of the
// cursor.
#include "cli/chat/terminal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/utf8.h"
#include "cli/cli.h"

static const char block[] = "\"\"\"";
enum { BLOCK = sizeof block - 1 };

struct edit {
    bool terminal;
    struct line_editor *editor; // NULL: lines are read plainly
    char *line;                 // of getline
    size_t cap;
    bool ended; // input ended after lines that were still a message
};

int edit_create(struct edit **out, const char *history, struct err *e) {
    struct edit *ed = calloc(1, sizeof *ed);
    if (!ed)
        return err_set(e, ERR_MEMORY, "no memory for reading messages");
    ed->terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    int rc = ed->terminal ? line_editor_create(&ed->editor, history, e) : 0;
    if (rc)
        edit_destroy(ed);
    else
        *out = ed;
    return rc;
}

void edit_destroy(struct edit *ed) {
    if (!ed)
        return;
    line_editor_destroy(ed->editor);
    free(ed->line);
    free(ed);
}

bool edit_on_terminal(const struct edit *ed) {
    return ed->terminal;
}

static int plain_line(struct edit *ed, const char *prompt, struct str *out, struct err *e) {
    if (ed->terminal && cli_write(prompt, strlen(prompt), e))
        return ERR_IO;
    errno = 0;
    ssize_t n = getline(&ed->line, &ed->cap, stdin);
    if (n < 0 && cli_interrupted()) {
        clearerr(stdin);
        int rc = ed->terminal ? cli_write("\n", 1, e) : 0;
        return rc ? rc : EDIT_CANCELLED;
    }
    if (n < 0 && errno == ENOMEM)
        return err_set(e, ERR_MEMORY, "no memory for a line of input");
    if (n < 0)
        return ferror(stdin) ? err_set(e, ERR_IO, "cannot read standard input: %s", strerror(errno))
                             : EDIT_END;
    if (n && ed->line[n - 1] == '\n')
        n--;
    utf8_sanitise(out, ed->line, (size_t)n);
    return EDIT_MESSAGE;
}

// Appends a line.
static int next_line(struct edit *ed, bool more, struct str *out, struct err *e) {
    const char *prompt = more ? "| " : "> ";
    if (more)
        str_putc(out, '\n');
    if (ed->editor)
        return line_editor_read(ed->editor, prompt, out, e);
    return plain_line(ed, prompt, out, e);
}

static bool ends_block(const struct str *s) {
    return s->len >= 2 * BLOCK && !memcmp(s->data + s->len - BLOCK, block, BLOCK);
}

// Goes on until the marks close, and takes them away. What the end of input leaves open counts.
static int read_block(struct edit *ed, struct str *out, struct err *e) {
    int rc = EDIT_MESSAGE;
    while (rc == EDIT_MESSAGE && !ends_block(out) && !out->failed)
        rc = next_line(ed, true, out, e);
    ed->ended = rc == EDIT_END;
    if (rc != EDIT_MESSAGE && rc != EDIT_END)
        return rc;
    if (ends_block(out))
        out->len -= BLOCK;
    else if (out->len > BLOCK)
        out->len--; // the line end before the end of input
    size_t skip = out->len > BLOCK && out->data[BLOCK] == '\n' ? BLOCK + 1 : BLOCK;
    out->len -= skip;
    memmove(out->data, out->data + skip, out->len);
    if (out->len && out->data[out->len - 1] == '\n')
        out->len--;
    out->data[out->len] = '\0';
    return EDIT_MESSAGE;
}

// Lines that came together are one message: a terminal that does not mark pastes sends them so.
static int read_waiting(struct edit *ed, struct str *out, struct err *e) {
    int rc = EDIT_MESSAGE;
    while (ed->editor && rc == EDIT_MESSAGE && line_editor_waiting(ed->editor))
        rc = next_line(ed, true, out, e);
    if (rc != EDIT_END)
        return rc;
    ed->ended = true;
    out->data[--out->len] = '\0';
    return EDIT_MESSAGE;
}

int edit_read(struct edit *ed, struct str *out, struct err *e) {
    str_clear(out);
    if (ed->ended)
        return EDIT_END;
    int rc = next_line(ed, false, out, e);
    if (rc == EDIT_MESSAGE && out->len >= BLOCK && !memcmp(out->data, block, BLOCK))
        rc = read_block(ed, out, e);
    else if (rc == EDIT_MESSAGE)
        rc = read_waiting(ed, out, e);
    if (out->failed)
        return err_set(e, ERR_MEMORY, "no memory for a message");
    while (ed->terminal && out->len && out->data[out->len - 1] == '\n')
        out->data[--out->len] = '\0'; // a paste's last line end is not meant
    if (rc == EDIT_MESSAGE && ed->editor && out->len)
        line_editor_remember(ed->editor, out->data);
    return rc;
}

void edit_history_file(struct str *out) {
    struct str folder = {0};
    struct err unseen;
    cli_state_folder(&folder);
    if (folder.len && !folder.failed && !file_make_folder(folder.data, &unseen))
        str_printf(out, "%s/chat-history", folder.data);
    str_fini(&folder);
}

enum { FEWEST_ROWS = 4, EVERY_MS = 100 };

void status_begin(struct status *s) {
    struct winsize w;
    *s = (struct status){0};
    if (!cli_terminal(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) ||
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
    bool dim = cli_may_dim(STDOUT_FILENO);
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
