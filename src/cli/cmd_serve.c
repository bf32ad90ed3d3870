// SPDX-License-Identifier: Apache-2.0
// `coppice serve`: starts the server that the options describe, says where it is and how to try it,
// and runs it until it is told to stop. What it serves is in src/serve.
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cli/decode.h"
#include "cli/notify.h"
#include "serve/server.h"

enum { KEYS_MAX = 1 << 20 };

// Words of an option, each ending in a NUL in `text`.
struct words {
    struct str text;
    const char **at; // [n]
    size_t n;
};

struct serve {
    const struct cli_args *a;
    struct decode_files files;
    struct words keys, origins, names;
};

static void words_fini(struct words *w) {
    str_fini(&w->text);
    free(w->at);
}

// Cuts w->text at any of these characters; empty words and blanks around words go.
static int words_cut(struct words *w, const char *between, struct err *e) {
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

static int list(const struct cli_args *a, int row, struct words *w, struct err *e) {
    if (options_str(&a->opt, row))
        str_puts(&w->text, options_str(&a->opt, row));
    return words_cut(w, ",", e);
}

static int read_keys(const struct cli_args *a, struct words *w, struct err *e) {
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

// One line of standard error for each request.
static void log_line(void *arg, const char *text, size_t n) {
    (void)arg;
    fwrite(text, 1, n, stderr);
}

static void set_defaults(void *arg, const struct session *s, struct request *r) {
    const struct serve *v = arg;
    const struct options *o = &v->a->opt;
    const struct {
        int row;
        double *to;
    } numbers[] = {{OPT_REQUEST_TEMP, &r->sample.temperature},
                   {OPT_TOP_P, &r->sample.top_p},
                   {OPT_MIN_P, &r->sample.min_p},
                   {OPT_REPEAT_PENALTY, &r->sample.repeat},
                   {OPT_FREQUENCY_PENALTY, &r->sample.frequency},
                   {OPT_PRESENCE_PENALTY, &r->sample.presence}};
    decode_guessing(v->a, s, r);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (options_given(o, numbers[i].row))
            *numbers[i].to = options_float(o, numbers[i].row);
    if (options_given(o, OPT_TOP_K))
        r->sample.top_k = options_int(o, OPT_TOP_K);
    if (options_given(o, OPT_PENALTY_WINDOW))
        r->sample.window = options_int(o, OPT_PENALTY_WINDOW);
}

static void show_try(const struct serve *v, const char *address) {
    bool socket = !strncmp(address, "unix:", 5);
    fprintf(stderr,
            "Try: curl%s%s %s/v1/chat/completions%s -d "
            "'{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}'\n",
            socket ? " --unix-socket " : "", socket ? address + 5 : "",
            socket ? "http://localhost" : address,
            v->keys.n ? " -H 'Authorization: Bearer KEY'" : "");
    if (!socket)
        fprintf(stderr, "Or open %s/ in a browser. Ctrl-C ends the server.\n", address);
}

static void show_start(void *arg, struct server *v, const struct err *failure) {
    const struct serve *s = arg;
    const struct session *session = engine_session(server_engine(v));
    if (failure) // the error of server_run
        return;
    decode_show_plan(s->a, session);
    fprintf(stderr, "coppice: %s is ready: %lld tokens of context, %lld requests at a time%s\n",
            server_model(v), (long long)engine_context(server_engine(v)),
            (long long)options_int(&s->a->opt, OPT_PARALLEL),
            session_draft(session) ? ", guessing with a draft" : "");
    for (size_t i = 0; server_address(v, i); i++)
        fprintf(stderr, "coppice: listening on %s\n", server_address(v, i));
    show_try(s, server_address(v, 0));
    notify_manager("READY=1");
}

static int http_of(struct serve *v, struct http_options *h, struct err *e) {
    const struct options *o = &v->a->opt;
    int rc = read_keys(v->a, &v->keys, e);
    if (!rc)
        rc = list(v->a, OPT_CORS, &v->origins, e);
    if (!rc)
        rc = list(v->a, OPT_ALLOW_HOST, &v->names, e);
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

static int options_of(struct serve *v, struct server_options *out, struct err *e) {
    const struct options *o = &v->a->opt;
    bool choose;
    int rc = decode_session(v->a, &out->engine.session, &v->files, e);
    int budget = rc ? rc : decode_budget(v->a, &choose, e);
    if (budget < 0)
        return budget;
    out->engine.slots = (int)options_int(o, OPT_PARALLEL);
    out->engine.queue = (int)options_int(o, OPT_QUEUE);
    out->engine.max_gap_ms = options_float(o, OPT_MAX_GAP);
    out->engine.kv_limit = options_int(o, OPT_KV_MEMORY);
    out->engine.trace = options_str(o, OPT_TRACE);
    out->name = options_str(o, OPT_NAME);
    out->text_threads = (int)options_int(o, OPT_TEXT_THREADS);
    out->defaults = set_defaults;
    out->log = log_line;
    out->log_json = options_flag(o, OPT_LOG_JSON);
    out->log_prompts = options_flag(o, OPT_LOG_PROMPTS);
    out->loaded = show_start;
    out->defaults_arg = out->loaded_arg = v;
    return http_of(v, &out->http, e);
}

int cmd_serve(const struct cli_args *a, struct err *e) {
    struct serve s = {.a = a};
    struct server_options o = server_options_default();
    struct server *v = NULL;
    signal(SIGPIPE, SIG_IGN); // a log that nobody reads any more ends nothing
    int rc = options_of(&s, &o, e);
    if (!rc)
        rc = server_create(&v, &o, e);
    if (!rc)
        rc = server_run(v, e);
    notify_manager("STOPPING=1");
    server_destroy(v);
    decode_files_fini(&s.files);
    words_fini(&s.keys);
    words_fini(&s.origins);
    words_fini(&s.names);
    return rc;
}
