// SPDX-License-Identifier: Apache-2.0
// Prompts of `bench`: JSON lines with id, group, prompt and max_tokens, lines of token ids, or
// random ids.
#ifndef COPPICE_CLI_BENCH_PROMPTS_H
#define COPPICE_CLI_BENCH_PROMPTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/memory/arena.h"

struct bench_prompt {
    const char *id;
    int group; // index into groups
    const char *text;
    size_t len;
    const int32_t *ids; // [n_ids] in place of text; NULL: text
    int64_t n_ids;
    double prefill_ms;    // of ids that were run once for all modes,
    int64_t prefilled;    // this many of them: a longer prompt goes on where a shorter one ended
    int64_t max_tokens;   // 0: the file names none
    const char **needles; // [n_needles] what the answer is to hold, as bench/niah.py writes it
    size_t n_needles;
};

// A zeroed list is valid and empty. Groups are in order of first appearance.
struct bench_prompts {
    struct arena arena;
    struct bench_prompt *prompts; // [n]
    size_t n;
    const char **groups; // [n_groups]
    int n_groups;
};

// Every line that is not blank is one prompt: a JSON object, of which only prompt must be there, or
// "NAME: 1,2,3" with token ids. Errors name the line.
int bench_prompts_read(struct bench_prompts *p, const char *path, struct err *e);
// A prompt of random ids below vocab for each of n lengths, every one >= 1 and a group of its own.
// A shorter one is the beginning of a longer one.
int bench_prompts_random(struct bench_prompts *p, const int32_t *lengths, size_t n, uint64_t seed,
                         int64_t vocab, struct err *e);
// n random ids below vocab.
void bench_random_ids(int32_t *ids, int64_t n, uint64_t seed, int64_t vocab);
void bench_prompts_fini(struct bench_prompts *p);

#endif
