// SPDX-License-Identifier: Apache-2.0
// A page of n layers gives n / 2 slots of staging: two areas of one layer of so many pages in host
// memory. So the memory of one page in n / 2 that are given up becomes staging, and that of the
// others is free. An even layer is in the first area, an odd one in the second. Copies down begin
// some pages before they are needed, so that giving a page up waits for nothing.
#include "state/host/kv_host.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/vec.h"
#include "ops/copier.h"
#include "state/kv_impl.h"

enum {
    AHEAD = 32,     // pages that are copied down before they are given up
    AT_ONCE = 32,   // pages that come back in one go
    MARGIN = 16,    // pages that are left free when pages come back
    PIECES = 64,    // of a layer that are queued together
    SLAB = 1 << 26, // bytes of host memory that are taken at once, at most
    SLABS = 16      // in a small limit
};

struct kv_host {
    struct exec *x;
    struct copier *down, *up;    // copies to host memory, and from there
    uint64_t last_down, last_up; // tickets
    int64_t limit, held;
    bool refused; // the system has no more of it
    int64_t pages, page_bytes, given_up, brought_back;
};

struct stage_slot {
    int32_t page;     // -1: free
    int32_t layer[2]; // that is in each area; -1: none
    uint64_t pass;    // the last that reads it
};

struct stage_page {
    unsigned char *data;
    uint64_t taken; // exec_epoch when it became staging
};

struct host_slab {
    unsigned char *data;
    int64_t n; // pages
};

struct kv_places {
    struct kv_host *host;
    int32_t oldest, newest; // full pages on the device; -1: none
    int64_t per;            // slots of a page of staging
    struct stage_page *stage;
    struct stage_slot *slots; // [p->staging * per]
    int64_t cap_stage, cap_slots;
    uint64_t pass, epoch, ticket[2]; // of what areas hold
    struct host_slab *slabs;         // host memory: all of it,
    unsigned char **free;            // pages of it without content
    int64_t n_slabs, cap_slabs, n_free, cap_free, n_blocks;
};

int kv_host_create(struct kv_host **out, struct exec *x, int64_t limit, struct err *e) {
    struct kv_host *h = calloc(1, sizeof *h);
    if (!h)
        return err_set(e, ERR_MEMORY, "no memory for places of key/value pages");
    h->x = x;
    h->limit = limit;
    int rc = copier_create(&h->down, x, e);
    if (!rc)
        rc = copier_create(&h->up, x, e);
    if (rc) {
        kv_host_destroy(h);
        return rc;
    }
    *out = h;
    return 0;
}

void kv_host_destroy(struct kv_host *h) {
    if (!h)
        return;
    copier_destroy(h->down);
    copier_destroy(h->up);
    free(h);
}

void kv_host_limit(struct kv_host *h, int64_t limit) {
    h->limit = limit;
}

struct kv_host_stats kv_host_stats_of(const struct kv_host *h) {
    return (struct kv_host_stats){h->limit,      h->held,     h->pages,
                                  h->page_bytes, h->given_up, h->brought_back};
}

static void places_destroy(struct kv_pool *p) {
    struct kv_places *w = p->places;
    (void)copier_wait(w->host->down, w->host->last_down, NULL);
    (void)copier_wait(w->host->up, w->host->last_up, NULL);
    for (int64_t i = 0; i < p->staging; i++)
        exec_ops(p->x)->free(p->x, w->stage[i].data);
    for (int64_t i = 0; i < w->n_slabs; i++)
        exec_host_free(p->x, w->slabs[i].data);
    w->host->held -= w->n_blocks * p->layout.page_bytes;
    free(w->stage);
    free(w->slots);
    free(w->slabs);
    free(w->free);
    free(w);
    p->places = NULL;
}

// The list of full pages on the device, those first that were full first.

static void list_add(struct kv_pool *p, int32_t id, bool as_oldest) {
    struct kv_places *w = p->places;
    struct page *y = &p->pages[id];
    y->older = as_oldest ? -1 : w->newest;
    y->newer = as_oldest ? w->oldest : -1;
    *(y->older < 0 ? &w->oldest : &p->pages[y->older].newer) = id;
    *(y->newer < 0 ? &w->newest : &p->pages[y->newer].older) = id;
}

static void list_remove(struct kv_pool *p, int32_t id) {
    struct kv_places *w = p->places;
    const struct page *y = &p->pages[id];
    *(y->older < 0 ? &w->oldest : &p->pages[y->older].newer) = y->newer;
    *(y->newer < 0 ? &w->newest : &p->pages[y->newer].older) = y->older;
}

// The next page in the list that may move, from id on; -1: none.
static int32_t next_movable(const struct kv_pool *p, int32_t id) {
    while (id >= 0 && p->pages[id].pins)
        id = p->pages[id].newer;
    return id;
}

// Host memory: slabs of pages, which are kept until something else asks for it.

static bool add_slab(struct kv_pool *p) {
    struct kv_places *w = p->places;
    const int64_t bytes = p->layout.page_bytes;
    const int64_t n = min_i64(max_i64(min_i64(SLAB, w->host->limit / SLABS) / bytes, 1),
                              (w->host->limit - w->host->held) / bytes);
    if (n < 1 || w->host->refused ||
        vec_reserve(&w->slabs, &w->cap_slabs, w->n_slabs + 1, sizeof *w->slabs, NULL) ||
        vec_reserve(&w->free, &w->cap_free, w->n_blocks + n, sizeof *w->free, NULL))
        return false;
    unsigned char *slab = exec_host_alloc(p->x, (size_t)(n * bytes));
    w->host->refused = !slab; // it is not asked for again
    if (!slab)
        return false;
    w->slabs[w->n_slabs++] = (struct host_slab){slab, n};
    w->n_blocks += n;
    w->host->held += n * bytes;
    for (int64_t i = n; i-- > 0;) // the first one is taken first
        w->free[w->n_free++] = slab + i * bytes;
    return true;
}

// Takes its copy from a page, whose memory may be freed or written to from now on.
static unsigned char *leave_copy(struct kv_pool *p, struct page *y) {
    unsigned char *copy = y->copy;
    y->copy = NULL;
    if (copy && y->data)
        copier_before_compute(p->places->host->down, y->ticket);
    return copy;
}

// Takes the copy of a page that is on the device, the newest, but for `but`.
static unsigned char *take_copy(struct kv_pool *p, int32_t but) {
    for (int32_t id = p->places->newest; id >= 0; id = p->pages[id].older) {
        if (p->pages[id].copy && id != but)
            return leave_copy(p, &p->pages[id]);
    }
    return NULL;
}

// Begins to copy a page down unless that has been done. ask: others may lose their copies for it.
static bool begin_copy(struct kv_pool *p, int32_t id, bool ask) {
    struct kv_places *w = p->places;
    struct page *y = &p->pages[id];
    if (y->copy)
        return true;
    if (w->n_free || add_slab(p))
        y->copy = w->free[--w->n_free];
    else if (ask)
        y->copy = take_copy(p, id);
    if (!y->copy)
        return false;
    y->ticket = w->host->last_down =
        copier_to_host(w->host->down, y->copy, y->data, (size_t)p->layout.page_bytes);
    return true;
}

static void drop_copy(struct kv_pool *p, struct page *y) {
    unsigned char *copy = leave_copy(p, y);
    if (copy)
        p->places->free[p->places->n_free++] = copy;
}

// Takes the pages of a slab out of those without content; false: some are not among them.
static bool empty_slab(struct kv_places *w, const struct host_slab *s, int64_t page_bytes) {
    const unsigned char *end = s->data + s->n * page_bytes;
    int64_t n = 0, left = 0;
    for (int64_t i = 0; i < w->n_free; i++)
        n += w->free[i] >= s->data && w->free[i] < end;
    if (n < s->n)
        return false;
    for (int64_t i = 0; i < w->n_free; i++)
        if (w->free[i] < s->data || w->free[i] >= end)
            w->free[left++] = w->free[i];
    w->n_free = left;
    return true;
}

static void trim_slabs(struct kv_pool *p) {
    struct kv_places *w = p->places;
    int64_t left = 0;
    for (int32_t id = w->newest; id >= 0; id = p->pages[id].older)
        drop_copy(p, &p->pages[id]); // those that are on the device
    (void)copier_wait(w->host->down, w->host->last_down, NULL);
    (void)copier_wait(w->host->up, w->host->last_up, NULL);
    for (int64_t i = 0; i < w->n_slabs; i++) {
        const struct host_slab s = w->slabs[i];
        if (!empty_slab(w, &s, p->layout.page_bytes)) {
            w->slabs[left++] = s;
            continue;
        }
        exec_host_free(p->x, s.data);
        w->n_blocks -= s.n;
        w->host->held -= s.n * p->layout.page_bytes;
        w->host->refused = false;
    }
    w->n_slabs = left;
}

void kv_budget_trim_host(struct kv_budget *b) {
    for (struct kv_pool *p = b->pools; p; p = p->next)
        if (p->places)
            trim_slabs(p);
}

// Whether a page's content is in host memory; copies of some after it are begun. One that was begun
// for it earlier may have failed.
static bool copy_down(struct kv_pool *p, int32_t id) {
    struct kv_host *h = p->places->host;
    copier_after_compute(h->down);
    for (int tries = 0; tries < 2; tries++) {
        if (!begin_copy(p, id, true))
            return false;
        int32_t more = next_movable(p, p->pages[id].newer);
        for (int i = 0; i < AHEAD && more >= 0 && begin_copy(p, more, false); i++)
            more = next_movable(p, p->pages[more].newer);
        if (!copier_wait(h->down, p->pages[id].ticket, NULL))
            return true;
        drop_copy(p, &p->pages[id]);
    }
    return false;
}

// Slots of the staging.

static unsigned char *slot_at(const struct kv_pool *p, int64_t slot, int area) {
    const struct kv_places *w = p->places;
    return w->stage[slot / w->per].data + (area * w->per + slot % w->per) * p->layout.layer_bytes;
}

static int64_t free_slot(const struct kv_pool *p) {
    const struct kv_places *w = p->places;
    int64_t n = p->staging * w->per, i = 0;
    while (i < n && w->slots[i].page >= 0)
        i++;
    return i;
}

// Room for the slots of another page, which takes its memory over.
static bool add_stage(struct kv_pool *p, const struct page *y) {
    struct kv_places *w = p->places;
    const int64_t n = p->staging + 1;
    if (vec_reserve(&w->stage, &w->cap_stage, n, sizeof *w->stage, NULL) ||
        vec_reserve(&w->slots, &w->cap_slots, n * w->per, sizeof *w->slots, NULL))
        return false;
    for (int64_t i = 0; i < w->per; i++)
        w->slots[p->staging * w->per + i] = (struct stage_slot){-1, {-1, -1}, 0};
    w->stage[p->staging++] = (struct stage_page){y->data, y->taken_epoch};
    return true;
}

// Gives memory back whose slots nobody needs. Copies to it may still be under way.
static void shrink_stage(struct kv_pool *p) {
    struct kv_places *w = p->places;
    while (p->staging) {
        const struct stage_page *last = &w->stage[p->staging - 1];
        for (int64_t i = 0; i < w->per; i++)
            if (w->slots[(p->staging - 1) * w->per + i].page >= 0)
                return;
        if (!kv_pool_add_memory(p, last->data, last->taken))
            return;
        p->staging--;
        copier_before_compute(w->host->up, w->host->last_up);
    }
}

static void leave_slot(struct kv_pool *p, struct page *y) {
    struct kv_host *h = p->places->host;
    p->places->slots[y->slot] = (struct stage_slot){-1, {-1, -1}, 0};
    p->hosted--;
    h->pages--;
    h->page_bytes -= p->layout.page_bytes;
    shrink_stage(p);
}

static void page_full(struct kv_pool *p, int32_t id) {
    if (id < 0 || p->pages[id].full)
        return;
    p->pages[id].full = true;
    list_add(p, id, false);
}

static void page_forget(struct kv_pool *p, int32_t id) {
    struct page *y = &p->pages[id];
    if (!y->full)
        return;
    if (y->data)
        list_remove(p, id);
    else
        leave_slot(p, &p->pages[id]);
    drop_copy(p, &p->pages[id]);
    p->pages[id].full = false;
}

// The page has a copy: its memory is another's from now on. *free: it is a free page.
static bool give_up(struct kv_pool *p, int32_t id, bool *free) {
    struct kv_places *w = p->places;
    struct page y = p->pages[id];
    int64_t slot = free_slot(p);
    *free = slot < p->staging * w->per;
    if (!(*free ? kv_pool_add_memory(p, y.data, y.taken_epoch) : add_stage(p, &y)))
        return false;
    list_remove(p, id);
    w->slots[slot].page = id;
    p->pages[id].data = NULL;
    p->pages[id].slot = (int32_t)slot;
    p->hosted++;
    p->moves++;
    w->host->pages++;
    w->host->page_bytes += p->layout.page_bytes;
    w->host->given_up++;
    return true;
}

static bool places_give_up(struct kv_pool *p) {
    bool free = false;
    while (!free) {
        int32_t id = next_movable(p, p->places->oldest);
        if (id < 0 || !copy_down(p, id) || !give_up(p, id, &free))
            return false;
    }
    return free;
}

static const struct kv_moves moves = {
    .destroy = places_destroy, .full = page_full, .forget = page_forget, .give_up = places_give_up};

int64_t kv_host_staged(const struct kv_layout *l) {
    return l->s.n_layers < 4 ? 0 : l->s.n_layers / 2;
}

int kv_pool_use_host(struct kv_pool *p, struct kv_host *h, struct err *e) {
    if (!kv_host_staged(&p->layout))
        return 0;
    p->places = calloc(1, sizeof *p->places);
    if (!p->places)
        return err_set(e, ERR_MEMORY, "no memory for places of key/value pages");
    *p->places = (struct kv_places){
        .host = h, .oldest = -1, .newest = -1, .per = kv_host_staged(&p->layout)};
    p->moving = &moves;
    return 0;
}

// Pages that may come back without others being given up: some are left free, or they would go
// again with the next ones that are written.
static int64_t room(const struct kv_pool *p) {
    const struct kv_budget *b = p->budget;
    int64_t most = p->limit, more = most - p->held;
    if (b && b->limit > 0) {
        most = min_i64(most, b->limit / p->layout.page_bytes);
        more = min_i64(more, (b->limit - b->held) / p->layout.page_bytes);
    }
    int64_t free = kv_pool_free(p) + (most < INT32_MAX ? max_i64(more, 0) : 0);
    return free - min_i64(MARGIN, most / 4);
}

// The next page of k that is only in host memory and may move; k->n_pages: none.
static int64_t next_hosted(const struct kv *k, int64_t i) {
    const struct page *pages = k->pool->pages;
    while (i < k->n_pages && (k->ids[i] < 0 || pages[k->ids[i]].data || pages[k->ids[i]].pins))
        i++;
    return i;
}

static void brought_back(struct kv_pool *p, int32_t id, unsigned char *data) {
    struct page *y = &p->pages[id];
    leave_slot(p, y);
    y = &p->pages[id]; // numbers may have moved
    y->data = data;
    y->taken_epoch = exec_epoch(p->x);
    list_add(p, id, true);
    p->moves++;
    p->places->host->brought_back++;
}

// Up to AT_ONCE pages from i on; 0: nothing came back.
static int bring_some(struct kv *k, int64_t *i, int64_t n) {
    struct kv_pool *p = k->pool;
    struct kv_host *h = p->places->host;
    unsigned char *data[AT_ONCE];
    int32_t id[AT_ONCE];
    int got = 0;
    for (*i = next_hosted(k, *i); *i < k->n_pages && got < min_i64(n, AT_ONCE); got++) {
        if (p->free_head < 0 && kv_pool_grow(p, NULL))
            break;
        id[got] = k->ids[*i];
        data[got] = kv_pool_take_memory(p);
        *i = next_hosted(k, *i + 1);
    }
    copier_after_compute(h->up); // also after the zeros of new memory
    for (int j = 0; j < got; j++)
        h->last_up =
            copier_to_device(h->up, data[j], p->pages[id[j]].copy, (size_t)p->layout.page_bytes);
    bool failed = got && copier_wait(h->up, h->last_up, NULL);
    for (int j = 0; j < got; j++) {
        if (failed)
            (void)kv_pool_add_memory(p, data[j], exec_epoch(p->x)); // it has its number still
        else
            brought_back(p, id[j], data[j]);
    }
    if (got)
        copier_before_compute(h->up, h->last_up);
    return failed ? 0 : got;
}

void kv_bring_back(struct kv *k) {
    struct kv_pool *p = k->pool;
    int64_t i = 0;
    while (p->places && p->hosted) {
        int64_t n = room(p);
        if (n < 1 || !bring_some(k, &i, n))
            return;
    }
}

static unsigned char *entry_of(int32_t slot) {
    return (unsigned char *)(uintptr_t)((uint64_t)slot * 2 + 1);
}

void kv_place(struct kv *k) {
    const struct kv_pool *p = k->pool;
    if (!p->places || k->moves == p->moves)
        return;
    for (int64_t i = 0; i < k->n_pages; i++) {
        const struct page *y = k->ids[i] < 0 ? NULL : &p->pages[k->ids[i]];
        k->pages[i] = !y ? NULL : y->data ? y->data : entry_of(y->slot);
    }
    k->moves = p->moves;
}

static bool is_hosted(const unsigned char *entry) {
    return (uintptr_t)entry & 1;
}

static int64_t slot_of(const unsigned char *entry) {
    return (int64_t)((uintptr_t)entry / 2);
}

// Marks what a pass reads; false: nothing of it is in host memory.
static bool mark_slots(struct kv_pool *p, const struct kv_view *views, const int64_t *n_pages,
                       int n) {
    struct kv_places *w = p->places;
    bool any = false;
    w->pass++;
    for (int i = 0; i < n; i++) {
        for (int64_t j = 0; j < n_pages[i]; j++) {
            if (!is_hosted(views[i].pages[j]))
                continue;
            w->slots[slot_of(views[i].pages[j])].pass = w->pass;
            any = true;
        }
    }
    // What failed copies have left is not a layer.
    for (int64_t i = 0; exec_failed_since(p->x, w->epoch) && i < p->staging * w->per; i++)
        w->slots[i].layer[0] = w->slots[i].layer[1] = -1;
    w->epoch = exec_epoch(p->x);
    return any;
}

// Whether a slot's place and its page in host memory follow those of a piece.
static bool continues(const struct copier_rows *c, const void *to, const void *from) {
    return (unsigned char *)c->to + c->n * c->to_step == to &&
           (const unsigned char *)c->from + c->n * c->from_step == from;
}

// Queues the copies of a layer for the slots of this pass that have another one.
static void fetch(struct kv_pool *p, int layer) {
    struct kv_places *w = p->places;
    struct kv_host *h = w->host;
    const int64_t bytes = p->layout.layer_bytes;
    struct copier_rows piece[PIECES];
    int n = 0, area = layer & 1;
    bool ordered = false;
    for (int64_t i = 0; i < p->staging * w->per; i++) {
        struct stage_slot *s = &w->slots[i];
        if (s->page < 0 || s->pass != w->pass || s->layer[area] == layer)
            continue;
        if (!ordered)
            copier_after_compute(h->up);
        ordered = true;
        s->layer[area] = layer;
        unsigned char *to = slot_at(p, i, area);
        const unsigned char *from = p->pages[s->page].copy + layer * bytes;
        if (n && continues(&piece[n - 1], to, from)) {
            piece[n - 1].n++;
            continue;
        }
        if (n == PIECES) {
            h->last_up = copier_rows_to_device(h->up, piece, n);
            n = 0;
        }
        piece[n++] = (struct copier_rows){.to = to,
                                          .from = from,
                                          .bytes = (size_t)bytes,
                                          .to_step = (size_t)bytes,
                                          .from_step = (size_t)p->layout.page_bytes,
                                          .n = 1};
    }
    if (n)
        h->last_up = copier_rows_to_device(h->up, piece, n);
    if (ordered)
        w->ticket[area] = h->last_up;
}

// The layer's own copies were queued with the layer before it, as a rule. Those of the next one go
// to the other area, which ops before this layer's have read.
static void stream_layer(struct kv_pool *p, int layer) {
    struct kv_places *w = p->places;
    const int next = layer + 1 < p->layout.s.n_layers ? layer + 1 : 0;
    fetch(p, layer);
    copier_before_compute(w->host->up, w->ticket[layer & 1]);
    if ((next ^ layer) & 1)
        fetch(p, next);
}

// The layer that is there lies where that of a page would.
static unsigned char *streamed(const struct kv_pool *p, unsigned char *entry, int layer) {
    if (!is_hosted(entry))
        return entry;
    return (unsigned char *)((uintptr_t)slot_at(p, slot_of(entry), layer & 1) -
                             (uintptr_t)(layer * p->layout.layer_bytes));
}

bool kv_stream_begin(struct kv_stream *s, struct kv_pool *p, const struct kv_view *views, int n) {
    s->pool = p;
    s->of = views;
    s->n = n;
    s->on = s->tables && p->places && p->hosted && mark_slots(p, views, s->n_pages, n);
    return s->on;
}

const struct kv_view *kv_stream_layer(struct kv_stream *s, int layer) {
    if (!s->on)
        return s->of;
    stream_layer(s->pool, layer);
    for (int i = 0; i < s->n; i++) {
        unsigned char **table = s->tables + i * s->room;
        for (int64_t j = 0; j < s->n_pages[i]; j++)
            table[j] = streamed(s->pool, s->of[i].pages[j], layer);
        s->views[i] = (struct kv_view){table, s->of[i].len};
    }
    return s->views;
}
