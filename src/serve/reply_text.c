// SPDX-License-Identifier: Apache-2.0
// From token ids to the parts of a reply; see reply_text.h.
#include "serve/reply_text.h"

int reply_text_init(struct reply_text *r, const struct tokenizer *t, enum reasoning_family family,
                    bool inside, const struct stop_set *stops, struct err *e) {
    *r = (struct reply_text){.t = t, .found = -1, .at = inside ? REPLY_REASONING : REPLY_CONTENT};
    reasoning_init(&r->reasoning, family, inside);
    int rc = 0;
    for (int i = 0; i < REPLY_PARTS && !rc; i++)
        rc = stop_match_init(&r->stops[i], stops, e);
    return rc;
}

void reply_text_fini(struct reply_text *r) {
    reasoning_fini(&r->reasoning);
    str_fini(&r->bytes);
    for (int i = 0; i < REPLY_PARTS; i++) {
        stop_match_fini(&r->stops[i]);
        str_fini(&r->raw[i]);
        str_fini(&r->out[i]);
    }
}

// Reasoning goes before content: in one token's text a block can close, hardly open.
static void take_parts(struct reply_text *r) {
    for (int i = 0; i < REPLY_PARTS && r->found < 0; i++) {
        if (r->raw[i].len == 0)
            continue;
        if (stop_match_push(&r->stops[i], r->raw[i].data, r->raw[i].len, &r->out[i]))
            r->found = r->stops[i].found;
    }
    if (r->raw[REPLY_CONTENT].len)
        r->at = REPLY_CONTENT;
    else if (r->raw[REPLY_REASONING].len)
        r->at = REPLY_REASONING;
    for (int i = 0; i < REPLY_PARTS; i++) {
        r->raw[i].failed |= r->bytes.failed;
        str_clear(&r->raw[i]);
    }
}

bool reply_text_push(struct reply_text *r, int32_t id) {
    if (r->found >= 0)
        return true;
    str_clear(&r->bytes);
    if (r->t)
        reasoning_decode(r->reasoning.family, r->t, id, &r->bytes);
    if (r->bytes.len)
        reasoning_push(&r->reasoning, r->bytes.data, r->bytes.len, &r->raw[REPLY_REASONING],
                       &r->raw[REPLY_CONTENT]);
    take_parts(r);
    r->reasoning_tokens += r->at == REPLY_REASONING;
    return r->found >= 0;
}

void reply_text_end(struct reply_text *r) {
    if (r->found >= 0)
        return;
    reasoning_end(&r->reasoning, &r->raw[REPLY_REASONING], &r->raw[REPLY_CONTENT]);
    take_parts(r);
    for (int i = 0; i < REPLY_PARTS && r->found < 0; i++)
        stop_match_end(&r->stops[i], &r->out[i]);
}

bool reply_text_failed(const struct reply_text *r) {
    bool failed = r->bytes.failed;
    for (int i = 0; i < REPLY_PARTS; i++)
        failed |= r->raw[i].failed || r->out[i].failed || r->stops[i].held.failed;
    return failed;
}
