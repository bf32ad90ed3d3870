// SPDX-License-Identifier: Apache-2.0
// Ties engine, connections, workers and interface together; see server.h. What clients learn of
// the model is read from its file before it is loaded, so that a wrong file is an error at once.
#include "serve/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/memory/machine.h"
#include "base/num.h"
#include "base/rng.h"
#include "formats/gguf/gguf.h"
#include "formats/quant/quant.h"
#include "serve/api/api.h"
#include "serve/completion/constraint.h"
#include "serve/completion/lifecycle.h"
#include "serve/completion/warmup.h"

enum { WORKER_QUEUE = 4096, TICK_MS = 250, ALIVE_MS = 5000, WARM_BYTES = 64 << 20 };

struct server {
    struct server_options o;
    struct service s;
    struct gguf *file;   // until the model is loaded
    struct str template; // of the file that was named
    struct str warm;     // likewise
    struct sample_params sample;
    bool advised;                // the file says how to sample
    struct err failure;          // of the engine
    struct http_task changes[2]; // of its state: ready or not, then the end
    int n_changes;               // engine thread
};

struct server_options server_options_default(void) {
    return (struct server_options){.engine = engine_options_default(),
                                   .prefill = prefill_options_default(),
                                   .http = {.host = "127.0.0.1", .port = 8080}};
}

static void handle(void *arg, struct exchange *x) {
    struct server *v = arg;
    api_handle(&v->s, x);
}

static const char *refuse(void *arg, const struct http_refusal *r, struct str *body) {
    (void)arg;
    return api_refusal(r, body);
}

static void ended(void *arg, const struct http_ended *r) {
    struct server *v = arg;
    request_log_ended(&v->o.log, r);
}

static void methods(void *arg, const char *path, struct str *out) {
    (void)arg;
    api_methods(path, out);
}

static void tick(void *arg) {
    struct server *v = arg;
    completion_tick(&v->s);
    warmup_tick(&v->s);
}

// "qwen-27b-q4_k_m" of "/models/qwen-27b-q4_k_m-00001-of-00003.gguf".
static char *name_of_file(const char *path) {
    const char *slash = strrchr(path, '/');
    char *name = strdup(slash ? slash + 1 : path);
    size_t n = name ? strlen(name) : 0;
    if (n > 5 && !strcmp(name + n - 5, ".gguf"))
        name[n -= 5] = 0;
    unsigned part, parts;
    if (n > 15 && sscanf(name + n - 15, "-%5u-of-%5u", &part, &parts) == 2)
        name[n - 15] = 0;
    return name;
}

// The type that most bytes of the model are of.
static void find_quantization(struct service *s, const struct gguf *g) {
    enum { TYPES = 64 };
    int64_t bytes[TYPES] = {0};
    uint32_t max = 0;
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct tensor *t = gguf_tensor_at(g, i);
        if (t->type < TYPES)
            bytes[t->type] += t->bytes;
    }
    for (uint32_t t = 1; t < TYPES; t++)
        if (bytes[t] > bytes[max])
            max = t;
    const struct quant_format *f = quant_format(max);
    snprintf(s->quantization, sizeof s->quantization, "%s", f ? f->name : "");
}

static double number_of(const struct gguf *g, const char *key, double otherwise) {
    double v = otherwise;
    int64_t i = 0;
    if (!gguf_find(g, key))
        return otherwise;
    if (gguf_get_float(g, key, otherwise, &v, NULL) &&
        !gguf_get_int(g, key, INT32_MIN, INT32_MAX, 0, &i, NULL))
        v = (double)i;
    return v;
}

// Whether the makers of the model advise how to sample, and what: then what they leave out is off.
static bool read_advice(struct sample_params *p, const struct gguf *g) {
    static const char *const keys[] = {"general.sampling.temp", "general.sampling.top_k",
                                       "general.sampling.top_p", "general.sampling.min_p"};
    struct sample_params wanted = *p;
    bool any = false;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        any = any || gguf_find(g, keys[i]);
    wanted.temperature = number_of(g, keys[0], p->temperature);
    wanted.top_k = (int64_t)number_of(g, keys[1], 0);
    wanted.top_p = number_of(g, keys[2], p->top_p);
    wanted.min_p = number_of(g, keys[3], p->min_p);
    wanted.repeat = number_of(g, "general.sampling.penalty_repeat", p->repeat);
    wanted.window = (int64_t)number_of(g, "general.sampling.penalty_last_n", (double)p->window);
    if (sample_params_check(&wanted, 1, NULL)) // nonsense in a file is passed over
        return false;
    *p = wanted;
    return any;
}

// Without advice, what llama-server takes: files are made and tried with that.
static void read_sampling(struct server *v) {
    struct sample_params *p = &v->sample;
    sample_params_init(p);
    p->temperature = 1;
    p->window = 256;
    v->advised = read_advice(p, v->file);
    if (v->advised)
        return;
    p->temperature = 0.8;
    p->top_k = 40;
    p->top_p = 0.95;
    p->min_p = 0.05;
}

static int64_t tensor_bytes(const struct gguf *g) {
    int64_t sum = 0;
    for (size_t i = 0; i < gguf_tensor_count(g); i++)
        sum += (int64_t)gguf_tensor_at(g, i)->bytes;
    return sum;
}

// A template that the user names is looked at before the model is loaded.
static int read_template(struct server *v, struct err *e) {
    struct chat_template *t = NULL;
    int rc = file_read(&v->template, v->o.template_file, 1 << 20, e);
    if (!rc && (rc = chat_template_create(&t, v->template.data ? v->template.data : "",
                                          v->template.len, NULL, e)))
        err_prefix(e, "%s", v->o.template_file);
    chat_template_free(t);
    return rc;
}

// How much host memory the prefix cache may take, and states of parked requests besides it.
static int plan_host(struct server *v, struct err *e) {
    struct cache_options *o = &v->o.engine.cache;
    int64_t model = tensor_bytes(v->file), machine = machine_memory();
    if (o->host > 0 && machine > 0 && o->host > machine - max_i64(o->ram, 0))
        return err_set(e, ERR_LIMIT,
                       "--kv-host of %lld MiB and --cache-ram of %lld MiB are more than the "
                       "machine's memory of %lld MiB; give less",
                       (long long)(o->host >> 20), (long long)(max_i64(o->ram, 0) >> 20),
                       (long long)(machine >> 20));
    if (o->ram == CACHE_RAM_AUTO)
        o->ram = cache_usual_ram(model, machine > 0 ? max_i64(machine - o->host, 1) : 0);
    return 0;
}

static int read_file(struct server *v, struct err *e) {
    struct service *s = &v->s;
    const char *path = v->o.engine.session.model, *arch = NULL;
    size_t n = 0;
    int rc = gguf_open(&v->file, path, e);
    if (rc)
        return rc;
    s->model = v->o.name ? strdup(v->o.name) : name_of_file(path);
    if (!s->model)
        return err_set(e, ERR_MEMORY, "no memory for the name of the model");
    if (!gguf_get_str(v->file, "general.architecture", &arch, &n, NULL) && arch)
        snprintf(s->arch, sizeof s->arch, "%.*s", (int)(n < 60 ? n : 60), arch);
    find_quantization(s, v->file);
    read_sampling(v);
    rc = plan_host(v, e);
    if (!rc && v->o.warm_file)
        rc = file_read(&v->warm, v->o.warm_file, WARM_BYTES, e);
    return rc || !v->o.template_file ? rc : read_template(v, e);
}

static int make_template(struct server *v, struct err *e) {
    struct service *s = &v->s;
    const char *text = v->template.data ? v->template.data : "";
    int rc = v->o.template_file
                 ? chat_template_create(&s->chat, text, v->template.len, s->tokenizer, e)
                 : chat_template_of_gguf(&s->chat, v->file, s->tokenizer, e);
    if (!rc && v->o.tool_format &&
        (rc = chat_template_set_tool_format(s->chat, v->o.tool_format, e)) != 0) {
        chat_template_free(s->chat);
        s->chat = NULL;
    }
    return rc;
}

static void on_loaded(struct server *v) {
    struct service *s = &v->s;
    const struct session *session = engine_session(s->engine);
    const struct model_params *m = model_params_of(session_model(session));
    bool has_draft = session_draft(session) != NULL;
    session_draft_names(session, s->drafts);
    s->tokenizer = session_tokenizer(session);
    if (!s->tokenizer)
        err_set(&s->chat_error, ERR_UNSUPPORTED, "the model's file has no tokenizer");
    else
        make_template(v, &s->chat_error);
    struct err none; // without memory for them, calls are the model's own
    if (s->chat) {
        const struct tool_constraints_of of = {s->tokenizer, chat_template_calls(s->chat),
                                               chat_template_reasoning(s->chat), m->vocab};
        tool_constraints_create(&s->tool_constraints, &of, &none);
    }
    gguf_close(v->file);
    v->file = NULL;
    s->n_ctx = engine_context(s->engine);
    s->n_ctx_train = m->context;
    s->kv_type_k = kv_codec_of(session_codec(session, false))->name;
    s->kv_type_v = kv_codec_of(session_codec(session, true))->name;
    s->view = model_spec(session_model(session)).view;
    request_init(&s->defaults);
    s->defaults.sample = v->sample;
    s->defaults.how = speculate_auto(has_draft);
    if (v->o.defaults)
        v->o.defaults(v->o.defaults_arg, session, &s->defaults);
    s->limits = (struct params_limits){.vocab = (int)m->vocab,
                                       .tokenizer = s->tokenizer,
                                       .slots = v->o.engine.slots,
                                       .has_draft = has_draft,
                                       .sample = s->defaults.sample,
                                       .how = s->defaults.how};
    if (s->kept) {
        keep_setup_of(&s->kept_by, session, &v->o.engine.session);
        s->keep_hashes = v->o.keep_hashes || !s->kept_by.gpu;
    }
    s->ready = true;
    if (v->warm.len)
        warmup_read(s, v->warm.data, v->warm.len);
}

static void on_engine(void *arg) {
    struct server *v = arg;
    enum engine_state state = engine_state(v->s.engine, &v->failure);
    bool first = !v->s.ready;
    if (state == ENGINE_READY && first)
        on_loaded(v);
    else if (state == ENGINE_FAILED)
        http_stop(v->s.http);
    else
        return;
    if (first && v->o.loaded)
        v->o.loaded(v->o.loaded_arg, v, state == ENGINE_FAILED ? &v->failure : NULL);
}

// Engine thread.
static void engine_changed(void *arg) {
    struct server *v = arg;
    struct http_task *t = &v->changes[v->n_changes++];
    *t = (struct http_task){.fn = on_engine, .arg = v};
    http_post_task(v->s.http, t); // ERR_STATE: the server has ended before
}

// Room for the scorer, where the target has to make some.
static int lend(void *arg, struct err *e) {
    return engine_lend(arg, e);
}

static int lend_end(void *arg, struct err *e) {
    return engine_lend_end(arg, e);
}

static int start(struct server *v, struct err *e) {
    static const char *const open_paths[] = {"/", "/health", "/v1/health"};
    struct service *s = &v->s;
    struct http_options *h = &v->o.http;
    h->handler = handle;
    h->refuse = refuse;
    h->ended = ended;
    h->methods = methods;
    h->arg = v;
    h->open_paths = open_paths;
    h->n_open_paths = sizeof open_paths / sizeof open_paths[0];
    v->o.engine.changed = engine_changed;
    v->o.engine.changed_arg = v;
    int rc = read_file(v, e);
    if (!rc && v->o.keep_file &&
        (rc = keep_file_open(&s->kept, v->o.keep_file, v->o.keep_bytes, e)))
        err_prefix(e, "--keep-requests");
    if (!rc)
        rc = http_create(&s->http, h, e);
    if (!rc)
        rc = http_listen(s->http, e);
    if (!rc)
        rc = http_every(s->http, min_i32(TICK_MS, v->o.alive_ms), tick, v, e);
    if (!rc)
        rc = workers_create(&s->workers, v->o.text_threads > 0 ? v->o.text_threads : 2,
                            WORKER_QUEUE, e);
    if (!rc && v->o.compressor)
        rc = workers_create(&s->shorteners, 1, WORKER_QUEUE, e);
    if (!rc)
        rc = engine_create(&s->engine, &v->o.engine, e);
    if (!rc && v->o.compressor && (v->o.engine.session.park > 0 || v->o.engine.session.lend > 0))
        compressor_turns(v->o.compressor, &(struct compress_turns){lend, lend_end, s->engine});
    return rc;
}

int server_create(struct server **out, const struct server_options *o, struct err *e) {
    struct server *v = calloc(1, sizeof *v);
    if (!v)
        return err_set(e, ERR_MEMORY, "no memory for a server");
    v->o = *o;
    if (v->o.alive_ms <= 0)
        v->o.alive_ms = ALIVE_MS;
    if (v->o.engine.slots <= 0)
        v->o.engine.slots = ENGINE_SLOTS;
    v->s.o = &v->o;
    v->s.started = (int64_t)time(NULL);
    v->s.seed = random_seed();
    metrics_init(&v->s.metrics);
    response_store_init(&v->s.responses);
    int rc = start(v, e);
    if (rc)
        server_destroy(v);
    else
        *out = v;
    return rc;
}

int server_run(struct server *v, struct err *e) {
    int rc = http_run(v->s.http, e);
    if (!rc && v->failure.code)
        rc = err_set(e, v->failure.code, "%s", v->failure.text);
    return rc;
}

void server_stop(struct server *v) {
    http_stop(v->s.http);
}

void server_destroy(struct server *v) {
    if (!v)
        return;
    workers_destroy(v->s.workers); // they hand over to the next
    workers_destroy(v->s.shorteners);
    engine_destroy(v->s.engine);
    completion_free_all(&v->s);
    warmup_free_all(&v->s);
    tool_constraints_destroy(v->s.tool_constraints);
    if (v->s.http)
        http_destroy(v->s.http);
    chat_template_free(v->s.chat);
    gguf_close(v->file);
    keep_file_close(v->s.kept);
    response_store_fini(&v->s.responses);
    str_fini(&v->template);
    str_fini(&v->warm);
    str_fini(&v->s.out);
    str_fini(&v->s.json.out);
    free(v->s.model);
    free(v);
}

struct engine *server_engine(struct server *v) {
    return v->s.engine;
}

const char *server_address(const struct server *v, size_t i) {
    return http_address(v->s.http, i);
}

const char *server_tool_format(const struct server *v, bool *lost) {
    const struct chat_template *t = v->s.chat;
    *lost = t && chat_template_loses_tools(t);
    return t ? chat_template_tool_format(t) : NULL;
}

const char *server_model(const struct server *v) {
    return v->s.model;
}

const struct sample_params *server_sampling(const struct server *v, bool *advised) {
    *advised = v->advised;
    return &v->s.defaults.sample;
}

int64_t server_cache_ram(const struct server *v) {
    return v->o.engine.cache.ram;
}
