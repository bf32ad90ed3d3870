// SPDX-License-Identifier: Apache-2.0
// Readings. Offsets come from decoding: where the tokens of a text spell it, their lengths are the
// offsets. A tokenizer that normalises may spell it otherwise; then lines are tried one by one, and
// the tokens of one that still differs are spread over it.
#include "compress/reading.h"

#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "compress/select/chunks.h"
#include "text/tokenizer/tokenizer.h"

struct reader {
    struct reading *r;
    const struct tokenizer *t;
    int32_t start, end; // <|im_start|> and <|im_end|> of ChatML
    bool marked;        // the vocabulary has both
};

static int push_role(struct reading *r, enum reading_role role, struct err *e) {
    int rc = vec_reserve(&r->roles, &r->roles_cap, r->n_messages + 1, sizeof *r->roles, e);
    if (!rc)
        r->roles[r->n_messages++] = role;
    return rc;
}

static int push_part(struct reading *r, const struct reading_part *p, struct err *e) {
    int rc = vec_reserve(&r->parts, &r->parts_cap, r->n_parts + 1, sizeof *r->parts, e);
    if (!rc)
        r->parts[r->n_parts++] = *p;
    return rc;
}

static int reserve_tokens(struct reading *r, int64_t n, struct err *e) {
    int rc = vec_reserve(&r->at, &r->cap[0], n + 1, sizeof *r->at, e);
    if (!rc)
        rc = vec_reserve(&r->token, &r->cap[1], n + 1, sizeof *r->token, e);
    return rc ? rc : vec_reserve(&r->place, &r->cap[2], n + 1, sizeof *r->place, e);
}

// The newest token of the reading's ids becomes one of a text that ends at byte `end`.
static void put_token(struct reading *r, int64_t place, size_t end) {
    r->token[r->n] = r->ids.ids[place];
    r->place[r->n] = place;
    r->at[++r->n] = end;
}

static int no_token(const struct reading *r, const struct reading_part *p, size_t byte,
                    struct err *e) {
    return err_set(e, ERR_UNSUPPORTED,
                   "the scorer's vocabulary cannot represent the text of message %lld at byte %zu; "
                   "use another scorer or no compression",
                   (long long)p->message + 1, r->text.len - p->begin + byte);
}

// What ids[first ..) spell, in scratch; lengths of what each spells go to at as ends. *same: that
// is the text.
static int spell_tokens(struct reader *d, const struct reading_part *p, int64_t first,
                        const struct compress_part *text, bool *same, struct err *e) {
    struct reading *r = d->r;
    int64_t count = (int64_t)r->ids.count - first;
    int rc = reserve_tokens(r, r->n + count, e);
    if (rc)
        return rc;
    str_clear(&r->scratch);
    size_t skip = 0;
    for (int64_t i = 0; i < count; i++) {
        size_t before = r->scratch.len;
        tokenizer_decode(d->t, r->ids.ids[first + i], false, &r->scratch);
        if (r->scratch.failed)
            return err_set(e, ERR_MEMORY, "no memory for a text of %zu bytes", text->n);
        if (r->scratch.len == before)
            return no_token(r, p, before - skip, e);
        if (i == 0 && tokenizer_blank_first(d->t) && r->scratch.data[0] == ' ' &&
            text->text[0] != ' ')
            skip = 1;
        r->at[r->n + 1 + i] = r->text.len + r->scratch.len - skip;
    }
    *same = r->scratch.len - skip == text->n &&
            memcmp(r->scratch.data + skip, text->text, text->n) == 0;
    return 0;
}

static void take_tokens(struct reading *r, int64_t first) {
    for (int64_t i = first; i < (int64_t)r->ids.count; i++)
        put_token(r, i, r->at[r->n + 1]);
}

// Ends of characters, as evenly apart as there are tokens.
static void spread_tokens(struct reading *r, int64_t first, const struct compress_part *text) {
    int64_t count = (int64_t)r->ids.count - first;
    for (int64_t i = 0; i < count; i++) {
        size_t end = (size_t)((double)text->n * (double)(i + 1) / (double)count);
        while (end < text->n && ((unsigned char)text->text[end] & 0xC0) == 0x80)
            end++;
        put_token(r, first + i, r->text.len + (i + 1 < count ? end : text->n));
    }
}

// One line, or a whole text whose tokens spell it; *same false: nothing was done, it has lines.
static int add_piece(struct reader *d, const struct reading_part *p,
                     const struct compress_part *text, bool line, bool *same, struct err *e) {
    struct reading *r = d->r;
    int64_t first = (int64_t)r->ids.count;
    int rc = tokenizer_encode(d->t, text->text, text->n, false, &r->ids, e);
    if (rc)
        return err_prefix(e, "message %lld", (long long)p->message + 1);
    rc = spell_tokens(d, p, first, text, same, e);
    if (rc)
        return rc;
    if (!*same && !line) {
        r->ids.count = (size_t)first;
        return 0;
    }
    if (*same)
        take_tokens(r, first);
    else
        spread_tokens(r, first, text);
    str_append(&r->text, text->text, text->n);
    return r->text.failed ? err_set(e, ERR_MEMORY, "no memory for a text of %zu bytes", text->n)
                          : 0;
}

static int add_lines(struct reader *d, const struct reading_part *p,
                     const struct compress_part *text, struct err *e) {
    int rc = 0;
    for (size_t at = 0; at < text->n && !rc;) {
        const char *nl = memchr(text->text + at, '\n', text->n - at);
        size_t end = nl ? (size_t)(nl - text->text) + 1 : text->n;
        bool same;
        const struct compress_part line = {text->text + at, end - at};
        rc = add_piece(d, p, &line, true, &same, e);
        at = end;
    }
    return rc;
}

static int add_text(struct reader *d, int64_t message, int64_t part,
                    const struct compress_part *text, struct err *e) {
    struct reading *r = d->r;
    struct reading_part p = {message, part, r->text.len, 0, r->n, 0};
    if (!text->n)
        return 0;
    bool same;
    int rc = add_piece(d, &p, text, false, &same, e);
    if (!rc && !same)
        rc = add_lines(d, &p, text, e);
    p.end = r->text.len;
    p.count = r->n - p.first;
    return rc ? rc : push_part(r, &p, e);
}

static enum reading_role role_of(const char *role, size_t n) {
    if ((n == 6 && !memcmp(role, "system", n)) || (n == 9 && !memcmp(role, "developer", n)))
        return READING_SYSTEM;
    return n == 4 && !memcmp(role, "user", n) ? READING_USER : READING_OTHER;
}

static int begin_reading(struct reader *d, struct reading *r, const struct tokenizer *t,
                         struct err *e) {
    *d = (struct reader){.r = r, .t = t};
    d->start = tokenizer_find(t, "<|im_start|>", 12);
    d->end = tokenizer_find(t, "<|im_end|>", 10);
    d->marked = d->start >= 0 && d->end >= 0;
    int rc = reserve_tokens(r, 0, e);
    if (!rc)
        r->at[0] = 0;
    return rc;
}

// A message's beginning in ChatML: its mark, the role, a line end.
static int put_role(const struct reader *d, const char *role, struct err *e) {
    struct reading *r = d->r;
    str_clear(&r->scratch);
    str_printf(&r->scratch, "%s\n", role);
    if (r->scratch.failed)
        return err_set(e, ERR_MEMORY, "no memory for the role of a message");
    int rc = token_list_push(&r->ids, d->start, e);
    return rc ? rc : tokenizer_encode(d->t, r->scratch.data, r->scratch.len, false, &r->ids, e);
}

static int end_message(const struct reader *d, struct err *e) {
    int rc = d->marked ? token_list_push(&d->r->ids, d->end, e) : 0;
    const char *lines = d->marked ? "\n" : "\n\n";
    return rc ? rc : tokenizer_encode(d->t, lines, strlen(lines), false, &d->r->ids, e);
}

int reading_of(struct reading *r, const struct tokenizer *t, const struct compress_conversation *v,
               struct err *e) {
    struct reader d;
    int rc = begin_reading(&d, r, t, e);
    if (!rc && tokenizer_add_bos(t))
        rc = token_list_push(&r->ids, tokenizer_bos(t), e);
    for (int64_t i = 0; i < v->n && !rc; i++) {
        const struct compress_message *m = &v->messages[i];
        rc = push_role(r, role_of(m->role, strlen(m->role)), e);
        if (!rc && d.marked)
            rc = put_role(&d, m->role, e);
        for (int64_t k = 0; k < m->n_parts && !rc; k++)
            rc = add_text(&d, i, k, &m->parts[k], e);
        if (!rc)
            rc = end_message(&d, e);
    }
    return rc;
}

// Rendered prompts: where the walk is.
struct walk {
    int64_t i;
    size_t role; // bytes of scratch where the name of a role begins
    bool in_role;
    bool in_part;
};

static int end_part(struct reading *r, struct walk *w, struct err *e) {
    if (!w->in_part)
        return 0;
    w->in_part = false;
    size_t begin = r->n_parts ? r->parts[r->n_parts - 1].end : 0;
    int64_t first =
        r->n_parts ? r->parts[r->n_parts - 1].first + r->parts[r->n_parts - 1].count : 0;
    if (!r->n_messages) {
        int rc = push_role(r, READING_USER, e);
        if (rc)
            return rc;
    }
    struct reading_part p = {r->n_messages - 1, r->n_parts, begin,
                             r->text.len,       first,      r->n - first};
    return push_part(r, &p, e);
}

static int add_token(struct reader *d, struct walk *w, int32_t id, struct err *e) {
    struct reading *r = d->r;
    str_clear(&r->scratch);
    tokenizer_decode(d->t, id, false, &r->scratch);
    bool control = r->scratch.len == 0, line = r->scratch.len && strchr(r->scratch.data, '\n');
    int rc = control || w->in_role ? end_part(r, w, e) : 0;
    if (rc)
        return rc;
    if (control) {
        w->in_role = d->marked && id == d->start;
        w->role = r->text.len;
        return 0;
    }
    str_append(&r->text, r->scratch.data, r->scratch.len);
    if (r->scratch.failed || r->text.failed)
        return err_set(e, ERR_MEMORY, "no memory for the text of a prompt");
    if (!w->in_role) {
        put_token(r, w->i, r->text.len);
        w->in_part = true;
        return 0;
    }
    if (line) {
        size_t n = strcspn(r->text.data + w->role, "\n");
        rc = push_role(r, role_of(r->text.data + w->role, n), e);
        w->in_role = false;
        r->text.len = w->role; // names of roles are of no text
    }
    return rc;
}

int reading_of_tokens(struct reading *r, const struct tokenizer *t, const struct compress_ids *in,
                      struct err *e) {
    struct reader d;
    struct walk w = {0};
    int rc = begin_reading(&d, r, t, e);
    if (!rc)
        rc = reserve_tokens(r, in->n, e);
    for (; w.i < in->n && !rc; w.i++) {
        int32_t id = in->ids[w.i];
        if (id < 0 || id >= tokenizer_size(t))
            rc =
                err_set(e, ERR_USAGE,
                        "token %lld of the prompt is %d, but the scorer's vocabulary has %d tokens",
                        (long long)w.i + 1, (int)id, tokenizer_size(t));
        if (!rc)
            rc = token_list_push(&r->ids, id, e);
        if (!rc)
            rc = add_token(&d, &w, id, e);
    }
    return rc ? rc : end_part(r, &w, e);
}

void reading_fini(struct reading *r) {
    token_list_fini(&r->ids);
    str_fini(&r->text);
    str_fini(&r->scratch);
    free(r->at);
    free(r->token);
    free(r->place);
    free(r->parts);
    free(r->roles);
    *r = (struct reading){0};
}

// The last user turn and its closing lines.

enum { CLOSING_LEAST = 16, PARAGRAPH_LEAST = 4 };

static int64_t count_of(const struct reading *r, int64_t message) {
    int64_t n = 0;
    for (int64_t i = 0; i < r->n_parts; i++)
        n += r->parts[i].message == message ? r->parts[i].count : 0;
    return n;
}

// The last message with text of a user, or of anybody.
static int64_t last_turn(const struct reading *r) {
    for (int64_t i = r->n_parts - 1; i >= 0; i--)
        if (r->roles[r->parts[i].message] == READING_USER)
            return r->parts[i].message;
    return r->n_parts ? r->parts[r->n_parts - 1].message : -1;
}

static bool empty_line(const char *text, size_t at) {
    return at > 1 && text[at - 1] == '\n' &&
           (text[at - 2] == '\n' || (at > 3 && text[at - 2] == '\r' && text[at - 3] == '\n'));
}

// The byte of the part's text where its closing lines begin.
static size_t closing_lines(const struct reading *r, const struct reading_part *p) {
    const char *text = r->text.data + p->begin;
    size_t n = p->end - p->begin, sentence = 0, word = 0;
    int64_t end = p->first + p->count;
    for (int64_t k = 1; k <= TURN_CLOSING && k < p->count; k++) {
        size_t at = border_near(text, n, r->at[end - k] - p->begin);
        enum border kind = border_kind(text, n, at);
        if (at == n || kind == BORDER_NONE)
            continue;
        if (k >= PARAGRAPH_LEAST && empty_line(text, at))
            return at;
        if (k > TURN_QUERIES)
            continue;
        if (!sentence && k >= CLOSING_LEAST && kind >= BORDER_LINE)
            sentence = at;
        word = at;
    }
    return sentence ? sentence : word;
}

// Whether a part says nothing, as the line end after a closing mark in a rendered prompt.
static bool is_blank(const struct reading *r, const struct reading_part *p) {
    size_t at = p->begin;
    while (at < p->end && strchr(" \t\r\n", r->text.data[at]))
        at++;
    return at == p->end;
}

struct pass_slice turn_find(const struct reading *r, int64_t whole) {
    struct pass_slice t = {.message = last_turn(r)};
    if (t.message < 0)
        return t;
    int64_t count = count_of(r, t.message), last = r->n_parts - 1;
    while (r->parts[last].message != t.message)
        last--;
    while (last > 0 && is_blank(r, &r->parts[last]) && r->parts[last - 1].message == t.message)
        last--;
    t.part = last;
    t.end = r->parts[last].first + r->parts[last].count;
    const struct reading_part *p = &r->parts[last];
    if (count <= whole || count * 2 <= r->n)
        while (t.part > 0 && p[-1].message == t.message) {
            t.part--;
            p--;
        }
    else if (p->count > whole)
        t.begin = closing_lines(r, p);
    t.first = p->first;
    while (t.first < t.end && r->at[t.first + 1] <= p->begin + t.begin)
        t.first++;
    t.begin += p->begin;
    return t;
}
