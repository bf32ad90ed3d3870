// SPDX-License-Identifier: Apache-2.0
// What the files of `coppice bench` share: the prompts and modes of a run, sums over them
// (runs.c, report.c), and the ways of measuring that are no plain run of prompts (sequences.c,
// score.c, kv.c).
#ifndef COPPICE_CLI_BENCH_BENCH_H
#define COPPICE_CLI_BENCH_BENCH_H

#include "cli/bench/modes.h"
#include "cli/bench/prompts.h"

// Where guesses were accepted: the share of passes that got as far as each depth of the tree, and
// the mean accept length by how many tokens came before. A draft that is wrong at depth 1, or whose
// guesses go bad with a long context, shows here and not in one mean.

// Sums over passes; zeroed is empty.
struct bench_accept {
    int64_t steps;
    int64_t reached[TREE_MAX_DEPTH]; // passes whose guess at depth i + 1 was accepted
    int64_t span_steps[GUESS_SPANS], span_rows[GUESS_SPANS]; // passes, and what they committed
};

// Adds the passes of one reply: lengths[steps], each 1 (no guess was right) or more, after a
// prompt of n_prompt tokens.
void bench_accept_add(struct bench_accept *a, int64_t n_prompt, const int32_t *lengths,
                      int64_t steps);

bool bench_accept_any(const struct bench_accept *a); // whether a guess was ever accepted

// One line: ".82 .71 .60" in order of depth, then "<1K 5.43" and so on for spans with passes.
void bench_accept_text(const struct bench_accept *a, struct str *out);

// Two members of an open object: accepted_by_depth, shares up to the deepest accepted guess; and
// accept_length_by_context, an object for each span with passes.
void bench_accept_json(const struct bench_accept *a, struct json_writer *w);

// Sums over runs of one mode.
struct bench_sums {
    int64_t prompts, prompt_tokens, tokens, steps, committed, drafted, different;
    int64_t grams, distinct;
    double worst_distinct; // lowest share of distinct 4-grams of one continuation
    uint64_t hash;         // of the only run, else mixed over all
    struct step_times ms;
    struct bench_accept accept;
    struct guess_counts guesses;
};

struct bench {
    const struct cli_args *a;
    struct session *s;
    struct bench_prompts prompts;
    struct bench_modes modes;
    struct bench_sums *sums; // [groups + 1][BENCH_MODES]; the last row is all prompts
    struct json_writer rows; // the runs one by one
    int64_t different;
    struct sequence *prefix; // of the last random prompt
};

// Runs all prompts in all modes, a short run that does not count first. Every run is added to sums
// and rows; after an interrupt some are missing.
int bench_run_prompts(struct bench *b, struct err *e);

// Whether a run gave the same tokens from the same logits as plain decoding.
bool bench_equal(const struct reply *plain, const struct reply *y);
// Adds one run to its group and to all prompts. same: it equals plain decoding.
int bench_add(struct bench *b, const struct bench_prompt *p, int mode, const struct request *r,
              const struct reply *y, bool same, struct err *e);

int bench_print_table(const struct bench *b, struct err *e);
int bench_print_json(struct bench *b, struct err *e);

// `bench --sequences LIST`: how the time of a step grows with the sequences that share its pass.
// Every mode with each number of sequences. Their prompts are random and of one length; each runs
// plainly and alone first, which is what the others are compared with. Counts those that differ in
// b->different.
int bench_batch(struct bench *b, struct err *e);
// With --engine, what the engine thread costs besides a batch alone: whole runs with their prompts,
// as a batch and through an engine on the same session in turns.
int bench_engine(struct bench *b, struct err *e);

// `bench score`: how long a scorer takes for texts of random ids, what each of its ops takes, and
// with a target the time until the first token after what is kept. It works on ids, so that files
// without a tokenizer (`coppice synth`) can be measured.
int bench_score(const struct cli_args *a, struct err *e);

// `bench kv`: what each pair of codecs for keys and values costs a model.
int bench_kv(const struct cli_args *a, struct err *e);

// Whether the draft did all its work besides an oracle's guesses, in words: one with a pass for
// each depth runs none for guesses that it did not make.
const char *bench_draft_ran(const struct session *s);

#endif
