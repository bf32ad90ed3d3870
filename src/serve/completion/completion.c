// SPDX-License-Identifier: Apache-2.0
// The life of a request for text; see completion.h. All of it is in the loop thread but `prepare`
// (a text worker) and the two callbacks of streams (the engine thread).
#include "serve/completion/completion.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "serve/completion/cache_note.h"
#include "serve/completion/reply_form.h"
#include "serve/completion/session_ratio.h"
#include "serve/completion/submit.h"
#include "serve/completion/thinking.h"
#include "serve/completion/trees.h"
#include "serve/completion/warm.h"
#include "serve/completion/write.h"
#include "serve/http/sse.h"

enum {
    TOKENS_AT_ONCE = 256, // of one chunk
    LINGER_MS = 10000,    // that trees wait for somebody who looks at them
    SIGNS = 10,           // of the time between signs of life, until a stream begins
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
        reply_text_fini(&c->choices[i].asked);
        answer_items_fini(&c->choices[i].items);
    }
    for (int i = 0; i < c->n_prompts; i++)
        token_list_fini(&c->prompts[i].tokens);
    free(c->choices);
    free(c->prompts);
    if (c->d->drop)
        c->d->drop(c);
    params_fini(&c->p);
    request_tools_fini(&c->tools);
    constraint_drop(c->constraint);
    json_free(c->body);
    chat_words_fini(&c->words);
    str_fini(&c->text);
    str_fini(&c->rendered);
    http_hold_end(&c->hold);
    free(c);
}

// Frees it now, or when news that are on their way have come.
static void give_up(struct completion *c) {
    for (int i = 0; i < c->n_choices; i++) {
        stream_release(c->choices[i].stream); // no callback from here on
        c->choices[i].stream = NULL;
    }
    completion_trees_drop(c);
    c->dead = true;
    if (!atomic_load(&c->posted))
        free_completion(c);
}

static enum metrics_end end_of(const struct completion *c, const struct api_error *why) {
    if (why && why->status)
        return c->choices && c->choices[0].stream ? METRICS_FAILED : METRICS_REFUSED;
    if (c->gone)
        return METRICS_CANCELLED;
    return answer_finish(c->choices[0].end.reason)[0] == 'l' ? METRICS_LENGTH : METRICS_STOP;
}

// What the prefix cache did not have of the first prompt, and why.
static void note_cache(const struct completion *c, struct str *out) {
    if (!c->n_choices || !c->choices[0].ended)
        return;
    const struct cache_note n = {.report = &c->choices[0].end.cache,
                                 .tokenizer = c->s->tokenizer,
                                 .family = c->family,
                                 .system = c->prompts->n_places ? c->prompts->places[0] : 0,
                                 .words = c->s->o->log_prompts};
    cache_note_write(out, &n);
}

static void count_end(struct completion *c, const struct api_error *why) {
    struct str note = {0};
    static const char *const names[] = {"stop", "length", "cancelled", "error", "refused"};
    struct metrics *m = &c->s->metrics;
    enum metrics_end end = end_of(c, why);
    struct refusal_note refusal;
    bool failed = why && why->status;
    struct request_record r = {.id = c->id,
                               .method = "POST",
                               .path = c->d->path,
                               .peer = c->peer,
                               .status = failed ? why->status : 200,
                               .end = end == METRICS_REFUSED ? NULL : names[end],
                               .totals = completion_totals(c),
                               .total_ms = clock_ms() - c->arrived,
                               .prompt = c->rendered.data,
                               .prompt_len = c->rendered.len};
    if (failed)
        r.error = request_log_refusal(&refusal, why, c->s->o->log_prompts);
    note_cache(c, &note);
    r.cache = note.data;
    m->ends[end]++;
    metrics_add_compression(m, &c->compression);
    if (c->compression.adapted > 0)
        session_ratio_tell(c->s, c->p.session, &r.totals);
    if (end != METRICS_REFUSED) {
        histogram_add(&m->queue, r.totals.queue_ms / 1e3, 1);
        histogram_add(&m->whole, r.total_ms / 1e3, 1);
    }
    service_log(c->s, &r);
    str_fini(&note);
}

void completion_free_all(struct service *s) {
    while (s->completions) {
        struct completion *c = s->completions;
        atomic_store(&c->gone, true);
        if (c->ended == 0) // its worker had no time to hand it over
            count_end(c, NULL);
        free_completion(c);
    }
}

// An ended request whose trees nobody has seen to their end waits a little for somebody.
static void linger(struct completion *c) {
    completion_trees_advance(c, true);
    bool seen = c->watched && !c->watcher;
    if (seen || c->gone || !c->p.trees || clock_ms() - c->ended > (double)LINGER_MS)
        give_up(c);
}

// The end of everything: why is NULL or zeroed where all went well.
static void finish(struct completion *c, const struct api_error *why) {
    bool failed = why && why->status;
    c->ended = clock_ms();
    count_end(c, why);
    if (c->x && failed)
        completion_write_error(c, why);
    else if (c->x)
        completion_write_end(c);
    if (!failed)
        warm_ahead(c);
    if (failed)
        give_up(c);
    else
        linger(c);
}

static void cancel_all(struct completion *c) {
    for (int i = 0; i < c->n_choices; i++)
        if (c->choices[i].stream)
            stream_cancel(c->choices[i].stream);
}

static void note_tokens(struct choice *k, int64_t n) {
    struct metrics *m = &k->c->s->metrics;
    double now = clock_ms();
    if (k->spoke == 0)
        histogram_add(&m->first, (now - k->c->arrived) / 1e3, 1);
    else
        histogram_add(&m->between, (now - k->spoke) / 1e3 / (double)n, (uint64_t)n);
    k->spoke = now;
}

// Takes tokens of a choice into its text. True when something came or it ended.
static bool take_in(struct choice *k) {
    const int32_t *ids = NULL;
    if (k->ended)
        return false;
    bool ended = stream_ended(k->stream, &k->end);
    int64_t n = stream_tokens(k->stream, &ids), from = k->seen;
    int64_t to = n - from > TOKENS_AT_ONCE ? from + TOKENS_AT_ONCE : n;
    for (; k->seen < to; k->seen++)
        reply_text_push(&k->text, ids[k->seen]);
    if (to > from)
        note_tokens(k, to - from);
    if (ended && to == n) {
        reply_text_end(&k->text, k->end.rc || k->end.reason != END_STOP);
        k->ended = true;
        k->c->open--;
    }
    return to > from || k->ended;
}

// Moves what the engine has published towards the client, as far as the client takes it.
static void advance_choice(struct completion *c, struct choice *k) {
    while (!(c->streaming && c->x && exchange_backlog(c->x) > EXCHANGE_FULL) && take_in(k)) {
        if (k->ended && k->end.rc)
            return;
        if (c->streaming && c->x)
            completion_write_chunk(c, k);
    }
}

static void advance(struct completion *c) {
    if (!c->prepared || c->dead)
        return;
    if (c->ended > 0) {
        linger(c);
        return;
    }
    completion_trees_advance(c, false);
    for (int i = 0; i < c->n_choices; i++) {
        struct choice *k = &c->choices[i];
        advance_choice(c, k);
        if (k->ended && k->end.rc && !c->gone) {
            api_error_of(&c->error, &k->end.err);
            cancel_all(c);
            finish(c, &c->error);
            return;
        }
    }
    if (c->open == 0)
        finish(c, NULL);
}

static void on_news(void *arg) {
    struct completion *c = arg;
    atomic_store(&c->posted, false);
    if (c->dead)
        free_completion(c);
    else
        advance(c);
}

// Engine thread.
static void notify(void *arg) {
    struct completion *c = arg;
    if (!atomic_exchange(&c->posted, true) && http_post(c->s->http, on_news, c))
        atomic_store(&c->posted, false); // the tick will look
}

static void on_prepared(void *arg) {
    struct completion *c = arg;
    bool refused = c->error.status != 0;
    c->prepared = true;
    if (c->gone) {
        finish(c, NULL);
    } else if (refused || !service_ready(c->s, &c->error) || !completion_submit(c, notify)) {
        finish(c, &c->error);
    } else {
        if (c->p.stream && !c->streaming)
            completion_write_begin(c);
        advance(c);
    }
}

// Counts what stays of the body while the answer is made.
static void count_kept(struct completion *c) {
    size_t n = c->rendered.cap;
    for (int i = 0; i < c->n_prompts; i++)
        n += (size_t)c->prompts[i].tokens.cap * sizeof *c->prompts[i].tokens.ids;
    if (c->body)
        n += 2 * json_memory(c->body); // and its words
    if (c->own)
        n += c->body_bytes;
    http_hold_set(&c->hold, n);
}

// The last of what is done before the loop thread takes it.
static void hand_over(struct completion *c, bool ok) {
    if (ok && completion_fits(c) && reply_form_constrain(c) && thinking_constrain(c))
        completion_choices(c);
    if (!warm_wants(c)) { // here, since a million values take a while
        json_free(c->body);
        chat_words_fini(&c->words);
        c->body = NULL;
    }
    count_kept(c);
    c->handed = (struct http_task){.fn = on_prepared, .arg = c};
    (void)http_post_task(c->s->http, &c->handed); // else the loop has ended, and frees it
}

// The thread that compresses.
static void shorten(void *arg) {
    struct completion *c = arg;
    bool wanted = !atomic_load(&c->gone);
    hand_over(c, wanted && c->d->shorten(c));
}

// Whether its prompt is to be compressed; why not is noted.
static bool is_long(struct completion *c) {
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

static bool fail_queue(struct completion *c, const struct err *e) {
    api_fail(&c->error, 429, "queue_full", "%s", e->text);
    c->error.retry_after = 1;
    return false;
}

// Makes the prompt of what has been read; ok: it could be.
static void make(struct completion *c, bool ok) {
    struct err e = {0};
    ok = ok && c->d->prepare(c);
    if (ok && is_long(c)) {
        if (!workers_run(c->s->shorteners, 0, shorten, c, &e))
            return;
        ok = fail_queue(c, &e);
    }
    hand_over(c, ok);
}

// The worker for what is as long as what the request refers to.
static void make_longer(void *arg) {
    struct completion *c = arg;
    make(c, !atomic_load(&c->gone));
}

// Text worker.
static void prepare(void *arg) {
    struct completion *c = arg;
    struct err e = {0};
    bool ok = !atomic_load(&c->gone) && params_take(&c->text, &c->hold, &c->body, &c->error) &&
              params_read(&c->p, c->body, c->d->endpoint, &c->s->limits, &c->error);
    c->p.client = &c->client;
    str_fini(&c->text);
    size_t behind = ok && c->d->behind ? c->d->behind(c->s, c->body) : 0;
    if (behind <= c->body_bytes)
        make(c, ok);
    else if (workers_run(c->s->workers, behind, make_longer, c, &e))
        hand_over(c, fail_queue(c, &e));
}

static void on_gone(void *arg) {
    struct completion *c = arg;
    atomic_store(&c->gone, true);
    exchange_abort(c->x);
    c->x = NULL;
    cancel_all(c);
    advance(c); // nothing before on_prepared
}

static void on_writable(void *arg) {
    advance(arg);
}

static void on_cut(void *arg) {
    struct completion *c = arg;
    struct api_error why;
    api_fail(&why, 503, "shutting_down", "the server is shutting down");
    atomic_store(&c->gone, true);
    if (c->prepared)
        finish(c, &why);
    else // on_prepared ends it
        completion_write_error(c, &why);
}

static void name_answer(const struct completion *c) {
    bool theirs = c->d->endpoint == ENDPOINT_ANTHROPIC;
    exchange_header(c->x, theirs ? "request-id" : "x-request-id", c->id);
}

static const struct exchange_hooks client_hooks = {
    .gone = on_gone, .writable = on_writable, .cut = on_cut};

// Has a choice told from its beginning again; its tokens are with the engine.
static int tell_again(struct choice *k, struct err *e) {
    reply_text_fini(&k->text);
    answer_items_fini(&k->items);
    k->seen = k->shown = k->offset = 0;
    k->match = (struct token_match){0};
    k->echoed = false;
    k->c->open += k->ended;
    k->ended = false;
    return completion_text(k, &k->text, e);
}

// Gives the answer to a request that is being answered already and has been sent again to the newer
// connection, from its beginning; the older one, which its client has given up, is broken off.
// False where there is no such request.
static bool join(struct service *s, struct exchange *x, const struct dialect *d,
                 const struct resend_mark *m) {
    struct completion *c = s->completions;
    struct err e = {0};
    int rc = 0;
    while (c &&
           (c->d != d || c->dead || c->ended > 0 || !c->x || !resend_mark_joins(&c->mark, m, c->x)))
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
    name_answer(c);
    exchange_watch(x, &client_hooks, c);
    for (int i = 0; again && i < c->n_choices && !rc; i++)
        rc = tell_again(&c->choices[i], &e);
    if (rc) {
        api_error_of(&c->error, &e);
        cancel_all(c);
        finish(c, &c->error);
    } else if (again) {
        completion_write_begin(c);
        advance(c);
    }
    return true;
}

static bool ask_gone(const void *arg) {
    const struct completion *c = arg;
    return atomic_load(&c->gone);
}

static bool ask_patience(const void *arg) {
    enum { LONG_MS = 5 };
    const struct completion *c = arg;
    return ask_gone(arg) || workers_step_aside(c->s->workers, LONG_MS, NULL);
}

static struct completion *create(struct service *s, struct exchange *x, const struct dialect *d,
                                 const struct resend_mark *mark) {
    struct completion *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    exchange_take_body(x, &c->text, &c->hold);
    c->body_bytes = c->text.len;
    c->s = s;
    c->d = d;
    c->x = x;
    c->client = (struct gone){ask_gone, c};
    c->patience = (struct gone){ask_patience, c};
    c->mark = *mark;
    c->arrived = clock_ms();
    c->created = (int64_t)time(NULL);
    snprintf(c->peer, sizeof c->peer, "%s", exchange_peer(x));
    random_id(c->id, d->id_prefix);
    name_answer(c);
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
    resend_mark_take(&mark, x, s->seed);
    if (join(s, x, d, &mark))
        return;
    struct completion *c = create(s, x, d, &mark);
    if (!c) {
        api_fail(&why, 503, NULL, "no memory for the request");
        service_refuse(x, &why);
        return;
    }
    exchange_watch(x, &client_hooks, c);
    exchange_own_line(x, true);
    if (workers_run(s->workers, c->text.len, prepare, c, &e)) {
        api_fail(&why, 429, "queue_full", "%s", e.text);
        why.retry_after = 1;
        finish(c, &why);
    }
}

static void on_watcher_gone(void *arg) {
    struct completion *c = arg;
    completion_trees_drop(c);
    advance(c);
}

bool completion_watch(struct service *s, struct exchange *x, const char *id) {
    static const struct exchange_hooks hooks = {
        .gone = on_watcher_gone, .writable = on_writable, .cut = on_watcher_gone};
    struct completion *c = s->completions;
    while (c && (c->dead || !c->prepared || !c->p.trees || strcmp(c->id, id) != 0))
        c = c->next;
    if (c && exchange_wants_head(x)) { // takes nobody's place
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
    advance(c);
    return true;
}

void completion_tick(struct service *s) {
    double now = clock_ms();
    for (struct completion *c = s->completions, *next; c; c = next) {
        next = c->next;
        bool waits = !c->prepared && c->x && !c->streaming && atomic_load(&c->readable);
        if (waits && c->p.stream && now - c->arrived >= (double)s->o->alive_ms / SIGNS)
            completion_write_begin(c);
        if (c->streaming && c->x && now - c->written >= s->o->alive_ms &&
            exchange_backlog(c->x) == 0)
            completion_write_alive(c);
        advance(c);
    }
}
