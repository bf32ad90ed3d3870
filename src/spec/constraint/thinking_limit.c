// SPDX-License-Identifier: Apache-2.0
// The constraint that ends reasoning. A state is a place in the reply: within
// a block or not, how much of the next mark has come, how many tokens of reasoning, and, once they
// are used up, how much of the closing text. It is a function of the tokens alone.
#include "spec/constraint/thinking_limit.h"

#include <stdlib.h>
#include <string.h>

enum mode {
    FRESH,   // nothing but blanks came: a block may begin
    INSIDE,  // in a block
    BETWEEN, // after words, where a block may begin all the same
    OVER,    // no block begins any more
};

struct place {
    enum mode mode;
    int matched;      // bytes of the mark that is looked for, at the end of the text
    bool line;        // the reply ends in a line end
    int64_t used;     // tokens of reasoning
    int32_t way, due; // closing text that is forced, and its next token; due -1: none
};

struct constraint_state {
    struct place at;
    struct constraint_state *inner;
};

// The closing text in tokens, as it stands after a line end and otherwise.
enum { WAYS = 2 };

struct limit {
    const struct tokenizer *t;
    enum reasoning_family family;
    bool inside, anywhere;
    int64_t tokens, words; // words: of a mask
    struct token_list closing[WAYS];
    uint32_t *only[WAYS]; // [tokens of it][words] masks of one bit
    struct str bytes;
    struct constraint *inner; // NULL: none
};

static void limit_destroy(void *self) {
    struct limit *l = self;
    constraint_drop(l->inner);
    for (int i = 0; i < WAYS; i++) {
        token_list_fini(&l->closing[i]);
        free(l->only[i]);
    }
    str_fini(&l->bytes);
    free(l);
}

// How much of `mark` stands at the end of a text that had `matched` bytes of it before this one.
static int match_mark(const char *mark, int matched, char byte) {
    while (matched > 0 && mark[matched] != byte) {
        int shorter = matched - 1;
        while (shorter > 0 && memcmp(mark, mark + matched - shorter, (size_t)shorter) != 0)
            shorter--;
        matched = shorter;
    }
    return mark[matched] == byte ? matched + 1 : 0;
}

static bool is_blank_byte(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static void advance_byte(const struct limit *l, struct place *p, char byte) {
    bool inside = p->mode == INSIDE;
    const char *mark = inside ? reasoning_closing(l->family) : reasoning_opening(l->family);
    p->line = byte == '\n';
    if (p->mode == OVER)
        return;
    p->matched = match_mark(mark, p->matched, byte);
    if (!mark[p->matched]) {
        p->matched = 0;
        p->mode = !inside ? INSIDE : l->anywhere ? BETWEEN : OVER;
    } else if (p->mode == FRESH && p->matched == 0 && !is_blank_byte(byte)) {
        p->mode = l->anywhere ? BETWEEN : OVER;
    }
}

// Where reasoning is used up, its end begins.
static void begin_closing(const struct limit *l, struct place *p) {
    if (p->mode != INSIDE || p->due >= 0 || p->used < l->tokens)
        return;
    p->way = p->line;
    p->due = 0;
}

static int32_t forced_token(const struct limit *l, const struct place *p) {
    return p->due < 0 ? -1 : l->closing[p->way].ids[p->due];
}

static int advance_place(struct limit *l, struct place *p, int32_t token, struct err *e) {
    bool inside = p->mode == INSIDE;
    if (p->due >= 0) {
        if ((size_t)++p->due == l->closing[p->way].count) {
            p->due = -1;
            p->matched = 0;
            p->mode = l->anywhere ? BETWEEN : OVER;
        }
        return 0;
    }
    str_clear(&l->bytes);
    reasoning_decode(l->family, l->t, token, &l->bytes);
    if (l->bytes.failed) {
        str_fini(&l->bytes);
        return err_set(e, ERR_MEMORY, "no memory to follow the reasoning of a reply");
    }
    p->used += inside;
    for (size_t i = 0; i < l->bytes.len; i++)
        advance_byte(l, p, l->bytes.data[i]);
    begin_closing(l, p);
    return 0;
}

static int limit_begin(void *self, struct constraint_state **out, struct err *e) {
    struct limit *l = self;
    struct constraint_state *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_MEMORY, "no memory for the state of a reply");
    s->at = (struct place){.mode = l->inside ? INSIDE : FRESH, .due = -1};
    begin_closing(l, &s->at);
    int rc = l->inner ? l->inner->class->begin(l->inner->self, &s->inner, e) : 0;
    if (rc)
        free(s);
    else
        *out = s;
    return rc;
}

static void limit_drop(void *self, struct constraint_state *s) {
    struct limit *l = self;
    if (s->inner)
        l->inner->class->drop(l->inner->self, s->inner);
    free(s);
}

static int limit_next(void *self, struct constraint_state *from, int32_t token,
                      struct constraint_state **out, struct err *e) {
    struct limit *l = self;
    struct constraint_state *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_MEMORY, "no memory for the state of a reply");
    s->at = from->at;
    int rc = advance_place(l, &s->at, token, e);
    if (!rc && l->inner)
        rc = l->inner->class->next(l->inner->self, from->inner, token, &s->inner, e);
    if (rc)
        free(s);
    else
        *out = s;
    return rc;
}

static bool limit_allows(void *self, struct constraint_state *s, int32_t token) {
    struct limit *l = self;
    int32_t only = forced_token(l, &s->at);
    if (only >= 0)
        return token == only;
    return !l->inner || l->inner->class->allows(l->inner->self, s->inner, token);
}

static int limit_look(void *self, struct constraint_state *s, struct constraint_view *out,
                      struct err *e) {
    struct limit *l = self;
    int32_t only = forced_token(l, &s->at);
    if (only < 0 && l->inner)
        return l->inner->class->look(l->inner->self, s->inner, out, e);
    *out = (struct constraint_view){.only = only};
    if (only >= 0)
        out->allow = l->only[s->at.way] + s->at.due * l->words;
    return 0;
}

static enum constraint_hint limit_hint(void *self, struct constraint_state *s, int32_t *token) {
    struct limit *l = self;
    int32_t only = forced_token(l, &s->at);
    if (only < 0)
        return l->inner ? l->inner->class->hint(l->inner->self, s->inner, token)
                        : CONSTRAINT_NO_HINT;
    *token = only;
    return CONSTRAINT_ONLY;
}

static int make_closing(struct limit *l, int way, const char *text, size_t n, struct err *e) {
    struct token_list *c = &l->closing[way];
    int rc = tokenizer_encode(l->t, text, n, true, c, e);
    if (rc)
        return rc;
    if (c->count == 0)
        return err_set(e, ERR_UNSUPPORTED,
                       "the vocabulary has no tokens for the end of a model's reasoning");
    l->only[way] = calloc(c->count * (size_t)l->words, sizeof *l->only[way]);
    if (!l->only[way])
        return err_set(e, ERR_MEMORY, "no memory for the end of a model's reasoning");
    for (size_t i = 0; i < c->count; i++)
        l->only[way][i * (size_t)l->words + (size_t)c->ids[i] / 32] = 1u << (c->ids[i] % 32);
    return 0;
}

static int make_closings(struct limit *l, const struct thinking_limit *o, struct err *e) {
    bool line = o->n_closing > 0 && o->closing[0] == '\n';
    int rc = make_closing(l, 0, o->closing, o->n_closing, e);
    return rc ? rc : make_closing(l, 1, o->closing + line, o->n_closing - line, e);
}

static int64_t limit_work(void *self) {
    const struct limit *l = self;
    return l->inner && l->inner->class->work ? l->inner->class->work(l->inner->self) : 0;
}

static void limit_allow(void *self, int64_t steps) {
    const struct limit *l = self;
    if (l->inner && l->inner->class->allow)
        l->inner->class->allow(l->inner->self, steps);
}

int thinking_limit_create(struct constraint **out, const struct thinking_limit *o,
                          struct constraint *inner, struct err *e) {
    static const struct constraint_class class = {.name = "thinking",
                                                  .destroy = limit_destroy,
                                                  .begin = limit_begin,
                                                  .next = limit_next,
                                                  .drop = limit_drop,
                                                  .allows = limit_allows,
                                                  .look = limit_look,
                                                  .hint = limit_hint,
                                                  .work = limit_work,
                                                  .allow = limit_allow};
    if (!reasoning_closing(o->family))
        return err_set(e, ERR_UNSUPPORTED, "the model's template has no marks of reasoning");
    struct limit *l = calloc(1, sizeof *l);
    if (!l)
        return err_set(e, ERR_MEMORY, "no memory for the end of a model's reasoning");
    int64_t vocab = (int64_t)tokenizer_size(o->t);
    *l = (struct limit){.t = o->t,
                        .family = o->family,
                        .inside = o->inside,
                        .anywhere = reasoning_anywhere(o->family),
                        .tokens = o->tokens,
                        .words = (vocab + 31) / 32,
                        .inner = constraint_keep(inner)};
    int rc = make_closings(l, o, e);
    if (rc) {
        limit_destroy(l);
        return rc;
    }
    return constraint_create(out, &class, l, vocab, e);
}
