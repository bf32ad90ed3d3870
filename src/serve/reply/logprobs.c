// SPDX-License-Identifier: Apache-2.0
// Log-probabilities as JSON; see logprobs.h.
#include "serve/reply/logprobs.h"

#include <string.h>

#include "base/utf8.h"

// JSON has no infinity; this is what clients know for "never".
static double finite_logprob(float logp) {
    return logp > -9999 ? (double)logp : -9999;
}

static void decode_text(const struct tokenizer *t, int32_t id, bool special, struct str *out) {
    if (t) // a model's file may have none
        tokenizer_decode(t, id, special, out);
}

void answer_token(struct json_writer *w, const struct tokenizer *t, int32_t id) {
    struct str s = {0};
    decode_text(t, id, true, &s);
    jw_str(w, s.data, s.len);
    w->out.failed |= s.failed;
    str_fini(&s);
}

// The token as it is written: control tokens by name; of bytes that are no text, the bytes.
static void token_text(const struct tokenizer *t, int32_t id, struct str *out) {
    struct str raw = {0};
    decode_text(t, id, true, &raw);
    str_clear(out);
    if (raw.data && utf8_valid(raw.data, raw.len)) {
        str_append(out, raw.data, raw.len);
    } else {
        str_puts(out, "bytes:");
        for (size_t i = 0; i < raw.len; i++)
            str_printf(out, "\\x%02x", (unsigned char)raw.data[i]);
    }
    out->failed |= raw.failed;
    str_fini(&raw);
}

static void put_chat_token(struct json_writer *w, const struct tokenizer *t, int32_t id,
                           float logp) {
    struct str s = {0};
    decode_text(t, id, true, &s);
    jw_key(w, "token");
    jw_str(w, s.data, s.len);
    jw_key_num(w, "logprob", finite_logprob(logp));
    jw_key_begin(w, "bytes", '[');
    for (size_t i = 0; i < s.len; i++)
        jw_int(w, (unsigned char)s.data[i]);
    jw_end(w, ']');
    w->out.failed |= s.failed;
    str_fini(&s);
}

void answer_logprobs_list(struct json_writer *w, const struct answer_logprobs *l) {
    jw_begin(w, '[');
    for (int64_t i = 0; i < l->n; i++) {
        struct token_logprobs p = logprobs_at(l->at, l->from + i);
        jw_begin(w, '{');
        put_chat_token(w, l->t, l->ids[i], p.chosen);
        jw_key_begin(w, "top_logprobs", '[');
        for (int k = 0; k < p.n && k < l->top && p.ids[k] >= 0; k++) {
            jw_begin(w, '{');
            put_chat_token(w, l->t, p.ids[k], p.logp[k]);
            jw_end(w, '}');
        }
        jw_end(w, ']');
        jw_end(w, '}');
    }
    jw_end(w, ']');
}

void answer_logprobs_chat(struct json_writer *w, const struct answer_logprobs *l) {
    jw_begin(w, '{');
    jw_key(w, "content");
    answer_logprobs_list(w, l);
    jw_key_null(w, "refusal");
    jw_end(w, '}');
}

// Characters that begin in the token's text.
static int64_t token_chars(const struct tokenizer *t, int32_t id, struct str *s) {
    str_clear(s);
    decode_text(t, id, false, s);
    return (int64_t)utf8_count(s->data, s->len);
}

int64_t answer_logprobs_chars(const struct answer_logprobs *l) {
    struct str s = {0};
    int64_t n = 0;
    for (int64_t i = 0; i < l->n; i++)
        n += token_chars(l->t, l->ids[i], &s);
    str_fini(&s);
    return n;
}

enum column { TOKENS, LOGPROBS, TOP, OFFSETS };

static void put_chance(struct json_writer *w, const struct answer_logprobs *l, int32_t id,
                       float logp, struct str *s) {
    token_text(l->t, id, s);
    jw_key_num(w, s->data ? s->data : "", finite_logprob(logp));
}

// The likeliest ones, and the token itself where it is none of them.
static void put_top_tokens(struct json_writer *w, const struct answer_logprobs *l, int32_t id,
                           const struct token_logprobs *p, struct str *s) {
    bool among = false;
    jw_begin(w, '{');
    for (int k = 0; k < p->n && k < l->top && p->ids[k] >= 0; k++) {
        put_chance(w, l, p->ids[k], p->logp[k], s);
        among |= p->ids[k] == id;
    }
    if (!among)
        put_chance(w, l, id, p->chosen, s);
    jw_end(w, '}');
}

static void put_column(struct json_writer *w, const struct answer_logprobs *l, enum column what) {
    struct str s = {0};
    int64_t offset = l->offset;
    for (int64_t i = 0; i < l->n; i++) {
        struct token_logprobs p = {0};
        bool known = l->from + i >= 0;
        if (known && (what == LOGPROBS || what == TOP))
            p = logprobs_at(l->at, l->from + i);
        if (what == TOKENS) {
            token_text(l->t, l->ids[i], &s);
            jw_str(w, s.data, s.len);
        } else if (what == OFFSETS) {
            jw_int(w, offset);
            offset += token_chars(l->t, l->ids[i], &s);
        } else if (!known) {
            jw_null(w);
        } else if (what == LOGPROBS) {
            jw_num(w, finite_logprob(p.chosen));
        } else {
            put_top_tokens(w, l, l->ids[i], &p, &s);
        }
    }
    w->out.failed |= s.failed;
    str_fini(&s);
}

void answer_logprobs_text(struct json_writer *w, const struct answer_logprobs *l, int n) {
    static const char *const names[] = {"tokens", "token_logprobs", "top_logprobs", "text_offset"};
    jw_begin(w, '{');
    for (int c = TOKENS; c <= OFFSETS; c++) {
        jw_key_begin(w, names[c], '[');
        for (int i = 0; i < n; i++)
            put_column(w, &l[i], (enum column)c);
        jw_end(w, ']');
    }
    jw_end(w, '}');
}

enum { MAX_MATCH_WORK = 16 << 20 };

// The text of tokens from m->at on, up to the one that completes s; the byte where s begins.
static const char *find_text(struct token_match *m, const struct match_tokens *k, const char *s,
                             size_t len, struct str *text, int64_t *last) {
    const char *found = NULL;
    for (*last = m->at; *last < k->n && !found && !text->failed; ++*last) {
        size_t known = text->len >= len ? text->len - len + 1 : 0; // no match ends before
        size_t from = known > m->bytes ? known : m->bytes, before = text->len;
        tokenizer_decode(k->t, k->ids[*last], false, text);
        m->work += text->len - before;
        if (text->failed || text->len < from + len)
            continue;
        m->work += text->len - from;
        found = memmem(text->data + from, text->len - from, s, len);
    }
    return found;
}

bool token_match_find(struct token_match *m, const struct match_tokens *k, const char *s,
                      size_t len, int64_t range[2], bool *failed) {
    struct str text = {0};
    int64_t last = 0, first = -1, fresh = m->at + (m->bytes > 0);
    if (!k->t || len == 0 || m->work > MAX_MATCH_WORK)
        return false;
    const char *found = find_text(m, k, s, len, &text, &last);
    if (found && !text.failed) {
        size_t begin = (size_t)(found - text.data), over = text.len - (begin + len), at = 0;
        for (int64_t i = m->at; i < last; i++) {
            size_t before = at;
            str_clear(&text);
            tokenizer_decode(k->t, k->ids[i], false, &text);
            at += text.len;
            m->work += text.len;
            if (first < 0 && i >= fresh && at > begin && at > before)
                first = i;
        }
        m->at = over ? last - 1 : last;
        m->bytes = over ? text.len - over : 0;
        range[0] = first;
        range[1] = last;
    }
    *failed |= text.failed;
    str_fini(&text);
    return first >= 0;
}
