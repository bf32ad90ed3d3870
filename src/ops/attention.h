// SPDX-License-Identifier: Apache-2.0
// Forms of attention as descriptors: which heads, how positions turn them, how scores become
// weights. The CPU backend takes every form; others say at load what they lack
// (exec_takes in ops.h). Every form obeys rule E: what an option adds to a row depends on
// that row alone.
#ifndef COPPICE_OPS_ATTENTION_H
#define COPPICE_OPS_ATTENTION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

// Bounds that loaders check: dk and dv of attention and of recurrent heads; dk of attention where
// keys are longer than values (latent attention); query heads of one kv head.
enum { OPS_HEAD_MAX = 512, OPS_KEY_MAX = 576, OPS_GROUP_MAX = 128 };

enum rope_pairs {
    ROPE_HALVES,     // (i, i + dims / 2), as GPT-NeoX has them
    ROPE_NEIGHBOURS, // (2 i, 2 i + 1)
};

// Rotary embedding (arXiv 2104.09864): pair i of a head at position p turns by p * angle[i], where
// angle[i] = base^(-2 i / dims) / factors[i], changed by YaRN (arXiv 2309.00071) where factor is
// above 1. Zeroed but for dims and base it is the plain one.
struct rope {
    int first, dims; // values first .. first + dims - 1 turn, the others stay; dims 0: none does
    int pairs;       // enum rope_pairs
    float base;
    const float *factors; // host [dims / 2], or NULL
    float factor;         // how much longer the context is than the trained one; 0 and 1: no YaRN
    float ramp;           // 0: all angles / factor; 1: fast pairs keep theirs (YaRN's ext factor)
    float beta_fast, beta_slow; // turns within the trained context between which the ramp lies
    int64_t trained;            // positions
    bool exact_ramp;            // its ends are not rounded to whole pairs
    float magnitude;            // cos and sin are multiplied with it; 0: 1
};

// Radians a position of each pair: angle[dims / 2].
void rope_angles(const struct rope *r, double *angle);
bool rope_same(const struct rope *a, const struct rope *b); // factors by their values

enum attend_mask {
    ATTEND_PATH,  // committed keys, own ancestors among these rows, itself
    ATTEND_BLOCK, // committed keys and every row of the own sequence here (a bidirectional draft)
};

// weights = softmax over visible keys j of cap(scale q.k_j), where cap(s) = soft_cap
// tanh(s / soft_cap); a sink is one more score of the head in the softmax, without a value.
struct attend_shape {
    int n_heads, n_kv, dk, dv; // query heads, kv heads, values of a head of Q and K, of V
    float scale;
    float soft_cap;     // 0: none
    const float *sinks; // [n_heads] device, or NULL
    int mask;           // enum attend_mask
    int64_t window;     // keys with |q - k| >= window are hidden; 0: no window
};

// Rows that read prompts may see only some blocks of 128 keys (absolute multiples). Each row
// chooses for itself, so that rule E holds: with s_b = scale q . mean of the keys of block b, a row
// in block m sees block b < m if s_b >= max s + ln alpha over all of these, which is mass_b >=
// alpha max mass of FlashPrefill (ops/args/sparse.h) for a block of one query; or b < sinks; or m -
// b < window; and its own. alpha = 0: all.
enum { SPARSE_SINKS = 2, SPARSE_WINDOW = 4 }; // what FlashPrefill takes
struct sparse_rule {
    bool on; // false: rows see everything
    float alpha;
    int sinks, window;
};
bool sparse_rule_same(const struct sparse_rule *a, const struct sparse_rule *b);

// ERR_UNSUPPORTED with a sentence: what no backend takes, because bounds are passed or parts do not
// fit together.
int rope_check(const struct rope *r, int dk, struct err *e);
int attend_check(const struct attend_shape *s, struct err *e);

#ifdef __cplusplus
}
#endif

#endif
