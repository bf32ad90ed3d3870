// SPDX-License-Identifier: Apache-2.0
// What the ops of block-sparse attention take (FlashPrefill, arXiv 2603.06199): rows of one text at
// absolute positions first .. first + n - 1, whose keys and values, and all before them, are in
// place. Positions are cut into blocks of B = 128 at absolute multiples; block m of queries, a
// query head and its kv head choose blocks of keys and attend to those alone.
//
//   means   k_b = mean of the 128 keys of block b, for whole blocks (a block that is not whole is
//           never scored, so its mean is never wanted).
//   mass    Rows r of query block m score block b < m as l_rb = scale q_r . k_b; block m itself is
//           scored by its last row alone, if that is here (so that every row that scores a block
//           sees all of it: r >= 128 b + 127).
//             M_b = max_r l_rb      p_b = sum_r e^(l_rb - M_b)      G = max_b M_b
//             mass_b = p_b e^(M_b - G) / (sum over b of p_b e^(M_b - G) + 1e-9)
//           which is the estimated share of block b in the attention of block m. A block without
//           a score has mass 0. (The authors' code writes 2^x with scores times log2 e.)
//   select  b <= m is chosen if b = m, or mass_b >= alpha max_b mass_b, or b < sinks, or
//           m - b < window, or m >= M - last_full, where M counts the blocks of the whole text.
//           alpha = 0 chooses all, which is dense attention. With density > 0, for benchmarks, the
//           max(1, ceil(density (m + 1))) blocks are block m and those of the largest mass, equal
//           ones the lower first, and no other option acts.
//   attend  softmax over the keys of the chosen blocks up to the row's own position.
//
// A choice depends on all rows of a query block, so what a row gives depends on the rows of its
// block that are in the same call: calls that begin and end at multiples of 128 (or at the text's
// end) give the same together as one call for the whole text. The target's own passes, where rule E
// holds, choose for each row instead.
// Pointers are device memory of the backend unless a comment says host.
#ifndef COPPICE_OPS_ARGS_SPARSE_H
#define COPPICE_OPS_ARGS_SPARSE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "ops/attention.h"
#include "ops/kv/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SPARSE_BLOCK = 128 };

struct sparse_options {
    float alpha;   // 0 .. 1
    int sinks;     // first blocks that every row sees
    int window;    // nearest blocks, the own one counted
    int last_full; // last blocks of the text that see everything
    float density; // 0, or the share of blocks, at most 1; for benchmarks
};
// What the authors use for Qwen3.
#define SPARSE_OPTIONS_QWEN3                                                                       \
    {.alpha = 0.12f, .sinks = SPARSE_SINKS, .window = SPARSE_WINDOW, .last_full = 2}

// Where K, or V, of one layer lie. Position p is in piece p / 64, at slot p % 64 of it.
struct sparse_rows {
    enum kv_codec_id codec;
    unsigned char *const *pages;  // host [pieces] of device pointers; NULL: pieces are in `data`
    unsigned char *data;          // piece i at data + i * piece
    int64_t piece;                // bytes
    int64_t codes, scales;        // bytes from a piece's begin to slot 0 of head 0
    int64_t code_slot, code_head; // bytes from one slot, or kv head, to the next
    int64_t scale_slot, scale_head;
};
// K (plane &l->k) or V (&l->v) of a layer in pages of a layout, or in pages that follow each other
// in one buffer `data` (pages NULL).
struct sparse_rows sparse_rows_paged(const struct kv_layout *l, const struct kv_plane *plane,
                                     int layer, unsigned char *const *pages, unsigned char *data);

struct sparse_args {
    int n_heads, n_kv, d; // d: values of a head; query head h reads kv head h / (n_heads / n_kv)
    float scale;
    struct sparse_options opt;
    int64_t first, n; // position of row 0; rows
    int64_t total;    // positions of the whole text, for last_full; at least first + n
    const float *q;   // [n][n_heads][d], with its rotary embedding
    struct sparse_rows k, v;
    float *means; // [blocks of first + n][n_kv][d]; whole blocks before `first` are read
    // Of each query block that has a row here, in order, with `blocks` = sparse_blocks(first + n):
    float *mass;     // [query blocks][n_heads][blocks]; beyond block m it is not written
    int32_t *count;  // [query blocks][n_heads]: how many are chosen
    int32_t *list;   // [query blocks][n_heads][blocks]: ascending; beyond count it is not written
    struct act *out; // [n][n_heads * d]
};

// Blocks that positions 0 .. n - 1 touch, and query blocks that rows first .. first + n - 1 touch.
static inline int64_t sparse_blocks(int64_t n) {
    return (n + SPARSE_BLOCK - 1) / SPARSE_BLOCK;
}
static inline int64_t sparse_query_blocks(int64_t first, int64_t n) {
    return n > 0 ? sparse_blocks(first + n) - first / SPARSE_BLOCK : 0;
}
// Blocks that a density leaves of m + 1.
int64_t sparse_kept(float density, int64_t m);

// ERR_USAGE with a sentence for options out of range.
int sparse_options_check(const struct sparse_options *o, struct err *e);
// ERR_UNSUPPORTED with a sentence: rows are read as they are stored, so a codec must not rotate.
int sparse_codec_check(enum kv_codec_id id, struct err *e);
// ERR_UNSUPPORTED with a sentence: heads or codecs that no backend takes. No array is read.
int sparse_check(const struct sparse_args *a, struct err *e);

#ifdef __cplusplus
}
#endif

// What the op key_mass takes: how much attention some queries give to each key of a text, which is
// what a scorer needs of a layer (docs/pflash.md). Pointers are device memory of the backend.

// Query t stands at position n - n_q + t and sees the keys j up to its own. With queries and keys
// normed per head (RMSNorm) and without rotary embedding, and query head h reading kv head
// h / (n_heads / n_kv):
//   p[t][h][j] = softmax over the keys j that t sees of scale q[t][h] . k[j]
//   mass[t][j] = max(mass[t][j], max over h of p[t][h][j])
// Keys that t does not see keep their mass.
struct key_mass_args {
    int n_heads, n_kv, d;
    float scale, eps;
    const float *q_norm, *k_norm; // [d] weights of the norms
    int64_t n_q, n;               // queries, keys; n_q <= n
    const float *q;               // [n_q][n_heads][d] projections as they are
    const float *k;               // [n][n_kv][d] likewise
    float *work;                  // [n_q][n] scratch
    float *mass;                  // [n_q][n]
};

#endif
