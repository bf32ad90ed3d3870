// SPDX-License-Identifier: Apache-2.0
// The rows of `bench kv`: which pairs of codecs --pairs names, what was measured of each, and the
// table of them, which is one of Markdown, or JSON. It measures nothing (kv.c).
#ifndef COPPICE_CLI_BENCH_KV_COSTS_H
#define COPPICE_CLI_BENCH_KV_COSTS_H

#include "cli/cli.h"
#include "engine/session/session.h"
#include "models/recall.h"

enum { KV_LENGTHS = 16 };

struct kv_cost {
    enum kv_codec_id k, v;
    char name[32];      // "q8_0/q4_0"
    struct err lacking; // code 0, or why the model or the device does not have this pair
    double nll, nll_error, kl, kl_error, kl_99, kl_max, same_top; // over the scored tokens
    int64_t steps, committed, drafted, different;                 // of the draft's trees
    int64_t found, sought, case_tokens; // needles; tokens of the longest text with some
    struct model_recall recall;         // of a pool that replies see, in these texts
    double step_ms[KV_LENGTHS];
};

// A zeroed one is empty. The first row is f16 for both.
struct kv_costs {
    struct kv_cost *row; // [n]
    int n, n_lengths, budget;
    const int32_t *length; // [n_lengths] of --prompt-tokens
    int64_t window, windows, scored;
    bool plain_text; // needles were asked for without a chat template
    int threads;
    char device[128], level[32];
};

// The pairs of --pairs, each once, and the lengths of --prompt-tokens. ERR_USAGE names what is no
// pair.
int kv_costs_read(struct kv_costs *r, const struct cli_args *a, struct err *e);
void kv_costs_fini(struct kv_costs *r);
// Notes where it was measured.
void kv_costs_device(struct kv_costs *r, const struct session *s);
// A line about a pair that is done, to standard error.
void kv_costs_progress(const struct kv_costs *r, int pair);
void kv_costs_text(const struct kv_costs *r, struct str *out); // appends the table
// ERR_STATE after the table, or JSON, where guessing changed an answer.
int kv_costs_print(const struct kv_costs *r, const struct cli_args *a, struct err *e);

#endif
