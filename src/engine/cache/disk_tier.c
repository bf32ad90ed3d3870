// SPDX-License-Identifier: Apache-2.0
// The prefix cache on the disk: which entries become files, what of them is read back, and what
// becomes of files that others have damaged or removed. A file holds what its base lacks, which is
// the file that begins most alike; it goes before its base does.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/num.h"
#include "base/vec.h"
#include "engine/cache/entries.h"
#include "formats/content.h"
#include "models/checkpoint.h"
#include "state/identity.h"

enum { QUEUE = 64, LOOK_MS = 1000, NOTE_MS = 60000 };

static void note_user(struct cache *c, const char *sentence) {
    if (c->o.note)
        c->o.note(c->o.note_arg, sentence);
}

static struct cache_job *make_job(struct cache *c, enum cache_job_kind what,
                                  struct cache_entry *y) {
    struct cache_job *j = calloc(1, sizeof *j);
    if (j)
        *j = (struct cache_job){.what = what, .kind = c->kind, .owner = y};
    if (j && y) {
        j->key = y->file->key;
        j->file = y->file;
    }
    return j;
}

static void use_ram_copy(struct cache_job *j, struct ram_copy *m) {
    j->ram_copy = m;
    m->users++;
}

// One that has ended; NULL: none.
static struct cache_job *next_ended(struct cache *c) {
    struct cache_job *j = cache_disk_ended(c->disk);
    if (j && j->ram_copy)
        j->ram_copy->users--;
    return j;
}

static void free_job(struct cache_job *j) {
    cache_scan_fini(&j->scan);
    free(j->pieces);
    free(j->loads);
    free(j);
}

// What is only read and written, and found again otherwise.
static void forget_words(struct record *f) {
    free(f->tokens);
    free(f->identity);
    f->tokens = NULL;
    f->identity = NULL;
}

static void forget_file(struct cache *c, struct cache_entry *y) {
    c->stats.disk_bytes -= y->file->bytes;
    c->stats.file_pages -= record_pages(y->file);
    c->stats.files--;
    c->blocks.other -= record_memory(y->file);
    record_fini(y->file);
    free(y->file);
    y->file = NULL;
    y->stored = y->lost = false;
    if (y->base)
        y->base->dependents--;
    y->base = NULL;
    if (!y->ram_copy && !y->loading)
        cache_entry_drop(c, y);
}

void cache_disk_tier_lose(struct cache *c, struct cache_entry *y) {
    for (struct cache_entry *z = y->dependents ? c->all : NULL, *next; z; z = next) {
        next = z->next;
        if (z->base != y || z->lost)
            continue;
        cache_disk_tier_lose(c, z);
        next = c->all; // others may have gone with it
    }
    if (y->writing) { // when that has ended
        y->lost = true;
        if (y->base)
            y->base->dependents--;
        y->base = NULL;
        return;
    }
    bool removed = cache_disk_writes(c->disk) && !y->newer;
    struct cache_job *j = removed ? make_job(c, CACHE_REMOVE, y) : NULL;
    if (j) {
        j->owner = NULL;
        j->file = NULL;
        cache_disk_queue(c->disk, j);
        c->stats.removed++;
    }
    forget_file(c, y);
}

// Removes the oldest file of another kind.
static void remove_other(struct cache *c) {
    const struct cache_found *f = &c->other[--c->n_other];
    struct cache_job *j = calloc(1, sizeof *j);
    if (!j)
        return;
    *j = (struct cache_job){.what = CACHE_REMOVE, .kind = f->kind, .key = f->key};
    c->stats.disk_bytes -= f->bytes;
    c->stats.removed++;
    cache_disk_queue(c->disk, j);
}

// Whether the file of that key is a newer version's, which can use it.
static bool is_newer(const struct cache *c, uint64_t key) {
    int64_t i = 0;
    while (i < c->n_newer && c->newer[i] != key)
        i++;
    return i < c->n_newer;
}

static void keep_newer(struct cache *c, uint64_t key) {
    if (!is_newer(c, key) &&
        vec_reserve(&c->newer, &c->cap_newer, c->n_newer + 1, sizeof *c->newer, NULL) == 0)
        c->newer[c->n_newer++] = key;
}

// A file that was of no use is written anew, under the same name: it is not another's any more.
static void written_over(struct cache *c, uint64_t key) {
    for (int64_t i = 0; i < c->n_other; i++) {
        if (c->other[i].kind != c->kind || c->other[i].key != key)
            continue;
        c->stats.disk_bytes -= c->other[i].bytes;
        c->n_other--;
        memmove(c->other + i, c->other + i + 1, (size_t)(c->n_other - i) * sizeof *c->other);
        return;
    }
}

static bool make_disk_room(struct cache *c, int64_t bytes, const struct cache_entry *keep) {
    struct cache_ranking ranking = {0};
    bool room = bytes <= c->o.disk;
    while (room && c->stats.disk_bytes + bytes > c->o.disk) {
        struct cache_entry *y = c->n_other ? NULL : cache_rank_pop(&ranking, c, true, keep);
        if (y) {
            struct cache_entry *base = y->base;
            cache_disk_tier_lose(c, y);
            cache_rank_push(&ranking, c, base); // nothing may go on from it any more
        } else if (c->n_other) {
            remove_other(c);
        } else {
            room = false;
        }
    }
    free(ranking.at);
    return room;
}

// Takes a file over that is there, or on its way.
static void take_file(struct cache *c, struct cache_entry *y, struct record *f,
                      struct cache_entry *base) {
    y->file = f;
    y->base = base;
    if (base)
        base->dependents++;
    c->stats.files++;
    c->stats.file_pages += record_pages(f);
    c->stats.disk_bytes += f->bytes;
    c->blocks.other += record_memory(f);
}

// The head of an entry's file, relative to a base where there is one.
static struct record *describe_file(struct cache *c, const struct cache_entry *y,
                                    struct cache_entry **base) {
    int32_t *text = malloc((size_t)y->len * sizeof *text);
    struct record *f = calloc(1, sizeof *f);
    struct cache_wanted w = {.sparse_end = y->sparse_end, .file = true};
    int64_t common = 0;
    int rc = !text || !f ? ERR_MEMORY : 0;
    if (!rc) {
        prefix_text(y->node, text);
        *base = cache_nearest(c, text, y->len, &w, &common);
        rc = record_of(f, c->identity, y->ram_copy, *base ? (*base)->file : NULL, common, NULL);
    }
    if (!rc) {
        f->key = record_key(c->kind, text, y->len, y->sparse_end);
        memmove(text, text + f->common, (size_t)(y->len - f->common) * sizeof *text);
        f->tokens = text;
        return f;
    }
    if (f)
        record_fini(f);
    free(f);
    free(text);
    return NULL;
}

// Whether the model's file is what it was when its content was read. Weights that are mapped change
// with it, and files of either content would be taken for the other's. Where only the inode's own
// time is another, as after a rename, its content is read again.
static bool same_model(struct cache *c) {
    const struct gguf *g = model_file(session_model(c->session));
    uint64_t stamp;
    if (c->changed || !content_stamp(g, 0, &stamp) || stamp == c->stamp)
        return !c->changed;
    struct cache_job *j = make_job(c, CACHE_IDENTIFY, NULL);
    if (!j)
        return false;
    c->changed = true;
    j->gguf = g;
    cache_disk_queue(c->disk, j);
    return false;
}

void cache_disk_tier_offer(struct cache *c, struct cache_entry *y) {
    struct cache_entry *base = NULL;
    if (!c->scanned || !same_model(c) || !cache_disk_writes(c->disk) || y->file || !y->ram_copy ||
        cache_disk_waiting(c->disk) >= QUEUE || c->pinned > (c->o.ram - c->o.host) / 2)
        return;
    struct record *f = describe_file(c, y, &base);
    if (!f)
        return;
    bool room = !is_newer(c, f->key) && make_disk_room(c, f->bytes, base);
    struct cache_job *j = NULL;
    if (room) {
        take_file(c, y, f, base);
        j = make_job(c, CACHE_WRITE, y);
    }
    if (!room) {
        record_fini(f);
        free(f);
    } else if (!j) {
        forget_file(c, y);
    } else {
        use_ram_copy(j, y->ram_copy);
        y->writing = true;
        y->pinned = ram_copy_own_bytes(y->ram_copy);
        c->pinned += y->pinned;
        written_over(c, f->key);
        cache_disk_queue(c->disk, j);
    }
}

static void finish_write(struct cache *c, struct cache_entry *y, const struct cache_job *j) {
    y->writing = false;
    c->pinned -= y->pinned;
    forget_words(y->file);
    if (!j->rc && !y->lost) {
        y->stored = true;
        c->stats.written++;
        return;
    }
    if (j->rc) {
        c->stats.failed++;
        if (c->noted == 0 || clock_ms() - c->noted > NOTE_MS)
            note_user(c, j->err.text); // a full disk stays full for a while
        c->noted = clock_ms();
    }
    cache_disk_tier_lose(c, y);
}

// A RAM copy for a file's, with what memory has of it already; the others are to be read.
static struct ram_copy *make_ram_copy(struct cache *c, const struct cache_entry *y) {
    const struct record *f = y->file;
    struct ram_copy shape = {.len = y->len,
                             .sparse_end = y->sparse_end,
                             .n_groups = f->n_groups,
                             .form = malloc(f->form_bytes),
                             .form_bytes = f->form_bytes,
                             .rest_bytes = f->rest_bytes};
    struct cache_wanted w = {.sparse_end = y->sparse_end, .ready = true};
    struct ram_copy_base base = {0};
    struct ram_copy *m = NULL;
    struct cache_entry *near = NULL;
    int32_t *text = malloc((size_t)y->len * sizeof *text);
    if (text) {
        prefix_text(y->node, text);
        near = cache_nearest(c, text, y->len, &w, &base.common);
    }
    if (near && near->source) // its pages may not come
        near = NULL;
    base.ram_copy = near ? near->ram_copy : NULL;
    for (int g = 0; g < f->n_groups; g++)
        shape.groups[g] = (struct ram_copy_group){.page_bytes = (size_t)f->groups[g].page_bytes,
                                                  .len = f->groups[g].len,
                                                  .first = f->groups[g].first,
                                                  .n_pages = ceil_div(f->groups[g].len, KV_PAGE)};
    c->blocks.max = cache_room(c) - c->tree.bytes;
    if (text && shape.form && cache_evict_for(c, ram_copy_needs(&shape, &base), near)) {
        memcpy(shape.form, f->form, f->form_bytes);
        (void)ram_copy_make(&m, &shape, &base, &c->blocks, NULL);
    }
    free(text);
    if (!m)
        free(shape.form);
    else
        m->foreign = true;
    return m;
}

struct page_run {
    int group;
    int64_t from, to;
};

// The pieces of pages of one file that are to be read; how many.
static int64_t add_pages(const struct cache *c, struct cache_piece *out, const struct record *f,
                         const struct ram_copy *m, struct page_run r) {
    const struct kv_layout *layout = c->layouts[r.group]; // right_pages
    int64_t n = 0;
    for (int64_t i = r.from; i < r.to; i++) {
        struct ram_copy_page *p = m->groups[r.group].pages[i];
        struct cache_piece piece = {.to = p->data, .bytes = p->bytes, .page = layout};
        piece.at = record_page(f, r.group, i, &piece.sum);
        if (ram_copy_page_own(p))
            out[n++] = piece;
    }
    return n;
}

// The parts of the RAM copy by file of the chain of bases.
static bool find_pieces(const struct cache *c, struct cache_job *j, const struct cache_entry *y,
                        const struct ram_copy *m) {
    int64_t upto[RAM_COPY_GROUPS], n = 1;
    int files = 0;
    for (int g = 0; g < m->n_groups; g++)
        n += upto[g] = m->groups[g].n_pages;
    for (const struct cache_entry *z = y; z; z = z->base)
        files++;
    j->pieces = calloc((size_t)n, sizeof *j->pieces);
    j->loads = calloc((size_t)files, sizeof *j->loads);
    if (!j->pieces || !j->loads)
        return false;
    n = 0;
    for (const struct cache_entry *z = y; z; z = z->base) {
        const struct record *f = z->file;
        struct cache_load *load = &j->loads[j->n_loads];
        *load = (struct cache_load){f->key, n, 0};
        if (z == y && f->rest_bytes)
            j->pieces[n++] =
                (struct cache_piece){m->rest, f->rest_bytes, f->data, f->sums[0], NULL};
        for (int g = 0; g < m->n_groups; g++) {
            int64_t from = max_i64(f->groups[g].own, m->groups[g].first);
            n += add_pages(c, j->pieces + n, f, m, (struct page_run){g, from, upto[g]});
            upto[g] = min_i64(upto[g], from);
        }
        load->n = n - load->first;
        j->n_loads += load->n > 0;
    }
    return true;
}

bool cache_disk_tier_load(struct cache *c, struct cache_entry *y) {
    if (!same_model(c))
        return false;
    struct cache_job *j = make_job(c, CACHE_LOAD, y);
    y->loading = true; // its file stays
    y->incoming = j ? make_ram_copy(c, y) : NULL;
    if (!y->incoming || !find_pieces(c, j, y, y->incoming)) {
        y->loading = false;
        cache_free_ram_copy(c, &y->incoming);
        if (j)
            free_job(j);
        return false;
    }
    use_ram_copy(j, y->incoming);
    cache_disk_queue(c->disk, j);
    return true;
}

static struct cache_entry *with_key(struct cache *c, uint64_t key) {
    struct cache_entry *y = c->all;
    while (y && (!y->file || y->file->key != key))
        y = y->next;
    return y;
}

static void finish_load(struct cache *c, struct cache_entry *y, const struct cache_job *j) {
    y->loading = false;
    if (!j->rc) {
        y->ram_copy = y->incoming;
        y->incoming = NULL;
        y->used = c->clock;
        c->stats.loaded++;
        return;
    }
    cache_free_ram_copy(c, &y->incoming);
    c->stats.failed++;
    note_user(c, j->err.text);
    if (!y->file) { // lost since: what has the key now is another file
        cache_entry_drop(c, y);
        return;
    }
    struct cache_entry *bad = with_key(c, j->failed);
    if (bad && j->rc == ERR_UNSUPPORTED) {
        bad->newer = true; // a program that is newer can use it
        keep_newer(c, j->failed);
    }
    if (bad)
        cache_disk_tier_lose(c, bad); // and with it what goes on from there
}

void cache_disk_tier_touch(struct cache *c, struct cache_entry *y) {
    if (!c->disk || !y->file || !y->stored || !cache_disk_writes(c->disk))
        return;
    struct cache_job *j = make_job(c, CACHE_TOUCH, y);
    if (j)
        cache_disk_queue(c->disk, j);
}

// Whether a head fits its base, and the text of both together.
static int32_t *file_text(struct cache *c, const struct record *f, const struct cache_entry *base) {
    int64_t vocab = model_params_of(session_model(c->session))->vocab;
    bool good = f->len > 0 && !f->n_tail && f->common <= (base ? base->len : 0) &&
                f->len <= model_max_ctx(session_model(c->session));
    for (int g = 0; g < f->n_groups && base && good; g++) {
        const struct record_group *o = &f->groups[g], *b = &base->file->groups[g];
        good = g < base->file->n_groups && b->page_bytes == o->page_bytes &&
               (o->own == o->first ||
                (b->first <= o->first && o->own * KV_PAGE <= min_i64(b->len, f->common)));
    }
    for (int64_t i = 0; i < f->len - f->common && good; i++)
        good = f->tokens[i] >= 0 && f->tokens[i] < vocab;
    int32_t *text =
        good ? malloc((size_t)max_i64(f->len, base ? base->len : 0) * sizeof *text) : NULL;
    if (!text)
        return NULL;
    if (base)
        prefix_text(base->node, text);
    memcpy(text + f->common, f->tokens, (size_t)(f->len - f->common) * sizeof *text);
    if (record_key(c->kind, text, f->len, f->sparse_end) == f->key)
        return text;
    free(text);
    return NULL;
}

// Whether a file's pages are this model's.
static bool right_pages(const struct cache *c, const struct record *f) {
    for (int g = 0; g < f->n_groups; g++)
        if (!c->layouts[g] || f->groups[g].page_bytes != (uint64_t)c->layouts[g]->page_bytes)
            return false;
    return f->kind == c->kind;
}

// Makes the entry of a file that was found; NULL: it is of no use.
static struct cache_entry *adopt_file(struct cache *c, struct record *f, struct cache_entry *base,
                                      int64_t age) {
    int32_t *text = right_pages(c, f) ? file_text(c, f, base) : NULL;
    struct prefix_node *n = NULL;
    struct cache_entry *y = NULL;
    if (text && !prefix_add(&c->tree, text, f->len, &n, NULL)) {
        for (y = n->entries; y && !cache_same_rule(y, f->len, f->sparse_end);)
            y = y->same;
        if (!y)
            y = cache_entry_add(c, n, f->sparse_end);
        if (!y)
            prefix_prune(&c->tree, n);
    }
    free(text);
    if (!y || y->file)
        return NULL;
    forget_words(f);
    take_file(c, y, f, base);
    y->stored = true;
    if (!y->ram_copy)
        y->used = -age / 60;
    return y;
}

// Files by their keys: entries that are known, and those that were found and may become entries.
struct candidate {
    uint64_t key;
    struct cache_found *found; // NULL: it is known
    struct cache_entry *entry; // NULL: not yet, or it is of no use
    bool tried;
};

struct candidates {
    struct candidate *at; // [n], the keys rising
    int64_t n;
};

static int by_key(const void *a, const void *b) {
    const struct candidate *x = a, *y = b;
    return (x->key > y->key) - (x->key < y->key);
}

static struct candidate *find_key(const struct candidates *all, uint64_t key) {
    const struct candidate wanted = {.key = key};
    return bsearch(&wanted, all->at, (size_t)all->n, sizeof wanted, by_key);
}

// Files go on from others, which are adopted before them; `way` has room for all.
static void adopt_with_bases(struct cache *c, const struct candidates *all, struct candidate *one,
                             struct candidate **way) {
    int64_t n = 0;
    while (one && !one->entry && !one->tried) { // a circle ends at what has been tried
        one->tried = true;
        way[n++] = one;
        one = one->found->head->base ? find_key(all, one->found->head->base) : NULL;
    }
    while (n-- > 0) {
        struct record *f = way[n]->found->head;
        struct candidate *base = f->base ? find_key(all, f->base) : NULL;
        if (f->base && (!base || !base->entry))
            continue;
        way[n]->entry = adopt_file(c, f, base ? base->entry : NULL, way[n]->found->age);
        if (way[n]->entry)
            way[n]->found->head = NULL;
    }
}

// Makes entries of what was found; what is of no use stays in it.
static void adopt_all(struct cache *c, struct cache_scan *s) {
    struct candidates all = {calloc((size_t)(c->stats.files + s->n + 1), sizeof *all.at), 0};
    struct candidate **way = calloc((size_t)s->n + 1, sizeof(struct candidate *));
    for (struct cache_entry *y = c->all; y && all.at; y = y->next)
        if (y->file)
            all.at[all.n++] = (struct candidate){.key = y->file->key, .entry = y};
    for (int64_t i = 0; i < s->n && all.at; i++)
        if (s->found[i].head)
            all.at[all.n++] = (struct candidate){.key = s->found[i].key, .found = &s->found[i]};
    if (all.at)
        qsort(all.at, (size_t)all.n, sizeof *all.at, by_key);
    for (int64_t i = 0; i < all.n && way; i++)
        if (all.at[i].found)
            adopt_with_bases(c, &all, &all.at[i], way);
    free(all.at);
    free((void *)way);
}

static int oldest_last(const void *a, const void *b) {
    const struct cache_found *x = a, *y = b;
    return (x->age > y->age) - (x->age < y->age);
}

// What stays in it is not used: counted, to be removed when there is need for room, the oldest
// first.
static void keep_others(struct cache *c, const struct cache_scan *s) {
    char text[200 + CACHE_PATH];
    int64_t unused = 0;
    for (int64_t i = 0; i < c->n_other; i++)
        c->stats.disk_bytes -= c->other[i].bytes;
    c->stats.disk_bytes -= c->newer_bytes;
    c->newer_bytes = 0;
    c->n_other = 0;
    free(c->other);
    c->other = calloc((size_t)s->n + 1, sizeof *c->other);
    for (int64_t i = 0; i < s->n && c->other; i++) {
        const struct cache_found *f = &s->found[i];
        if (f->kind == c->kind && !f->head && !f->why)
            continue; // it has been adopted
        c->stats.disk_bytes += f->bytes;
        if (f->newer) { // only heads of this kind are read
            c->newer_bytes += f->bytes;
            keep_newer(c, f->key);
            continue;
        }
        c->other[c->n_other] =
            (struct cache_found){.kind = f->kind, .key = f->key, .bytes = f->bytes, .age = f->age};
        if (f->head) // nothing will ever make use of it
            c->other[c->n_other].age = INT32_MAX;
        unused += f->head != NULL;
        c->n_other++;
    }
    if (!c->n_other)
        return;
    qsort(c->other, (size_t)c->n_other, sizeof *c->other, oldest_last);
    snprintf(text, sizeof text,
             "%lld files in %s are not used by the prefix cache: they are of another model, draft, "
             "setting or version (%lld), or what they go on from is not there (%lld)",
             (long long)c->n_other, c->o.dir, (long long)(c->n_other - unused), (long long)unused);
    note_user(c, text);
}

// Offers what came to be before it was known what lies in the folder.
static void offer_all(struct cache *c) {
    struct cache_entry **all = calloc((size_t)c->stats.entries + 1, sizeof *all);
    int64_t n = 0;
    for (struct cache_entry *y = c->all; y && all; y = y->next)
        if (y->ram_copy && !y->source && !y->file)
            all[n++] = y;
    while (n-- > 0) // those with a RAM copy stay, whatever is removed for them
        cache_disk_tier_offer(c, all[n]);
    free((void *)all);
}

static void finish_scan(struct cache *c, struct cache_job *j) {
    bool first = !c->scanned;
    c->scanning = false;
    c->scanned = true;
    c->looked = clock_ms(); // who has waited for it does not wait for another one
    if (j->scan.same)
        return;
    for (int64_t i = 0; i < j->scan.n; i++)
        if (j->scan.found[i].why)
            note_user(c, j->scan.found[i].why);
    adopt_all(c, &j->scan);
    keep_others(c, &j->scan);
    if (!first || !cache_disk_writes(c->disk))
        return;
    (void)make_disk_room(c, 0, NULL);
    offer_all(c);
}

static int rising(const void *a, const void *b) {
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void begin_scan(struct cache *c) {
    struct cache_job *j = make_job(c, CACHE_SCAN, NULL);
    uint64_t *known = j ? calloc((size_t)c->stats.files + 1, sizeof *known) : NULL;
    if (!known) {
        free(j);
        return;
    }
    j->scan.known = known;
    j->scan.changed = c->scanned;
    for (struct cache_entry *y = c->all; y; y = y->next)
        if (y->file)
            known[j->scan.n_known++] = y->file->key;
    qsort(known, (size_t)j->scan.n_known, sizeof *known, rising);
    c->scanning = true;
    cache_disk_queue(c->disk, j);
}

bool cache_disk_tier_look(struct cache *c) {
    double now = clock_ms();
    bool late = c->scanned && !cache_disk_writes(c->disk) && now - c->looked >= LOOK_MS;
    if (!late || c->scanning || !same_model(c))
        return !c->scanning;
    c->looked = now;
    begin_scan(c);
    return !c->scanning;
}

// How pages of this model's files are laid out.
static int find_layouts(struct cache *c, struct err *e) {
    struct ram_copy shape;
    int rc = cache_empty_shape(c, &shape, c->layouts, e);
    if (!rc)
        free(shape.form);
    return rc;
}

// From now on it is known which files are of this model.
static void identified(struct cache *c, uint64_t content, uint64_t stamp) {
    struct str identity = {0};
    model_identity(session_model(c->session), content, &identity);
    if (identity.failed) { // nothing is read or written
        str_fini(&identity);
        return;
    }
    c->identity = identity.data;
    c->kind = identity_key(c->identity);
    c->content = content;
    c->stamp = stamp;
    begin_scan(c);
}

// The result of reading the model's file, for the first time or again.
static void model_read(struct cache *c, const struct cache_job *j) {
    const struct gguf *g = model_file(session_model(c->session));
    struct err e = {0};
    if (!j->rc && !c->changed) {
        identified(c, j->content, j->stamp);
    } else if (!j->rc && j->content == c->content) {
        c->changed = false;
        c->stamp = j->stamp;
        offer_all(c);
    } else if (c->changed && j->rc != ERR_STATE) {
        err_set(&e, ERR_MISMATCH,
                "%s has changed since it was loaded: the prefix cache neither writes nor reads "
                "files any more; load the model again, and put new files in the place of old ones "
                "by renaming them",
                gguf_path(g));
        note_user(c, e.text);
    } else {
        note_user(c, j->err.text);
    }
}

void cache_disk_tier_poll(struct cache *c) {
    struct cache_job *j;
    while (c->disk && (j = next_ended(c))) {
        if (j->what == CACHE_WRITE)
            finish_write(c, j->owner, j);
        else if (j->what == CACHE_LOAD)
            finish_load(c, j->owner, j);
        else if (j->what == CACHE_SCAN)
            finish_scan(c, j);
        else if (j->what == CACHE_IDENTIFY)
            model_read(c, j);
        else if (j->rc)
            note_user(c, j->err.text);
        free_job(j);
    }
}

// Without what is remembered of the model's file all of it has to be read, which a request need not
// wait for: nothing can have been left by it.
void cache_disk_tier_open(struct cache *c) {
    const struct gguf *g = model_file(session_model(c->session));
    struct err e = {0};
    uint64_t content, stamp = 0;
    if (!c->o.dir)
        return;
    int rc = find_layouts(c, &e);
    struct cache_disk_options o = {.dir = c->o.dir, .wake = c->o.wake, .wake_arg = c->o.wake_arg};
    if (!rc)
        rc = cache_disk_open(&c->disk, &o, &e);
    if (e.code) // it may be there all the same
        note_user(c, e.text);
    if (rc)
        return;
    (void)content_stamp(g, 0, &stamp);
    if (content_known(g, c->o.dir, &content)) {
        identified(c, content, stamp);
        cache_disk_wait(c->disk);
        cache_disk_tier_poll(c);
        return;
    }
    struct cache_job *j = make_job(c, CACHE_IDENTIFY, NULL);
    if (j) {
        j->gguf = g;
        cache_disk_queue(c->disk, j);
    }
}

void cache_disk_tier_close(struct cache *c) {
    if (!c->disk)
        return;
    struct cache_job *j;
    cache_disk_stop(c->disk);
    while ((j = next_ended(c)))
        free_job(j);
    cache_disk_close(c->disk);
    c->disk = NULL;
    for (struct cache_entry *y = c->all; y; y = y->next) {
        if (!y->file)
            continue;
        record_fini(y->file);
        free(y->file);
        y->file = NULL;
    }
    free(c->other);
    free(c->newer);
    free(c->identity);
}
