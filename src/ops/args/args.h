// SPDX-License-Identifier: Apache-2.0
// What the ops of the table in ops.h take: rows of a pass, key/value pages, and one struct of
// arguments for each op with many. Those of recurrent layers are in gdn.h, of linear layers, norms
// and experts in mlp.h, of scorers and block-sparse attention in sparse.h. Pointers are device
// memory of the backend unless a comment says host.
#ifndef COPPICE_OPS_ARGS_ARGS_H
#define COPPICE_OPS_ARGS_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ops/args/gdn.h"
#include "ops/args/mlp.h"
#include "ops/args/pages.h"
#include "ops/args/sparse.h"
#include "ops/attention.h"
#include "ops/kv/layout.h"

// The rows of a forward pass, topologically ordered (parent index < own index). Host arrays.
struct rows {
    int64_t n;
    const int32_t *token;  // [n]
    const int32_t *parent; // [n] row index, or -1: child of its sequence's last committed token
    const int32_t *seq;    // [n] index into the per-sequence arrays of an op's arguments
    const int64_t *pos;    // [n] position in the sequence = committed length + depth
    // Not 0: all calls with this number have these rows, and in attention the same views, positions
    // in them and places (store) of a layout: a backend may keep what it made of them. 0: may not.
    uint64_t pass;
};

// Where a row's K and V are.
struct kv_slot {
    unsigned char *page;
    int32_t slot; // 0 .. KV_PAGE-1
};

// Committed positions of one sequence in one KV group. pages[i] holds positions 64 i .. 64 i + 63;
// entries wholly below the visible range may be NULL.
struct kv_view {
    unsigned char *const *pages; // host array of device pointers
    int64_t len;
};

// Per head: RMSNorm, rotary embedding of queries and keys, and the store.
struct qk_args {
    int n_heads, n_kv, dk, dv;
    struct rope rope;
    float eps;
    const float *q_norm, *k_norm; // [dk] weights; NULL: no norm
    bool v_norm;                  // RMSNorm of V, without weights
    const float *q;               // [n][n_heads][q_stride]; the query is the first dk of a head
    int q_stride;                 // dk, or more when a gate follows each query head
    // [n][n_kv][dk], [n][n_kv][dv]; v NULL where V is a part of K; k NULL: only queries are turned,
    // for layers that read what an earlier one has stored.
    const float *k, *v;
    // Where V is a part of K, K may come apart: k is [n][n_kv][dv] then, which gets RMSNorm with
    // value_norm [dv], and k_rest [n][n_kv][dk - dv] what stands after it. NULL: it does not.
    const float *k_rest, *value_norm;
    float value_eps;
    const struct kv_layout *layout;
    int layer;                   // within the KV group
    const struct kv_slot *store; // [n] host: where K and V go
    // [n][n_heads][dk], rotated where the layout's keys are; NULL with q: only K and V are wanted.
    float *q_out;
};

// Rows of a pass that choose blocks of keys, and room for it. Those of a sequence are a chain that
// continues it, stored where its pages have these positions (as prompts are).
struct attend_choice {
    struct sparse_rule rule;
    const int64_t *end; // host [sequences]: rows at positions below it choose, others see all
    float *means;       // [blocks][n_kv][dk]
    uint32_t *chosen;   // [n][n_heads][blocks / 32]: bit b % 32 of word b / 32
    int64_t blocks;     // that there is room for, a multiple of 32
};

struct attend_args {
    struct attend_shape shape;
    const float *q;     // [n][n_heads][dk], rotated where the layout's keys are
    const float *gate;  // NULL, or head h of row i at gate + (i * n_heads + h) * gate_stride
    int gate_stride;    // output is multiplied by sigmoid(gate[0..dv)),
    bool gate_softplus; // or by ln(1 + e^gate),
    bool gate_single;   // and all of a head by what gate[0] gives
    const struct kv_layout *layout;
    int layer;
    const struct kv_view *seqs;  // host [sequences]; positions of rows count in these
    const struct kv_slot *store; // [n] host: K and V of these rows (qk_norm_rope_store wrote them)
    struct act *out;             // [n][n_heads * dv]
    const struct attend_choice *choice; // NULL: all rows see everything. Not together with a window
    // Rows before it are only ancestors: their K and V are in store, and nothing else of them is
    // read or written; q, gate and out begin with it. Above 0 with ATTEND_PATH and no choice only.
    int64_t first;
};

// Log-probabilities of a row: under the softmax of the logits as they are, before masks, penalties,
// temperature and filters, so that they say what the model thinks and not what was requested.
enum { OPS_LOGPROBS_MAX = 32 };
struct sample_logprobs {
    int n;                         // of the best tokens, 0 .. OPS_LOGPROBS_MAX; set by the caller
    float chosen;                  // of the choice; -INFINITY where there is none
    int32_t ids[OPS_LOGPROBS_MAX]; // [n] best first, equal ones by id; -1 after the vocabulary
    float logp[OPS_LOGPROBS_MAX];  // [n], -INFINITY after the vocabulary
};

// What is added to a token's logit. -INFINITY forbids the token: it is chosen only where all that
// the mask allows are forbidden.
struct logit_bias {
    int32_t id;
    float bias; // finite or -INFINITY
};

// Sampling by Gumbel-max (docs/exactness.md, E4). All arrays are host memory, read during the call.
// Order: mask, biases, penalties, temperature, top-k, top-p, min-p; the filters see allowed tokens
// only.
struct sample_row {
    int64_t pos;                       // position that the chosen token will take
    uint64_t seed;                     // request seed mixed with the choice index
    float temperature;                 // 0: argmax
    int32_t top_k;                     // 0: all
    float top_p, min_p;                // 1 and 0: off
    float repeat, frequency, presence; // 1, 0, 0: off
    const int32_t *seen;               // [n_seen] distinct tokens that the penalties look at
    const int32_t *seen_count;
    int32_t n_seen;
    // [(vocab + 31) / 32]: bit id % 32 of word id / 32 says that the token may be chosen. NULL: all
    // may. One that allows nothing is the caller's mistake: the choice is then -1.
    const uint32_t *allow;
    const struct logit_bias *bias; // [n_bias] distinct tokens of the vocabulary, ascending
    int32_t n_bias;
    // The token after the row is known already: `token` is taken as the choice, and of all other
    // fields only logprobs counts.
    bool given;
    int32_t token;
    struct sample_logprobs *logprobs; // filled by sample; NULL: not wanted
};

// The k best ids of each row of logits, score descending and lower id first, with their
// log-probabilities (score - logsumexp over all). Without noise a score is the logit; with it,
// logit / temperature + the Gumbel noise of that choice, so that the order predicts the target's
// own draws. Masks, biases and penalties are not looked at. Where rows have logits of some tokens
// only, ids are places in the list of these, and noise is that of the tokens.
enum { OPS_TOPK_MAX = 1024 };
struct topk_args {
    const float *logits; // [n][vocab]
    int64_t n, vocab;
    int k;                          // 1 .. OPS_TOPK_MAX
    const struct sample_row *noise; // NULL, or host [n]
    const int32_t
        *ids_of;  // NULL: element i is token i; or [vocab] tokens, on the device, ascending
    int32_t *ids; // host [n][k]; -1 where the vocabulary is smaller than k
    float *logp;  // host [n][k]
};

#endif
