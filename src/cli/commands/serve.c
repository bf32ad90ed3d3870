// SPDX-License-Identifier: Apache-2.0
// `coppice serve`: starts the server that the options describe, says where it is and how to try it,
// and runs it until it is stopped: a model's, or with --upstream a relay of another OpenAI
// server. What it serves is in src/serve.
#include <malloc.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/chat/dialog.h"
#include "cli/log_out.h"
#include "cli/models/compression.h"
#include "cli/models/decode.h"
#include "serve/http/http.h"
#include "serve/relay/relay.h"
#include "serve/server.h"

// Reports the state of the server to the service manager: one datagram to the socket that systemd
// names in NOTIFY_SOCKET (sd_notify(3)); a name that begins with @ is one of Linux's abstract
// namespace. Without that variable nothing happens. state: lines of NAME=VALUE as "READY=1". What
// cannot be sent is lost, since a manager that does not listen must not keep the server from
// working.
static void notify_manager(const char *state) {
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t n = path ? strlen(path) : 0;
    if (n < 2 || n >= sizeof to.sun_path || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(to.sun_path, path, n);
    if (to.sun_path[0] == '@')
        to.sun_path[0] = '\0';
    int s = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (s < 0)
        return;
    (void)sendto(s, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&to,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
    close(s);
}

// Words of an option, each ending in a NUL in `text`.
struct word_list {
    struct str text;
    const char **at; // [n]
    size_t n;
};

// What the options of a server point at. Zeroed is valid.
struct http_lists {
    struct word_list keys, origins, names;
    struct str build; // labels
};
enum { KEYS_MAX = 1 << 20 };

static void words_fini(struct word_list *w) {
    str_fini(&w->text);
    free(w->at);
}

// Cuts w->text at any of these characters; empty words and blanks around words go.
static int words_cut(struct word_list *w, const char *between, struct err *e) {
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

static int read_word_list(const struct cli_args *a, int row, struct word_list *w, struct err *e) {
    if (options_str(&a->opt, row))
        str_puts(&w->text, options_str(&a->opt, row));
    return words_cut(w, ",", e);
}

static int read_keys(const struct cli_args *a, struct word_list *w, struct err *e) {
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

// Fills h, which points into v; the caller frees v in any case.
static int read_http_options(const struct cli_args *a, struct http_lists *v, struct http_options *h,
                             struct err *e) {
    const struct options *o = &a->opt;
    int rc = read_keys(a, &v->keys, e);
    if (!rc)
        rc = read_word_list(a, OPT_CORS, &v->origins, e);
    if (!rc)
        rc = read_word_list(a, OPT_ALLOW_HOST, &v->names, e);
    cli_build_labels(&v->build);
    if (!rc && v->build.failed)
        rc = err_set(e, ERR_MEMORY, "no memory for the labels of /metrics");
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

static void http_lists_fini(struct http_lists *v) {
    words_fini(&v->keys);
    words_fini(&v->origins);
    words_fini(&v->names);
    str_fini(&v->build);
}

static void write_log(void *arg, const char *text, size_t n) {
    (void)arg;
    log_out_bytes(text, n);
}

// A reply of bounded length: what small models say goes on for thousands of tokens now and then.
static void show_try(const struct http_lists *v, const char *address, bool page) {
    bool socket = !strncmp(address, "unix:", 5);
    log_out("Try: curl%s%s %s/v1/chat/completions%s -d "
            "'{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}],\"max_tokens\":100}'\n",
            socket ? " --unix-socket " : "", socket ? address + 5 : "",
            socket ? "http://localhost" : address,
            v->keys.n ? " -H 'Authorization: Bearer KEY'" : "");
    if (!socket && page)
        log_out("Or open %s/ in a browser. Ctrl-C ends the server.\n", address);
}

enum { KEY_MAX = 1 << 16 };

struct relaying {
    struct http_lists http;
    struct compression compression;
    struct str key;
    struct tokenizer *vocabulary; // of the template
    struct chat_template *raw;    // NULL: chats stay chats
};

// The key of --prefill-upstream-key, or the first line of the file.
static int read_upstream_key(const struct options *o, struct relaying *s, const char **key,
                             struct err *e) {
    const char *file = options_str(o, OPT_UPSTREAM_KEY_FILE);
    *key = options_str(o, OPT_UPSTREAM_KEY);
    if (!file)
        return 0;
    if (*key)
        return err_set(e, ERR_USAGE,
                       "--prefill-upstream-key and --prefill-upstream-key-file cannot both be "
                       "given");
    int rc = file_read(&s->key, file, KEY_MAX, e);
    if (rc)
        return rc;
    size_t n = 0;
    while (n < s->key.len && s->key.data[n] != '\n' && s->key.data[n] != '\r')
        n++;
    if (n == 0)
        return err_set(e, ERR_USAGE, "the first line of %s holds no key", file);
    s->key.data[n] = '\0';
    *key = s->key.data;
    return 0;
}

// The template of raw prompts, where there is one to be.
static int read_upstream_template(const struct options *o, struct relaying *s, struct err *e) {
    const char *path = options_str(o, OPT_UPSTREAM_TEMPLATE);
    if (!path)
        return 0;
    if (s->compression.options.mode == PREFILL_OFF)
        return err_set(e, ERR_USAGE,
                       "--prefill-upstream-template is for compressed chats; give "
                       "--prefill-compression auto or always as well");
    return str_ends(path, ".gguf") ? dialog_template_of_model(path, &s->vocabulary, &s->raw, e)
                                   : dialog_template(path, NULL, &s->raw, e);
}

static int read_relay_options(const struct cli_args *a, struct relaying *s,
                              struct relay_options *out, struct err *e) {
    static const int unused[] = {OPT_MODEL, OPT_DRAFT};
    const struct options *o = &a->opt;
    for (size_t i = 0; i < sizeof unused / sizeof *unused; i++)
        if (options_given(o, unused[i]))
            return err_set(e, ERR_USAGE,
                           "--%s names a model to load, and with --prefill-upstream-base the "
                           "other server has the model: give one of them",
                           cli_options[unused[i]].name);
    if (options_given(o, OPT_KEEP_REQUESTS))
        return err_set(e, ERR_USAGE,
                       "--keep-requests keeps answers of a model of this server's own; with "
                       "--prefill-upstream-base leave it out");
    if (options_flag(o, OPT_PREFILL_ADAPT))
        return err_set(e, ERR_USAGE,
                       "--prefill-adapt follows guesses about this server's own answers; with "
                       "--prefill-upstream-base give --prefill-keep-ratio or --prefill-curve");
    int rc = read_upstream_key(o, s, &out->upstream.key, e);
    out->upstream.base = options_str(o, OPT_UPSTREAM);
    out->upstream.silent_ms = (int)(1e3 * options_float(o, OPT_UPSTREAM_TIMEOUT));
    out->model = options_str(o, OPT_UPSTREAM_MODEL);
    out->text_threads = (int)options_int(o, OPT_TEXT_THREADS);
    out->log = (struct request_log){.write = write_log, .json = options_flag(o, OPT_LOG_JSON)};
    if (!rc)
        rc = compression_options(&s->compression, a, e);
    if (!rc)
        rc = compression_open(&s->compression, a, e);
    if (!rc)
        rc = read_upstream_template(o, s, e);
    out->raw = s->raw;
    out->prefill = s->compression.options;
    out->compressor = s->compression.c;
    if (!rc)
        rc = read_http_options(a, &s->http, &out->http, e);
    out->build = s->http.build.data;
    return rc;
}

static int serve_relay(const struct cli_args *a, struct err *e) {
    struct relaying s = {0};
    struct relay_options o = {0};
    struct relay *r = NULL;
    int rc = read_relay_options(a, &s, &o, e);
    if (!rc)
        rc = relay_create(&r, &o, e);
    if (!rc)
        rc = log_out_begin(e);
    if (!rc) {
        log_out("coppice: requests go to %s\n", relay_upstream(r));
        for (size_t i = 0; relay_address(r, i); i++)
            log_out("coppice: listening on %s\n", relay_address(r, i));
        show_try(&s.http, relay_address(r, 0), false);
        notify_manager("READY=1");
        rc = relay_run(r, e);
    }
    notify_manager("STOPPING=1");
    log_out_end();
    relay_destroy(r);
    http_lists_fini(&s.http);
    compression_close(&s.compression);
    chat_template_free(s.raw);
    tokenizer_destroy(s.vocabulary);
    str_fini(&s.key);
    return rc;
}

struct serve {
    const struct cli_args *a;
    struct decode_files files;
    struct http_lists http;
    struct compression compression;
};

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

// What the server does where neither requests nor options say.
static void show_defaults(const struct serve *s, const struct server *v) {
    static const int rows[] = {OPT_REQUEST_TEMP, OPT_TOP_K, OPT_TOP_P, OPT_MIN_P};
    bool advised, given = false;
    const struct sample_params *p = server_sampling(v, &advised);
    char size[SIZE_TEXT];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        given = given || options_given(&s->a->opt, rows[i]);
    log_out(
        "coppice: requests that do not say are sampled at temperature %g, top-k %lld, top-p %g, "
        "min-p %g, %s%s\n",
        p->temperature, (long long)p->top_k, p->top_p, p->min_p,
        advised ? "as the model's file advises"
                : "the usual values, since the model's file has none",
        given ? ", and as options say" : "");
    size_text(size, server_cache_ram(v));
    if (server_cache_ram(v) > 0)
        log_out("coppice: the prefix cache takes up to %s of memory%s\n", size,
                options_given(&s->a->opt, OPT_CACHE_RAM) ? "" : "; --cache-ram sets another limit");
}

// What becomes of tools that the chat template does not print.
static void show_tools(const struct server *v) {
    bool lost;
    const char *format = server_tool_format(v, &lost);
    if (!format)
        return;
    if (!strcmp(format, "none"))
        log_out("coppice: the chat template of %s does not describe tools: the model is not told "
                "of them (--tool-format)\n",
                server_model(v));
    else
        log_out("coppice: %s%s%s: tools come in the words of the system, calls in the format %s "
                "(--tool-format)\n",
                lost ? "the chat template of " : "--tool-format",
                lost ? server_model(v) : " is given", lost ? " does not describe tools" : "",
                format);
}

static void show_start(void *arg, struct server *v, const struct err *failure) {
    const struct serve *s = arg;
    const struct session *session = engine_session(server_engine(v));
    struct request r;
    if (failure) // the error of server_run
        return;
    decode_show_plan(s->a, session);
    decode_guessing(s->a, session, &r);
    log_out("coppice: %s is ready: %lld tokens of context, %lld requests at a time, speculation: "
            "%s%s\n",
            server_model(v), (long long)engine_context(server_engine(v)),
            (long long)options_int(&s->a->opt, OPT_PARALLEL), speculate_name(r.how),
            r.how != SPECULATE_OFF && r.auto_budget ? ", by price" : "");
    show_defaults(s, v);
    show_tools(v);
    for (size_t i = 0; server_address(v, i); i++)
        log_out("coppice: listening on %s\n", server_address(v, i));
    show_try(&s->http, server_address(v, 0), true);
    notify_manager("READY=1");
}

static int read_server_options(struct serve *v, struct server_options *out, struct err *e) {
    const struct options *o = &v->a->opt;
    static const int of_file[] = {OPT_KEEP_LIMIT, OPT_KEEP_HASHES};
    for (size_t i = 0; i < sizeof of_file / sizeof *of_file; i++)
        if (options_given(o, of_file[i]) && !options_given(o, OPT_KEEP_REQUESTS))
            return err_set(e, ERR_USAGE, "--%s needs --keep-requests FILE",
                           cli_options[of_file[i]].name);
    if (options_str(o, OPT_CACHE_DIR) && options_given(o, OPT_CACHE_RAM) &&
        options_int(o, OPT_CACHE_RAM) == 0)
        return err_set(e, ERR_USAGE,
                       "--cache-dir needs memory to read files into; give "
                       "--cache-ram more than 0");
    int rc = decode_session(v->a, &out->engine.session, &v->files, e);
    if (!rc)
        rc = compression_options(&v->compression, v->a, e);
    if (!rc)
        rc = compression_open(&v->compression, v->a, e);
    out->engine.session.target.max_seqs = (int)options_int(o, OPT_PARALLEL);
    if (!rc)
        rc = compression_share(&v->compression, v->a, &out->engine.session, e);
    if (rc)
        return rc;
    out->prefill = v->compression.options;
    out->compressor = v->compression.c;
    out->engine.slots = (int)options_int(o, OPT_PARALLEL);
    out->engine.queue = (int)options_int(o, OPT_QUEUE);
    out->engine.max_gap_ms = options_float(o, OPT_MAX_GAP);
    out->engine.kv_limit = options_int(o, OPT_KV_MEMORY);
    out->engine.cache.ram =
        options_given(o, OPT_CACHE_RAM) ? options_int(o, OPT_CACHE_RAM) : CACHE_RAM_AUTO;
    out->engine.cache.host = options_int(o, OPT_KV_HOST);
    out->engine.cache.dir = options_str(o, OPT_CACHE_DIR);
    out->engine.cache.disk = options_int(o, OPT_CACHE_DISK);
    out->engine.trace = options_str(o, OPT_TRACE);
    out->name = options_str(o, OPT_NAME);
    out->warm_file = options_str(o, OPT_WARM);
    out->template_file = options_str(o, OPT_TEMPLATE_FILE);
    out->tool_format = options_str(o, OPT_TOOL_FORMAT);
    out->text_threads = (int)options_int(o, OPT_TEXT_THREADS);
    out->defaults = set_defaults;
    out->log = (struct request_log){.write = write_log, .json = options_flag(o, OPT_LOG_JSON)};
    out->log_prompts = options_flag(o, OPT_LOG_PROMPTS);
    out->keep_file = options_str(o, OPT_KEEP_REQUESTS);
    out->keep_bytes = options_int(o, OPT_KEEP_LIMIT);
    out->keep_hashes = options_flag(o, OPT_KEEP_HASHES);
    out->loaded = show_start;
    out->defaults_arg = out->loaded_arg = v;
    rc = read_http_options(v->a, &v->http, &out->http, e);
    out->build = v->http.build.data;
    return rc;
}

// Stopped while the model is being loaded: there is nothing to keep, and the thread
// that loads may be inside of a long read, so the system takes it all back.
static _Noreturn void leave_while_loading(void) {
    _exit(0);
}

static int serve_model(const struct cli_args *a, struct err *e) {
    struct serve s = {.a = a};
    struct server_options o = server_options_default();
    struct server *v = NULL;
    int rc = read_server_options(&s, &o, e);
    if (!rc)
        rc = log_out_begin(e);
    if (!rc)
        rc = server_create(&v, &o, e);
    if (!rc)
        rc = server_run(v, e);
    notify_manager("STOPPING=1");
    log_out_end();
    if (v && !rc && engine_state(server_engine(v), NULL) == ENGINE_LOADING)
        leave_while_loading();
    server_destroy(v);
    decode_files_fini(&s.files);
    http_lists_fini(&s.http);
    compression_close(&s.compression);
    return rc;
}

// What speaks of another server means nothing without one.
static int refuse_upstream(const struct cli_args *a, struct err *e) {
    static const int of_it[] = {OPT_UPSTREAM_KEY, OPT_UPSTREAM_KEY_FILE, OPT_UPSTREAM_MODEL,
                                OPT_UPSTREAM_TEMPLATE, OPT_UPSTREAM_TIMEOUT};
    for (size_t i = 0; i < sizeof of_it / sizeof *of_it; i++)
        if (options_given(&a->opt, of_it[i]))
            return err_set(e, ERR_USAGE,
                           "--%s is about another server; give --prefill-upstream-base as well",
                           cli_options[of_it[i]].name);
    return 0;
}

// States of several megabytes come and go with every request. glibc would raise the size from which
// memory is mapped as soon as one of them is freed, keep them in heaps that other blocks cut up,
// and so take ever more.
static void map_large_blocks(void) {
#ifdef __GLIBC__
    enum { LARGE = 1 << 16 };
    (void)mallopt(M_MMAP_THRESHOLD, LARGE);
#endif
}

int cmd_serve(const struct cli_args *a, struct err *e) {
    map_large_blocks();
    // A log without a reader ends nothing, nor does what other servers take for "reopen
    // the log" or "tell how you are".
    static const int ignored[] = {SIGPIPE, SIGUSR1, SIGUSR2};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN);
    if (options_given(&a->opt, OPT_UPSTREAM))
        return serve_relay(a, e);
    int rc = refuse_upstream(a, e);
    return rc ? rc : serve_model(a, e);
}
