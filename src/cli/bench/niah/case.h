// SPDX-License-Identifier: Apache-2.0
// One case of `bench niah`: a filler of a given number of tokens with facts hidden in it at given
// depths, and the question for them, which shares no run of four tokens with any fact. The same
// spec and tokenizer give the same bytes on every machine. It runs no model.
#ifndef COPPICE_CLI_BENCH_NIAH_CASE_H
#define COPPICE_CLI_BENCH_NIAH_CASE_H

#include "base/json/json.h"
#include "cli/bench/niah/text.h"
#include "text/tokenizer/tokenizer.h"

struct niah_spec {
    int64_t tokens; // of the text, question and all: at most these, short of it by 0.5 % or a line
    int depth;      // 0..100: per cent of the filler before the first fact; others a quarter on
    int needles;    // 1..NIAH_MAX_NEEDLES
    enum niah_filler filler;
    enum niah_kind kind;
    uint64_t seed;
    const char *text; // of NIAH_FILE: [n], UTF-8
    size_t n;
};

struct niah_needle {
    struct niah_fact fact;
    size_t begin, end; // of the sentence, in bytes of the case's text
    size_t value;      // where the value begins
};

// Zeroed is valid.
struct niah_case {
    struct str text; // the context, an empty line, the question
    size_t context;  // bytes of the context: the question begins two behind
    int64_t tokens;  // as the tokenizer counts the text
    struct niah_needle needle[NIAH_MAX_NEEDLES]; // in the order of the question
    int n;
};

// ERR_USAGE when the tokens are too few for facts and question; ERR_FORMAT when a file is no UTF-8.
int niah_make(struct niah_case *out, const struct niah_spec *s, const struct tokenizer *t,
              struct err *e);
void niah_case_fini(struct niah_case *c);

// Appends the name of a case: "32768-prose-uuid-x1-050".
void niah_name(const struct niah_spec *s, struct str *out);
// Writes the case as a JSON object, which is also a line of a prompt file of `bench`.
void niah_json(const struct niah_case *c, const struct niah_spec *s, struct json_writer *w);

#endif
