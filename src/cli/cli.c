// SPDX-License-Identifier: Apache-2.0
// Shared parts of the subcommands; see cli.h. The only globals are the flags of signals, since
// a handler can reach nothing else.
#include "cli/cli.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

enum { TEXT_MAX = 64 << 20 };

static volatile sig_atomic_t interrupted, terminated;

int cli_need(const struct cli_args *a, int row, struct err *e) {
    if (options_given(&a->opt, row))
        return 0;
    const struct option *opt = &cli_options[row];
    if (opt->letter)
        return err_set(e, ERR_USAGE, "'%s' needs -%c %s; see 'coppice %s --help'", a->command->name,
                       opt->letter, opt->metavar, a->command->name);
    return err_set(e, ERR_USAGE, "'%s' needs --%s %s; see 'coppice %s --help'", a->command->name,
                   opt->name, opt->metavar, a->command->name);
}

int cli_read_text(const struct cli_args *a, struct str *out, struct err *e) {
    const char *text = options_str(&a->opt, OPT_PROMPT), *path = options_str(&a->opt, OPT_FILE);
    if (text && path)
        return err_set(e, ERR_USAGE, "-p and -f were both given; choose one source of text");
    if (path)
        return file_read(out, path, TEXT_MAX, e);
    if (!text)
        return err_set(e, ERR_USAGE, "'%s' needs text: give -p TEXT or -f FILE", a->command->name);
    str_puts(out, text);
    return out->failed ? err_set(e, ERR_MEMORY, "out of memory for the prompt") : 0;
}

int cli_write(const char *bytes, size_t n, struct err *e) {
    if (fwrite(bytes, 1, n, stdout) == n && fflush(stdout) == 0)
        return 0;
    return err_set(e, ERR_IO, "cannot write to standard output: %s", strerror(errno));
}

int cli_print(struct str *s, struct err *e) {
    int rc = s->failed ? err_set(e, ERR_MEMORY, "out of memory for the output")
                       : cli_write(s->data ? s->data : "", s->len, e);
    str_fini(s);
    return rc;
}

int cli_print_json(struct json_writer *w, struct err *e) {
    str_putc(&w->out, '\n');
    return cli_print(&w->out, e);
}

static void note_interrupt(int number) {
    (void)number;
    interrupted = 1;
}

void cli_catch_interrupt(void) {
    struct sigaction action = {.sa_handler = note_interrupt, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static void note_end(int number) {
    (void)number;
    terminated = 1;
}

void cli_watch_interrupt(void) {
    struct sigaction action = {.sa_handler = note_interrupt};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    action.sa_handler = note_end;
    action.sa_flags = (int)SA_RESETHAND;
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

bool cli_take_interrupt(void) {
    bool was = interrupted != 0;
    interrupted = 0;
    return was;
}

bool cli_interrupted(void) {
    return interrupted != 0 || terminated != 0;
}

bool cli_progress_wanted(void) {
    return isatty(STDERR_FILENO) == 1;
}

bool cli_terminal(int fd) {
    const char *term = getenv("TERM");
    return isatty(fd) && term && term[0] && strcmp(term, "dumb") != 0;
}

bool cli_may_dim(int fd) {
    const char *no = getenv("NO_COLOR");
    return cli_terminal(fd) && !(no && no[0]);
}

// The specification ignores variables that hold no absolute path.
static void put_user_folder(struct str *out, const char *variable, const char *otherwise) {
    const char *own = getenv(variable), *home = getenv("HOME");
    if (own && own[0] == '/')
        str_printf(out, "%s/coppice", own);
    else if (home && home[0] == '/')
        str_printf(out, "%s/%s/coppice", home, otherwise);
}

void cli_state_folder(struct str *out) {
    put_user_folder(out, "XDG_STATE_HOME", ".local/state");
}

void cli_cache_folder(struct str *out) {
    put_user_folder(out, "XDG_CACHE_HOME", ".cache");
}
