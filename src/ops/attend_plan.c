// SPDX-License-Identifier: Apache-2.0
// Cuts the work of one attention call into items (attend_plan.h). A path is a chain of rows from a
// root to a row without children here; each row is assigned to one path, whose rows hold its keys
// that are not committed. Rows of one sequence whose split is committed share their parts below it,
// whatever their paths. Host only; the tables are the same for all layers of a pass, so staging
// sends them once.
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/vec.h"
#include "ops/attend_plan.h"

enum { RUN = 8 }; // chunks of a run of short parts at most

struct build {
    const struct attend_args *a;
    const struct rows *r;
    const struct attend_limits *m;
    struct attend_plan *p;
    int64_t n_seqs;
    int32_t *depth, *child; // [n] rows above a row; a child within the batch or -1
    int32_t *pages_at;      // [n_seqs] begin of its pages
    struct attend_row *rows;
    int32_t *list, *path;
    int64_t n_list, n_path;
    int64_t n_items, shared; // chunks of all shared items, times blocks that share them
    bool failed;             // no memory for an item
};

// At least `bytes` of a buffer, whose contents stay; NULL: no memory.
static void *buffer_for(struct attend_buffer *r, size_t bytes) {
    return vec_reserve(&r->p, &r->bytes, (int64_t)bytes, 1, NULL) ? NULL : r->p;
}

static struct attend_row row_of(const struct attend_args *a, const struct rows *r, int64_t i) {
    int32_t pos = (int32_t)r->pos[i],
            window = a->shape.window > INT32_MAX / 2 ? 0 : (int32_t)a->shape.window;
    struct attend_row x = {.pos = pos, .last = pos};
    x.first = window > 0 ? max_i32(0, pos - window + 1) : 0;
    x.split = max_i32(0, pos / ATTEND_CHUNK - 1) * ATTEND_CHUNK;
    if (a->shape.mask == ATTEND_BLOCK) {
        x.last = window > 0 ? pos + window - 1 : INT32_MAX;
        x.split = (int32_t)(a->seqs[r->seq[i]].len / ATTEND_CHUNK * ATTEND_CHUNK);
    }
    return x;
}

// Tiles of pairs that an item of `rows` rows is cut into.
static int32_t tiles_of(const struct build *b, int64_t rows) {
    int32_t group = b->a->shape.n_heads / b->a->shape.n_kv;
    return (int32_t)ceil_div(rows * group, ATTEND_TILE);
}

static void push(struct build *b, struct attend_item t) {
    struct attend_item *items = buffer_for(&b->p->found, (size_t)(b->n_items + 1) * sizeof *items);
    if (items)
        items[b->n_items++] = t;
    else
        b->failed = true;
}

// The parts of a shared item as runs of about `max` chunks, or of one part; from the highest down,
// since high parts are the longest.
static void push_runs(struct build *b, struct attend_item t, int32_t max) {
    int32_t begin = t.chunk, end = t.end;
    while (begin < end) {
        int32_t at = max_i32(begin, attend_part_begin(attend_part(end - 1)));
        while (at > begin) {
            int32_t more = max_i32(begin, attend_part_begin(attend_part(at - 1)));
            if (end - more > max)
                break;
            at = more;
        }
        t.chunk = at;
        t.end = end;
        push(b, t);
        end = at;
    }
}

// Items over list[begin, n_list), in pieces of nearly the same size.
static void add_items(struct build *b, struct attend_item base, int64_t begin) {
    int32_t group = b->a->shape.n_heads / b->a->shape.n_kv, max = b->m->tiles_split;
    if (base.kind == ATTEND_WHOLE)
        max = b->m->tiles_whole;
    int32_t tiles = tiles_of(b, b->n_list - begin), pieces = ceil_div_i32(tiles, max);
    int32_t pairs = (int32_t)(b->n_list - begin) * group, step = ceil_div_i32(tiles, pieces);
    base.list = (int32_t)begin;
    for (int32_t x = 0; x < pairs; x += step * ATTEND_TILE) {
        struct attend_item t = base;
        t.pair = x;
        t.n_pairs = min_i32(pairs - x, step * ATTEND_TILE);
        int32_t first = INT32_MAX, split = INT32_MAX, top = 0, last = 0;
        for (int32_t i = x / group; i <= (x + t.n_pairs - 1) / group; i++) {
            const struct attend_row *row = &b->rows[b->list[begin + i]];
            first = min_i32(first, row->first);
            split = min_i32(split, row->split);
            top = max_i32(top, row->split);
            last = max_i32(last, row->pos);
        }
        t.chunk = (t.kind == ATTEND_LAST ? split : first) / ATTEND_CHUNK;
        t.end = t.kind == ATTEND_SHARED ? top / ATTEND_CHUNK : last / ATTEND_CHUNK + 1;
        if (b->a->shape.mask == ATTEND_BLOCK && t.kind != ATTEND_SHARED)
            t.end = ceil_div_i32(t.len + t.n_path, ATTEND_CHUNK);
        if (t.chunk >= t.end)
            continue;
        b->p->tiles = max_i32(b->p->tiles, ceil_div_i32(t.n_pairs, ATTEND_TILE));
        if (t.kind != ATTEND_SHARED) {
            push(b, t);
            continue;
        }
        push_runs(b, t, max_i32(1, (int32_t)min_i64(RUN, b->shared / b->m->blocks)));
    }
}

// Whether all keys below row i's split are committed, so that any rows may share them.
static bool split_committed(const struct build *b, int64_t i) {
    return b->rows[i].split <= b->a->seqs[b->r->seq[i]].len;
}

static struct attend_item item_of(const struct build *b, int64_t row) {
    int32_t seq = b->r->seq[row];
    return (struct attend_item){.pages = b->pages_at[seq], .len = (int32_t)b->a->seqs[seq].len};
}

// Items of a path whose table is path[base.path ..) and whose rows are own[0..n).
static void add_path(struct build *b, struct attend_item base, const int32_t *own, int64_t n) {
    int64_t begin = b->n_list;
    memcpy(b->list + begin, own, (size_t)n * sizeof *own);
    b->n_list += n;
    base.kind = b->p->whole ? ATTEND_WHOLE : ATTEND_LAST;
    add_items(b, base, begin);
    if (b->p->whole)
        return;
    begin = b->n_list;
    for (int64_t i = 0; i < n; i++)
        if (!split_committed(b, own[i]))
            b->list[b->n_list++] = own[i];
    base.kind = ATTEND_SHARED;
    if (b->n_list > begin)
        add_items(b, base, begin);
}

// ATTEND_PATH: every row without a child in the batch ends a path; it owns the rows that no later
// path owns.
static void add_tree(struct build *b, int32_t *own) {
    const struct rows *r = b->r;
    for (int64_t i = b->p->end - 1; i >= b->p->begin; i--) {
        if (b->child[i] >= 0)
            continue;
        struct attend_item base = item_of(b, i);
        int32_t n = b->depth[i] + 1, at = n, from = n;
        base.path = (int32_t)b->n_path;
        base.n_path = n;
        for (int32_t row = (int32_t)i; row >= 0; row = r->parent[row])
            b->path[base.path + --at] = row;
        // Own rows are the lower end of the path: child[] leads from a row to the path that owns
        // it.
        for (int32_t row = (int32_t)i, below = -1; row >= b->p->begin; row = r->parent[row]) {
            if (below >= 0 && b->child[row] != below)
                break;
            own[--from] = below = row;
        }
        b->n_path += n;
        add_path(b, base, own + from, n - from);
    }
}

// ATTEND_BLOCK: all rows of a sequence are keys of each of its rows.
static void add_blocks(struct build *b, int32_t *own) {
    const struct rows *r = b->r;
    for (int64_t s = 0; s < b->n_seqs; s++) {
        int64_t n = 0, begin = b->n_path;
        for (int64_t i = 0; i < r->n; i++) {
            if (r->seq[i] != s)
                continue;
            b->path[b->n_path++] = (int32_t)i;
            if (i >= b->p->begin && i < b->p->end)
                own[n++] = (int32_t)i;
        }
        if (n == 0)
            continue;
        struct attend_item base = item_of(b, own[0]);
        base.path = (int32_t)begin;
        base.n_path = (int32_t)(b->n_path - begin);
        add_path(b, base, own, n);
    }
}

// Whether row i takes part in its sequence's shared items.
static bool shares(const struct build *b, int64_t i) {
    return split_committed(b, i) && b->rows[i].first < b->rows[i].split;
}

// The rows of a sequence from row i of the batch on that lie together: [i, end).
static int64_t sequence_end(const struct build *b, int64_t i) {
    int64_t end = i + 1;
    while (end < b->p->end && b->r->seq[end] == b->r->seq[i])
        end++;
    return end;
}

// How much work there is below the splits, in all sequences: their runs of chunks are to be of
// one size, whatever their lengths.
static void measure_shared(struct build *b) {
    for (int64_t i = b->p->begin, end; i < b->p->end; i = end) {
        int32_t first = INT32_MAX, top = 0;
        int64_t rows = 0;
        end = sequence_end(b, i);
        for (int64_t r = i; r < end; r++) {
            if (!shares(b, r))
                continue;
            first = min_i32(first, b->rows[r].first / ATTEND_CHUNK);
            top = max_i32(top, b->rows[r].split / ATTEND_CHUNK);
            rows++;
        }
        if (rows)
            b->shared += (int64_t)(top - first) * b->a->shape.n_kv *
                         ceil_div(tiles_of(b, rows), b->m->tiles_split);
    }
}

// Parts below the splits, for all rows of a sequence whose splits are committed.
static void add_shared(struct build *b) {
    for (int64_t i = b->p->begin, end; i < b->p->end; i = end) {
        int64_t begin = b->n_list;
        end = sequence_end(b, i);
        for (int64_t r = i; r < end; r++)
            if (shares(b, r))
                b->list[b->n_list++] = (int32_t)r;
        if (b->n_list == begin)
            continue;
        struct attend_item base = item_of(b, b->list[begin]);
        base.kind = ATTEND_SHARED;
        add_items(b, base, begin);
    }
}

// Depths and children of all rows; returns the length of all path tables.
static int64_t measure(struct build *b) {
    const struct rows *r = b->r;
    int64_t length = 0;
    for (int64_t i = 0; i < r->n; i++) {
        b->child[i] = -1;
        b->depth[i] = r->parent[i] < 0 ? 0 : b->depth[r->parent[i]] + 1;
        if (i >= b->p->begin && i < b->p->end && r->parent[i] >= 0)
            b->child[r->parent[i]] = (int32_t)i; // the last child's path owns the row
    }
    for (int64_t i = b->p->begin; i < b->p->end; i++)
        if (b->child[i] < 0)
            length += b->depth[i] + 1;
    return b->a->shape.mask == ATTEND_BLOCK ? r->n : length;
}

static size_t section(struct attend_plan *p, int64_t n, size_t size) {
    size_t at = p->bytes;
    p->bytes = (at + (size_t)n * size + 15) / 16 * 16;
    return at;
}

static int64_t page_count(const struct build *b, int64_t seq) {
    return ceil_div(b->a->seqs[seq].len, KV_PAGE);
}

// Memory for everything but the items.
static bool lay_out(struct build *b, int64_t path_length) {
    struct attend_plan *p = b->p;
    int64_t n = b->r->n, batch = p->end - p->begin, n_pages = 0;
    for (int64_t s = 0; s < b->n_seqs; s++)
        b->pages_at[s] = -1;
    for (int64_t i = p->begin; i < p->end; i++) {
        int32_t *at = &b->pages_at[b->r->seq[i]];
        if (*at >= 0)
            continue;
        *at = (int32_t)n_pages;
        n_pages += page_count(b, b->r->seq[i]);
    }
    p->n_pages = n_pages;
    p->rows = section(p, n, sizeof *b->rows);
    p->list = section(p, 2 * batch, sizeof *b->list);
    p->path = section(p, path_length, sizeof *b->path);
    p->pages = section(p, n_pages, sizeof(unsigned char *));
    p->store = section(p, n, sizeof(struct kv_slot));
    p->blob = buffer_for(&p->tables, p->bytes);
    if (!p->blob)
        return false;
    memset(p->blob, 0, p->bytes);
    b->rows = (struct attend_row *)(void *)(p->blob + p->rows);
    b->list = (int32_t *)(void *)(p->blob + p->list);
    b->path = (int32_t *)(void *)(p->blob + p->path);
    for (int64_t s = 0; s < b->n_seqs; s++)
        if (b->pages_at[s] >= 0 && page_count(b, s))
            memcpy(p->blob + p->pages + (size_t)b->pages_at[s] * sizeof(unsigned char *),
                   b->a->seqs[s].pages, (size_t)page_count(b, s) * sizeof(unsigned char *));
    memcpy(p->blob + p->store, b->a->store, (size_t)n * sizeof(struct kv_slot));
    return true;
}

static void fill(struct build *b, int32_t *own) {
    struct attend_plan *p = b->p;
    int32_t part0 = INT32_MAX, top = 0;
    for (int64_t i = 0; i < b->r->n; i++)
        b->rows[i] = row_of(b->a, b->r, i);
    for (int64_t i = p->begin; i < p->end; i++) {
        const struct attend_row *x = &b->rows[i];
        part0 = min_i32(part0, attend_part(min_i32(x->first, x->split) / ATTEND_CHUNK));
        top = max_i32(top, attend_parts(x->split));
    }
    p->part0 = part0;
    p->slots = top - part0 + 1;
    if (!p->whole) {
        measure_shared(b);
        add_shared(b);
    }
    if (b->a->shape.mask == ATTEND_BLOCK)
        add_blocks(b, own);
    else
        add_tree(b, own);
}

// The texts of whole items, those of a path being side by side; x: room for n_items.
static void list_texts(struct attend_plan *p, const struct attend_item *items,
                       struct attend_text *x) {
    for (int32_t i = 0; i < p->n_items; i++) {
        const struct attend_item *t = &items[i];
        struct attend_text *last = p->n_texts ? &x[p->n_texts - 1] : NULL;
        if (last && last->pages == t->pages && last->path == t->path) {
            last->chunk = min_i32(last->chunk, t->chunk);
            last->end = max_i32(last->end, t->end);
        } else {
            x[p->n_texts++] =
                (struct attend_text){t->pages, t->len, t->path, t->n_path, t->chunk, t->end, 0};
        }
    }
    for (int32_t i = 0; i < p->n_texts; i++) {
        const int32_t n = x[i].end - x[i].chunk;
        x[i].before = p->text_chunks;
        p->text_chunks += n;
        p->longest_text = max_i32(p->longest_text, n);
    }
}

// Puts the items, and the texts of a whole plan, after the rest of the tables.
static bool close_plan(struct build *b) {
    struct attend_plan *p = b->p;
    p->items = section(p, b->n_items, sizeof(struct attend_item));
    p->texts = section(p, p->whole ? b->n_items : 0, sizeof(struct attend_text));
    unsigned char *blob = b->failed ? NULL : buffer_for(&p->tables, p->bytes);
    if (!blob)
        return false;
    p->blob = blob;
    p->n_items = (int32_t)b->n_items;
    memset(blob + p->items, 0, p->bytes - p->items);
    if (b->n_items)
        memcpy(blob + p->items, p->found.p, (size_t)b->n_items * sizeof(struct attend_item));
    if (p->whole)
        list_texts(p, p->found.p, (struct attend_text *)(void *)(blob + p->texts));
    return true;
}

static int64_t count_sequences(const struct rows *r) {
    int64_t n = 0;
    for (int64_t i = 0; i < r->n; i++)
        n = r->seq[i] >= n ? r->seq[i] + 1 : n;
    return n;
}

bool attend_plan_build(struct attend_plan *p, const struct attend_args *a, const struct rows *r,
                       int64_t begin, int64_t end, bool whole, const struct attend_limits *m) {
    *p = (struct attend_plan){.tables = p->tables,
                              .work = p->work,
                              .found = p->found,
                              .begin = begin,
                              .end = end,
                              .whole = whole,
                              .tiles = 1};
    struct build b = {.a = a, .r = r, .m = m, .p = p, .n_seqs = count_sequences(r)};
    size_t n = (size_t)r->n;
    int32_t *work = buffer_for(&p->work, (3 * n + (size_t)b.n_seqs) * sizeof *work);
    if (!work)
        return false;
    b.depth = work;
    b.child = work + n;
    b.pages_at = work + 3 * n;
    if (!lay_out(&b, measure(&b)))
        return false;
    fill(&b, work + 2 * n);
    return close_plan(&b);
}

void attend_plan_fini(struct attend_plan *p) {
    free(p->tables.p);
    free(p->work.p);
    free(p->found.p);
    *p = (struct attend_plan){.blob = NULL};
}

bool attend_plan_whole(const struct attend_args *a, const struct rows *r,
                       const struct attend_limits *m, int processors) {
    int64_t group = a->shape.n_heads / a->shape.n_kv, per = (int64_t)m->tiles_whole * ATTEND_TILE,
            ends = 0;
    const int64_t n = r->n - a->first;
    for (int64_t i = a->first; i + 1 < r->n; i++)
        ends += r->parent[i + 1] != i || r->seq[i + 1] != r->seq[i];
    int64_t blocks = ceil_div(n * group, per) * a->shape.n_kv;
    return n >= 16 * (ends + 1) && 2 * blocks >= processors;
}
