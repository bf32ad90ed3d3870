// SPDX-License-Identifier: Apache-2.0
// Options of the HTTP server and what is said of it; see http.h.
#include "cli/serve/http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cli/log_out.h"

enum { KEYS_MAX = 1 << 20 };

static void words_fini(struct serve_words *w) {
    str_fini(&w->text);
    free(w->at);
}

// Cuts w->text at any of these characters; empty words and blanks around words go.
static int words_cut(struct serve_words *w, const char *between, struct err *e) {
    char *rest = NULL;
    w->at = calloc(w->text.len / 2 + 1, sizeof *w->at);
    if (!w->at || w->text.failed)
        return err_set(e, ERR_MEMORY, "no memory for a list of %zu bytes", w->text.len);
    char *word = w->text.len ? strtok_r(w->text.data, between, &rest) : NULL;
    for (; word; word = strtok_r(NULL, between, &rest)) {
        word += strspn(word, " \t\r");
        size_t n = strlen(word);
        while (n && strchr(" \t\r", word[n - 1]))
            word[--n] = '\0';
        if (n)
            w->at[w->n++] = word;
    }
    return 0;
}

static int list(const struct cli_args *a, int row, struct serve_words *w, struct err *e) {
    if (options_str(&a->opt, row))
        str_puts(&w->text, options_str(&a->opt, row));
    return words_cut(w, ",", e);
}

static int read_keys(const struct cli_args *a, struct serve_words *w, struct err *e) {
    const char *file = options_str(&a->opt, OPT_API_KEY_FILE), *keys;
    int rc = file ? file_read(&w->text, file, KEYS_MAX, e) : 0;
    if (rc)
        return rc;
    if ((keys = options_str(&a->opt, OPT_API_KEYS)))
        str_printf(&w->text, "\n%s", keys);
    rc = words_cut(w, ",\n", e);
    if (!rc && w->n == 0 && (file || keys))
        return err_set(e, ERR_USAGE, "%s holds no key", file ? file : "--api-key");
    return rc;
}

int serve_http_options(const struct cli_args *a, struct serve_http *v, struct http_options *h,
                       struct err *e) {
    const struct options *o = &a->opt;
    int rc = read_keys(a, &v->keys, e);
    if (!rc)
        rc = list(a, OPT_CORS, &v->origins, e);
    if (!rc)
        rc = list(a, OPT_ALLOW_HOST, &v->names, e);
    h->host = options_str(o, OPT_HOST);
    h->unix_path = options_str(o, OPT_UNIX);
    if (h->unix_path && !strcmp(h->host, "none"))
        h->host = NULL;
    h->port = (int)options_int(o, OPT_PORT);
    h->any_host = options_flag(o, OPT_PUBLIC);
    h->keys = v->keys.at;
    h->n_keys = v->keys.n;
    h->origins = v->origins.at;
    h->n_origins = v->origins.n;
    h->names = v->names.at;
    h->n_names = v->names.n;
    h->head_bytes = (size_t)options_int(o, OPT_HEADER_LIMIT);
    h->body_bytes = (size_t)options_int(o, OPT_BODY_LIMIT);
    double grace = options_float(o, OPT_GRACE);
    h->grace_s = grace > 0 ? grace : -1;
    h->signals = true;
    return rc;
}

void serve_http_fini(struct serve_http *v) {
    words_fini(&v->keys);
    words_fini(&v->origins);
    words_fini(&v->names);
}

void serve_http_log(void *arg, const char *text, size_t n) {
    (void)arg;
    log_out_bytes(text, n);
}

// A reply of bounded length: what small models say goes on for thousands of tokens now and then.
void serve_http_show_try(const struct serve_http *v, const char *address, bool page) {
    bool socket = !strncmp(address, "unix:", 5);
    log_out("Try: curl%s%s %s/v1/chat/completions%s -d "
            "'{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}],\"max_tokens\":100}'\n",
            socket ? " --unix-socket " : "", socket ? address + 5 : "",
            socket ? "http://localhost" : address,
            v->keys.n ? " -H 'Authorization: Bearer KEY'" : "");
    if (!socket && page)
        log_out("Or open %s/ in a browser. Ctrl-C ends the server.\n", address);
}
