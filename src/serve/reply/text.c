// SPDX-License-Identifier: Apache-2.0
// From token ids to the parts of a reply; see text.h.
#include "serve/reply/text.h"

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
static void release(struct reply_text *r, enum reply_part part) {
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
        release(r, other);
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
    release(r, REPLY_REASONING);
    release(r, REPLY_CONTENT);
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
static void decode(struct reply_text *r, int32_t id) {
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
    decode(r, id);
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
            release(r, (enum reply_part)i);
    }
    reply_pieces_end(&r->pieces, true);
}

bool reply_text_failed(const struct reply_text *r) {
    bool failed = r->bytes.failed || r->calls.failed || r->pieces.failed;
    for (int i = 0; i < 2; i++)
        failed |= r->raw[i].failed || r->stops[i].held.failed;
    return failed;
}
