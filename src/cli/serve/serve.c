// SPDX-License-Identifier: Apache-2.0
// `coppice serve`: starts the server that the options describe, says where it is and how to try it,
// and runs it until it is told to stop. What it serves is in src/serve.
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include "cli/log_out.h"
#include "cli/models/compression.h"
#include "cli/models/decode.h"
#include "cli/notify.h"
#include "cli/serve/http.h"
#include "serve/server.h"

struct serve {
    const struct cli_args *a;
    struct decode_files files;
    struct serve_http http;
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

static void show_start(void *arg, struct server *v, const struct err *failure) {
    const struct serve *s = arg;
    const struct session *session = engine_session(server_engine(v));
    if (failure) // the error of server_run
        return;
    decode_show_plan(s->a, session);
    log_out("coppice: %s is ready: %lld tokens of context, %lld requests at a time%s\n",
            server_model(v), (long long)engine_context(server_engine(v)),
            (long long)options_int(&s->a->opt, OPT_PARALLEL),
            session_draft(session) ? ", guessing with a draft" : "");
    for (size_t i = 0; server_address(v, i); i++)
        log_out("coppice: listening on %s\n", server_address(v, i));
    serve_http_show_try(&s->http, server_address(v, 0), true);
    notify_manager("READY=1");
}

static int options_of(struct serve *v, struct server_options *out, struct err *e) {
    const struct options *o = &v->a->opt;
    bool choose;
    if (options_str(o, OPT_CACHE_DIR) && options_int(o, OPT_CACHE_RAM) == 0)
        return err_set(e, ERR_USAGE,
                       "--cache-dir needs memory to read files into; give "
                       "--cache-ram more than 0");
    int rc = decode_session(v->a, &out->engine.session, &v->files, e);
    int budget = rc ? rc : decode_budget(v->a, &choose, e);
    if (budget < 0)
        return budget;
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
    out->engine.cache.ram = options_int(o, OPT_CACHE_RAM);
    out->engine.cache.dir = options_str(o, OPT_CACHE_DIR);
    out->engine.cache.disk = options_int(o, OPT_CACHE_DISK);
    out->engine.trace = options_str(o, OPT_TRACE);
    out->name = options_str(o, OPT_NAME);
    out->warm_file = options_str(o, OPT_WARM);
    out->template_file = options_str(o, OPT_TEMPLATE_FILE);
    out->text_threads = (int)options_int(o, OPT_TEXT_THREADS);
    out->defaults = set_defaults;
    out->log = serve_http_log;
    out->log_json = options_flag(o, OPT_LOG_JSON);
    out->log_prompts = options_flag(o, OPT_LOG_PROMPTS);
    out->loaded = show_start;
    out->defaults_arg = out->loaded_arg = v;
    return serve_http_options(v->a, &v->http, &out->http, e);
}

// Told to end while the model is being loaded: nothing is there that is to be kept, and the thread
// that loads may be inside of a long read, so the system takes it all back.
static _Noreturn void leave(void) {
    _exit(0);
}

static int serve_model(const struct cli_args *a, struct err *e) {
    struct serve s = {.a = a};
    struct server_options o = server_options_default();
    struct server *v = NULL;
    int rc = options_of(&s, &o, e);
    if (!rc)
        rc = log_out_begin(e);
    if (!rc)
        rc = server_create(&v, &o, e);
    if (!rc)
        rc = server_run(v, e);
    notify_manager("STOPPING=1");
    log_out_end();
    if (v && !rc && engine_state(server_engine(v), NULL) == ENGINE_LOADING)
        leave();
    server_destroy(v);
    decode_files_fini(&s.files);
    serve_http_fini(&s.http);
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
    // A log that nobody reads any more ends nothing, nor does what other servers take for "reopen
    // the log" or "tell how you are".
    static const int ignored[] = {SIGPIPE, SIGUSR1, SIGUSR2};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN);
    if (options_given(&a->opt, OPT_UPSTREAM))
        return serve_relay(a, e);
    int rc = refuse_upstream(a, e);
    return rc ? rc : serve_model(a, e);
}
