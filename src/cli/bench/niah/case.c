// SPDX-License-Identifier: Apache-2.0
// Putting a case together. Sentences of the filler are counted one by one, so that depths are exact
// in tokens; the whole text is then counted, and the filler changed by what is too much or missing.
#include "cli/bench/niah/case.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"

enum { GRAM = 4, WORDINGS = 256, ROUNDS = 12, SLACK = 48 };

static int count(const struct tokenizer *t, const char *s, size_t n, int64_t *out, struct err *e) {
    struct token_list ids = {0};
    int rc = tokenizer_encode(t, s, n, false, &ids, e);
    *out = (int64_t)ids.count;
    token_list_fini(&ids);
    return rc;
}

static bool share_gram(const struct token_list *a, const struct token_list *b) {
    for (size_t i = 0; i + GRAM <= a->count; i++)
        for (size_t j = 0; j + GRAM <= b->count; j++)
            if (!memcmp(a->ids + i, b->ids + j, GRAM * sizeof *a->ids))
                return true;
    return false;
}

// The words of facts and question, before they have a place.
struct words {
    struct niah_fact fact[NIAH_MAX_NEEDLES];
    struct str said[NIAH_MAX_NEEDLES], question;
    size_t value[NIAH_MAX_NEEDLES];
    int64_t tokens; // of all of them
};

static void words_fini(struct words *w) {
    for (int i = 0; i < NIAH_MAX_NEEDLES; i++)
        str_fini(&w->said[i]);
    str_fini(&w->question);
}

static int encode(const struct tokenizer *t, const struct str *s, struct token_list *ids,
                  struct err *e) {
    if (s->failed)
        return err_set(e, ERR_MEMORY, "no memory for the words of a case");
    ids->count = 0;
    return tokenizer_encode(t, s->data, s->len, false, ids, e);
}

// Draws words once; *clash: the question repeats four tokens of a fact.
static int draw_words(struct words *w, const struct niah_spec *s, const struct tokenizer *t,
                      struct rng *r, bool *clash, struct err *e) {
    struct token_list fact = {0}, question = {0};
    niah_facts(w->fact, s->needles, s->kind, r);
    str_clear(&w->question);
    str_puts(&w->question, "\n\n");
    niah_ask(w->fact, s->needles, s->kind, r, &w->question);
    int rc = encode(t, &w->question, &question, e);
    w->tokens = (int64_t)question.count;
    *clash = false;
    for (int i = 0; i < s->needles && !rc; i++) {
        str_clear(&w->said[i]);
        niah_state(&w->fact[i], s->kind, s->filler, r, &w->said[i], &w->value[i]);
        rc = encode(t, &w->said[i], &fact, e);
        w->tokens += (int64_t)fact.count;
        *clash = *clash || share_gram(&fact, &question);
    }
    token_list_fini(&fact);
    token_list_fini(&question);
    return rc;
}

static int find_words(struct words *w, const struct niah_spec *s, const struct tokenizer *t,
                      struct err *e) {
    struct rng r = {rng_hash(s->seed, (uint64_t)s->kind, (uint64_t)s->needles, (uint64_t)s->depth)};
    r.state ^= rng_hash((uint64_t)s->filler, (uint64_t)s->tokens, 1, 0);
    bool clash = true;
    int rc = 0;
    for (int i = 0; i < WORDINGS && clash && !rc; i++)
        rc = draw_words(w, s, t, &r, &clash, e);
    if (!rc && clash)
        rc = err_set(e, ERR_UNSUPPORTED,
                     "with this tokenizer every question repeats four tokens of a fact");
    return rc;
}

// Per cent of the filler before fact i.
static int depth_of(const struct niah_spec *s, int i) {
    int d = s->depth + 100 * i / (s->needles > 4 ? s->needles : 4);
    return d > 100 ? d - 100 : d;
}

// Appends a sentence without what parts it from the one before where there is none; returns how
// many bytes it is short of.
static size_t put(struct niah_case *c, const struct str *s) {
    size_t skip = 0;
    while (c->text.len == 0 && skip < s->len && (s->data[skip] == ' ' || s->data[skip] == '\n'))
        skip++;
    str_append(&c->text, s->data + skip, s->len - skip);
    return skip;
}

static void put_fact(struct niah_case *c, const struct words *w, int i) {
    struct niah_needle *n = &c->needle[i];
    n->fact = w->fact[i];
    n->begin = c->text.len;
    n->value = n->begin + w->value[i] - put(c, &w->said[i]);
    n->end = c->text.len;
}

// The text with a filler of `room` tokens, counted sentence by sentence, at most.
static int build(struct niah_case *c, const struct niah_spec *s, const struct words *w,
                 const struct tokenizer *t, int64_t room, struct err *e) {
    struct niah_source source;
    struct str unit = {0};
    int64_t done = 0, n = 0;
    bool told[NIAH_MAX_NEEDLES] = {false};
    int rc = 0;
    niah_source_begin(&source, s->filler, s->text, s->n,
                      rng_hash(s->seed, (uint64_t)s->filler, (uint64_t)s->depth, 2));
    str_clear(&c->text);
    while (!rc) {
        str_clear(&unit);
        niah_source_next(&source, &unit);
        rc = unit.failed ? err_set(e, ERR_MEMORY, "no memory for a filler") : 0;
        if (!rc)
            rc = count(t, unit.data, unit.len, &n, e);
        bool last = !rc && done + n > room;
        for (int i = 0; i < s->needles && !rc; i++) {
            int at = depth_of(s, i);
            if (!told[i] && (last || (at < 100 && done * 100 >= room * at))) {
                put_fact(c, w, i);
                told[i] = true;
            }
        }
        if (rc || last)
            break;
        put(c, &unit);
        done += n;
    }
    str_fini(&unit);
    c->n = s->needles;
    c->context = c->text.len;
    str_append(&c->text, w->question.data, w->question.len);
    return !rc && c->text.failed ? err_set(e, ERR_MEMORY, "no memory for a case") : rc;
}

int niah_make(struct niah_case *out, const struct niah_spec *s, const struct tokenizer *t,
              struct err *e) {
    struct words w = {0};
    *out = (struct niah_case){0};
    int rc = find_words(&w, s, t, e);
    int64_t room = s->tokens - w.tokens, allowed = max_i64(s->tokens / 200, SLACK);
    for (int i = 0; i < ROUNDS && !rc; i++) {
        if (room < s->tokens / 2) {
            rc = err_set(e, ERR_USAGE,
                         "%lld tokens are too few: half of them are to be filler beside facts and "
                         "question of %lld",
                         (long long)s->tokens, (long long)w.tokens);
            break;
        }
        rc = build(out, s, &w, t, room, e);
        if (!rc)
            rc = count(t, out->text.data, out->text.len, &out->tokens, e);
        int64_t missing = s->tokens - out->tokens;
        if (rc || (missing >= 0 && missing <= allowed))
            break;
        // What is too much comes of sentences that are counted one by one; the next one may add.
        room += missing > 0 ? missing : missing - SLACK / 4;
    }
    if (!rc && out->tokens > s->tokens)
        rc = err_set(e, ERR_UNSUPPORTED, "no text of %lld tokens comes of this filler",
                     (long long)s->tokens);
    words_fini(&w);
    return rc;
}

void niah_case_fini(struct niah_case *c) {
    str_fini(&c->text);
}

void niah_name(const struct niah_spec *s, struct str *out) {
    str_printf(out, "%lld-%s-%s-x%d-%03d", (long long)s->tokens, niah_filler_name(s->filler),
               niah_kind_name(s->kind), s->needles, s->depth);
}

static void json_needles(const struct niah_case *c, struct json_writer *w) {
    jw_begin(w, '[');
    for (int i = 0; i < c->n; i++) {
        const struct niah_needle *n = &c->needle[i];
        jw_begin(w, '{');
        jw_key_str(w, "key", n->fact.key);
        jw_key_str(w, "value", n->fact.value);
        jw_key_int(w, "begin", (int64_t)n->begin);
        jw_key_int(w, "end", (int64_t)n->end);
        jw_key_int(w, "value_begin", (int64_t)n->value);
        jw_end(w, '}');
    }
    jw_end(w, ']');
}

void niah_json(const struct niah_case *c, const struct niah_spec *s, struct json_writer *w) {
    struct str name = {0};
    niah_name(s, &name);
    w->out.failed |= name.failed;
    jw_begin(w, '{');
    jw_key(w, "id");
    jw_str(w, name.data ? name.data : "", name.len);
    jw_key_str(w, "group", niah_filler_name(s->filler));
    jw_key_str(w, "kind", niah_kind_name(s->kind));
    jw_key_int(w, "depth", s->depth);
    jw_key_int(w, "tokens", c->tokens);
    jw_key_int(w, "seed", (int64_t)s->seed);
    jw_key_int(w, "question", (int64_t)c->context + 2);
    jw_key(w, "needles");
    json_needles(c, w);
    jw_key_int(w, "max_tokens", 64 * c->n);
    jw_key(w, "prompt");
    jw_str(w, c->text.data ? c->text.data : "", c->text.len);
    jw_end(w, '}');
    str_fini(&name);
}
