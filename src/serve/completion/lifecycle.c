// SPDX-License-Identifier: Apache-2.0
// The life of a request for text; see lifecycle.h. All of it is in the loop thread but the making
// of prompts (text workers) and the two callbacks of streams (the engine thread).
#include "serve/completion/lifecycle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/num.h"
#include "serve/completion/completion.h"
#include "serve/completion/constraint.h"
#include "serve/completion/warmup.h"
#include "serve/completion/write.h"
#include "serve/http/sse.h"
#include "serve/request/body.h"

static uint64_t hash_header(const struct exchange *x, const char *name, uint64_t seed) {
    const char *v = exchange_request_header(x, name);
    return v && v[0] ? hash_bytes(v, strlen(v), seed) | 1 : 0;
}

// seed: a number that clients cannot know. Before the body is dropped.
static void take_resend_mark(struct resend_mark *m, const struct exchange *x, uint64_t seed) {
    size_t n;
    const char *body = exchange_body(x, &n);
    const char *count = exchange_request_header(x, "x-stainless-retry-count");
    long retries = count ? strtol(count, NULL, 10) : 0;
    *m = (struct resend_mark){.n = n};
    m->key = hash_header(x, "authorization", seed);
    if (!m->key)
        m->key = hash_header(x, "x-api-key", seed);
    m->once = hash_header(x, "idempotency-key", seed);
    m->count = retries > 0 && retries < 1000 ? (int)retries : 0;
    for (uint64_t i = 0; i < 2; i++)
        m->body[i] = hash_bytes(body, n, seed + i);
}

// Whether `again` is marked as the request `first`, whose exchange is x, sent again.
static bool is_sent_again(const struct resend_mark *first, const struct resend_mark *again,
                          const struct exchange *x) {
    if (first->key != again->key || first->n != again->n || first->body[0] != again->body[0] ||
        first->body[1] != again->body[1])
        return false;
    if (first->once || again->once)
        return first->once == again->once;
    return again->count > first->count && exchange_may_be_disconnected(x);
}

// Engine thread: called for each token in order, so that the reply ends at the very one that
// completes a stop string.
static bool ends_reply(void *arg, int32_t id) {
    struct choice *k = arg;
    bool last = reply_text_push(&k->engine_text, id);
    reply_deltas_clear(&k->engine_text.deltas);
    return last;
}

// Whether the text of a reply may end it: only then does the engine's thread read it, too.
static bool may_end_early(const struct completion *c) {
    return c->p.stops.n > 0 || c->tools.one_call;
}

static void fill_stream_options(struct completion *c, struct choice *k, struct stream_options *o) {
    const struct completion_prompt *prompt = &c->prompts[k->index / (int)c->p.n];
    const struct service *s = c->s;
    struct request *r = &o->r;
    int64_t max_reply = s->n_ctx - (int64_t)prompt->tokens.count;
    o->trees = c->p.trees;
    o->positions = (struct cache_positions){prompt->positions, prompt->n_positions};
    *r = s->defaults;
    r->prompt = prompt->tokens.ids;
    r->n_prompt = (int64_t)prompt->tokens.count;
    r->max_tokens = c->p.max_tokens < 0 ? max_reply : min_i64(c->p.max_tokens, max_reply);
    k->max_tokens = r->max_tokens;
    r->ignore_eos = c->p.ignore_eos;
    r->stop_ids = c->p.stop_ids;
    r->n_stop_ids = c->p.n_stop_ids;
    r->min_tokens = c->p.min_tokens;
    r->sample = c->p.sample;
    r->sample.choice = (uint64_t)(k->index % (int)c->p.n);
    r->sample.bias = c->p.bias;
    r->sample.n_bias = c->p.n_bias;
    r->how = c->p.how;
    r->logit_hash = c->p.logit_hash || c->s->keep_hashes;
    r->constraint = c->constraint;
    if (c->p.logprobs)
        r->logprobs = (int)c->p.top_logprobs;
    r->prompt_logprobs = c->p.logprobs && c->p.echo;
    if (may_end_early(c)) {
        r->stop = ends_reply;
        r->stop_arg = k;
    }
}

// Hands the choices of one prompt to the engine.
static int submit_prompt(struct completion *c, int first, stream_notify_fn *notify, struct err *e) {
    int n = (int)c->p.n;
    struct stream_options *o = calloc((size_t)n, sizeof *o);
    struct stream **out = calloc((size_t)n, sizeof *out);
    int rc = o && out ? 0 : err_set(e, ERR_MEMORY, "no memory for %d answers", n);
    for (int i = 0; i < n && !rc; i++) {
        o[i] = (struct stream_options){.notify = notify, .notify_arg = c};
        fill_stream_options(c, &c->choices[first + i], &o[i]);
    }
    if (!rc)
        rc = engine_submit_choices(c->s->engine, o, n, out, e);
    for (int i = 0; i < n && !rc; i++)
        c->choices[first + i].stream = out[i];
    free(o);
    free(out);
    return rc;
}

// Hands all choices to the engine; false with c->error filled. Those that it has taken by then are
// released with the request. Loop thread.
static bool submit_choices(struct completion *c, stream_notify_fn *notify) {
    struct err e = {0};
    int rc = 0;
    warmup_yield(c->s);
    for (int i = 0; i < c->n_choices && !rc; i += (int)c->p.n)
        rc = submit_prompt(c, i, notify, &e);
    c->open = c->n_choices;
    if (!rc)
        return true;
    if (rc == ERR_LIMIT)
        return api_refuse_full(&c->error, &e);
    api_error_of(&c->error, &e);
    return false;
}

// The reader of a choice's reply from its first token on. ERR_MEMORY.
static int init_reply_text(struct choice *k, struct reply_text *out, struct err *e) {
    const struct completion *c = k->c;
    const struct reply_rules rules = completion_reply_rules(k);
    return reply_text_init(out, c->s->tokenizer, &rules, e);
}

static int make_choice(struct completion *c, int i, struct err *e) {
    struct choice *k = &c->choices[i];
    k->c = c;
    k->index = i;
    int rc = init_reply_text(k, &k->text, e);
    return rc || !may_end_early(c) ? rc : init_reply_text(k, &k->engine_text, e);
}

// Makes c->choices, of each prompt as many as `n` requests; false with c->error filled. Text
// worker.
static bool make_choices(struct completion *c) {
    struct err e = {0};
    int n = c->n_prompts * (int)c->p.n, rc = 0;
    if (n > PARAMS_MAX_CHOICES)
        return api_refuse(&c->error, "n", "%d prompts with n %lld are %d answers; %d are the most",
                          c->n_prompts, (long long)c->p.n, n, PARAMS_MAX_CHOICES);
    c->choices = calloc((size_t)n, sizeof *c->choices);
    if (c->p.logit_hash)
        c->hashes = calloc((size_t)n, sizeof *c->hashes);
    if (!c->choices || (c->p.logit_hash && !c->hashes))
        rc = err_set(&e, ERR_MEMORY, "no memory for %d answers", n);
    else
        c->n_choices = n;
    for (int i = 0; i < n && !rc; i++)
        rc = make_choice(c, i, &e);
    if (rc)
        api_error_of(&c->error, &e);
    return rc == 0;
}

// Whether the context holds each prompt; false with c->error filled. Text worker.
static bool check_prompts_fit(struct completion *c) {
    const char *field = c->d->endpoint == ENDPOINT_COMPLETIONS ? "prompt"
                        : c->d->endpoint == ENDPOINT_RESPONSES ? "input"
                                                               : "messages";
    for (int i = 0; i < c->n_prompts; i++) {
        const struct completion_prompt *p = &c->prompts[i];
        int64_t n = (int64_t)(p->over ? p->tokens.max + 1 : p->tokens.count), limit = c->s->n_ctx;
        if (n + (c->p.max_tokens != 0) <= limit)
            continue;
        api_refuse(&c->error, field,
                   "the prompt is too long: it has %s%lld tokens, and the context has room for "
                   "%lld with the answer",
                   p->over ? "at least " : "", (long long)n, (long long)limit);
        c->error.code = "context_length_exceeded";
        c->error.n_prompt = n;
        c->error.n_ctx = limit;
        return false;
    }
    return true;
}

enum {
    TOKENS_AT_ONCE = 256,   // of one chunk
    TREES_GRACE_MS = 10000, // that trees wait for a watcher
    ALIVE_SHARE = 10,       // of the time between keep-alives, until a stream begins
};

static void unlink_completion(struct completion *c) {
    if (c->prev)
        c->prev->next = c->next;
    else if (c->s->completions == c)
        c->s->completions = c->next;
    if (c->next)
        c->next->prev = c->prev;
}

static void free_completion(struct completion *c) {
    unlink_completion(c);
    completion_trees_drop(c);
    for (int i = 0; i < c->n_choices; i++) {
        stream_release(c->choices[i].stream);
        reply_text_fini(&c->choices[i].text);
        reply_text_fini(&c->choices[i].engine_text);
        answer_items_fini(&c->choices[i].items);
    }
    for (int i = 0; i < c->n_prompts; i++)
        token_list_fini(&c->prompts[i].tokens);
    free(c->choices);
    free(c->hashes);
    free(c->prompts);
    if (c->d->drop)
        c->d->drop(c);
    params_fini(&c->p);
    request_tools_fini(&c->tools);
    constraint_drop(c->constraint);
    conversation_fini(&c->said);
    json_free(c->body);
    str_fini(&c->text);
    str_fini(&c->rendered);
    str_fini(&c->rules.tools);
    str_fini(&c->rules.format);
    str_fini(&c->rules.thinking);
    http_memory_release(&c->memory);
    free(c);
}

// Frees it now, or when news that are on their way have come.
static void release_completion(struct completion *c) {
    for (int i = 0; i < c->n_choices; i++) {
        stream_release(c->choices[i].stream); // no callback from here on
        c->choices[i].stream = NULL;
    }
    completion_trees_drop(c);
    c->dead = true;
    if (!atomic_load(&c->posted))
        free_completion(c);
}

void completion_free_all(struct service *s) {
    while (s->completions) {
        struct completion *c = s->completions;
        atomic_store(&c->disconnected, true);
        if (c->ended == 0) // its worker had no time to hand it over
            record_end(c, NULL);
        free_completion(c);
    }
}

// An ended request whose trees have not been watched to their end waits a little for a watcher.
static void wait_for_watcher(struct completion *c) {
    completion_trees_advance(c, true);
    bool seen = c->watched && !c->watcher;
    if (seen || c->disconnected || !c->p.trees || clock_ms() - c->ended > (double)TREES_GRACE_MS)
        release_completion(c);
}

// The end of everything: why is NULL or zeroed where all went well.
static void finish_completion(struct completion *c, const struct api_error *why) {
    bool failed = why && why->status;
    c->ended = clock_ms();
    record_end(c, why);
    if (c->x && failed)
        completion_write_error(c, why);
    else if (c->x)
        completion_write_end(c);
    if (!failed)
        warmup_next_turn(c);
    if (failed)
        release_completion(c);
    else
        wait_for_watcher(c);
}

static void cancel_choices(struct completion *c) {
    for (int i = 0; i < c->n_choices; i++)
        if (c->choices[i].stream)
            stream_cancel(c->choices[i].stream);
}

// Takes tokens of a choice into its text. True when something came or it ended.
static bool take_tokens(struct choice *k) {
    const int32_t *ids = NULL;
    if (k->ended)
        return false;
    bool ended = stream_ended(k->stream, &k->end);
    int64_t n = stream_tokens(k->stream, &ids), from = k->seen;
    int64_t to = n - from > TOKENS_AT_ONCE ? from + TOKENS_AT_ONCE : n;
    for (; k->seen < to; k->seen++)
        reply_text_push(&k->text, ids[k->seen]);
    if (to > from)
        record_tokens(k, to - from);
    if (ended && to == n) {
        reply_text_end(&k->text, k->end.rc || k->end.reason != END_STOP);
        k->ended = true;
        k->c->open--;
    }
    return to > from || k->ended;
}

// Moves what the engine has published towards the client, as far as the client takes it.
static void advance_choice(struct completion *c, struct choice *k) {
    while (!(c->streaming && c->x && exchange_backlog(c->x) > EXCHANGE_FULL) && take_tokens(k)) {
        if (k->ended && k->end.rc)
            return;
        if (c->streaming && c->x)
            completion_write_chunk(c, k);
    }
}

static void advance_completion(struct completion *c) {
    if (!c->prepared || c->dead)
        return;
    if (c->ended > 0) {
        wait_for_watcher(c);
        return;
    }
    completion_trees_advance(c, false);
    for (int i = 0; i < c->n_choices; i++) {
        struct choice *k = &c->choices[i];
        advance_choice(c, k);
        if (k->ended && k->end.rc && !c->disconnected) {
            api_error_of(&c->error, &k->end.err);
            cancel_choices(c);
            finish_completion(c, &c->error);
            return;
        }
    }
    if (c->open == 0)
        finish_completion(c, NULL);
}

static void on_published(void *arg) {
    struct completion *c = arg;
    atomic_store(&c->posted, false);
    if (c->dead)
        free_completion(c);
    else
        advance_completion(c);
}

// Engine thread.
static void notify_loop(void *arg) {
    struct completion *c = arg;
    if (!atomic_exchange(&c->posted, true) && http_post(c->s->http, on_published, c))
        atomic_store(&c->posted, false); // the tick will look
}

static void on_prepared(void *arg) {
    struct completion *c = arg;
    bool refused = c->error.status != 0;
    c->prepared = true;
    if (c->disconnected) {
        finish_completion(c, NULL);
    } else if (refused || !service_ready(c->s, &c->error) || !submit_choices(c, notify_loop)) {
        finish_completion(c, &c->error);
    } else {
        if (c->p.stream && !c->streaming)
            completion_write_begin(c);
        advance_completion(c);
    }
}

// Counts what stays of the body while the answer is made.
static void count_kept_memory(struct completion *c) {
    size_t n = c->rendered.cap + c->rules.tools.cap + c->rules.format.cap + c->rules.thinking.cap;
    for (int i = 0; i < c->n_prompts; i++)
        n += (size_t)c->prompts[i].tokens.cap * sizeof *c->prompts[i].tokens.ids;
    if (c->body)
        n += 2 * json_memory(c->body); // and its conversation
    if (c->own)
        n += c->body_bytes;
    http_memory_set(&c->memory, n);
}

// The last of what is done before the loop thread takes it.
static void hand_to_loop(struct completion *c, bool ok) {
    if (ok && check_prompts_fit(c) && constrain_format(c) && constrain_thinking(c))
        make_choices(c);
    if (!warmup_applies(c)) { // here, since a million values take a while
        conversation_fini(&c->said);
        json_free(c->body);
        c->body = NULL;
    }
    count_kept_memory(c);
    c->handed = (struct http_task){.fn = on_prepared, .arg = c};
    (void)http_post_task(c->s->http, &c->handed); // else the loop has ended, and frees it
}

// The thread that compresses.
static void run_shorten(void *arg) {
    struct completion *c = arg;
    bool wanted = !atomic_load(&c->disconnected);
    hand_to_loop(c, wanted && c->d->shorten(c));
}

// Whether its prompt is to be compressed; why not is noted.
static bool needs_compression(struct completion *c) {
    const struct service *s = c->s;
    if (!s->shorteners || s->o->prefill.mode == PREFILL_OFF)
        return false;
    struct prefill_prompt p = {.room = s->n_ctx - 1, .tools = c->tools.set.n > 0};
    for (int i = 0; i < c->n_prompts; i++)
        p.tokens += (int64_t)c->prompts[i].tokens.count;
    const char *reason = prefill_skip(&s->o->prefill, &p);
    if (!reason && c->d->endpoint == ENDPOINT_COMPLETIONS &&
        json_kind_of(c->p.prompt) != JSON_STRING)
        reason = "the prompt is not one text";
    c->compression =
        (struct prefill_report){.tried = true, .from = p.tokens, .to = p.tokens, .reason = reason};
    return !reason;
}

// Makes the prompt of what has been read; ok: it could be.
static void make_prompts(struct completion *c, bool ok) {
    struct err e = {0};
    ok = ok && c->d->prepare(c);
    if (ok && needs_compression(c)) {
        if (!workers_run(c->s->shorteners, 0, run_shorten, c, &e))
            return;
        ok = api_refuse_full(&c->error, &e);
    }
    hand_to_loop(c, ok);
}

// The worker for what is as long as what the request refers to.
static void run_make_prompts(void *arg) {
    struct completion *c = arg;
    make_prompts(c, !atomic_load(&c->disconnected));
}

// Text worker.
static void run_prepare(void *arg) {
    struct completion *c = arg;
    struct err e = {0};
    bool ok = !atomic_load(&c->disconnected) &&
              body_take(&c->text, &c->memory, &c->body, &c->error) &&
              body_read(&c->p, c->body, c->d->endpoint, &c->s->limits, &c->error);
    c->p.client = &c->client;
    str_fini(&c->text);
    size_t referred = ok && c->d->referred ? c->d->referred(c->s, c->body) : 0;
    if (referred <= c->body_bytes)
        make_prompts(c, ok);
    else if (workers_run(c->s->workers, referred, run_make_prompts, c, &e))
        hand_to_loop(c, api_refuse_full(&c->error, &e));
}

static void on_client_disconnect(void *arg) {
    struct completion *c = arg;
    atomic_store(&c->disconnected, true);
    exchange_abort(c->x);
    c->x = NULL;
    cancel_choices(c);
    advance_completion(c); // nothing before on_prepared
}

static void on_writable(void *arg) {
    advance_completion(arg);
}

static void on_cut(void *arg) {
    struct completion *c = arg;
    struct api_error why;
    api_fail(&why, 503, "shutting_down", "the server is shutting down");
    atomic_store(&c->disconnected, true);
    if (c->prepared)
        finish_completion(c, &why);
    else // on_prepared ends it
        completion_write_error(c, &why);
}

static void put_request_id(const struct completion *c) {
    bool theirs = c->d->endpoint == ENDPOINT_ANTHROPIC;
    exchange_header(c->x, theirs ? "request-id" : "x-request-id", c->id);
}

static const struct exchange_hooks client_hooks = {
    .disconnected = on_client_disconnect, .writable = on_writable, .cut = on_cut};

// Starts the answer of a choice from its beginning; its tokens are with the engine.
static int restart_choice(struct choice *k, struct err *e) {
    reply_text_fini(&k->text);
    answer_items_fini(&k->items);
    k->seen = k->shown = k->offset = 0;
    k->match = (struct token_match){0};
    k->echoed = false;
    k->c->open += k->ended;
    k->ended = false;
    return init_reply_text(k, &k->text, e);
}

// Gives the answer to a request that is being answered already and has been sent again to the newer
// connection, from its beginning; the older one, which its client has given up, is broken off.
// False where there is no such request.
static bool join_resent(struct service *s, struct exchange *x, const struct dialect *d,
                        const struct resend_mark *m) {
    struct completion *c = s->completions;
    struct err e = {0};
    int rc = 0;
    while (c &&
           (c->d != d || c->dead || c->ended > 0 || !c->x || !is_sent_again(&c->mark, m, c->x)))
        c = c->next;
    if (!c)
        return false;
    bool again = c->streaming && c->prepared;
    exchange_drop_body(x);
    exchange_own_line(c->x, false);
    exchange_own_line(x, true);
    exchange_abort(c->x);
    c->x = x;
    c->mark = *m;
    c->streaming = false; // the tick begins streams of what is not prepared
    snprintf(c->peer, sizeof c->peer, "%s", exchange_peer(x));
    put_request_id(c);
    exchange_watch(x, &client_hooks, c);
    for (int i = 0; again && i < c->n_choices && !rc; i++)
        rc = restart_choice(&c->choices[i], &e);
    if (rc) {
        api_error_of(&c->error, &e);
        cancel_choices(c);
        finish_completion(c, &c->error);
    } else if (again) {
        completion_write_begin(c);
        advance_completion(c);
    }
    return true;
}

static bool is_disconnected(const void *arg) {
    const struct completion *c = arg;
    return atomic_load(&c->disconnected);
}

static bool should_yield(const void *arg) {
    enum { LONG_MS = 5 };
    const struct completion *c = arg;
    return is_disconnected(arg) || workers_step_aside(c->s->workers, LONG_MS, NULL);
}

static struct completion *create_completion(struct service *s, struct exchange *x,
                                            const struct dialect *d,
                                            const struct resend_mark *mark) {
    struct completion *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    exchange_take_body(x, &c->text, &c->memory);
    c->body_bytes = c->text.len;
    c->s = s;
    c->d = d;
    c->x = x;
    c->client = (struct cancel_check){is_disconnected, c};
    c->yield_check = (struct cancel_check){should_yield, c};
    c->mark = *mark;
    c->arrived = clock_ms();
    c->created = (int64_t)time(NULL);
    snprintf(c->peer, sizeof c->peer, "%s", exchange_peer(x));
    random_id(c->id, d->id_prefix);
    put_request_id(c);
    c->next = s->completions;
    if (c->next)
        c->next->prev = c;
    s->completions = c;
    return c;
}

void completion_start(struct service *s, struct exchange *x, const struct dialect *d) {
    struct resend_mark mark;
    struct api_error why = {0};
    struct err e = {0};
    if (!service_ready(s, &why)) {
        service_refuse(x, &why);
        return;
    }
    take_resend_mark(&mark, x, s->seed);
    if (join_resent(s, x, d, &mark))
        return;
    struct completion *c = create_completion(s, x, d, &mark);
    if (!c) {
        api_fail(&why, 503, NULL, "no memory for the request");
        service_refuse(x, &why);
        return;
    }
    exchange_watch(x, &client_hooks, c);
    exchange_own_line(x, true);
    if (workers_run(s->workers, c->text.len, run_prepare, c, &e)) {
        api_refuse_full(&why, &e);
        finish_completion(c, &why);
    }
}

static void on_watcher_disconnect(void *arg) {
    struct completion *c = arg;
    completion_trees_drop(c);
    advance_completion(c);
}

bool completion_watch(struct service *s, struct exchange *x, const char *id) {
    static const struct exchange_hooks hooks = {.disconnected = on_watcher_disconnect,
                                                .writable = on_writable,
                                                .cut = on_watcher_disconnect};
    struct completion *c = s->completions;
    while (c && (c->dead || !c->prepared || !c->p.trees || strcmp(c->id, id) != 0))
        c = c->next;
    if (c && exchange_is_head(x)) { // does not count as a watcher
        exchange_header(x, "Cache-Control", "no-cache");
        exchange_begin(x, 200, SSE_TYPE);
        exchange_end(x);
        return true;
    }
    if (!c || c->watcher)
        return false;
    c->watcher = x;
    c->watched = true;
    exchange_watch(x, &hooks, c);
    exchange_header(x, "Cache-Control", "no-cache");
    exchange_begin(x, 200, SSE_TYPE);
    advance_completion(c);
    return true;
}

void completion_tick(struct service *s) {
    double now = clock_ms();
    for (struct completion *c = s->completions, *next; c; c = next) {
        next = c->next;
        bool waits = !c->prepared && c->x && !c->streaming && atomic_load(&c->readable);
        if (waits && c->p.stream && now - c->arrived >= (double)s->o->alive_ms / ALIVE_SHARE)
            completion_write_begin(c);
        if (c->streaming && c->x && now - c->written >= s->o->alive_ms &&
            exchange_backlog(c->x) == 0)
            completion_write_alive(c);
        advance_completion(c);
    }
}
