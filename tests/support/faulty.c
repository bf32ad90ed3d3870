// SPDX-License-Identifier: Apache-2.0
// See faulty.h. Each entry of the table counts and passes on; results that the host reads are those
// that a device leaves behind a fault.
#include "support/faulty.h"

#include <math.h>
#include <stdatomic.h>
#include <stddef.h>

#include "ops/exec.h"

static struct {
    struct exec *x;
    const struct ops *inner;
    int (*status)(struct exec *x, struct err *e);
    struct ops table;
    int rc;
    void (*wait)(void);
    atomic_int left, token, drafts, uploads, uploaded;
    atomic_bool no_drafts;
    atomic_bool hit, pending;
} f;

// Whether this op is the one to be left out.
static bool falls(void) {
    if (atomic_fetch_sub(&f.left, 1) != 0)
        return false;
    f.hit = f.pending = true;
    if (f.wait)
        f.wait();
    return true;
}

static int faulty_status(struct exec *x, struct err *e) {
    int rc = f.status ? f.status(x, e) : 0;
    if (rc || !f.pending)
        return rc;
    f.pending = f.rc == ERR_DEVICE;
    return err_set(e, f.rc, "a device that is made up is out of memory");
}

static void faulty_download(struct exec *x, void *dst, const void *src, size_t bytes) {
    if (!falls())
        f.inner->download(x, dst, src, bytes);
}

static void faulty_upload(struct exec *x, void *dst, const void *src, size_t bytes) {
    if (f.uploaded == f.uploads) {
        f.inner->upload(x, dst, src, bytes);
        return;
    }
    f.uploaded++;
    f.hit = f.pending = true;
}

static void faulty_copy(struct exec *x, void *dst, const void *src, size_t bytes) {
    if (!falls())
        f.inner->copy(x, dst, src, bytes);
}

static void faulty_zero(struct exec *x, void *dst, size_t bytes) {
    if (!falls())
        f.inner->zero(x, dst, bytes);
}

static void faulty_gather_rows(struct exec *x, const struct weight *w, const int32_t *ids,
                               int64_t n, float *out) {
    bool left_out = falls();
    for (int64_t i = 0; i < n; i++)
        if (ids[i] == f.token)
            f.hit = f.pending = left_out = true;
    if (!left_out)
        f.inner->gather_rows(x, w, ids, n, out);
}

static void faulty_to_act(struct exec *x, const float *in, int64_t n, int64_t k, struct act *out) {
    if (!falls())
        f.inner->to_act(x, in, n, k, out);
}

static void faulty_norm_to_act(struct exec *x, const float *in, const float *w, float eps,
                               int64_t n, int64_t k, struct act *out) {
    if (!falls())
        f.inner->norm_to_act(x, in, w, eps, n, k, out);
}

static void faulty_linear(struct exec *x, const struct linear_job *jobs, int n_jobs,
                          const struct act *in, int64_t n) {
    if (!falls())
        f.inner->linear(x, jobs, n_jobs, in, n);
}

static void faulty_linear_gate_up(struct exec *x, const struct gate_up *w, const struct act *in,
                                  int64_t n, struct act *out) {
    if (!falls())
        f.inner->linear_gate_up(x, w, in, n, out);
}

static void faulty_qk_norm_rope_store(struct exec *x, const struct qk_args *a,
                                      const struct rows *r) {
    if (!falls())
        f.inner->qk_norm_rope_store(x, a, r);
}

static void faulty_attend(struct exec *x, const struct attend_args *a, const struct rows *r) {
    if (!falls())
        f.inner->attend(x, a, r);
}

static void faulty_gdn_gates_conv(struct exec *x, const struct gdn_conv_args *a,
                                  const struct rows *r) {
    if (!falls())
        f.inner->gdn_gates_conv(x, a, r);
}

static void faulty_gdn(struct exec *x, const struct gdn_args *a, const struct rows *r) {
    if (!falls())
        f.inner->gdn(x, a, r);
}

static void faulty_gdn_commit(struct exec *x, const struct gdn_commit_args *a) {
    if (!falls())
        f.inner->gdn_commit(x, a);
}

static void faulty_gated_norm_to_act(struct exec *x, const struct gated_norm_args *a) {
    if (!falls())
        f.inner->gated_norm_to_act(x, a);
}

static void faulty_copy_rows(struct exec *x, void *dst, size_t dst_stride, const void *src,
                             const int32_t *index, int64_t n, size_t row_bytes) {
    if (!falls())
        f.inner->copy_rows(x, dst, dst_stride, src, index, n, row_bytes);
}

static void faulty_kv_copy(struct exec *x, const struct kv_layout *l, const struct kv_slot *dst,
                           const struct kv_slot *src, int64_t n) {
    if (!falls())
        f.inner->kv_copy(x, l, dst, src, n);
}

static void faulty_head_topk(struct exec *x, const struct topk_args *a) {
    atomic_fetch_add(&f.drafts, f.no_drafts);
    if (!f.no_drafts && !falls()) {
        f.inner->head_topk(x, a);
        return;
    }
    f.hit = f.pending = true;
    for (int64_t i = 0; i < a->n * a->k; i++) {
        a->ids[i] = -1;
        a->logp[i] = -INFINITY;
    }
}

static void faulty_sample(struct exec *x, const float *logits, int64_t n, int64_t vocab,
                          const struct sample_row *rows, int32_t *choice) {
    if (!falls()) {
        f.inner->sample(x, logits, n, vocab, rows, choice);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        choice[i] = 0;
}

void faulty_open(struct exec *x, int n) {
    f.x = x;
    f.inner = x->ops;
    f.status = x->status;
    f.table = *x->ops;
    f.table.download = faulty_download;
    f.table.upload = faulty_upload;
    f.table.copy = faulty_copy;
    f.table.zero = faulty_zero;
    f.table.gather_rows = faulty_gather_rows;
    f.table.to_act = faulty_to_act;
    f.table.norm_to_act = faulty_norm_to_act;
    f.table.linear = faulty_linear;
    f.table.linear_gate_up = faulty_linear_gate_up;
    f.table.qk_norm_rope_store = faulty_qk_norm_rope_store;
    f.table.attend = faulty_attend;
    f.table.gdn_gates_conv = faulty_gdn_gates_conv;
    f.table.gdn = faulty_gdn;
    f.table.gdn_commit = faulty_gdn_commit;
    f.table.gated_norm_to_act = faulty_gated_norm_to_act;
    f.table.copy_rows = faulty_copy_rows;
    f.table.kv_copy = faulty_kv_copy;
    f.table.head_topk = faulty_head_topk;
    f.table.sample = faulty_sample;
    f.rc = ERR_MEMORY;
    f.no_drafts = false;
    f.drafts = f.uploads = f.uploaded = 0;
    f.wait = NULL;
    f.token = -1;
    x->ops = &f.table;
    x->status = faulty_status;
    faulty_again(n);
}

void faulty_next(int n) {
    f.left = n;
    f.hit = false;
}

void faulty_again(int n) {
    f.pending = false;
    faulty_next(n);
}

void faulty_token(int32_t id) {
    f.token = id;
}

void faulty_tells(int rc) {
    f.rc = rc;
}

void faulty_drafts(void) {
    f.no_drafts = true;
}

void faulty_uploads(int max) {
    f.uploads = max;
}

int faulty_uploaded(void) {
    return f.uploaded;
}

int faulty_drafted(void) {
    return f.drafts;
}

void faulty_holds(void (*wait)(void)) {
    f.wait = wait;
}

bool faulty_hit(void) {
    return f.hit;
}

void faulty_close(void) {
    f.x->ops = f.inner;
    f.x->status = f.status;
}
