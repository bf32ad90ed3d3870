// SPDX-License-Identifier: Apache-2.0
// Pages are single allocations, numbered, refcounted and kept on a free list for reuse until
// kv_pool_trim gives their memory back; their numbers are then used again. Every page begins zeroed
// and only ever holds finite values, so that unused slots can be read: one that was in use when ops
// failed is cleared before it is used again. A page referenced twice is never written: kv_reserve
// copies it first.
#include "state/kv.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "state/kv_impl.h"

int kv_pool_create(struct kv_pool **out, struct exec *x, const struct kv_layout *l, int64_t limit,
                   struct err *e) {
    struct kv_pool *p = calloc(1, sizeof *p);
    if (!p)
        return err_set(e, ERR_MEMORY, "no memory for a pool of key/value pages");
    p->x = x;
    p->layout = *l;
    p->free_head = p->empty_head = -1;
    kv_pool_limit(p, limit);
    *out = p;
    return 0;
}

void kv_pool_limit(struct kv_pool *p, int64_t limit) {
    p->limit = limit > 0 && limit < INT32_MAX ? limit : INT32_MAX;
}

void kv_pool_join(struct kv_pool *p, struct kv_budget *b) {
    if (!b)
        return;
    p->budget = b;
    p->next = b->pools;
    b->pools = p;
}

static void leave_budget(struct kv_pool *p) {
    if (!p->budget)
        return;
    p->budget->held -= p->held * p->layout.page_bytes;
    for (struct kv_pool **at = &p->budget->pools; *at; at = &(*at)->next) {
        if (*at != p)
            continue;
        *at = p->next;
        return;
    }
}

int64_t kv_budget_free_bytes(const struct kv_budget *b) {
    int64_t sum = 0;
    for (const struct kv_pool *p = b->pools; p; p = p->next)
        sum += kv_pool_free_bytes(p);
    return sum;
}

int64_t kv_budget_trim(struct kv_budget *b) {
    int64_t sum = 0;
    for (struct kv_pool *p = b->pools; p; p = p->next)
        sum += kv_pool_trim(p, 0);
    return sum;
}

int64_t kv_budget_used(const struct kv_budget *b) {
    int64_t sum = 0;
    for (const struct kv_pool *p = b->pools; p; p = p->next)
        sum += p->used;
    return sum;
}

// Ensures that the budget allows another page, by giving back free ones of the other pools.
static int budget_allow(const struct kv_pool *p, struct err *e) {
    struct kv_budget *b = p->budget;
    int64_t bytes = p->layout.page_bytes;
    if (!b || b->limit <= 0 || b->held <= b->limit - bytes)
        return 0;
    kv_budget_trim(b);
    if (b->held <= b->limit - bytes)
        return 0;
    return err_set(e, ERR_LIMIT,
                   "keys and values of all sequences take %lld of the %lld KiB planned for them; "
                   "end some, or use a shorter --max-ctx",
                   (long long)(b->held >> 10), (long long)(b->limit >> 10));
}

void kv_pool_destroy(struct kv_pool *p) {
    if (!p)
        return;
    if (p->places) // which waits for copies of pages
        p->moving->destroy(p);
    for (int64_t i = 0; i < p->n; i++)
        exec_ops(p->x)->free(p->x, p->pages[i].data);
    leave_budget(p);
    free(p->pages);
    free(p);
}

int64_t kv_pool_used(const struct kv_pool *p) {
    return p->used;
}

int64_t kv_pool_allocated(const struct kv_pool *p) {
    return p->held;
}

int64_t kv_pool_free_bytes(const struct kv_pool *p) {
    return kv_pool_free(p) * p->layout.page_bytes;
}

int64_t kv_pool_trim(struct kv_pool *p, int64_t keep) {
    int64_t before = p->held;
    while (kv_pool_free(p) > (keep > 0 ? keep : 0)) {
        exec_ops(p->x)->free(p->x, kv_pool_take_memory(p));
        p->held--;
    }
    int64_t bytes = (before - p->held) * p->layout.page_bytes;
    if (p->budget)
        p->budget->held -= bytes;
    return bytes;
}

unsigned char *kv_pool_take_memory(struct kv_pool *p) {
    int32_t id = p->free_head;
    struct page *page = &p->pages[id];
    unsigned char *data = page->data;
    p->free_head = page->next_free;
    page->data = NULL;
    page->next_free = p->empty_head;
    p->empty_head = id;
    return data;
}

bool kv_pool_add_memory(struct kv_pool *p, unsigned char *data, uint64_t taken) {
    if (kv_pool_number(p, NULL))
        return false;
    int32_t id = p->empty_head;
    p->empty_head = p->pages[id].next_free;
    p->pages[id] = (struct page){.data = data, .next_free = p->free_head, .taken_epoch = taken};
    p->free_head = id;
    return true;
}

// A number without memory at the head of its list.
int kv_pool_number(struct kv_pool *p, struct err *e) {
    if (p->empty_head >= 0)
        return 0;
    if (p->n == p->cap) {
        int64_t cap = p->cap ? 2 * p->cap : 16;
        struct page *pages = realloc(p->pages, (size_t)cap * sizeof *pages);
        if (!pages)
            return err_set(e, ERR_MEMORY, "no memory for a table of %lld key/value pages",
                           (long long)cap);
        p->pages = pages;
        p->cap = cap;
    }
    p->pages[p->n] = (struct page){.next_free = -1};
    p->empty_head = (int32_t)p->n++;
    return 0;
}

const struct kv_layout *kv_pool_layout(const struct kv_pool *p) {
    return &p->layout;
}

int kv_pool_grow(struct kv_pool *p, struct err *e) {
    if (p->held >= p->limit)
        return err_set(
            e, ERR_LIMIT,
            "all %lld key/value pages are in use; shorten the context or raise the limit",
            (long long)p->limit);
    int rc = budget_allow(p, e);
    if (!rc)
        rc = kv_pool_number(p, e);
    if (rc)
        return rc;
    unsigned char *data = exec_alloc(p->x, ARENA_PAGES, (size_t)p->layout.page_bytes);
    if (!data)
        return err_set(e, ERR_MEMORY,
                       "no memory for another %lld bytes of keys and values; use a shorter "
                       "--max-ctx or stop what else takes the memory",
                       (long long)p->layout.page_bytes);
    (void)kv_pool_add_memory(p, data, exec_epoch(p->x));
    p->held++;
    if (p->budget)
        p->budget->held += p->layout.page_bytes;
    return 0;
}

// Another pool of the budget gives memory back to the backend.
static bool others_give_up(const struct kv_pool *p) {
    for (struct kv_pool *q = p->budget ? p->budget->pools : NULL; q; q = q->next)
        if (q != p && q->places && q->moving->give_up(q))
            return kv_pool_trim(q, 0) > 0;
    return false;
}

// Where there is no room for another page, full ones go to host memory.
static int make_room(struct kv_pool *p, struct err *e) {
    int rc = kv_pool_grow(p, e);
    if (!rc || (p->places && p->moving->give_up(p)))
        return 0;
    while (rc && p->held < p->limit && others_give_up(p))
        rc = kv_pool_grow(p, e);
    return rc;
}

// A page of its own for one user; its id in *id.
static int pool_take(struct kv_pool *p, int32_t *id, struct err *e) {
    int rc = p->free_head < 0 ? make_room(p, e) : 0;
    if (rc)
        return rc;
    *id = p->free_head;
    struct page *page = &p->pages[*id];
    p->free_head = page->next_free;
    if (exec_failed_since(p->x, page->taken_epoch))
        exec_ops(p->x)->zero(p->x, page->data, (size_t)p->layout.page_bytes);
    page->taken_epoch = exec_epoch(p->x);
    page->refs = 1;
    p->used++;
    return 0;
}

static void pool_drop(struct kv_pool *p, int32_t id) {
    struct page *page = &p->pages[id];
    if (--page->refs > 0)
        return;
    p->used--;
    if (p->places)
        p->moving->forget(p, id);
    page = &p->pages[id]; // numbers may have moved
    int32_t *list = page->data ? &p->free_head : &p->empty_head;
    page->next_free = *list;
    *list = id;
}

// A table's reference to a page, and its end.
static void refer(const struct kv *k, int32_t id) {
    k->pool->pages[id].refs++;
    k->pool->pages[id].pins += k->still;
}

static void let_go(const struct kv *k, int32_t id) {
    k->pool->pages[id].pins -= k->still;
    pool_drop(k->pool, id);
}

void kv_init(struct kv *k, struct kv_pool *pool, int64_t window) {
    *k = (struct kv){.pool = pool, .window = window};
}

static void drop_at(struct kv *k, int64_t i) {
    if (k->ids[i] >= 0)
        let_go(k, k->ids[i]);
    k->ids[i] = -1;
    k->pages[i] = NULL;
}

void kv_fini(struct kv *k) {
    for (int64_t i = 0; i < k->n_pages; i++)
        drop_at(k, i);
    free(k->pages);
    free(k->ids);
    *k = (struct kv){0};
}

// Room for n page entries.
static int grow_table(struct kv *k, int64_t n, struct err *e) {
    if (n <= k->cap)
        return 0;
    int64_t cap = k->cap ? k->cap : 8;
    while (cap < n)
        cap *= 2;
    unsigned char **pages = realloc(k->pages, (size_t)cap * sizeof *pages);
    if (pages)
        k->pages = pages;
    int32_t *ids = realloc(k->ids, (size_t)cap * sizeof *ids);
    if (ids)
        k->ids = ids;
    if (!pages || !ids)
        return err_set(e, ERR_MEMORY, "no memory for a page table of %lld entries", (long long)cap);
    k->cap = cap;
    return 0;
}

// Replaces entry i by an exclusive copy if someone else refers to its page, or it is not on the
// device.
static int own_page(struct kv *k, int64_t i, struct err *e) {
    struct kv_pool *p = k->pool;
    const size_t bytes = (size_t)p->layout.page_bytes;
    int32_t old = k->ids[i], id = old;
    if (p->pages[old].refs > 1 || !p->pages[old].data) {
        int rc = pool_take(p, &id, e);
        if (rc)
            return rc;
        const struct page *from = &p->pages[old]; // taking may have moved it
        if (from->data)
            exec_ops(p->x)->copy(p->x, p->pages[id].data, from->data, bytes);
        else
            exec_ops(p->x)->upload(p->x, p->pages[id].data, from->copy, bytes);
        let_go(k, old);
        p->pages[id].pins = k->still;
    }
    if (p->places)
        p->moving->forget(p, id); // it will be written to
    k->ids[i] = id;
    k->pages[i] = p->pages[id].data;
    return 0;
}

// New pages first: they are what a failure has to give back. A page that is shared is copied last;
// only the one that position len lies on can be.
int kv_reserve(struct kv *k, int64_t n, struct err *e) {
    if (n <= 0)
        return 0;
    int64_t before = k->n_pages, need = (k->len + n + KV_PAGE - 1) / KV_PAGE;
    int rc = grow_table(k, need, e);
    while (!rc && k->n_pages < need) {
        int32_t id;
        rc = pool_take(k->pool, &id, e);
        if (rc)
            break;
        k->pool->pages[id].pins = k->still;
        k->ids[k->n_pages] = id;
        k->pages[k->n_pages++] = k->pool->pages[id].data;
    }
    for (int64_t i = k->len / KV_PAGE; !rc && i < need && i < before; i++)
        rc = own_page(k, i, e);
    if (rc)
        kv_release(k, before);
    return rc;
}

void kv_release(struct kv *k, int64_t n_pages) {
    while (k->n_pages > n_pages)
        drop_at(k, --k->n_pages);
}

struct kv_slot kv_slot_at(const struct kv *k, int64_t pos) {
    return (struct kv_slot){k->pages[pos / KV_PAGE], (int32_t)(pos % KV_PAGE)};
}

// Pages that are dropped at len positions. A cut back to a multiple of 32 must still find its whole
// window: one page of slack.
static int64_t dropped_at(int64_t window, int64_t len) {
    int64_t below = len - window - KV_PAGE;
    return window > 0 && below > 0 ? below / KV_PAGE : 0;
}

void kv_advance(struct kv *k, int64_t n) {
    int64_t from = dropped_at(k->window, k->len);
    for (int64_t i = k->len / KV_PAGE; k->pool->places && i < (k->len + n) / KV_PAGE; i++)
        k->pool->moving->full(k->pool, k->ids[i]);
    k->len += n;
    for (int64_t i = from; i < dropped_at(k->window, k->len); i++)
        drop_at(k, i);
}

bool kv_keeps(const struct kv *k, int64_t n) {
    int64_t first = n - k->window + 1; // the oldest key that a row at n sees
    if (k->window <= 0 || n == 0)
        return true;
    for (int64_t i = first > 0 ? first / KV_PAGE : 0; i * KV_PAGE < n; i++)
        if (k->ids[i] < 0)
            return false;
    return true;
}

void kv_truncate(struct kv *k, int64_t n) {
    kv_release(k, (n + KV_PAGE - 1) / KV_PAGE);
    k->len = n;
}

int kv_share(struct kv *dst, const struct kv *src, int64_t n, struct err *e) {
    int64_t keep = (n + KV_PAGE - 1) / KV_PAGE;
    int rc = grow_table(dst, keep, e);
    if (rc)
        return rc;
    for (int64_t i = 0; i < keep; i++) {
        if (src->ids[i] >= 0)
            refer(dst, src->ids[i]);
    }
    kv_truncate(dst, 0);
    if (keep) {
        memcpy(dst->ids, src->ids, (size_t)keep * sizeof *dst->ids);
        memcpy(dst->pages, src->pages, (size_t)keep * sizeof *dst->pages);
    }
    dst->n_pages = keep;
    dst->len = n;
    dst->moves = src->moves;
    return 0;
}

int kv_skip(struct kv *k, int64_t n_pages, struct err *e) {
    int rc = grow_table(k, n_pages, e);
    if (rc)
        return rc;
    for (int64_t i = 0; i < n_pages; i++) {
        k->ids[i] = -1;
        k->pages[i] = NULL;
    }
    k->n_pages = n_pages;
    k->len = n_pages * KV_PAGE;
    return 0;
}

void kv_stay(struct kv *k) {
    for (int64_t i = 0; i < k->n_pages && !k->still; i++)
        if (k->ids[i] >= 0)
            k->pool->pages[k->ids[i]].pins++;
    k->still = true;
}

const unsigned char *kv_page_data(const struct kv *k, int64_t i) {
    const struct page *page = &k->pool->pages[k->ids[i]];
    return page->data ? page->data : page->copy;
}

struct kv_view kv_view_of(const struct kv *k) {
    return (struct kv_view){k->pages, k->len};
}

void kv_needs_add(struct kv_needs *s, const struct kv_layout *l, int64_t window, int64_t late) {
    struct kv_layout q8;
    struct kv_shape small = l->s;
    small.codec_k = small.codec_v = KV_Q8_0;
    bool can = kv_layout_init(&q8, &small, NULL) == 0;
    s->of[s->n++] = (struct kv_need){.page_bytes = l->page_bytes,
                                     .page_q8 = can ? q8.page_bytes : l->page_bytes,
                                     .window = window > 0 ? window : 0,
                                     .late = late};
}

void kv_needs_join(struct kv_needs *s, const struct kv_needs *more) {
    for (int i = 0; i < more->n; i++)
        s->of[s->n++] = more->of[i];
}

struct kv_needs kv_needs_q8(const struct kv_needs *s) {
    struct kv_needs q8 = *s;
    for (int i = 0; i < q8.n; i++)
        q8.of[i].page_bytes = q8.of[i].page_q8;
    return q8;
}

static int64_t max_pages(const struct kv_need *g, int64_t n, int64_t step) {
    // After the window lies a page of slack, and one that the window begins within; before it what
    // is reserved, of which the last page need not be full.
    int64_t held = g->window + g->late + step + 2 * KV_PAGE - 1;
    return ceil_div(g->window ? min_i64(n, held) : n, KV_PAGE);
}

// Of these pages those in host memory: full ones, of all groups alike; two are not full, or are
// given up while another one is taken.
static int64_t hosted_pages(const struct kv_needs *s, const struct kv_need *g, int64_t n,
                            int64_t step) {
    int64_t together = 0;
    for (int i = 0; i < s->n; i++)
        together += s->of[i].staged ? s->of[i].page_bytes : 0;
    if (!g->staged || s->host < together)
        return 0;
    int64_t full = max_i64(max_pages(g, n, step) - ceil_div(step, KV_PAGE) - 2, 0);
    return min_i64(full, s->host / together);
}

int64_t kv_needs_max(const struct kv_needs *s, int64_t n, int64_t step) {
    int64_t sum = 0;
    for (int i = 0; i < s->n; i++) {
        const struct kv_need *g = &s->of[i];
        int64_t hosted = hosted_pages(s, g, n, step);
        int64_t staging = hosted ? ceil_div(hosted, g->staged) : 0;
        sum += (max_pages(g, n, step) - hosted + staging) * g->page_bytes;
    }
    return sum;
}

int64_t kv_needs_hosted(const struct kv_needs *s, int64_t n, int64_t step) {
    int64_t sum = 0;
    for (int i = 0; i < s->n; i++)
        sum += hosted_pages(s, &s->of[i], n, step) * s->of[i].page_bytes;
    return sum;
}

int64_t kv_needs_kept(const struct kv_needs *s, int64_t n) {
    int64_t sum = 0;
    for (int i = 0; i < s->n; i++) {
        int64_t pages = ceil_div(max_i64(n - s->of[i].late, 0), KV_PAGE);
        sum += (pages - dropped_at(s->of[i].window, n)) * s->of[i].page_bytes;
    }
    return sum;
}

int64_t kv_needs_windows(const struct kv_needs *s, int64_t n, int64_t step) {
    int64_t sum = 0;
    for (int i = 0; i < s->n; i++)
        if (s->of[i].window)
            sum += max_pages(&s->of[i], n, step) * s->of[i].page_bytes;
    return sum;
}

int64_t kv_needs_per_1k(const struct kv_needs *s) {
    int64_t sum = 0;
    for (int i = 0; i < s->n; i++)
        if (!s->of[i].window)
            sum += 1024 / KV_PAGE * s->of[i].page_bytes;
    return sum;
}
