// SPDX-License-Identifier: Apache-2.0
// The other end of a pseudo-terminal; see terminal.h.
#include "chat/terminal.h"

#include <errno.h>
#include <poll.h>
#include <pty.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utmp.h>

#include "support/wait.h"
#include "unit/test.h"

void terminal_start(struct terminal *t, const char *home, const char *term, char *const *argv) {
    struct winsize size = {.ws_row = 24, .ws_col = 80};
    int theirs;
    *t = (struct terminal){0};
    assert_int_equal(openpty(&t->fd, &theirs, NULL, NULL, &size), 0);
    assert_int_equal(tcgetattr(t->fd, &t->before), 0); // before the program can change it
    t->pid = fork();
    assert_true(t->pid >= 0);
    if (t->pid == 0) {
        close(t->fd);
        login_tty(theirs);
        setenv("HOME", home, 1);
        setenv("TERM", term, 1);
        setenv("LANG", "C", 1);
        unsetenv("LC_ALL");
        unsetenv("LC_CTYPE");
        unsetenv("XDG_STATE_HOME");
        unsetenv("XDG_CACHE_HOME");
        unsetenv("NO_COLOR");
        execv(argv[0], argv);
        _exit(127);
    }
    close(theirs);
}

void terminal_keys(struct terminal *t, const char *keys) {
    size_t n = strlen(keys);
    assert_int_equal(write(t->fd, keys, n), n);
}

// Reads what has come; false at the end.
static bool read_more(struct terminal *t) {
    struct pollfd in = {.fd = t->fd, .events = POLLIN};
    char bytes[4096];
    int ready = poll(&in, 1, PATIENCE);
    ssize_t n = ready > 0 ? read(t->fd, bytes, sizeof bytes) : 0;
    if (ready == 0)
        fail_msg("nothing came for two minutes after:\n%s", t->out.data);
    if (n <= 0)
        return false; // EIO: the program has closed its end
    str_append(&t->out, bytes, (size_t)n);
    return true;
}

size_t terminal_wait(struct terminal *t, const char *text) {
    for (;;) {
        char *at = t->out.len > t->seen
                       ? memmem(t->out.data + t->seen, t->out.len - t->seen, text, strlen(text))
                       : NULL;
        if (at) {
            size_t begin = (size_t)(at - t->out.data);
            t->seen = begin + strlen(text);
            return begin;
        }
        if (!read_more(t))
            fail_msg("'%s' did not come before the end of:\n%s", text, t->out.data);
    }
}

int terminal_end(struct terminal *t) {
    int status;
    struct termios after;
    while (read_more(t))
        ;
    WAIT_UNTIL(waitpid(t->pid, &status, WNOHANG) == t->pid);
    assert_int_equal(tcgetattr(t->fd, &after), 0);
    assert_int_equal(after.c_lflag, t->before.c_lflag);
    assert_int_equal(after.c_iflag, t->before.c_iflag);
    close(t->fd);
    str_fini(&t->out);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

// Bytes of the escape sequence at s, of which there are n.
static size_t sequence(const char *s, size_t n) {
    size_t i = 2;
    if (n > 1 && s[1] == '7') { // up to where the cursor is put back
        while (i < n && !(s[i - 1] == '\033' && s[i] == '8'))
            i++;
        return i + 1;
    }
    if (n > 1 && s[1] == '[')
        while (i < n && (s[i] < '@' || s[i] > '~'))
            i++;
    else
        i = 1;
    return i + 1;
}

void terminal_text(const struct terminal *t, size_t from, size_t to, struct str *text) {
    for (size_t i = from; i < to;) {
        const char *s = t->out.data + i;
        if (*s == '\033') {
            i += sequence(s, to - i);
            continue;
        }
        if (*s != '\r')
            str_putc(text, *s);
        i++;
    }
}
