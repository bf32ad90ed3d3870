// SPDX-License-Identifier: Apache-2.0
// The door of the CUDA backend: the op table, each entry of which makes its device the current one
// of the calling thread and begins a new op of the stage (gpu_enter) before the op itself runs. So
// an exec may be used by any thread, one at a time, beside execs of other devices, and an op's
// staged arrays are never overwritten before its launches are queued. An op that the table listed
// by itself would have neither.
#include "ops/gpu/moe/heads.h"
#include "ops/gpu/runtime/ops_cuda.h"

static void *enter_alloc(struct exec *x, size_t bytes) {
    return gpu_alloc(gpu_enter(x), bytes);
}

static void enter_free(struct exec *x, void *p) {
    gpu_release(gpu_enter(x), p);
}

static void enter_upload(struct exec *x, void *dst, const void *src, size_t bytes) {
    gpu_upload(gpu_enter(x), dst, src, bytes);
}

static void enter_download(struct exec *x, void *dst, const void *src, size_t bytes) {
    gpu_download(gpu_enter(x), dst, src, bytes);
}

static void enter_copy(struct exec *x, void *dst, const void *src, size_t bytes) {
    gpu_copy(gpu_enter(x), dst, src, bytes);
}

static void enter_zero(struct exec *x, void *dst, size_t bytes) {
    gpu_clear(gpu_enter(x), dst, bytes);
}

static int enter_weight_create(struct exec *x, const struct tensor *t, struct weight **out,
                               struct err *e) {
    gpu_enter(x);
    return cuda_weight_create(x, t, out, e);
}

static void enter_weight_destroy(struct exec *x, struct weight *w) {
    gpu_enter(x);
    cuda_weight_destroy(x, w);
}

static int enter_act_create(struct exec *x, int64_t n, int64_t k, struct act **out, struct err *e) {
    gpu_enter(x);
    return cuda_act_create(x, n, k, out, e);
}

static void enter_act_destroy(struct exec *x, struct act *a) {
    gpu_enter(x);
    cuda_act_destroy(x, a);
}

static void enter_gather_rows(struct exec *x, const struct weight *w, const int32_t *ids, int64_t n,
                              float *out) {
    gpu_enter(x);
    cuda_gather_rows(x, w, ids, n, out);
}

static void enter_to_act(struct exec *x, const float *in, int64_t n, int64_t k, struct act *out) {
    gpu_enter(x);
    cuda_to_act(x, in, n, k, out);
}

static void enter_norm(struct exec *x, const struct norm_args *a) {
    gpu_enter(x);
    cuda_norm(x, a);
}

static void enter_norm_to_act(struct exec *x, const float *in, const float *w, float eps, int64_t n,
                              int64_t k, struct act *out) {
    gpu_enter(x);
    cuda_norm_to_act(x, in, w, eps, n, k, out);
}

static void enter_linear(struct exec *x, const struct linear_job *jobs, int n_jobs,
                         const struct act *in, int64_t n) {
    gpu_enter(x);
    cuda_linear(x, jobs, n_jobs, in, n);
}

static void enter_linear_gate_up(struct exec *x, const struct gate_up *w, const struct act *in,
                                 int64_t n, struct act *out) {
    gpu_enter(x);
    cuda_linear_gate_up(x, w, in, n, out);
}

static void enter_scale(struct exec *x, const struct scale_args *a) {
    gpu_enter(x);
    cuda_scale(x, a);
}

static void enter_activate(struct exec *x, const struct activate_args *a) {
    gpu_enter(x);
    cuda_activate(x, a);
}

static void enter_moe_route(struct exec *x, const struct moe_route_args *a) {
    gpu_enter(x);
    cuda_moe_route(x, a);
}

static void enter_moe_gate_up(struct exec *x, const struct gate_up *w, const struct moe_list *l,
                              const struct act *in, struct act *out) {
    gpu_enter(x);
    cuda_moe_gate_up(x, w, l, in, out);
}

static void enter_moe_linear(struct exec *x, const struct moe_linear_args *a) {
    gpu_enter(x);
    cuda_moe_linear(x, a);
}

static void enter_moe_combine(struct exec *x, const struct moe_combine_args *a) {
    gpu_enter(x);
    cuda_moe_combine(x, a);
}

static bool enter_moe_layer(struct exec *x, const struct moe_layer_args *a) {
    gpu_enter(x);
    return cuda_moe_layer(x, a);
}

static void enter_linear_heads(struct exec *x, const struct heads_args *a) {
    gpu_enter(x);
    cuda_linear_heads(x, a);
}

static void enter_qk_norm_rope_store(struct exec *x, const struct qk_args *a,
                                     const struct rows *r) {
    gpu_enter(x);
    cuda_qk_norm_rope_store(x, a, r);
}

static void enter_attend(struct exec *x, const struct attend_args *a, const struct rows *r) {
    gpu_enter(x);
    cuda_attend(x, a, r);
}

static void enter_sparse_means(struct exec *x, const struct sparse_args *a) {
    gpu_enter(x);
    cuda_sparse_means(x, a);
}

static void enter_sparse_select(struct exec *x, const struct sparse_args *a) {
    gpu_enter(x);
    cuda_sparse_select(x, a);
}

static void enter_sparse_attend(struct exec *x, const struct sparse_args *a) {
    gpu_enter(x);
    cuda_sparse_attend(x, a);
}

static void enter_key_mass(struct exec *x, const struct key_mass_args *a) {
    gpu_enter(x);
    cuda_key_mass(x, a);
}

static void enter_gdn_gates_conv(struct exec *x, const struct gdn_conv_args *a,
                                 const struct rows *r) {
    gpu_enter(x);
    cuda_gdn_gates_conv(x, a, r);
}

static void enter_gdn(struct exec *x, const struct gdn_args *a, const struct rows *r) {
    gpu_enter(x);
    cuda_gdn(x, a, r);
}

static void enter_gdn_commit(struct exec *x, const struct gdn_commit_args *a) {
    gpu_enter(x);
    cuda_gdn_commit(x, a);
}

static bool enter_gdn_blocks(struct exec *x, const struct gdn_args *a,
                             const struct gdn_state *state, int64_t len) {
    gpu_enter(x);
    return cuda_gdn_blocks(x, a, state, len);
}

static void enter_gated_norm_to_act(struct exec *x, const struct gated_norm_args *a) {
    gpu_enter(x);
    cuda_gated_norm_to_act(x, a);
}

static void enter_copy_rows(struct exec *x, void *dst, size_t dst_stride, const void *src,
                            const int32_t *index, int64_t n, size_t row_bytes) {
    gpu_enter(x);
    cuda_copy_rows(x, dst, dst_stride, src, index, n, row_bytes);
}

static void enter_kv_copy(struct exec *x, const struct kv_layout *l, const struct kv_slot *dst,
                          const struct kv_slot *src, int64_t n) {
    gpu_enter(x);
    cuda_kv_copy(x, l, dst, src, n);
}

static void enter_head_topk(struct exec *x, const struct topk_args *a) {
    gpu_enter(x);
    cuda_head_topk(x, a);
}

static void enter_sample(struct exec *x, const float *logits, int64_t n, int64_t vocab,
                         const struct sample_row *rows, int32_t *choice) {
    gpu_enter(x);
    cuda_sample(x, logits, n, vocab, rows, choice);
}

const struct ops cuda_table = {
    .name = "cuda",
    .sample_batched = true,
    .rows_tile = 256, // ops/gpu/linear/many/gemm.cu, ops/gpu/linear/many/unpacked.cu; of the other
                      // families, a multiple
    .alloc = enter_alloc,
    .free = enter_free,
    .upload = enter_upload,
    .download = enter_download,
    .copy = enter_copy,
    .zero = enter_zero,
    .weight_create = enter_weight_create,
    .weight_destroy = enter_weight_destroy,
    .act_create = enter_act_create,
    .act_destroy = enter_act_destroy,
    .gather_rows = enter_gather_rows,
    .to_act = enter_to_act,
    .norm = enter_norm,
    .norm_to_act = enter_norm_to_act,
    .linear = enter_linear,
    .linear_gate_up = enter_linear_gate_up,
    .scale = enter_scale,
    .activate = enter_activate,
    .moe_route = enter_moe_route,
    .moe_gate_up = enter_moe_gate_up,
    .moe_linear = enter_moe_linear,
    .moe_combine = enter_moe_combine,
    .moe_layer = enter_moe_layer,
    .linear_heads = enter_linear_heads,
    .gdn_gates_conv = enter_gdn_gates_conv,
    .gdn = enter_gdn,
    .gdn_commit = enter_gdn_commit,
    .gdn_blocks = enter_gdn_blocks,
    .gated_norm_to_act = enter_gated_norm_to_act,
    .qk_norm_rope_store = enter_qk_norm_rope_store,
    .attend = enter_attend,
    .sparse_means = enter_sparse_means,
    .sparse_select = enter_sparse_select,
    .sparse_attend = enter_sparse_attend,
    .key_mass = enter_key_mass,
    .copy_rows = enter_copy_rows,
    .kv_copy = enter_kv_copy,
    .head_topk = enter_head_topk,
    .sample = enter_sample,
};
