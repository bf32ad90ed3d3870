// SPDX-License-Identifier: Apache-2.0
// Who brings experts. Few entries: the device itself (fetch.cu). Many, as in prompts: the
// device says which ones are missing, the host reads that and hands them to the copy engine, which
// is faster than kernels that read host memory and takes no multiprocessor. After them come
// experts of the next layer, which will need most of its own as well, while this one computes. The
// host waits for the choice of each layer, which is short compared with what such a layer takes;
// what was queued before is over by then, so no slot that is filled anew is still being read.
#include "ops/gpu/moe/store.h"

#include "ops/copier.h"
#include "ops/gpu/runtime/ops_cuda.h"

bool moe_stream_open(struct expert_store *s) {
    struct moe_stream *c = &s->copies;
    void *seen = NULL;
    c->host = exec_host_alloc(s->base.x, 2 * sizeof *c->host);
    if (!c->host || gpu_host_on_device(&seen, c->host) != GPU_OK ||
        gpu_stream_create(&c->stream) != GPU_OK || gpu_order_event_create(&c->arrived) != GPU_OK ||
        gpu_order_event_create(&c->arrived_ahead) != GPU_OK)
        return false;
    c->device = seen;
    return true;
}

void moe_stream_close(struct expert_store *s) {
    struct moe_stream *c = &s->copies;
    if (c->stream)
        gpu_check(s->g, gpu_stream_wait(c->stream), "waiting for experts");
    if (c->arrived)
        gpu_event_destroy(c->arrived);
    if (c->arrived_ahead)
        gpu_event_destroy(c->arrived_ahead);
    if (c->stream)
        gpu_stream_destroy(c->stream);
    exec_host_free(s->base.x, c->host);
    *c = (struct moe_stream){0};
}

void moe_stream_rest(struct expert_store *s) {
    gpu_check(s->g, gpu_stream_wait(s->copies.stream), "waiting for experts");
    s->copies.ahead = false;
}

// Whatever is queued from now on comes after copies that are under way.
static void wait_ahead(struct gpu *g, struct expert_store *s) {
    struct moe_stream *c = &s->copies;
    if (!c->ahead)
        return;
    c->ahead = false;
    gpu_flush(g);
    launch_order_stop(&g->order);
    gpu_check(g, gpu_stream_after(g->stream, c->arrived_ahead), "waiting for experts");
}

// Queues copies of what was chosen, and the event after them.
static void queue_moves(struct gpu *g, const struct moe_home *h, const struct moe_moves *m,
                        gpu_event behind) {
    const struct moe_pool *p = h->pool;
    const struct moe_stream *c = &h->store->copies;
    gpu_error code = GPU_OK;
    for (int i = 0; i < m->n && code == GPU_OK; i++)
        code = gpu_to_device(p->data + m->move[i].slot * p->step,
                             h->host + m->move[i].expert * p->record, (size_t)p->record, c->stream);
    if (code == GPU_OK)
        code = gpu_event_record(behind, c->stream);
    gpu_check(g, code, "bringing experts");
}

static void stream_experts(struct gpu *g, const struct moe_home *h, const struct moe_list *l) {
    struct expert_store *s = h->store;
    struct moe_stream *c = &s->copies;
    const struct moe_home *next = h + 1 < s->layers + s->n ? h + 1 : NULL;
    moe_choose(g, h, l, &c->device[0]);
    if (next)
        moe_choose_ahead(g, next, h, l, &c->device[1]);
    launch_order_stop(&g->order);
    if (g->fault != GPU_OK || !gpu_check(g, gpu_stream_wait(g->stream), "choosing experts"))
        return;
    queue_moves(g, h, &c->host[0], c->arrived);
    gpu_check(g, gpu_stream_after(g->stream, c->arrived), "waiting for experts");
    c->ahead = false;
    if (!next || !c->host[1].n)
        return;
    queue_moves(g, next, &c->host[1], c->arrived_ahead);
    c->ahead = true;
}

void moe_bring(struct gpu *g, struct moe_home *h, const struct moe_list *l, bool last) {
    struct expert_store *s = h->store;
    const bool ready = last && s->ready == h && s->ready_for == l->ids;
    s->ready = last ? NULL : h;
    s->ready_for = l->ids;
    if (ready)
        return;
    if (expert_pool_many(l->n * l->used, h->pool->experts)) {
        stream_experts(g, h, l);
        return;
    }
    wait_ahead(g, s);
    moe_read(g, h, l);
}
