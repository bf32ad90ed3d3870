// SPDX-License-Identifier: Apache-2.0
// `bench --url`: a load generator for OpenAI servers. What it requests follows from the seed, so
// that two servers get the same questions at the same times.
#ifndef COPPICE_CLI_BENCH_URL_URL_H
#define COPPICE_CLI_BENCH_URL_URL_H

#include "cli/bench/prompts.h"
#include "cli/bench/url/client.h"
#include "cli/cli.h"

// Whether the options request it. ERR_USAGE (in *rc): options of the two kinds of bench are mixed.
bool bench_url_wanted(const struct cli_args *a, int *rc, struct err *e);

// Runs it and prints the report. ERR_STATE: requests failed; the report has been printed.
int bench_url(const struct cli_args *a, struct err *e);

struct url_range {
    int64_t low, high;
};

// Tokens in and out of one request.
struct url_length {
    int64_t in, out;
};

// Zeroed is valid and empty. Exactly one of prompts, lengths and the ranges is the source.
struct url_load {
    const struct cli_args *a;
    enum url_endpoint endpoint;
    char model[256];
    uint64_t seed;
    struct bench_prompts prompts;
    struct url_length *lengths; // [n_lengths]
    int64_t n_lengths, cap_lengths;
    struct url_range in, out;
    struct str extra;              // members for every body, without braces
    double fixed_tokens, per_word; // tokens of a prompt of random words: fixed + words * per_word
    double rate;                   // requests a second; 0: none is waited for
};

// Reads the options. Errors: ERR_USAGE and those of the files.
int url_load_read(struct url_load *l, const struct cli_args *a, struct err *e);
void url_load_fini(struct url_load *l);

// Prompts or lengths of the file; 0 for random ones.
int64_t url_load_size(const struct url_load *l);
// Appends the body of request i >= 0.
void url_load_body(const struct url_load *l, int64_t i, struct str *out);
// Milliseconds between requests i - 1 and i: exponentially distributed with mean 1000 / rate.
double url_load_wait(const struct url_load *l, int64_t i);

#endif
