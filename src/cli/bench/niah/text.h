// SPDX-License-Identifier: Apache-2.0
// The words of `bench niah`: fillers, hidden facts and questions, all drawn from a stream of random
// numbers, so that the same stream gives the same words. It knows nothing of tokens and lengths.
#ifndef COPPICE_CLI_BENCH_NIAH_TEXT_H
#define COPPICE_CLI_BENCH_NIAH_TEXT_H

#include <stdint.h>

#include "base/rng.h"
#include "base/str.h"

enum niah_filler {
    NIAH_PHRASES, // five short sentences again and again, as published tests have
    NIAH_PROSE,   // sentences of a small grammar, in paragraphs
    NIAH_CODE,    // functions in the manner of C
    NIAH_FILE,    // lines of a text of the user's
    NIAH_FILLERS
};
enum niah_kind {
    NIAH_NUMBER,   // seven digits
    NIAH_UUID,     // version 4
    NIAH_PASSWORD, // two words and four digits
    NIAH_KINDS
};
const char *niah_filler_name(enum niah_filler f);
const char *niah_kind_name(enum niah_kind k);

// Where a filler stands; seed it with niah_filler_begin.
struct niah_source {
    enum niah_filler filler;
    struct rng rng;
    const char *text; // of NIAH_FILE: [n], not empty; borrowed
    size_t n, at;
    int64_t unit;  // phrases so far
    int left;      // sentences of the paragraph or lines of the function
    char name[24]; // of the function's variable
};
void niah_source_begin(struct niah_source *s, enum niah_filler filler, const char *text, size_t n,
                       uint64_t seed);
// Appends a blank or newlines and the next sentence or line.
void niah_source_next(struct niah_source *s, struct str *out);

enum { NIAH_MAX_NEEDLES = 8, NIAH_KEY = 32, NIAH_VALUE = 48 };

struct niah_fact {
    char key[NIAH_KEY];     // what it is about
    char value[NIAH_VALUE]; // what is to be found
};
// n facts, whose keys share neither beginning nor end, 1 <= n <= NIAH_MAX_NEEDLES.
void niah_facts(struct niah_fact *facts, int n, enum niah_kind kind, struct rng *r);
// Appends the sentence that states a fact, behind a newline or a blank as the filler has them, in
// code as a comment; *value: where in out the value begins.
void niah_state(const struct niah_fact *f, enum niah_kind kind, enum niah_filler filler,
                struct rng *r, struct str *out, size_t *value);
// Appends the question for all of n facts.
void niah_ask(const struct niah_fact *facts, int n, enum niah_kind kind, struct rng *r,
              struct str *out);

#endif
