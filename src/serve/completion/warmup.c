// SPDX-License-Identifier: Apache-2.0
// A request of no new tokens that no client waits for; see warmup.h.
#include "serve/completion/warmup.h"

#include <stdlib.h>
#include <string.h>

#include "serve/completion/prompt.h"
#include "serve/conversation/interfaces.h"
#include "serve/request/body.h"

struct warmup {
    struct service *s;
    struct warmup *next;
    struct http_task handed;
    struct http_memory memory; // of the memory of these two
    struct str body; // of a chat completion; empty: `said` is the conversation, with these of p
    struct json *borrowed; // by both
    struct params p;
    struct conversation said; // plain where it is that of an answer
    struct token_list tokens;
    int64_t positions[CHAT_SPLIT_POSITIONS];
    int n_positions;
    struct api_error error;
    bool ahead; // only the part that cannot change is read, and only while the engine is idle
    bool prepared, over; // the loop thread has it again; nothing more comes
    struct stream *stream;
};

static void drop_conversation(struct warmup *w) {
    conversation_fini(&w->said);
    params_fini(&w->p);
    json_free(w->borrowed);
    w->borrowed = NULL;
}

static void free_warmup(struct warmup *w) {
    stream_release(w->stream);
    str_fini(&w->body);
    drop_conversation(w);
    token_list_fini(&w->tokens);
    http_memory_release(&w->memory);
    free(w);
}

static bool is_idle(const struct service *s) {
    struct engine_stats g = engine_stats(s->engine);
    return g.running + g.waiting + g.parked == 0;
}

// The error of the file that was named.
static void log_warmup_failure(const struct service *s, const char *why) {
    struct str line = {0};
    if (!s->o->log.write)
        return;
    str_printf(&line, "coppice: --warm %s: %s; nothing is read ahead\n", s->o->warm_file, why);
    if (!line.failed)
        s->o->log.write(s->o->log.arg, line.data, line.len);
    str_fini(&line);
}

// Loop thread.
static void submit_warmup(void *arg) {
    struct warmup *w = arg;
    struct service *s = w->s;
    struct stream_options o = {.positions = {w->positions, w->n_positions}};
    struct err e = {0};
    w->prepared = true;
    w->over = w->over || w->error.status || w->tokens.count == 0 || (w->ahead && !is_idle(s));
    if (w->error.status && !w->ahead)
        log_warmup_failure(s, w->error.text);
    if (w->over)
        return;
    o.r = s->defaults;
    o.r.prompt = w->tokens.ids;
    o.r.n_prompt = (int64_t)w->tokens.count;
    o.r.max_tokens = 0;
    o.r.how = SPECULATE_OFF;
    w->over = engine_submit(s->engine, &o, &w->stream, &e) != 0;
    if (w->over && !w->ahead)
        log_warmup_failure(s, e.text);
}

// Only what lies before the words of the next turn is fixed.
static void cut_to_fixed_prefix(struct warmup *w) {
    int64_t fixed = w->n_positions >= 2 ? w->positions[w->n_positions - 2] : 0;
    w->tokens.count = (size_t)fixed;
    w->n_positions -= w->n_positions >= 2 ? 2 : w->n_positions;
}

// Text worker.
static void prepare_warmup(void *arg) {
    struct warmup *w = arg;
    struct completion_prompt prompt = {0};
    bool ok = true;
    token_list_bound(&prompt.tokens, w->s->n_ctx);
    if (w->body.len)
        ok = body_take(&w->body, &w->memory, &w->borrowed, &w->error) &&
             body_read(&w->p, w->borrowed, ENDPOINT_CHAT, &w->s->limits, &w->error) &&
             conversation_read_chat_body(&w->said, &w->p, &w->error);
    ok = ok && (w->ahead ? prompt_encode_plain(w->s, &w->p, &w->said, &prompt, &w->error)
                         : prompt_encode(w->s, &w->p, &w->said, &prompt, &w->error));
    if (ok && prompt.over)
        ok = api_refuse(&w->error, "messages",
                        "the prompt has at least %zu tokens, and the context has room for %lld",
                        prompt.tokens.max + 1, (long long)w->s->n_ctx);
    w->tokens = prompt.tokens;
    w->n_positions = prompt.n_positions;
    memcpy(w->positions, prompt.positions, sizeof w->positions);
    if (ok && w->ahead)
        cut_to_fixed_prefix(w);
    drop_conversation(w);
    http_memory_set(&w->memory, (size_t)w->tokens.cap * sizeof *w->tokens.ids);
    w->handed = (struct http_task){.fn = submit_warmup, .arg = w};
    (void)http_post_task(w->s->http, &w->handed); // else the loop has ended
}

// Has w prepared, which is the service's from now on.
static void begin_warmup(struct service *s, struct warmup *w, size_t bytes) {
    struct err e = {0};
    w->s = s;
    w->memory.h = s->http;
    w->next = s->warm;
    http_memory_set(&w->memory, bytes);
    s->warm = w;
    if (workers_run(s->workers, bytes, prepare_warmup, w, &e))
        w->prepared = w->over = true;
}

void warmup_read(struct service *s, const char *body, size_t n) {
    struct warmup *w = calloc(1, sizeof *w);
    if (!w)
        return;
    str_append(&w->body, body, n);
    if (w->body.failed || n == 0)
        free_warmup(w);
    else
        begin_warmup(s, w, n);
}

bool warmup_applies(const struct completion *c) {
    return c->s->o->engine.cache.ram > 0 && c->family != REASONING_NONE && c->n_choices == 1 &&
           c->said.n_turns > 0;
}

// The words of the answer without its reasoning.
static void put_content(struct completion *c, struct str *content) {
    struct choice *k = &c->choices[0];
    struct reasoning r = {0};
    struct str bytes = {0}, hidden = {0};
    const int32_t *ids;
    int64_t n = stream_tokens(k->stream, &ids);
    reasoning_init(&r, c->family, c->prompts->in_reasoning);
    for (int64_t i = 0; i < n; i++)
        reasoning_decode(c->family, c->s->tokenizer, ids[i], &bytes);
    reasoning_push(&r, bytes.data ? bytes.data : "", bytes.len, &hidden, content);
    reasoning_end(&r, &hidden, content);
    reasoning_fini(&r);
    str_fini(&bytes);
    str_fini(&hidden);
}

// Words of a turn of its own, which v owns.
static void add_turn(struct conversation *v, enum conversation_role role, struct str *text) {
    struct conversation_part *p = conversation_part(v, conversation_new_turn(v, role), PART_TEXT);
    struct words words = conversation_take(v, text);
    if (p)
        p->text = words;
}

// Takes the conversation of an answer, to which the answer and words that have not been said yet
// are added, and what p says of its prompt.
static void take_next_turn(struct warmup *w, struct completion *c) {
    struct str content = {0}, words = {0};
    w->ahead = true;
    w->said = c->said;
    w->borrowed = c->body;
    w->p = (struct params){.kwargs = c->p.kwargs, .thinking = c->p.thinking};
    memcpy(w->p.effort, c->p.effort, sizeof w->p.effort);
    c->said = (struct conversation){0};
    c->body = NULL;
    put_content(c, &content);
    add_turn(&w->said, CONVERSATION_ASSISTANT, &content);
    str_puts(&words, "?");
    add_turn(&w->said, CONVERSATION_USER, &words);
}

void warmup_next_turn(struct completion *c) {
    if (!warmup_applies(c)) // it may have no choices at all
        return;
    const struct choice *k = &c->choices[0];
    bool ended = k->ended && (k->end.reason == END_STOP || k->end.reason == END_LENGTH);
    struct warmup *w = NULL;
    if (ended && k->text.reasoning_tokens > 0 && is_idle(c->s))
        w = calloc(1, sizeof *w);
    if (!w)
        return;
    take_next_turn(w, c);
    begin_warmup(c->s, w, c->memory.bytes);
}

void warmup_yield(struct service *s) {
    for (struct warmup *w = s->warm; w; w = w->next) {
        if (!w->ahead)
            continue;
        if (w->stream)
            stream_cancel(w->stream);
        else if (w->prepared)
            w->over = true;
    }
}

void warmup_tick(struct service *s) {
    for (struct warmup **at = &s->warm; *at;) {
        struct warmup *w = *at;
        bool over = w->prepared && (w->over || stream_ended(w->stream, NULL));
        if (!over) {
            at = &w->next;
            continue;
        }
        *at = w->next;
        free_warmup(w);
    }
}

void warmup_free_all(struct service *s) {
    while (s->warm) {
        struct warmup *w = s->warm;
        s->warm = w->next;
        free_warmup(w);
    }
}
