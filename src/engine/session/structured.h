// SPDX-License-Identifier: Apache-2.0
// From what a caller writes (a grammar, a regular expression, a JSON Schema, "any JSON object") to
// the constraint of a request. A store keeps the vocabulary as grammars need it, made when it is
// first requested, and the newest constraints by the text that they were made of: the masks that a
// constraint has worked out need not be worked out twice. Any thread may use one; the constraints
// belong to the thread that runs the requests.
#ifndef COPPICE_ENGINE_SESSION_STRUCTURED_H
#define COPPICE_ENGINE_SESSION_STRUCTURED_H

#include <pthread.h>

#include "base/str.h"
#include "spec/constraint/constraint.h"
#include "spec/constraint/grammar.h"

enum { CONSTRAINT_STORE_MAX = 16 };

struct constraint_store {
    pthread_mutex_t lock; // of what follows
    struct constraint_kept {
        struct str key; // all that it was made of
        struct constraint *c;
        uint64_t used; // when it was requested last; 0: none
    } kept[CONSTRAINT_STORE_MAX];
    uint64_t uses;
    int max;
};

void constraint_store_init(struct constraint_store *s, int max); // most <= CONSTRAINT_STORE_MAX
void constraint_store_fini(struct constraint_store *s);

// The one with this key, with a reference for the caller; NULL: there is none.
struct constraint *constraint_store_find(struct constraint_store *s, const struct str *key);
// Keeps it in place of the one that was not requested longest, with a reference of its own. The key
// is taken over.
void constraint_store_keep(struct constraint_store *s, struct str *key, struct constraint *c);

enum structured_form {
    STRUCTURED_GBNF,   // a grammar in GBNF
    STRUCTURED_REGEX,  // a regular expression for the whole reply
    STRUCTURED_SCHEMA, // the text of a JSON Schema
    STRUCTURED_OBJECT, // any JSON object; `text` is not looked at
    STRUCTURED_FORMS,
};
const char *structured_form_name(enum structured_form f); // "gbnf", "regex", "schema", "object"

struct structured {
    enum structured_form form;
    const char *text; // [n]
    size_t n;
    // NULL, or the marks of a block of reasoning, which comes first and is free: the reply may
    // begin with `opening`, or the prompt has left the block open (inside).
    const char *opening, *closing;
    bool inside;
    bool one_of_as_any;                // of a schema: struct grammar_json
    const struct cancel_check *cancel; // NULL, or cancels the work: ERR_CANCELLED
};

struct structured_store;

enum { STRUCTURED_KEPT = 16, STRUCTURED_BYTES = 1 << 20 }; // constraints kept; bytes of a text

// vocab: of the model. t: borrowed, and NULL where there is none.
int structured_store_create(struct structured_store **out, const struct tokenizer *t, int64_t vocab,
                            struct err *e);
// When no constraint of it is in use. NULL is allowed.
void structured_store_destroy(struct structured_store *s);

// *out gets a reference for the caller. Errors of the text are those of grammar/grammar.h
// (ERR_FORMAT, ERR_UNSUPPORTED, ERR_LIMIT), all with a sentence.
int structured_make(struct structured_store *s, const struct structured *w, struct constraint **out,
                    struct err *e);

#endif
