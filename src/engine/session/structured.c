// SPDX-License-Identifier: Apache-2.0
// A grammar is compiled outside of the lock: other requests do not wait for it.
#include "engine/session/structured.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct structured_store {
    const struct tokenizer *t;
    int64_t vocab_size;
    pthread_mutex_t making; // held while the vocabulary is made
    struct grammar_vocab *vocab;
    struct constraint_store kept;
};

int structured_store_create(struct structured_store **out, const struct tokenizer *t, int64_t vocab,
                            struct err *e) {
    struct structured_store *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_MEMORY, "no memory for structured output");
    s->t = t;
    s->vocab_size = vocab;
    pthread_mutex_init(&s->making, NULL);
    constraint_store_init(&s->kept, STRUCTURED_KEPT);
    *out = s;
    return 0;
}

void structured_store_destroy(struct structured_store *s) {
    if (!s)
        return;
    constraint_store_fini(&s->kept);
    grammar_vocab_destroy(s->vocab);
    pthread_mutex_destroy(&s->making);
    free(s);
}

// The vocabulary for grammars of others; the store's. ERR_UNSUPPORTED without a tokenizer.
static int structured_vocab(struct structured_store *s, const struct grammar_vocab **out,
                            struct err *e) {
    if (!s->t)
        return err_set(e, ERR_UNSUPPORTED,
                       "the model file has no tokenizer, so text cannot be held to a grammar");
    pthread_mutex_lock(&s->making);
    int rc = s->vocab ? 0 : grammar_vocab_of(&s->vocab, s->t, e);
    pthread_mutex_unlock(&s->making);
    *out = s->vocab;
    return rc;
}

static int from_schema(struct grammar **out, const struct structured *w, struct grammar_work *work,
                       struct err *e) {
    const struct grammar_json how = {.one_of_as_any = w->one_of_as_any};
    struct json *schema = NULL;
    int rc = json_parse(&schema, w->text, w->n, e);
    if (!rc)
        rc = grammar_from_schema(out, schema, &how, work, e);
    json_free(schema);
    return rc;
}

const char *structured_form_name(enum structured_form f) {
    static const char *const names[] = {"gbnf", "regex", "schema", "object"};
    return names[f];
}

static int make_grammar(const struct structured *w, struct grammar **out, struct err *e) {
    struct grammar_work work = {.cancel = w->cancel};
    if (w->form != STRUCTURED_OBJECT && w->n > STRUCTURED_BYTES)
        return err_set(e, ERR_LIMIT, "a text of %zu bytes; at most %d are possible", w->n,
                       STRUCTURED_BYTES);
    switch (w->form) {
    case STRUCTURED_GBNF:
        return grammar_from_gbnf(out, w->text, w->n, &work, e);
    case STRUCTURED_REGEX:
        return grammar_from_regex(out, w->text, w->n, &work, e);
    case STRUCTURED_SCHEMA:
        return from_schema(out, w, &work, e);
    case STRUCTURED_OBJECT:
    case STRUCTURED_FORMS:
        break;
    }
    return grammar_json_object(out, NULL, &work, e);
}

// The reply itself is held to the grammar, or what comes after its block of reasoning.
static int make_constraint(struct structured_store *s, const struct structured *w,
                           struct constraint **out, struct err *e) {
    const struct grammar_vocab *vocab = NULL;
    struct grammar *g = NULL;
    int rc = structured_vocab(s, &vocab, e);
    if (!rc)
        rc = make_grammar(w, &g, e);
    if (rc)
        return rc;
    struct grammar_trigger after_reasoning = {.marker = w->closing,
                                              .n_marker = w->closing ? strlen(w->closing) : 0,
                                              .grammar = g,
                                              .rest = true};
    struct grammar_constraint c = {.tokenizer = s->t,
                                   .vocab = vocab,
                                   .model_vocab = s->vocab_size,
                                   .whole = w->inside ? NULL : g,
                                   .opening = w->opening,
                                   .triggers = &after_reasoning,
                                   .n_triggers = w->closing ? 1 : 0,
                                   .required = true};
    rc = grammar_constraint_create(out, &c, e);
    grammar_unref(g);
    return rc;
}

static void put_key_text(struct str *key, const char *text, size_t n) {
    str_printf(key, "%zu:", n);
    str_append(key, text ? text : "", n);
}

static int make_key(const struct structured *w, struct str *key, struct err *e) {
    str_printf(key, "%d%d%d", (int)w->form, w->inside, w->one_of_as_any);
    put_key_text(key, w->opening, w->opening ? strlen(w->opening) : 0);
    put_key_text(key, w->closing, w->closing ? strlen(w->closing) : 0);
    put_key_text(key, w->text, w->form == STRUCTURED_OBJECT ? 0 : w->n);
    return key->failed ? err_set(e, ERR_MEMORY, "no memory for structured output") : 0;
}

int structured_make(struct structured_store *s, const struct structured *w, struct constraint **out,
                    struct err *e) {
    struct str key = {0};
    int rc = make_key(w, &key, e);
    *out = NULL;
    if (!rc)
        *out = constraint_store_find(&s->kept, &key);
    if (!rc && !*out) {
        rc = make_constraint(s, w, out, e);
        if (!rc)
            constraint_store_keep(&s->kept, &key, *out);
    }
    str_fini(&key);
    return rc;
}

void constraint_store_init(struct constraint_store *s, int max) {
    *s = (struct constraint_store){.max = max};
    pthread_mutex_init(&s->lock, NULL);
}

void constraint_store_fini(struct constraint_store *s) {
    for (int i = 0; i < s->max; i++) {
        constraint_drop(s->kept[i].c);
        str_fini(&s->kept[i].key);
    }
    pthread_mutex_destroy(&s->lock);
}

struct constraint *constraint_store_find(struct constraint_store *s, const struct str *key) {
    struct constraint *found = NULL;
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < s->max && !found; i++) {
        struct constraint_kept *k = &s->kept[i];
        if (!k->c || k->key.len != key->len || memcmp(k->key.data, key->data, key->len) != 0)
            continue;
        k->used = ++s->uses;
        found = constraint_keep(k->c);
    }
    pthread_mutex_unlock(&s->lock);
    return found;
}

void constraint_store_keep(struct constraint_store *s, struct str *key, struct constraint *c) {
    pthread_mutex_lock(&s->lock);
    struct constraint_kept *oldest = &s->kept[0];
    for (int i = 1; i < s->max; i++)
        if (s->kept[i].used < oldest->used)
            oldest = &s->kept[i];
    struct constraint_kept gone = *oldest;
    *oldest = (struct constraint_kept){*key, constraint_keep(c), ++s->uses};
    *key = (struct str){0};
    pthread_mutex_unlock(&s->lock);
    constraint_drop(gone.c); // it may be large
    str_fini(&gone.key);
}
