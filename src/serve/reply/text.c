// SPDX-License-Identifier: Apache-2.0
// From token ids to the parts of a reply; see text.h.
#include "serve/reply/text.h"

#include <stdlib.h>
void reply_pieces_fini(struct reply_pieces *r) {
    free(r->list);
    str_fini(&r->text);
    *r = (struct reply_pieces){0};
}

void reply_pieces_clear(struct reply_pieces *r) {
    r->n = 0;
    str_clear(&r->text);
}

// A new piece of the open part; NULL: no memory.
static struct reply_piece *add_piece(struct reply_pieces *r, bool begins) {
    if (r->n == r->cap) {
        int cap = r->cap ? 2 * r->cap : 4;
        struct reply_piece *grown = realloc(r->list, (size_t)cap * sizeof *grown);
        if (!grown) {
            r->failed = true;
            return NULL;
        }
        r->list = grown;
        r->cap = cap;
    }
    struct reply_piece *p = &r->list[r->n++];
    *p = (struct reply_piece){.part = r->part,
                              .tool = r->part == REPLY_CALL ? r->tool : NULL,
                              .begins = begins,
                              .from = r->from,
                              .at = r->text.len};
    return p;
}

// The newest piece of the open part.
static struct reply_piece *newest_piece(struct reply_pieces *r) {
    bool there = r->n > 0 && !r->list[r->n - 1].ends;
    return there ? &r->list[r->n - 1] : add_piece(r, false);
}

static void begin_part(struct reply_pieces *r, enum reply_part part) {
    reply_pieces_end(r, true);
    r->part = part;
    r->open = true;
    add_piece(r, true);
}

void reply_pieces_add(struct reply_pieces *r, enum reply_part part, const char *s, size_t n) {
    if (n == 0 || r->failed)
        return;
    if (!r->open || r->part != part)
        begin_part(r, part);
    struct reply_piece *p = r->failed ? NULL : newest_piece(r);
    if (!p)
        return;
    str_append(&r->text, s, n);
    p->n += n;
    r->failed |= r->text.failed;
}

void reply_pieces_call(struct reply_pieces *r, const struct tool *t) {
    r->tool = t;
    if (!r->failed)
        begin_part(r, REPLY_CALL);
}

void reply_pieces_end(struct reply_pieces *r, bool whole) {
    struct reply_piece *p = r->open && !r->failed ? newest_piece(r) : NULL;
    if (!p)
        return;
    p->ends = true;
    p->whole = whole;
    r->open = false;
}

int reply_text_init(struct reply_text *r, const struct tokenizer *t, const struct reply_form *form,
                    struct err *e) {
    *r = (struct reply_text){.t = t,
                             .found = -1,
                             .one_call = form->one_call,
                             .stop_ids = form->stop_ids,
                             .n_stop_ids = form->keeps_stop ? 0 : form->n_stop_ids,
                             .min_tokens = form->min_tokens};
    r->at = form->inside ? REPLY_REASONING : REPLY_CONTENT;
    reasoning_init(&r->reasoning, form->family, form->inside);
    int rc = tool_calls_init(&r->calls, form->calls, form->tools, form->sure, e);
    r->calls.only = form->only;
    r->reasoning.frames = r->calls.set != NULL;
    for (int i = 0; i < 2 && !rc; i++)
        rc = stop_match_init(&r->stops[i], form->stops, e);
    for (int i = 0; i < 2; i++)
        r->stops[i].keeps = form->keeps_stop;
    return rc;
}

void reply_text_fini(struct reply_text *r) {
    reasoning_fini(&r->reasoning);
    tool_calls_fini(&r->calls);
    reply_pieces_fini(&r->pieces);
    str_fini(&r->bytes);
    str_fini(&r->told);
    for (int i = 0; i < 2; i++) {
        stop_match_fini(&r->stops[i]);
        str_fini(&r->raw[i]);
    }
}

// Text of a part is followed by something else: what may have become a stop string is none.
static void release_held(struct reply_text *r, enum reply_part part) {
    str_clear(&r->told);
    stop_match_end(&r->stops[part], &r->told);
    reply_pieces_add(&r->pieces, part, r->told.data, r->told.len);
    r->pieces.failed |= r->told.failed;
}

// Text of a part as far as stop strings let it through.
static void take_text(struct reply_text *r, enum reply_part part, const char *s, size_t n) {
    enum reply_part other = part == REPLY_CONTENT ? REPLY_REASONING : REPLY_CONTENT;
    if (r->over || n == 0)
        return;
    if (r->stops[other].held.len)
        release_held(r, other);
    str_clear(&r->told);
    if (stop_match_push(&r->stops[part], s, n, &r->told)) {
        r->found = r->stops[part].found;
        r->over = true;
    }
    reply_pieces_add(&r->pieces, part, r->told.data, r->told.len);
    r->pieces.failed |= r->told.failed;
}

static void on_text(void *arg, const char *s, size_t n) {
    struct reply_text *r = arg;
    r->behind = false;
    take_text(r, REPLY_CONTENT, s, n);
}

static void on_call(void *arg, const struct tool *t) {
    struct reply_text *r = arg;
    if (r->over)
        return;
    release_held(r, REPLY_REASONING);
    release_held(r, REPLY_CONTENT);
    reply_pieces_call(&r->pieces, t);
}

static void on_arguments(void *arg, const char *s, size_t n) {
    struct reply_text *r = arg;
    if (!r->over)
        reply_pieces_add(&r->pieces, REPLY_CALL, s, n);
}

static void on_call_end(void *arg, bool whole) {
    struct reply_text *r = arg;
    if (r->over)
        return;
    reply_pieces_end(&r->pieces, whole);
    r->pieces.from = r->tokens;
    r->behind = true;
    r->over = r->one_call;
}

static struct tool_sink sink_of(struct reply_text *r) {
    return (struct tool_sink){r, on_text, on_call, on_arguments, on_call_end};
}

// Reasoning goes before content: in one token's text a block can close, hardly open.
static void take_parts(struct reply_text *r) {
    struct str *raw = r->raw;
    const struct tool_sink sink = sink_of(r);
    if (raw[REPLY_REASONING].len)
        take_text(r, REPLY_REASONING, raw[REPLY_REASONING].data, raw[REPLY_REASONING].len);
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
        r->stops[i].deaf = r->tokens < r->min_tokens;
    if (r->bytes.len)
        reasoning_push(&r->reasoning, r->bytes.data, r->bytes.len, &r->raw[REPLY_REASONING],
                       &r->raw[REPLY_CONTENT]);
    take_parts(r);
    r->reasoning_tokens += r->at == REPLY_REASONING;
    r->tokens++;
    if (r->behind && r->calls.held.len == 0) // with the marks that close it
        r->pieces.from = r->tokens;
    return r->over;
}

void reply_text_end(struct reply_text *r, bool cut) {
    const struct tool_sink sink = sink_of(r);
    if (!r->over) {
        r->reasoning.cut = cut;
        reasoning_end(&r->reasoning, &r->raw[REPLY_REASONING], &r->raw[REPLY_CONTENT]);
        take_parts(r);
        if (!r->over)
            tool_calls_end(&r->calls, cut, &sink);
        for (int i = 0; i < 2 && !r->over; i++)
            release_held(r, (enum reply_part)i);
    }
    reply_pieces_end(&r->pieces, true);
}

bool reply_text_failed(const struct reply_text *r) {
    bool failed = r->bytes.failed || r->calls.failed || r->pieces.failed;
    for (int i = 0; i < 2; i++)
        failed |= r->raw[i].failed || r->stops[i].held.failed;
    return failed;
}
