// SPDX-License-Identifier: Apache-2.0
// From token ids to the parts of a reply; see text.h.
#include "serve/reply/text.h"

#include <stdlib.h>

#include "base/vec.h"

static void fini_deltas(struct reply_deltas *r) {
    free(r->list);
    str_fini(&r->text);
    *r = (struct reply_deltas){0};
}

void reply_deltas_clear(struct reply_deltas *r) {
    r->n = 0;
    str_clear(&r->text);
}

// A new delta of the open part; NULL: no memory.
static struct reply_delta *add_delta(struct reply_deltas *r, bool begins) {
    if (vec_reserve(&r->list, &r->cap, r->n + 1, sizeof *r->list, NULL)) {
        r->failed = true;
        return NULL;
    }
    struct reply_delta *p = &r->list[r->n++];
    *p = (struct reply_delta){.part = r->part,
                              .tool = r->part == REPLY_CALL ? r->tool : NULL,
                              .begins = begins,
                              .from = r->from,
                              .at = r->text.len};
    return p;
}

// The newest delta of the open part.
static struct reply_delta *newest_delta(struct reply_deltas *r) {
    bool there = r->n > 0 && !r->list[r->n - 1].ends;
    return there ? &r->list[r->n - 1] : add_delta(r, false);
}

static void end_open_part(struct reply_deltas *r, bool whole) {
    struct reply_delta *p = r->open && !r->failed ? newest_delta(r) : NULL;
    if (!p)
        return;
    p->ends = true;
    p->whole = whole;
    r->open = false;
}

static void begin_part(struct reply_deltas *r, enum reply_part part) {
    end_open_part(r, true);
    r->part = part;
    r->open = true;
    add_delta(r, true);
}

// Adds text of a part: to the open one where it is of that kind, else to a new one.
static void add_part_text(struct reply_deltas *r, enum reply_part part, const char *s, size_t n) {
    if (n == 0 || r->failed)
        return;
    if (!r->open || r->part != part)
        begin_part(r, part);
    struct reply_delta *p = r->failed ? NULL : newest_delta(r);
    if (!p)
        return;
    str_append(&r->text, s, n);
    p->n += n;
    r->failed |= r->text.failed;
}

static void begin_call_part(struct reply_deltas *r, const struct tool *t) {
    r->tool = t;
    if (!r->failed)
        begin_part(r, REPLY_CALL);
}

int reply_text_init(struct reply_text *r, const struct tokenizer *t,
                    const struct reply_rules *rules, struct err *e) {
    *r = (struct reply_text){.t = t,
                             .found = -1,
                             .one_call = rules->one_call,
                             .stop_ids = rules->stop_ids,
                             .n_stop_ids = rules->keeps_stop ? 0 : rules->n_stop_ids,
                             .min_tokens = rules->min_tokens};
    r->at = rules->inside ? REPLY_REASONING : REPLY_CONTENT;
    reasoning_init(&r->reasoning, rules->family, rules->inside);
    int rc = tool_calls_init(&r->calls, rules->calls, rules->tools, rules->constrained, e);
    r->calls.only = rules->only;
    r->reasoning.frames = r->calls.set != NULL;
    for (int i = 0; i < 2 && !rc; i++)
        rc = stop_match_init(&r->stops[i], rules->stops, e);
    for (int i = 0; i < 2; i++)
        r->stops[i].keeps = rules->keeps_stop;
    return rc;
}

void reply_text_fini(struct reply_text *r) {
    reasoning_fini(&r->reasoning);
    tool_calls_fini(&r->calls);
    fini_deltas(&r->deltas);
    str_fini(&r->bytes);
    str_fini(&r->released);
    for (int i = 0; i < 2; i++) {
        stop_match_fini(&r->stops[i]);
        str_fini(&r->raw[i]);
    }
}

// Text of a part is followed by something else: what may have become a stop string is none.
static void release_held(struct reply_text *r, enum reply_part part) {
    str_clear(&r->released);
    stop_match_end(&r->stops[part], &r->released);
    add_part_text(&r->deltas, part, r->released.data, r->released.len);
    r->deltas.failed |= r->released.failed;
}

// Text of a part as far as stop strings let it through.
static void match_part_stops(struct reply_text *r, enum reply_part part, const char *s, size_t n) {
    enum reply_part other = part == REPLY_CONTENT ? REPLY_REASONING : REPLY_CONTENT;
    if (r->over || n == 0)
        return;
    if (r->stops[other].held.len)
        release_held(r, other);
    str_clear(&r->released);
    if (stop_match_push(&r->stops[part], s, n, &r->released)) {
        r->found = r->stops[part].found;
        r->over = true;
    }
    add_part_text(&r->deltas, part, r->released.data, r->released.len);
    r->deltas.failed |= r->released.failed;
}

static void on_text(void *arg, const char *s, size_t n) {
    struct reply_text *r = arg;
    r->after_call = false;
    match_part_stops(r, REPLY_CONTENT, s, n);
}

static void on_call(void *arg, const struct tool *t) {
    struct reply_text *r = arg;
    if (r->over)
        return;
    release_held(r, REPLY_REASONING);
    release_held(r, REPLY_CONTENT);
    begin_call_part(&r->deltas, t);
}

static void on_arguments(void *arg, const char *s, size_t n) {
    struct reply_text *r = arg;
    if (!r->over)
        add_part_text(&r->deltas, REPLY_CALL, s, n);
}

static void on_call_end(void *arg, bool whole) {
    struct reply_text *r = arg;
    if (r->over)
        return;
    end_open_part(&r->deltas, whole);
    r->deltas.from = r->tokens;
    r->after_call = true;
    r->over = r->one_call;
}

static struct tool_sink make_sink(struct reply_text *r) {
    return (struct tool_sink){r, on_text, on_call, on_arguments, on_call_end};
}

// Reasoning goes before content: in one token's text a block can close, hardly open.
static void split_parts(struct reply_text *r) {
    struct str *raw = r->raw;
    const struct tool_sink sink = make_sink(r);
    if (raw[REPLY_REASONING].len)
        match_part_stops(r, REPLY_REASONING, raw[REPLY_REASONING].data, raw[REPLY_REASONING].len);
    if (raw[REPLY_CONTENT].len && !r->over)
        tool_calls_push(&r->calls, raw[REPLY_CONTENT].data, raw[REPLY_CONTENT].len, &sink);
    if (raw[REPLY_CONTENT].len)
        r->at = REPLY_CONTENT;
    else if (raw[REPLY_REASONING].len)
        r->at = REPLY_REASONING;
    for (int i = 0; i < 2; i++) {
        raw[i].failed |= r->bytes.failed;
        str_clear(&raw[i]);
    }
}

// The text of a token: control tokens only where they are marks that the readers look for.
static void decode_token(struct reply_text *r, int32_t id) {
    str_clear(&r->bytes);
    for (int i = 0; i < r->n_stop_ids; i++)
        if (r->stop_ids[i] == id)
            return;
    if (!r->t)
        return;
    reasoning_decode(r->reasoning.family, r->t, id, &r->bytes);
    if (r->bytes.len || r->bytes.failed || !r->calls.set)
        return;
    tokenizer_decode(r->t, id, true, &r->bytes);
    if (!r->bytes.failed && r->bytes.len &&
        !tool_family_mark(r->calls.family, r->bytes.data, r->bytes.len))
        str_clear(&r->bytes);
}

bool reply_text_push(struct reply_text *r, int32_t id) {
    if (r->over)
        return true;
    decode_token(r, id);
    for (int i = 0; i < 2; i++)
        r->stops[i].ignored = r->tokens < r->min_tokens;
    if (r->bytes.len)
        reasoning_push(&r->reasoning, r->bytes.data, r->bytes.len, &r->raw[REPLY_REASONING],
                       &r->raw[REPLY_CONTENT]);
    split_parts(r);
    r->reasoning_tokens += r->at == REPLY_REASONING;
    r->tokens++;
    if (r->after_call && r->calls.held.len == 0) // with the marks that close it
        r->deltas.from = r->tokens;
    return r->over;
}

void reply_text_end(struct reply_text *r, bool cut) {
    const struct tool_sink sink = make_sink(r);
    if (!r->over) {
        r->reasoning.cut = cut;
        reasoning_end(&r->reasoning, &r->raw[REPLY_REASONING], &r->raw[REPLY_CONTENT]);
        split_parts(r);
        if (!r->over)
            tool_calls_end(&r->calls, cut, &sink);
        for (int i = 0; i < 2 && !r->over; i++)
            release_held(r, (enum reply_part)i);
    }
    end_open_part(&r->deltas, true);
}

bool reply_text_failed(const struct reply_text *r) {
    bool failed = r->bytes.failed || r->calls.failed || r->deltas.failed;
    for (int i = 0; i < 2; i++)
        failed |= r->raw[i].failed || r->stops[i].held.failed;
    return failed;
}
