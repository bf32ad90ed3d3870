// SPDX-License-Identifier: Apache-2.0
// Sequences of several groups with heads, codecs and windows of their own, and an attachment on
// another device, without any model: rows are written by hand as a function of token and position.
// Random operations on several sequences, checkpoints through bytes among them; every position that
// must be there reads back what its sequence's tokens say.
#include <stdlib.h>

#include "base/rng.h"
#include "state/record.h"
#include "support/bytes.h"
#include "unit/test.h"

enum { GROUPS = 4, SEQS = 3, POINTS = 2, LIMIT = 600, VOCAB = 1000, WIDEST = 96, ROUNDS = 600 };

static const struct {
    struct kv_shape shape;
    int64_t window;
} groups[GROUPS] = {
    {{2, 2, 64, 32, false, KV_F16, KV_Q8_0}, 0},
    {{1, 1, 96, 64, true, KV_Q8_0, KV_Q8_0}, 0},
    {{1, 3, 32, 32, false, KV_F32, KV_BF16}, 70},
    {{1, 1, 32, 64, false, KV_BF16, KV_F16}, 200},
};

// The attachment: the row of the pass of each position.
struct notes {
    struct attachment base;
    int32_t *v; // [LIMIT], of the other device
};

struct world {
    struct exec *x, *y; // of the groups; of the attachment
    struct kv_pool *pool[GROUPS];
    struct attachment_kind kind;
    struct sequence_spec spec;
    struct sequence *s[SEQS];
    int64_t dropped[SEQS][GROUPS]; // pages that a window has let go
    int32_t rows[SEQS][LIMIT];     // what notes must hold
    struct checkpoint *c[POINTS];
    int64_t c_dropped[POINTS][GROUPS];
    int32_t c_rows[POINTS][LIMIT];
    struct rng rng;
    int kept, lost;
};

static int notes_create(const struct attachment_kind *k, struct attachment **out, struct err *e) {
    struct notes *n = calloc(1, sizeof *n);
    assert_non_null(n);
    n->base.kind = k;
    attachment_write(&n->base);
    n->v = exec_ops(k->x)->alloc(k->x, LIMIT * sizeof *n->v);
    assert_non_null(n->v);
    *out = &n->base;
    (void)e;
    return 0;
}

static void notes_destroy(struct attachment *a) {
    exec_ops(a->kind->x)->free(a->kind->x, ((struct notes *)a)->v);
    free(a);
}

static int notes_reserve(struct attachment *a, int64_t n, struct err *e) {
    return a->len + n <= LIMIT ? 0 : err_set(e, ERR_LIMIT, "no room for notes");
}

static void notes_release(struct attachment *a) {
    (void)a;
}

// A row and its token.
static int32_t note(int32_t token, int32_t row) {
    return token << 8 | row;
}

static void notes_append(struct attachment *a, const int32_t *token, const int32_t *rows,
                         int64_t count) {
    for (int64_t i = 0; i < count; i++)
        ((struct notes *)a)->v[a->len + i] = note(token[rows[i]], rows[i]);
    a->len += count;
}

static bool notes_keeps(const struct attachment *a, int64_t n) {
    return n <= a->len;
}

static void notes_cut(struct attachment *a, int64_t n) {
    a->len = n;
}

static int notes_copy(const struct attachment *a, int64_t n, bool at_rest, struct attachment **out,
                      struct err *e) {
    (void)at_rest;
    int rc = notes_create(a->kind, out, e);
    memcpy(((struct notes *)*out)->v, ((const struct notes *)a)->v, (size_t)n * sizeof(int32_t));
    (*out)->len = n;
    return rc;
}

static int64_t notes_bytes(const struct attachment *a) {
    return (int64_t)sizeof(struct notes) + a->len * 4;
}

static void notes_write(const struct attachment *a, struct stored_out *o) {
    stored_put_device(o, a->kind->x, ((const struct notes *)a)->v, (size_t)a->len * 4);
}

static void notes_read(const struct attachment_kind *k, struct stored_in *in, int64_t len,
                       struct attachment **out) {
    if (notes_create(k, out, NULL) == 0)
        stored_get_floats(in, k->x, (float *)((struct notes *)*out)->v, len);
    (*out)->len = len;
}

static void world_init(struct world *w) {
    memset(w, 0, sizeof *w);
    assert_int_equal(exec_create_cpu(&w->x, "scalar", 1, NULL), 0);
    assert_int_equal(exec_create_cpu(&w->y, "scalar", 1, NULL), 0);
    w->kind = (struct attachment_kind){.name = "notes",
                                       .x = w->y,
                                       .create = notes_create,
                                       .destroy = notes_destroy,
                                       .reserve = notes_reserve,
                                       .release = notes_release,
                                       .append = notes_append,
                                       .keeps = notes_keeps,
                                       .cut = notes_cut,
                                       .copy = notes_copy,
                                       .bytes = notes_bytes,
                                       .write = notes_write,
                                       .read = notes_read};
    w->spec = (struct sequence_spec){
        .x = w->x, .n_groups = GROUPS, .n_attached = 1, .attached = {&w->kind}, .max_len = LIMIT};
    for (int g = 0; g < GROUPS; g++) {
        struct kv_layout l;
        assert_int_equal(kv_layout_init(&l, &groups[g].shape, NULL), 0);
        assert_int_equal(kv_pool_create(&w->pool[g], w->x, &l, 0, NULL), 0);
        w->spec.groups[g] = (struct seq_group){w->pool[g], groups[g].window};
    }
    for (int i = 0; i < SEQS; i++)
        assert_int_equal(sequence_create(&w->s[i], &w->spec, NULL), 0);
    w->rng.state = 11;
}

static void world_fini(struct world *w) {
    for (int i = 0; i < SEQS; i++)
        sequence_destroy(w->s[i]);
    for (int i = 0; i < POINTS; i++)
        checkpoint_destroy(w->c[i]);
    for (int g = 0; g < GROUPS; g++) {
        assert_int_equal(kv_pool_used(w->pool[g]), 0);
        kv_pool_destroy(w->pool[g]);
    }
    exec_destroy(w->x);
    exec_destroy(w->y);
}

// K (part 0) or V (part 1) of a head at a position: writes it, or compares what is there with it.
static void head_row(const struct kv *k, int64_t pos, int32_t token, int at, bool write) {
    const struct kv_layout *l = kv_pool_layout(k->pool);
    int part = at % 2, head = at / 2 % l->s.n_heads, layer = at / 2 / l->s.n_heads;
    const struct kv_codec *c = kv_codec_of(part ? l->s.codec_v : l->s.codec_k);
    int dim = part ? l->s.dv : l->s.dk;
    struct rng r = {.state = (uint64_t)token * 7919 + (uint64_t)pos * 131 + (uint64_t)at};
    struct kv_slot slot = kv_slot_at(k, pos);
    struct kv_row row = kv_row_at(l, part ? &l->v : &l->k, slot.page, layer, head, slot.slot);
    unsigned char codes[WIDEST * 4], scales[WIDEST];
    float x[WIDEST];
    if (part && l->s.v_in_k)
        return;
    for (int i = 0; i < dim; i++)
        x[i] = (float)rng_below(&r, 2001) / 1000 - 1;
    c->encode(x, write ? row.codes : codes, write ? row.scales : scales, dim);
    if (write)
        return;
    assert_memory_equal(row.codes, codes, (size_t)(dim / c->block * c->code_bytes));
    assert_memory_equal(row.scales, scales, (size_t)(dim / c->block * c->scale_bytes));
}

static void position(const struct kv *k, int64_t pos, int32_t token, bool write) {
    const struct kv_layout *l = kv_pool_layout(k->pool);
    for (int at = 0; at < 2 * l->s.n_layers * l->s.n_heads; at++)
        head_row(k, pos, token, at, write);
}

static void check(struct world *w, int i) {
    const struct sequence *s = w->s[i];
    const struct notes *n = (const struct notes *)sequence_attached(s, &w->kind);
    assert_int_equal(n->base.len, s->len);
    assert_memory_equal(n->v, w->rows[i], (size_t)s->len * 4);
    for (int g = 0; g < GROUPS; g++) {
        int64_t window = groups[g].window, first = window ? s->len - window + 1 : 0;
        assert_int_equal(s->kv[g].len, s->len);
        for (int64_t p = first > 0 ? first : 0; p < s->len; p++)
            position(&s->kv[g], p, s->tokens[p], false);
    }
}

static void append(struct world *w, int i) {
    struct sequence *s = w->s[i];
    int32_t token[200], index[100];
    int64_t n = 1 + rng_below(&w->rng, 100);
    if (s->len + n > LIMIT)
        return;
    for (int j = 0; j < 200; j++)
        token[j] = (int32_t)rng_below(&w->rng, VOCAB);
    for (int j = 0; j < n; j++) {
        index[j] = (int32_t)rng_below(&w->rng, 200);
        w->rows[i][s->len + j] = note(token[index[j]], index[j]);
    }
    assert_int_equal(sequence_reserve(s, n, NULL), 0);
    for (int g = 0; g < GROUPS; g++)
        for (int64_t j = 0; j < n; j++)
            position(&s->kv[g], s->len + j, token[index[j]], true);
    sequence_append(s, token, index, n);
    for (int g = 0; g < GROUPS; g++) {
        int64_t gone = (s->len - groups[g].window - KV_PAGE) / KV_PAGE;
        if (groups[g].window && gone > w->dropped[i][g])
            w->dropped[i][g] = gone;
    }
}

static void cut(struct world *w, int i) {
    int64_t len = w->s[i]->len, n = rng_below(&w->rng, (uint32_t)len + 1), kept, want = n;
    if (rng_below(&w->rng, 2) && len > 60)
        n = want = len - rng_below(&w->rng, 60);
    for (int g = 0; g < GROUPS; g++) {
        bool there = !w->dropped[i][g] || n - groups[g].window + 1 >= w->dropped[i][g] * KV_PAGE;
        want = there || n == len ? want : 0;
    }
    assert_int_equal(sequence_truncate(w->s[i], n, &kept, NULL), 0);
    assert_int_equal(kept, want);
    w->kept += kept == n && n < len;
    w->lost += kept != n;
    if (kept == 0)
        memset(w->dropped[i], 0, sizeof w->dropped[i]);
}

// A checkpoint, every other time through bytes.
static void save(struct world *w, int i, int at) {
    checkpoint_destroy(w->c[at]);
    assert_int_equal(sequence_checkpoint(w->s[i], &w->c[at], NULL), 0);
    assert_int_equal(checkpoint_len(w->c[at]), w->s[i]->len);
    memcpy(w->c_dropped[at], w->dropped[i], sizeof w->dropped[i]);
    memcpy(w->c_rows[at], w->rows[i], sizeof w->rows[i]);
    if (rng_below(&w->rng, 2))
        return;
    struct bytes b = {0}, again = {0};
    struct record_text f = {.identity = "device: here\n", .vocab = VOCAB};
    struct record_sink to = {.sink = bytes_sink, .arg = &b},
                       twice = {.sink = bytes_sink, .arg = &again};
    struct err e = {0};
    assert_int_equal(record_save(w->c[at], &f, &to, &e), 0);
    struct record_source from = {bytes_source, &b, (int64_t)b.n};
    checkpoint_destroy(w->c[at]);
    assert_int_equal(record_load(&w->c[at], &w->spec, &f, &from, &e), 0);
    assert_int_equal(b.at, b.n);
    assert_int_equal(record_save(w->c[at], &f, &twice, &e), 0);
    assert_int_equal(again.n, b.n);
    assert_memory_equal(again.data, b.data, b.n);
    free(b.data);
    free(again.data);
    free(f.tail);
}

static void operate(struct world *w) {
    int i = (int)rng_below(&w->rng, SEQS), other = (int)rng_below(&w->rng, SEQS);
    int at = (int)rng_below(&w->rng, POINTS);
    switch (rng_below(&w->rng, 8)) {
    case 0:
    case 1:
        cut(w, i);
        break;
    case 2:
        if (i == other)
            break;
        sequence_destroy(w->s[other]);
        assert_int_equal(sequence_fork(w->s[i], &w->s[other], NULL), 0);
        memcpy(w->dropped[other], w->dropped[i], sizeof w->dropped[i]);
        memcpy(w->rows[other], w->rows[i], sizeof w->rows[i]);
        break;
    case 3:
        save(w, i, at);
        break;
    case 4:
        if (!w->c[at])
            break;
        assert_int_equal(sequence_restore(w->s[i], w->c[at], NULL), 0);
        memcpy(w->dropped[i], w->c_dropped[at], sizeof w->dropped[i]);
        memcpy(w->rows[i], w->c_rows[at], sizeof w->rows[i]);
        break;
    default:
        append(w, i);
    }
}

static void groups_keep_their_own(void **state) {
    (void)state;
    static struct world w;
    world_init(&w);
    for (int round = 0; round < ROUNDS; round++) {
        operate(&w);
        for (int i = 0; i < SEQS; i++)
            check(&w, i);
    }
    assert_true(w.kept > 20 && w.lost > 5);
    world_fini(&w);
}

// A part that has no room: nothing is kept of what the others have reserved.
static void an_attachment_can_refuse(void **state) {
    (void)state;
    static struct world w;
    world_init(&w);
    struct err e = {0};
    w.s[0]->spec.max_len = 2 * LIMIT;
    while (w.s[0]->len < LIMIT - 100)
        append(&w, 0);
    int64_t used = kv_pool_used(w.pool[0]);
    assert_int_equal(sequence_reserve(w.s[0], LIMIT, &e), ERR_LIMIT);
    assert_int_equal(kv_pool_used(w.pool[0]), used);
    check(&w, 0);
    world_fini(&w);
}

// State of an attachment that is not there when it is read: its pages and its bytes lie before
// those of one that is.
static struct sequence *other_of;
static void other_write(const struct attachment *a, struct stored_out *o) {
    stored_put_kv(o, other_of->spec.x, &other_of->kv[1]);
    notes_write(a, o);
    stored_put_kv(o, other_of->spec.x, &other_of->kv[3]);
}

static void an_attachment_is_passed_over(void **state) {
    (void)state;
    static struct world w;
    world_init(&w);
    struct attachment_kind other = w.kind;
    struct sequence_spec both = w.spec;
    struct checkpoint *c = NULL, *d = NULL;
    struct bytes b = {0};
    struct record_text own = {.identity = "device: here\nattached: notes\n", .vocab = VOCAB};
    struct record_text more = {.identity = "device: here\nattached: other\nattached: notes\n",
                               .vocab = VOCAB};
    struct record_sink to = {.sink = bytes_sink, .arg = &b};
    struct err e = {0};
    other.name = "other";
    other.write = other_write;
    both.attached[both.n_attached++] = &w.kind;
    both.attached[0] = &other;
    sequence_destroy(w.s[0]);
    assert_int_equal(sequence_create(&w.s[0], &both, NULL), 0);
    other_of = w.s[0];
    while (w.s[0]->len < LIMIT - 100)
        append(&w, 0);
    assert_int_equal(sequence_checkpoint(w.s[0], &c, NULL), 0);
    assert_int_equal(record_save(c, &more, &to, &e), 0);
    checkpoint_destroy(c);
    sequence_destroy(w.s[0]);
    assert_int_equal(sequence_create(&w.s[0], &w.spec, NULL), 0);
    struct record_source from = {bytes_source, &b, (int64_t)b.n};
    assert_int_equal(record_load(&d, &w.spec, &own, &from, &e), 0);
    assert_int_equal(sequence_restore(w.s[0], d, NULL), 0);
    check(&w, 0);
    checkpoint_destroy(d);
    free(own.tail);
    free(b.data);
    world_fini(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_attachment_is_passed_over),
        cmocka_unit_test(groups_keep_their_own),
        cmocka_unit_test(an_attachment_can_refuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
