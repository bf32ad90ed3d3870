// SPDX-License-Identifier: Apache-2.0
// Grammars over bytes for what a model may write: a text of GBNF, a regular expression or a JSON
// Schema becomes one compiled form, which is read-only and may be shared by threads. A matcher
// joins a grammar to a vocabulary and answers, for a state: which tokens may come next, what state
// follows a token, and whether the text may end. States are values: any number of them may be held,
// of branches of a tree of guesses too, and equal ones are one. How it works:
// docs/structured-output.md. Nothing here depends on a sampler, a tree or a server.
#ifndef COPPICE_GRAMMAR_GRAMMAR_H
#define COPPICE_GRAMMAR_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/err.h"
#include "base/json/json.h"
#include "text/tokenizer/tokenizer.h"

struct grammar;         // compiled
struct grammar_vocab;   // the byte strings of a tokenizer's tokens, as a trie
struct grammar_matcher; // a grammar with a vocabulary, and what has been worked out of both
struct grammar_state;   // a place in a text; belongs to its matcher

// ---- grammars: created with one reference; any thread may take and drop references.

// Limits of compiling. A text of a few kilobytes may cause unbounded work (choices that
// multiply, counts of counts, sets of states), so every phase counts its steps, each a few
// nanoseconds, and what needs more than `max` is refused by ERR_LIMIT. Where `cancel` says that
// the result is not needed any more, a call ends with ERR_CANCELLED after about GRAMMAR_ASK steps.
// Zeroed is valid; one that serves several calls bounds them together.
struct grammar_work {
    const struct cancel_check *cancel; // NULL: never cancelled
    int64_t max;                       // 0: the first call sets it to grammar_steps of its text
    int64_t steps;                     // taken so far
    int64_t ask;                       // when `cancel` is checked next
};
enum {
    GRAMMAR_STEPS = 6 << 20,      // that any text may take,
    GRAMMAR_STEPS_BYTE = 384,     // and that many more for each of its bytes,
    GRAMMAR_STEPS_MAX = 32 << 20, // but no more than these
    GRAMMAR_ASK = 1 << 16,
};
static inline int64_t grammar_steps(size_t bytes) {
    const size_t more = (GRAMMAR_STEPS_MAX - GRAMMAR_STEPS) / GRAMMAR_STEPS_BYTE;
    return GRAMMAR_STEPS + GRAMMAR_STEPS_BYTE * (int64_t)(bytes < more ? bytes : more);
}

// GBNF, as llama.cpp describes it: rules `name ::= ...` of "texts", [classes], ( ), |, *, +, ?,
// {m,n} and . ; the text is what the rule `root` says. ERR_FORMAT with the line, ERR_UNSUPPORTED
// for left recursion, ERR_LIMIT for what would grow too large, ERR_MEMORY, ERR_CANCELLED. work may
// be NULL here and below: as zeroed.
int grammar_from_gbnf(struct grammar **out, const char *text, size_t n, struct grammar_work *work,
                      struct err *e);

// A regular expression (ECMA-262 without look-around, back references and \b) that the whole text
// must match. Errors as above, with the character's number.
int grammar_from_regex(struct grammar **out, const char *text, size_t n, struct grammar_work *work,
                       struct err *e);

// How JSON is laid out between its tokens.
enum grammar_space {
    GRAMMAR_SPACE_FREE, // none, one blank, or a line end and up to 64 blanks; before , and : none
    GRAMMAR_SPACE_COMPACT, // none at all
};
struct grammar_json {
    enum grammar_space space;
    bool one_of_as_any; // oneOf whose alternatives overlap is taken as anyOf instead of refused
    // An object with `properties` has no others, unless additionalProperties,
    // unevaluatedProperties or patternProperties speak of them, or minProperties needs them.
    bool declared_only;
    const char *marks; // ASCII between two of which strings stand as they are, and names of members
                       // that are words stand alone; NULL: quotes and escapes
};

// The texts that a JSON Schema (draft 2020-12) allows; docs/structured-output.md lists the
// keywords. Errors name the place by its JSON pointer: ERR_UNSUPPORTED for a keyword that no
// grammar here can hold, ERR_FORMAT for a schema that is none, ERR_MISMATCH where no value can
// satisfy it, ERR_LIMIT. how may be NULL: all zero.
int grammar_from_schema(struct grammar **out, const struct json *schema,
                        const struct grammar_json *how, struct grammar_work *work, struct err *e);

// Any JSON object.
int grammar_json_object(struct grammar **out, const struct grammar_json *how,
                        struct grammar_work *work, struct err *e);

struct grammar *grammar_ref(struct grammar *g); // returns g
void grammar_unref(struct grammar *g);          // NULL: nothing

// ---- vocabularies: read-only after creation; one serves all grammars of a tokenizer.

// Tokens longer than this are never allowed; shorter ones can always say the same.
enum { GRAMMAR_TOKEN_BYTES = 64 };

// The parts of a vocabulary; borrowed for the call.
struct grammar_tokens {
    int32_t size;                                             // ids are 0 .. size-1
    void (*bytes)(void *arg, int32_t id, struct str *append); // nothing: never allowed
    bool (*ends)(void *arg, int32_t id);                      // allowed where the text may end
    void *arg;
};
int grammar_vocab_create(struct grammar_vocab **out, const struct grammar_tokens *tokens,
                         struct err *e);
// Of a tokenizer: control tokens are never allowed, but those that end generation, at the end.
int grammar_vocab_of(struct grammar_vocab **out, const struct tokenizer *t, struct err *e);
void grammar_vocab_destroy(struct grammar_vocab *v); // after the matchers over it
int32_t grammar_vocab_size(const struct grammar_vocab *v);

// ---- matchers: for one thread at a time. One matcher may serve many texts at once, and the more
// it serves the more it knows already. Its memory is bounded: what is not held is forgotten.

// Takes a reference to g; borrows v. ERR_LIMIT where its texts can begin in too many ways.
int grammar_matcher_create(struct grammar_matcher **out, struct grammar *g,
                           const struct grammar_vocab *v, struct err *e);
void grammar_matcher_destroy(struct grammar_matcher *m); // its states are gone with it
size_t grammar_matcher_bytes(const struct grammar_matcher *m);
// Readings and stacks that it has looked at so far, some 25 ns each, and an eighth of the places of
// the vocabulary. What one call may look at is bounded: ERR_LIMIT beyond it, which no grammar is
// known to come to after its start.
int64_t grammar_matcher_work(const struct grammar_matcher *m);
// From now on calls that look at more readings and stacks than that many more end with
// ERR_UNFINISHED. What they have worked out is kept, so that the same call goes on from there, if
// only one byte's step (GRAMMAR_STEP_WORK at most) is within what is allowed. INT64_MAX: no bound.
void grammar_matcher_allow(struct grammar_matcher *m, int64_t steps);
enum { GRAMMAR_STEP_WORK = 1 << 22 };

// The state before the first byte, with a reference for the caller; it takes no work.
struct grammar_state *grammar_start(struct grammar_matcher *m);
struct grammar_state *grammar_state_ref(struct grammar_state *s);             // returns s
void grammar_state_unref(struct grammar_matcher *m, struct grammar_state *s); // NULL: nothing

// The state after a token, or after bytes (n >= 0): 1 and *to with a reference, 0 and NULL where
// the grammar does not allow it, or a negative code: ERR_MEMORY, ERR_UNFINISHED. Allowed is what
// the mask allows, and long tokens that a mask leaves out because it would cost too much. A token
// that ends generation leads to a state where nothing is allowed.
int grammar_accept(struct grammar_matcher *m, const struct grammar_state *from, int32_t token,
                   struct grammar_state **to, struct err *e);
int grammar_accept_bytes(struct grammar_matcher *m, const struct grammar_state *from,
                         const char *bytes, size_t n, struct grammar_state **to, struct err *e);

bool grammar_may_end(const struct grammar_matcher *m, const struct grammar_state *s);
// Nothing may follow any more but the end.
bool grammar_must_end(const struct grammar_matcher *m, const struct grammar_state *s);

// Fills bits[ceil(size of the vocabulary / 32)]: bit id%32 of word id/32 is set where token id may
// follow; bits above the vocabulary are 0. ERR_MEMORY, ERR_UNFINISHED.
int grammar_mask(struct grammar_matcher *m, const struct grammar_state *s, uint32_t *bits,
                 struct err *e);

// *token: the only one that may follow, or -1. Cheaper than a mask.
int grammar_forced(struct grammar_matcher *m, const struct grammar_state *s, int32_t *token,
                   struct err *e);

// Appends the bytes that must follow because there is no choice, at most `max`; they may end
// inside a UTF-8 sequence. What is appended says nothing about how it is cut into tokens.
int grammar_forced_bytes(struct grammar_matcher *m, const struct grammar_state *s, size_t max,
                         struct str *append, struct err *e);

#endif
