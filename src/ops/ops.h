// SPDX-License-Identifier: Apache-2.0
// The op table: everything a model may call in a backend. Ops are the size of a fused kernel.
// The scalar CPU version of each op is its specification; tests/opcheck compares and times the
// others against it. Rule E (docs/exactness.md) binds every op that target rows pass through: a
// row's result depends only on its own inputs, the weights, its ancestors and its position.
// Pointers are device memory of the backend unless a comment says host.
#ifndef COPPICE_OPS_OPS_H
#define COPPICE_OPS_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "formats/gguf/gguf.h"
#include "ops/args/args.h"
#include "ops/device_choice.h"
#include "ops/memory.h"

// Grows with every change of the bits that ops give, so that stored state is not used after it.
enum { OPS_ORDER = 1 };

struct exec; // one backend instance: threads or a device, scratch memory

struct ops {
    const char *name; // "scalar", "avx2", ..., "neon", ..., "cuda"
    // One call of sample for many rows costs about as much as for one: it is a wait for a device.
    bool sample_batched;
    // Linear layers compute that many rows together: more than that in a pass are best a multiple,
    // since the last tile takes as long as a full one. 0: there is no such number.
    int rows_tile;

    // Memory. alloc returns zeroed memory (64-byte aligned) or NULL.
    void *(*alloc)(struct exec *x, size_t bytes);
    void (*free)(struct exec *x, void *p);
    void (*upload)(struct exec *x, void *dst, const void *src, size_t bytes);
    void (*download)(struct exec *x, void *dst, const void *src, size_t bytes);
    void (*copy)(struct exec *x, void *dst, const void *src, size_t bytes);
    void (*zero)(struct exec *x, void *dst, size_t bytes);

    // Repacks a 2-D tensor (dims k, m), or a 3-D one of experts (dims k, m, experts) for the ops
    // of experts alone, for this backend. The tensor's bytes must stay mapped. Errors name it.
    int (*weight_create)(struct exec *x, const struct tensor *t, struct weight **out,
                         struct err *e);
    void (*weight_destroy)(struct exec *x, struct weight *w);
    // Memory for n rows of k values.
    int (*act_create)(struct exec *x, int64_t n, int64_t k, struct act **out, struct err *e);
    void (*act_destroy)(struct exec *x, struct act *a);

    // out[i] = row ids[i] of w as f32. ids: host [n].
    void (*gather_rows)(struct exec *x, const struct weight *w, const int32_t *ids, int64_t n,
                        float *out);
    // act = in; in: [n][k].
    void (*to_act)(struct exec *x, const float *in, int64_t n, int64_t k, struct act *out);
    // out = in * w / sqrt(mean(in^2) + eps) (RMSNorm, arXiv 1910.07467), as f32: embeddings, and
    // norms whose result is no linear layer's input. NULL: the backend has no such op.
    void (*norm)(struct exec *x, const struct norm_args *a);
    // The same with an activation as its result.
    void (*norm_to_act)(struct exec *x, const float *in, const float *w, float eps, int64_t n,
                        int64_t k, struct act *out);
    // Values times a number, softly capped; act = activation(gate, up) of values; the convolution
    // of DFlash2 drafts. NULL: the backend has no such op.
    void (*scale)(struct exec *x, const struct scale_args *a);
    void (*activate)(struct exec *x, const struct activate_args *a);
    void (*block_conv)(struct exec *x, const struct block_conv_args *a);
    // out = in W^T + bias for each job.
    void (*linear)(struct exec *x, const struct linear_job *jobs, int n_jobs, const struct act *in,
                   int64_t n);
    // act = activation(in Wg^T + bias, in Wu^T + bias).
    void (*linear_gate_up)(struct exec *x, const struct gate_up *w, const struct act *in, int64_t n,
                           struct act *out);
    // Experts; NULL: the backend has none of the four. Which experts a row goes through.
    void (*moe_route)(struct exec *x, const struct moe_route_args *a);
    // linear_gate_up of each entry with its expert's matrices. in: rows of the list; out: of
    // entries.
    void (*moe_gate_up)(struct exec *x, const struct gate_up *w, const struct moe_list *l,
                        const struct act *in, struct act *out);
    // linear of each entry with its expert's matrix: the bits that linear makes of it.
    void (*moe_linear)(struct exec *x, const struct moe_linear_args *a);
    // out (or 0) plus weight times entry over a row's entries by fma, in the router's order.
    void (*moe_combine)(struct exec *x, const struct moe_combine_args *a);
    // A whole layer of experts at once, with the bits of the ops that it is made of. False: not for
    // these shapes, nothing done. NULL: the backend has no such op.
    bool (*moe_layer)(struct exec *x, const struct moe_layer_args *a);
    // A matrix for each head: the bits that linear makes of its row. NULL: there is no such op.
    void (*linear_heads)(struct exec *x, const struct heads_args *a);
    // RMSNorm per head, rotary embedding (arXiv 2104.09864), K and V stored in the KV types.
    void (*qk_norm_rope_store)(struct exec *x, const struct qk_args *a, const struct rows *r);
    // Softmax attention over pages and rows. Keys are taken in chunks of 64 absolute positions,
    // in position order, each key read back from its stored form.
    void (*attend)(struct exec *x, const struct attend_args *a, const struct rows *r);
    // Block-sparse attention of a chunk of one text by the three stages of ops/args/sparse.h; NULL:
    // the backend has none of the three. Means of the whole blocks that end in rows of the chunk.
    void (*sparse_means)(struct exec *x, const struct sparse_args *a);
    // Masses and chosen blocks.
    void (*sparse_select)(struct exec *x, const struct sparse_args *a);
    // Attention to the chosen blocks. Lists may be the caller's own if they are ascending and end
    // with the diagonal block.
    void (*sparse_attend)(struct exec *x, const struct sparse_args *a);
    // Attention that queries give to keys, for scorers; bounds of the keys of pages, and of scores
    // with them. NULL: the backend has no such op.
    void (*key_mass)(struct exec *x, const struct key_mass_args *a);
    void (*key_bounds)(struct exec *x, const struct key_bounds_args *a);
    void (*page_scores)(struct exec *x, const struct page_scores_args *a);
    // Gates, causal convolution along the ancestors, SiLU, L2 norms (arXiv 2412.06464).
    void (*gdn_gates_conv)(struct exec *x, const struct gdn_conv_args *a, const struct rows *r);
    // Gated delta rule by the recurrent log, for all runs at once; rows outside of them stay as
    // they are. Rows are at most 32 deeper than the committed length.
    void (*gdn)(struct exec *x, const struct gdn_args *a, const struct rows *r);
    void (*gdn_commit)(struct exec *x, const struct gdn_commit_args *a);
    // gdn and gdn_commit, block by block, of the only run of a: a chain that continues one
    // sequence; len (committed tokens before) and its count are multiples of GDN_BLOCK. a->seqs,
    // a->len and rows.d are not used, and no pointer of the state changes. False: not for this
    // shape, nothing done. NULL: the backend has no such op.
    bool (*gdn_blocks)(struct exec *x, const struct gdn_args *a, const struct gdn_state *state,
                       int64_t len);
    // act = RMSNorm(in per head of dv, w) * silu(z).
    void (*gated_norm_to_act)(struct exec *x, const struct gated_norm_args *a);
    // dst row i (at dst + i * dst_stride) = src row index[i]; row_bytes each. index: host [n].
    void (*copy_rows)(struct exec *x, void *dst, size_t dst_stride, const void *src,
                      const int32_t *index, int64_t n, size_t row_bytes);
    // Copies one position of a KV group (all layers) from slot to slot. Host arrays [n].
    void (*kv_copy)(struct exec *x, const struct kv_layout *l, const struct kv_slot *dst,
                    const struct kv_slot *src, int64_t n);
    // The best tokens of each row of logits, for drafts.
    void (*head_topk)(struct exec *x, const struct topk_args *a);
    // choice[i] from logits row i (which stays unchanged), and its log-probabilities where wanted.
    // choice: host [n].
    void (*sample)(struct exec *x, const float *logits, int64_t n, int64_t vocab,
                   const struct sample_row *rows, int32_t *choice);
};

// CPU backend. level: "auto", "scalar", "avx2", "avx512", "amx", on ARM "neon", "dotprod" or
// "i8mm"; threads: 0 = all usable CPUs.
int exec_create_cpu(struct exec **out, const char *level, int threads, struct err *e);

// CUDA backend. ERR_UNSUPPORTED in a build without it or for a path that the GPU lacks, ERR_DEVICE
// when the GPU cannot be used, ERR_MEMORY when it is full.
struct cuda_options {
    int device;          // CUDA's number of the GPU
    int64_t limit;       // bytes that this exec may take; 0: all that is free
    enum cuda_path path; // of linear layers
    bool separate;       // every allocation on its own, so that memory checkers see its ends
};
int exec_create_cuda(struct exec **out, const struct cuda_options *o, struct err *e);

// Forms of ops that not every backend has; a zeroed struct needs none.
struct ops_needs {
    enum activation activation;
    bool bias;                              // of linear and linear_gate_up
    bool norm, scale, activate, block_conv; // the ops of these names
    bool experts;                           // weights of three dimensions and the ops moe_*
    bool heads;                             // weights of three dimensions and linear_heads
    // NULL, or calls of that form: looked at are shapes, codecs of the layout, and which optional
    // arrays there are; no array is read.
    const struct qk_args *qk;
    const struct attend_args *attend;
    const struct sparse_args *sparse; // the ops sparse_*
};
// Whether the backend has them: 0, or ERR_UNSUPPORTED with a sentence that names the first it
// lacks. A model checks when it is loaded; an op that is called with a form that its backend lacks
// leaves a fault of the device (exec_status), never a wrong result. x NULL: what no backend has.
int exec_takes(const struct exec *x, const struct ops_needs *n, struct err *e);

const struct ops *exec_ops(const struct exec *x);
int exec_threads(const struct exec *x);
const char *exec_label(const struct exec *x); // for people: "avx512", "cuda:0 (NVIDIA H200, wgmma)"
// What bits depend on besides model and options, as far as backends differ: "cpu x86_64" for all
// levels, "cuda NVIDIA H200, wgmma". Kept until the exec goes.
const char *exec_kind(const struct exec *x);
bool exec_is_device(const struct exec *x); // its memory is not the host's
void exec_destroy(struct exec *x);

// Work for a device while the host waits for an op's result: what may be needed next. Only ops that
// wait (sample) queue it, after what they wait for, and not all backends do.
struct overlapped_work {
    void (*run)(void *arg); // calls ops; NULL: nothing to do
    void *arg;
};
// For the next op that waits, in place of what was there.
void exec_overlap(struct exec *x, struct overlapped_work w);

// A number for rows.pass that no pass of this exec has had.
uint64_t exec_pass(struct exec *x);

// Waits for all that was queued. ERR_DEVICE: the device has failed at some point since creation,
// and nothing computed since then may be used. ERR_MEMORY: it ran out of memory; what was queued
// since the last call may not be used, but the device can be. What a caller shows to others must be
// preceded by this.
int exec_status(struct exec *x, struct err *e);

// An epoch is the ops queued between two calls of exec_status; they are numbered from 0 up. Ops
// return nothing, so the keeper of what they wrote keeps the number of the present epoch with it,
// and checks before using it whether that one failed. True for good once it is true; after many
// failures also for old epochs in which nothing failed.
uint64_t exec_epoch(const struct exec *x);
bool exec_epoch_failed(const struct exec *x, uint64_t epoch);
bool exec_failed_since(const struct exec *x, uint64_t epoch); // whether it or a later one failed

#endif
