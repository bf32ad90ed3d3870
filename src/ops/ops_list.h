// SPDX-License-Identifier: Apache-2.0
// The ops of struct ops but for those of memory, as lists for what does the same with each of them:
// X(result, name, (parameters), (arguments)). ops.h says what each one does.
#ifndef COPPICE_OPS_OPS_LIST_H
#define COPPICE_OPS_OPS_LIST_H

#include "ops/ops.h"

// clang-format off
// What makes and destroys operands.
#define OPS_OPERANDS(X)                                                                            \
    X(int, weight_create, (struct exec *x, const struct tensor *t, struct weight **out,            \
      struct err *e), (x, t, out, e))                                                              \
    X(void, weight_destroy, (struct exec *x, struct weight *w), (x, w))                            \
    X(int, act_create, (struct exec *x, int64_t n, int64_t k, struct act **out, struct err *e),    \
      (x, n, k, out, e))                                                                           \
    X(void, act_destroy, (struct exec *x, struct act *a), (x, a))

// What computes.
#define OPS_COMPUTING(X)                                                                           \
    X(void, gather_rows, (struct exec *x, const struct weight *w, const int32_t *ids, int64_t n,   \
      float *out), (x, w, ids, n, out))                                                            \
    X(void, to_act, (struct exec *x, const float *in, int64_t n, int64_t k, struct act *out),      \
      (x, in, n, k, out))                                                                          \
    X(void, norm, (struct exec *x, const struct norm_args *a), (x, a))                             \
    X(void, norm_to_act, (struct exec *x, const float *in, const float *w, float eps, int64_t n,   \
      int64_t k, struct act *out), (x, in, w, eps, n, k, out))                                     \
    X(void, scale, (struct exec *x, const struct scale_args *a), (x, a))                           \
    X(void, activate, (struct exec *x, const struct activate_args *a), (x, a))                     \
    X(void, block_conv, (struct exec *x, const struct block_conv_args *a), (x, a))                 \
    X(void, linear, (struct exec *x, const struct linear_job *jobs, int n_jobs,                    \
      const struct act *in, int64_t n), (x, jobs, n_jobs, in, n))                                  \
    X(void, linear_gate_up, (struct exec *x, const struct gate_up *w, const struct act *in,        \
      int64_t n, struct act *out), (x, w, in, n, out))                                             \
    X(void, moe_route, (struct exec *x, const struct moe_route_args *a), (x, a))                   \
    X(void, moe_gate_up, (struct exec *x, const struct gate_up *w, const struct moe_list *l,       \
      const struct act *in, struct act *out), (x, w, l, in, out))                                  \
    X(void, moe_linear, (struct exec *x, const struct moe_linear_args *a), (x, a))                 \
    X(void, moe_combine, (struct exec *x, const struct moe_combine_args *a), (x, a))               \
    X(void, linear_heads, (struct exec *x, const struct heads_args *a), (x, a))                    \
    X(void, qk_norm_rope_store, (struct exec *x, const struct qk_args *a, const struct rows *r),   \
      (x, a, r))                                                                                   \
    X(void, attend, (struct exec *x, const struct attend_args *a, const struct rows *r),           \
      (x, a, r))                                                                                   \
    X(void, sparse_means, (struct exec *x, const struct sparse_args *a), (x, a))                   \
    X(void, sparse_select, (struct exec *x, const struct sparse_args *a), (x, a))                  \
    X(void, sparse_attend, (struct exec *x, const struct sparse_args *a), (x, a))                  \
    X(void, key_mass, (struct exec *x, const struct key_mass_args *a), (x, a))                     \
    X(void, key_bounds, (struct exec *x, const struct key_bounds_args *a), (x, a))                 \
    X(void, page_scores, (struct exec *x, const struct page_scores_args *a), (x, a))               \
    X(void, gdn_gates_conv, (struct exec *x, const struct gdn_conv_args *a,                        \
      const struct rows *r), (x, a, r))                                                            \
    X(void, gdn, (struct exec *x, const struct gdn_args *a, const struct rows *r), (x, a, r))      \
    X(void, gdn_commit, (struct exec *x, const struct gdn_commit_args *a), (x, a))                 \
    X(void, gated_norm_to_act, (struct exec *x, const struct gated_norm_args *a), (x, a))          \
    X(void, copy_rows, (struct exec *x, void *dst, size_t dst_stride, const void *src,             \
      const int32_t *index, int64_t n, size_t row_bytes),                                          \
      (x, dst, dst_stride, src, index, n, row_bytes))                                              \
    X(void, kv_copy, (struct exec *x, const struct kv_layout *l, const struct kv_slot *dst,        \
      const struct kv_slot *src, int64_t n), (x, l, dst, src, n))                                  \
    X(void, head_topk, (struct exec *x, const struct topk_args *a), (x, a))                        \
    X(void, sample, (struct exec *x, const float *logits, int64_t n, int64_t vocab,                \
      const struct sample_row *rows, int32_t *choice), (x, logits, n, vocab, rows, choice))

// What may not be for a call: then false, and nothing is done.
#define OPS_TRIED(X)                                                                               \
    X(bool, moe_layer, (struct exec *x, const struct moe_layer_args *a), (x, a))                   \
    X(bool, gdn_blocks, (struct exec *x, const struct gdn_args *a,                                 \
      const struct gdn_state *state, int64_t len), (x, a, state, len))
// clang-format on

#ifndef __cplusplus
#define X(result, name, parameters, arguments) +1
_Static_assert(sizeof(struct ops) ==
                   offsetof(struct ops, weight_create) +
                       (0 OPS_OPERANDS(X) OPS_COMPUTING(X) OPS_TRIED(X)) * sizeof(void (*)(void)),
               "every op is in a list");
#undef X
#endif

#endif
