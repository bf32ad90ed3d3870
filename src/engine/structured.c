// SPDX-License-Identifier: Apache-2.0
// See structured.h. A grammar is compiled outside of the lock: other requests do not wait for it.
#include "engine/structured.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct kept {
    struct str key; // all that it was made of
    struct constraint *c;
    uint64_t used; // when it was asked for last; 0: none
};

struct structured_store {
    const struct tokenizer *t;
    int64_t vocab_size;
    pthread_mutex_t making; // held while the vocabulary is made
    struct grammar_vocab *vocab;
    pthread_mutex_t lock; // of what follows
    struct kept kept[STRUCTURED_KEPT];
    uint64_t uses;
};

int structured_store_create(struct structured_store **out, const struct tokenizer *t, int64_t vocab,
                            struct err *e) {
    struct structured_store *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_MEMORY, "no memory for structured output");
    s->t = t;
    s->vocab_size = vocab;
    pthread_mutex_init(&s->making, NULL);
    pthread_mutex_init(&s->lock, NULL);
    *out = s;
    return 0;
}

void structured_store_destroy(struct structured_store *s) {
    if (!s)
        return;
    for (int i = 0; i < STRUCTURED_KEPT; i++) {
        constraint_drop(s->kept[i].c);
        str_fini(&s->kept[i].key);
    }
    grammar_vocab_destroy(s->vocab);
    pthread_mutex_destroy(&s->making);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

int structured_vocab(struct structured_store *s, const struct grammar_vocab **out, struct err *e) {
    if (!s->t)
        return err_set(e, ERR_UNSUPPORTED,
                       "the model file has no tokenizer, so text cannot be held to a grammar");
    pthread_mutex_lock(&s->making);
    int rc = s->vocab ? 0 : grammar_vocab_of(&s->vocab, s->t, e);
    pthread_mutex_unlock(&s->making);
    *out = s->vocab;
    return rc;
}

static int from_schema(struct grammar **out, const struct structured *w, struct err *e) {
    struct json *schema = NULL;
    int rc = json_parse(&schema, w->text, w->n, e);
    if (!rc)
        rc = grammar_from_schema(out, schema, NULL, e);
    json_free(schema);
    return rc;
}

static int make_grammar(const struct structured *w, struct grammar **out, struct err *e) {
    if (w->form != STRUCTURED_OBJECT && w->n > STRUCTURED_BYTES)
        return err_set(e, ERR_LIMIT, "a text of %zu bytes; at most %d are possible", w->n,
                       STRUCTURED_BYTES);
    switch (w->form) {
    case STRUCTURED_GBNF:
        return grammar_from_gbnf(out, w->text, w->n, e);
    case STRUCTURED_REGEX:
        return grammar_from_regex(out, w->text, w->n, e);
    case STRUCTURED_SCHEMA:
        return from_schema(out, w, e);
    case STRUCTURED_OBJECT:
        break;
    }
    return grammar_json_object(out, NULL, e);
}

// The reply itself is held to the grammar, or what comes behind its block of reasoning.
static int make(struct structured_store *s, const struct structured *w, struct constraint **out,
                struct err *e) {
    const struct grammar_vocab *vocab;
    struct grammar *g = NULL;
    int rc = structured_vocab(s, &vocab, e);
    if (!rc)
        rc = make_grammar(w, &g, e);
    if (rc)
        return rc;
    struct grammar_trigger behind = {.marker = w->closing,
                                     .n_marker = w->closing ? strlen(w->closing) : 0,
                                     .grammar = g,
                                     .rest = true};
    struct grammar_constraint c = {.tokenizer = s->t,
                                   .vocab = vocab,
                                   .model_vocab = s->vocab_size,
                                   .whole = w->inside ? NULL : g,
                                   .opening = w->opening,
                                   .triggers = &behind,
                                   .n_triggers = w->closing ? 1 : 0,
                                   .required = true};
    rc = grammar_constraint_create(out, &c, e);
    grammar_unref(g);
    return rc;
}

static void put_text(struct str *key, const char *text, size_t n) {
    str_printf(key, "%zu:", n);
    str_append(key, text ? text : "", n);
}

static int make_key(const struct structured *w, struct str *key, struct err *e) {
    str_printf(key, "%d%d", (int)w->form, w->inside);
    put_text(key, w->opening, w->opening ? strlen(w->opening) : 0);
    put_text(key, w->closing, w->closing ? strlen(w->closing) : 0);
    put_text(key, w->text, w->form == STRUCTURED_OBJECT ? 0 : w->n);
    return key->failed ? err_set(e, ERR_MEMORY, "no memory for structured output") : 0;
}

// The one with this key; NULL: none. A reference for the caller.
static struct constraint *find(struct structured_store *s, const struct str *key) {
    for (int i = 0; i < STRUCTURED_KEPT; i++) {
        struct kept *k = &s->kept[i];
        if (!k->c || k->key.len != key->len || memcmp(k->key.data, key->data, key->len) != 0)
            continue;
        k->used = ++s->uses;
        return constraint_keep(k->c);
    }
    return NULL;
}

// Keeps it in place of the one that was not asked for longest. The key is taken over.
static void keep(struct structured_store *s, struct str *key, struct constraint *c) {
    struct kept *oldest = &s->kept[0];
    for (int i = 1; i < STRUCTURED_KEPT; i++)
        if (s->kept[i].used < oldest->used)
            oldest = &s->kept[i];
    constraint_drop(oldest->c);
    str_fini(&oldest->key);
    *oldest = (struct kept){*key, constraint_keep(c), ++s->uses};
    *key = (struct str){0};
}

int structured_make(struct structured_store *s, const struct structured *w, struct constraint **out,
                    struct err *e) {
    struct str key = {0};
    int rc = make_key(w, &key, e);
    *out = NULL;
    pthread_mutex_lock(&s->lock);
    if (!rc)
        *out = find(s, &key);
    pthread_mutex_unlock(&s->lock);
    if (!rc && !*out) {
        rc = make(s, w, out, e);
        pthread_mutex_lock(&s->lock);
        if (!rc)
            keep(s, &key, *out);
        pthread_mutex_unlock(&s->lock);
    }
    str_fini(&key);
    return rc;
}
