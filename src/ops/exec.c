// SPDX-License-Identifier: Apache-2.0
// The accessors of an exec, which no backend owns.
#include "ops/exec.h"

#include <stddef.h>

const struct ops *exec_ops(const struct exec *x) {
    return x->ops;
}

int exec_threads(const struct exec *x) {
    return x->threads;
}

void exec_destroy(struct exec *x) {
    if (!x)
        return;
    struct exec_attachment *a = x->attachments;
    x->destroy(x);
    for (struct exec_attachment *next; a; a = next) {
        next = a->next;
        a->destroy(a);
    }
}

void exec_attach(struct exec *x, struct exec_attachment *a) {
    a->next = x->attachments;
    x->attachments = a;
}

void exec_overlap(struct exec *x, struct overlapped_work w) {
    x->overlapped = w;
}

struct exec_attachment *exec_attached(const struct exec *x,
                                      void (*destroy)(struct exec_attachment *a)) {
    struct exec_attachment *a = x->attachments;
    while (a && a->destroy != destroy)
        a = a->next;
    return a;
}

int64_t exec_weight_bytes(const struct exec *x, const struct tensor *t) {
    return x->weight_bytes(x, t);
}

int64_t exec_act_bytes(const struct exec *x, int64_t n, int64_t k) {
    return x->act_bytes(x, n, k);
}

void exec_limits_join(struct exec_limits *a, const struct exec_limits *b) {
    int64_t *const all[] = {&a->rows,    &a->seqs,    &a->context,      &a->tree,
                            &a->inputs,  &a->outputs, &a->act,          &a->vocab,
                            &a->entries, &a->experts, &a->expert_width, &a->fp16_kv};
    const int64_t other[] = {b->rows,    b->seqs,    b->context,      b->tree,
                             b->inputs,  b->outputs, b->act,          b->vocab,
                             b->entries, b->experts, b->expert_width, b->fp16_kv};
    int *const small[] = {&a->n_heads, &a->head_dim, &a->gdn.n_k,     &a->gdn.n_v,
                          &a->gdn.dk,  &a->gdn.dv,   &a->gdn.channels};
    const int more[] = {b->n_heads, b->head_dim, b->gdn.n_k,     b->gdn.n_v,
                        b->gdn.dk,  b->gdn.dv,   b->gdn.channels};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        *all[i] = max_i64(*all[i], other[i]);
    for (size_t i = 0; i < sizeof small / sizeof *small; i++)
        *small[i] = max_i32(*small[i], more[i]);
}

int64_t exec_own_bytes(const struct exec *x, const struct exec_limits *l) {
    return x->own_bytes ? x->own_bytes(x, l) : 0;
}

int exec_reserve(struct exec *x, const struct exec_limits *l, struct err *e) {
    return x->reserve ? x->reserve(x, l, e) : 0;
}

int exec_takes(const struct exec *x, const struct ops_needs *n, struct err *e) {
    int rc = n->attend ? attend_check(&n->attend->shape, e) : 0;
    if (!rc && n->qk)
        rc = rope_check(&n->qk->rope, n->qk->dk, e);
    if (!rc && n->sparse)
        rc = sparse_check(n->sparse, e);
    if (!rc && x && x->takes)
        rc = x->takes(x, n, e);
    const char *what = !x                                     ? NULL
                       : n->norm && !x->ops->norm             ? "norm"
                       : n->scale && !x->ops->scale           ? "scale"
                       : n->activate && !x->ops->activate     ? "activate"
                       : n->block_conv && !x->ops->block_conv ? "block_conv"
                       : n->heads && !x->ops->linear_heads    ? "linear_heads"
                                                              : NULL;
    if (!rc && what)
        rc = err_set(e, ERR_UNSUPPORTED,
                     "the backend %s has no op %s, which this model needs; use --device cpu",
                     x->label, what);
    return rc;
}

const char *exec_label(const struct exec *x) {
    return x->label;
}

const char *exec_kind(const struct exec *x) {
#if defined(__x86_64__)
    const char *cpu = "cpu x86_64";
#elif defined(__aarch64__)
    const char *cpu = "cpu aarch64";
#else
    const char *cpu = "cpu";
#endif
    return x->kind[0] ? x->kind : cpu;
}

uint64_t exec_pass(struct exec *x) {
    return ++x->passes;
}

bool exec_is_device(const struct exec *x) {
    return x->device;
}

int exec_status(struct exec *x, struct err *e) {
    int rc = x->status ? x->status(x, e) : 0;
    if (rc)
        x->failed_epochs[x->n_failed_epochs++ % EXEC_FAILED_EPOCHS] = x->epoch;
    x->epoch++;
    return rc;
}

uint64_t exec_epoch(const struct exec *x) {
    return x->epoch;
}

// An epoch older than all that are remembered may have been one of those that are not.
bool exec_epoch_failed(const struct exec *x, uint64_t epoch) {
    uint64_t n = x->n_failed_epochs < EXEC_FAILED_EPOCHS ? x->n_failed_epochs : EXEC_FAILED_EPOCHS;
    if (x->n_failed_epochs > EXEC_FAILED_EPOCHS &&
        epoch < x->failed_epochs[x->n_failed_epochs % EXEC_FAILED_EPOCHS])
        return true;
    for (uint64_t i = 0; i < n; i++) {
        if (x->failed_epochs[i] == epoch)
            return true;
    }
    return false;
}

bool exec_failed_since(const struct exec *x, uint64_t epoch) {
    return x->n_failed_epochs &&
           x->failed_epochs[(x->n_failed_epochs - 1) % EXEC_FAILED_EPOCHS] >= epoch;
}

void *exec_alloc(struct exec *x, enum exec_arena arena, size_t bytes) {
    return x->alloc_in ? x->alloc_in(x, arena, bytes) : x->ops->alloc(x, bytes);
}

void exec_trim(struct exec *x) {
    if (x->trim)
        x->trim(x);
}

void exec_memory_of(struct exec *x, struct exec_memory *m) {
    *m = (struct exec_memory){0};
    if (x->memory)
        x->memory(x, m);
}
