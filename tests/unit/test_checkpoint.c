// SPDX-License-Identifier: Apache-2.0
// Checkpoints as bytes: another loaded model goes on from them to the bit, with all codecs, windows
// and drafts, with and without recurrent layers; everything else is refused with one sentence; and
// no damage, end or failing allocation leaves anything behind.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/rng.h"
#include "models/checkpoint.h"
#include "models/draft/dflash/impl.h"
#include "ops/exec.h"
#include "support/bytes.h"
#include "support/tiny_rig.h"
#include "unit/test.h"

enum { VOCAB = 300, LONG = 300 };

static struct bytes write_point(struct tiny_rig *r, const struct checkpoint *c) {
    struct bytes b = {0}, once = {0};
    struct record_sink to = {.sink = bytes_sink, .arg = &b},
                       in_place = {.sink = bytes_sink, .arg = &once, .rewrite = bytes_over};
    assert_int_equal(model_checkpoint_write(r->m, c, NULL, &to, &r->e), 0);
    assert_int_equal(model_checkpoint_write(r->m, c, NULL, &in_place, &r->e), 0);
    assert_int_equal(once.n, b.n);
    assert_memory_equal(once.data, b.data, b.n);
    free(once.data);
    return b;
}

static int read_point(struct tiny_rig *r, struct bytes *b, struct checkpoint **c) {
    struct record_source from = {bytes_source, b, (int64_t)b->n};
    *c = NULL;
    b->at = 0;
    r->e = (struct err){0};
    int rc = model_checkpoint_read(r->m, c, NULL, &from, &r->e);
    assert_int_equal(rc == 0, *c != NULL);
    if (rc)
        assert_true(r->e.text[0] && r->e.code == rc);
    return rc;
}

struct answer {
    float target[VOCAB], draft[VOCAB];
};

static void ask(struct tiny_rig *r, struct sequence *s, struct answer *a) {
    int32_t next = 5;
    memset(a, 0, sizeof *a);
    if (r->d) {
        assert_int_equal(dflash_draft(r->d, &s, &next, 1, &r->e), 0);
        tiny_rig_draft_logits(r, 0, 1, a->draft);
    }
    tiny_rig_prompt(r, s, &next, 1, 1, NULL, a->target);
}

struct scene {
    const char *k, *v; // codecs
    int interval, layers, window;
    bool draft;
};

static void open_scene(struct tiny_rig *r, const struct scene *c) {
    struct tiny_shape shape = tiny_shape_default();
    struct tiny_draft_shape d = tiny_draft_default(&shape);
    struct model_options o = model_options_default();
    assert_int_equal(kv_codec_by_name(c->k, "k", &o.codec_k, NULL), 0);
    assert_int_equal(kv_codec_by_name(c->v, "v", &o.codec_v, NULL), 0);
    shape.interval = c->interval;
    d.layers = c->layers;
    d.window = c->window;
    tiny_rig_open(r, &shape, c->draft ? &d : NULL, &o, "auto", 1);
}

static struct checkpoint *point_at(struct tiny_rig *r, struct sequence *s) {
    struct checkpoint *c;
    assert_int_equal(sequence_checkpoint(s, &c, &r->e), 0);
    return c;
}

// From a file into a second model; both go on.
static void same_bits_from_file(const struct scene *scene, int64_t len) {
    struct tiny_rig a, b;
    struct answer want, got;
    int32_t tokens[LONG], anchor = 1, tail[] = {3, 1, 4};
    char path[128];
    open_scene(&a, scene);
    open_scene(&b, scene);
    snprintf(path, sizeof path, "%s/point", a.dir);
    tiny_rig_tokens(&a, 1, tokens, LONG);
    struct sequence *s = tiny_rig_sequence(&a), *t = tiny_rig_sequence(&b);
    tiny_rig_prompt(&a, s, tokens, len, 64, NULL, NULL);
    if (scene->draft && len % 2)
        assert_int_equal(dflash_draft(a.d, &s, &anchor, 1, &a.e), 0);
    struct checkpoint *c = point_at(&a, s), *d = NULL;
    struct token_tail more = {tail, 3}, found;
    assert_int_equal(model_checkpoint_save(a.m, c, &more, path, &a.e), 0);
    assert_int_equal(model_checkpoint_load(b.m, path, &d, &found, &b.e), 0);
    assert_int_equal(found.n, 3);
    assert_memory_equal(found.ids, tail, sizeof tail);
    free(found.ids);
    assert_int_equal(checkpoint_len(d), checkpoint_len(c));
    assert_int_equal(checkpoint_bytes(d), checkpoint_bytes(c));
    assert_int_equal(sequence_restore(t, d, &b.e), 0);
    checkpoint_destroy(d);
    int64_t kept = sequence_len(t);
    assert_int_equal(kept, scene->interval == 1 ? len : len / 32 * 32);
    tiny_rig_prompt(&b, t, tokens + kept, len - kept, 7, NULL, NULL);
    for (int i = 0; i < 40; i++) { // over page ends and bases
        ask(&a, s, &want);
        ask(&b, t, &got);
        assert_memory_equal(&want, &got, sizeof want);
    }
    assert_memory_equal(sequence_tokens(s), sequence_tokens(t), (size_t)(len + 40) * 4);
    unlink(path);
    checkpoint_destroy(c);
    sequence_destroy(s);
    sequence_destroy(t);
    tiny_rig_close(&a);
    tiny_rig_close(&b);
}

static void goes_on_to_the_bit(void **state) {
    (void)state;
    static const char *const codecs[] = {"f16", "f32", "bf16", "q8_0"};
    for (int k = 0; k < 4; k++)
        for (int v = 0; v < 4; v++) {
            struct scene scene = {codecs[k], codecs[v], k == v ? 1 : 2, 3, v % 2 ? 20 : 0, true};
            same_bits_from_file(&scene, 130 + 17 * k + v);
        }
    struct scene plain = {"f16", "f16", 2, 2, 0, false}, full = {"f16", "q8_0", 1, 2, 0, false};
    static const int64_t lengths[] = {0, 1, 31, 32, 63, 64, 65, 128};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        same_bits_from_file(&plain, lengths[i]);
        same_bits_from_file(&full, lengths[i]);
    }
}

// A checkpoint of a scene as bytes; the rig stays open.
static struct bytes bytes_of(struct tiny_rig *r, const struct scene *scene, int64_t len) {
    int32_t tokens[LONG];
    open_scene(r, scene);
    tiny_rig_tokens(r, 2, tokens, LONG);
    struct sequence *s = tiny_rig_sequence(r);
    tiny_rig_prompt(r, s, tokens, len, 64, NULL, NULL);
    struct checkpoint *c = point_at(r, s);
    struct bytes b = write_point(r, c);
    checkpoint_destroy(c);
    sequence_destroy(s);
    return b;
}

static int64_t pages_used(const struct tiny_rig *r) {
    int64_t n = kv_pool_used(r->m->groups[0].pool);
    for (int i = 0; r->d && i < r->d->n_groups; i++)
        n += kv_pool_used(r->d->pool[i]);
    return n;
}

static void refuses_damage(void **state) {
    (void)state;
    const struct scene scene = {"q8_0", "f16", 2, 3, 20, true};
    struct tiny_rig r;
    struct checkpoint *c;
    struct rng g = {.state = 3};
    struct bytes b = bytes_of(&r, &scene, 100);
    assert_int_equal(pages_used(&r), 0);
    size_t whole = b.n;
    for (int i = 0; i < 300; i++) { // cut off anywhere
        b.n = i < 60 ? (size_t)i : rng_below(&g, (uint32_t)whole);
        assert_int_equal(read_point(&r, &b, &c), ERR_FORMAT);
        assert_non_null(strstr(r.e.text, "cut off"));
    }
    b.n = whole;
    for (int i = 0; i < 1500; i++) { // one bit
        size_t at = i < 200 ? (size_t)i : rng_below(&g, (uint32_t)whole);
        unsigned char flip = (unsigned char)(1 << rng_below(&g, 8));
        b.data[at] ^= flip;
        assert_int_not_equal(read_point(&r, &b, &c), 0);
        b.data[at] ^= flip;
        assert_int_equal(pages_used(&r), 0);
    }
    assert_int_equal(read_point(&r, &b, &c), 0);
    checkpoint_destroy(c);
    free(b.data);
    tiny_rig_close(&r);
}

static void refuses(struct tiny_rig *r, struct bytes *b, int code, const char *word) {
    struct checkpoint *c;
    assert_int_equal(read_point(r, b, &c), code);
    assert_non_null(strstr(r->e.text, word));
}

static void put_number(unsigned char *p, uint64_t v) {
    for (int i = 0; i < 8; i++)
        p[i] = (unsigned char)(v >> (8 * i));
}

// Computes the hash of a section again after a change of it: its hash follows its payload.
static void rehash(struct bytes *b, size_t at) {
    uint64_t n = 0;
    for (int i = 0; i < 8; i++)
        n |= (uint64_t)b->data[at + 4 + (size_t)i] << (8 * i);
    put_number(b->data + at + 12 + n, hash_bytes(b->data + at, (size_t)n + 12, 0));
}

// The same file with other angles has other keys.
static void refuses_positions(void **state) {
    (void)state;
    const struct scene scene = {"f16", "f16", 1, 3, 20, false};
    struct model_options o = model_options_default();
    struct checkpoint *c;
    struct tiny_rig r;
    struct bytes b = bytes_of(&r, &scene, 100);
    struct model *own = r.m;
    o.max_ctx = model_max_ctx(own);
    for (int i = 0; i < 3; i++) {
        o.rope = (struct rope_options){.factor = i == 1 ? 2 : 0, .base = i == 2 ? 500 : 0};
        assert_int_equal(model_load(&r.m, r.x, r.g, &o, &r.e), 0);
        if (i == 0) {
            assert_int_equal(read_point(&r, &b, &c), 0);
            checkpoint_destroy(c);
        } else {
            refuses(&r, &b, ERR_MISMATCH, "positions turn by another rule");
        }
        model_destroy(r.m);
    }
    r.m = own;
    free(b.data);
    tiny_rig_close(&r);
}

static void refuses_others(void **state) {
    (void)state;
    const struct scene own = {"q8_0", "f16", 2, 3, 20, true};
    const struct {
        struct scene scene;
        const char *word;
    } others[] = {
        {{"f16", "f16", 2, 3, 20, true}, "its keys as q8_0, the model as f16"},
        {{"q8_0", "f32", 2, 3, 20, true}, "its values as f16, the model as f32"},
        {{"q8_0", "f16", 1, 3, 20, true}, "another model file"},
        {{"q8_0", "f16", 2, 2, 20, true}, "another draft"},
    };
    enum { IDENTITY = 12, TEXT = IDENTITY + 12 };
    struct tiny_rig r, o;
    struct checkpoint *c;
    struct bytes b = bytes_of(&r, &own, 100);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        open_scene(&o, &others[i].scene);
        refuses(&o, &b, ERR_MISMATCH, others[i].word);
        tiny_rig_close(&o);
    }
    struct scene plain = own;
    plain.draft = false;
    open_scene(&o, &plain); // passes the draft's state over
    assert_int_equal(read_point(&o, &b, &c), 0);
    struct bytes without = write_point(&o, c);
    checkpoint_destroy(c);
    tiny_rig_close(&o);
    refuses(&r, &without, ERR_MISMATCH, "no state of the draft");
    free(without.data);
    b.data[8] = 2;
    refuses(&r, &b, ERR_MISMATCH, "older version of coppice");
    b.data[8] = 4;
    refuses(&r, &b, ERR_UNSUPPORTED, "newer version of coppice");
    b.data[8] = 3;
    static const char *const before[] = {"coppckpt", "coppcach"}; // forms of their own
    for (int i = 0; i < 2; i++) {
        memcpy(b.data, before[i], 8);
        refuses(&r, &b, ERR_MISMATCH, "older version of coppice");
    }
    memcpy(b.data, "another.", 8);
    refuses(&r, &b, ERR_FORMAT, "no stored state");
    memcpy(b.data, "coppstor", 8);
    static const struct {
        const char *line, *word;
    } edits[] = {{"order: ", "computes other bits"},
                 {"device: ", "another kind of device"},
                 {"model: ", "another model file"},
                 {"positions: ", "by another rule"},
                 {"prompts: ", "read eensely and this program reads it densely"},
                 {"recurrent layers: ", "another model file"},
                 {"content: draft ", "another draft"}};
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        char *at = strstr((char *)b.data + TEXT, edits[i].line);
        assert_non_null(at);
        at += strlen(edits[i].line);
        *at ^= 1;
        rehash(&b, IDENTITY);
        refuses(&r, &b, ERR_MISMATCH, edits[i].word);
        *at ^= 1;
        rehash(&b, IDENTITY);
    }
    b.data[TEXT] = 7; // what cannot be shown
    rehash(&b, IDENTITY);
    refuses(&r, &b, ERR_FORMAT, "damaged");
    b.data[TEXT] = 'o';
    rehash(&b, IDENTITY);
    assert_int_equal(read_point(&r, &b, &c), 0);
    checkpoint_destroy(c);
    assert_int_equal(model_checkpoint_load(r.m, "/no/such/file", &c, NULL, &r.e), ERR_IO);
    free(b.data);
    tiny_rig_close(&r);
}

// Values that are no numbers and tokens beyond the vocabulary, with right hashes.
static void refuses_nonsense(void **state) {
    (void)state;
    const struct scene scene = {"f16", "f16", 1, 2, 0, false};
    struct tiny_rig r;
    struct checkpoint *c;
    struct bytes b = bytes_of(&r, &scene, 40);
    size_t page = (size_t)kv_pool_layout(r.m->groups[0].pool)->page_bytes;
    size_t at = 12, found = 0;
    for (; at + 12 < b.n - page && found < 2;) {
        uint64_t n = 0;
        for (int i = 0; i < 8; i++)
            n |= (uint64_t)b.data[at + 4 + (size_t)i] << (8 * i);
        unsigned char *tokens = memcmp(b.data + at, "TOKN", 4) == 0 ? b.data + at + 12 : NULL;
        unsigned char *sums = memcmp(b.data + at, "SUMS", 4) == 0 ? b.data + at + 12 : NULL;
        if (tokens) {
            unsigned char old[2] = {tokens[0], tokens[1]};
            memcpy(tokens, "\x2c\x01", 2); // 300
            rehash(&b, at);
            refuses(&r, &b, ERR_FORMAT, "damaged");
            memcpy(tokens, old, 2);
            rehash(&b, at);
        } else if (sums) { // of the last page, the only one
            put_number(sums + n - 8, 0);
            rehash(&b, at);
            refuses(&r, &b, ERR_FORMAT, "damaged");
            b.data[b.n - 1] = 0x7c; // infinity
            put_number(sums + n - 8, hash_bytes(b.data + b.n - page, page, 0));
            rehash(&b, at);
            refuses(&r, &b, ERR_FORMAT, "damaged");
            b.data[b.n - 1] = 0;
            put_number(sums + n - 8, hash_bytes(b.data + b.n - page, page, 0));
            rehash(&b, at);
        }
        found += tokens || sums;
        at += 12 + n + 8;
    }
    assert_int_equal(found, 2);
    assert_int_equal(read_point(&r, &b, &c), 0);
    checkpoint_destroy(c);
    free(b.data);
    tiny_rig_close(&r);
}

// The n-th device allocation from now on fails.
static void *(*real_alloc)(struct exec *x, size_t bytes);
static int fail_at;
static void *failing_alloc(struct exec *x, size_t bytes) {
    return fail_at-- == 0 ? NULL : real_alloc(x, bytes);
}
static void *(*real_alloc_in)(struct exec *x, enum exec_arena arena, size_t bytes);
static void *failing_alloc_in(struct exec *x, enum exec_arena arena, size_t bytes) {
    return fail_at-- == 0 ? NULL : real_alloc_in(x, arena, bytes);
}

static void failures_leave_nothing(void **state) {
    (void)state;
    const struct scene scene = {"f16", "f16", 2, 3, 20, true};
    struct tiny_rig r;
    struct checkpoint *c;
    struct bytes b = bytes_of(&r, &scene, 100);
    const struct ops *good = exec_ops(r.x);
    struct ops broken = *good;
    int failures = 0;
    real_alloc = good->alloc;
    real_alloc_in = r.x->alloc_in;
    broken.alloc = failing_alloc;
    for (int at = 0, rc = -1; rc; at++) {
        (void)kv_pool_trim(r.m->groups[0].pool, 0);
        for (int i = 0; i < r.d->n_groups; i++)
            (void)kv_pool_trim(r.d->pool[i], 0);
        fail_at = at;
        r.x->ops = &broken;
        r.x->alloc_in = failing_alloc_in;
        rc = read_point(&r, &b, &c);
        r.x->ops = good;
        r.x->alloc_in = real_alloc_in;
        assert_true(rc == 0 || rc == ERR_MEMORY);
        failures += rc != 0;
        checkpoint_destroy(c);
        assert_int_equal(pages_used(&r), 0);
        assert_true(at < 50);
    }
    assert_true(failures >= 5); // pages of three groups, the recurrent save, features
    assert_int_equal(read_point(&r, &b, &c), 0);
    struct bytes full = {.full = b.n / 2};
    struct record_sink to = {.sink = bytes_sink, .arg = &full};
    assert_int_equal(model_checkpoint_write(r.m, c, NULL, &to, &r.e), ERR_IO);
    assert_non_null(strstr(r.e.text, "disk is full"));
    checkpoint_destroy(c);
    free(full.data);
    free(b.data);
    tiny_rig_close(&r);
}

// Copies between host and device of which one is left out, as a device that fails does.
static struct {
    const struct ops *inner;
    int left;
    bool pending;
} device;

static void failing_download(struct exec *x, void *dst, const void *src, size_t bytes) {
    if (device.left-- == 0)
        device.pending = true;
    else
        device.inner->download(x, dst, src, bytes);
}

static void failing_upload(struct exec *x, void *dst, const void *src, size_t bytes) {
    if (device.left-- == 0)
        device.pending = true;
    else
        device.inner->upload(x, dst, src, bytes);
}

static int failing_status(struct exec *x, struct err *e) {
    (void)x;
    if (!device.pending)
        return 0;
    device.pending = false;
    return err_set(e, ERR_MEMORY, "a device that is made up is out of memory");
}

// What a device has not done is known before a checkpoint is said to be written or read.
static void failed_copies_are_reported(void **state) {
    (void)state;
    const struct scene scene = {"f16", "f16", 2, 3, 20, true};
    struct tiny_rig r;
    struct checkpoint *c, *other;
    struct bytes b = bytes_of(&r, &scene, 100);
    assert_int_equal(read_point(&r, &b, &c), 0);
    struct ops broken = *exec_ops(r.x);
    device.inner = exec_ops(r.x);
    broken.download = failing_download;
    broken.upload = failing_upload;
    r.x->ops = &broken;
    r.x->status = failing_status;
    for (int reading = 0; reading < 2; reading++) {
        int failures = 0;
        for (int rc = -1; rc; failures += rc != 0) {
            struct bytes out = {0};
            struct record_sink to = {.sink = bytes_sink, .arg = &out};
            device.left = failures;
            rc = reading ? read_point(&r, &b, &other)
                         : model_checkpoint_write(r.m, c, NULL, &to, &r.e);
            assert_true(rc == 0 || rc == ERR_MEMORY);
            assert_int_equal(rc == 0, device.left >= 0);
            if (reading)
                checkpoint_destroy(other);
            else if (rc == 0)
                assert_memory_equal(out.data, b.data, b.n);
            free(out.data);
        }
        assert_true(failures >= 5);
    }
    r.x->ops = device.inner;
    r.x->status = NULL;
    checkpoint_destroy(c);
    free(b.data);
    tiny_rig_close(&r);
}

// A file that was there stays when the new one cannot be written, and nothing else is left.
static void a_file_is_whole_or_old(void **state) {
    (void)state;
    const struct scene scene = {"f16", "f16", 2, 2, 0, false};
    struct tiny_rig r;
    struct checkpoint *c;
    char path[160], text[8] = {0};
    struct bytes b = bytes_of(&r, &scene, 64);
    assert_int_equal(read_point(&r, &b, &c), 0);
    assert_int_equal(exec_status(r.x, &r.e), 0);
    snprintf(path, sizeof path, "%s/point", r.dir);
    FILE *f = fopen(path, "wb");
    assert_true(f && fputs("old", f) >= 0 && fclose(f) == 0);
    struct checkpoint *bad = NULL;
    struct sequence *s = tiny_rig_sequence(&r);
    assert_int_equal(sequence_checkpoint(s, &bad, &r.e), 0);
    r.x->failed_epochs[r.x->n_failed_epochs++] = exec_epoch(r.x); // as if that epoch had failed
    assert_int_equal(model_checkpoint_save(r.m, bad, NULL, path, &r.e), ERR_STATE);
    f = fopen(path, "rb");
    assert_true(f && fread(text, 1, 7, f) == 3 && strcmp(text, "old") == 0);
    fclose(f);
    assert_int_equal(model_checkpoint_save(r.m, c, NULL, path, &r.e), 0);
    checkpoint_destroy(c);
    assert_int_equal(model_checkpoint_load(r.m, path, &c, NULL, &r.e), 0);
    unlink(path); // the folder must be empty for tiny_rig_close
    checkpoint_destroy(c);
    checkpoint_destroy(bad);
    sequence_destroy(s);
    free(b.data);
    char dir[64];
    snprintf(dir, sizeof dir, "%s", r.dir);
    tiny_rig_close(&r);
    assert_int_not_equal(access(dir, F_OK), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goes_on_to_the_bit),     cmocka_unit_test(refuses_damage),
        cmocka_unit_test(refuses_positions),      cmocka_unit_test(refuses_others),
        cmocka_unit_test(refuses_nonsense),       cmocka_unit_test(failures_leave_nothing),
        cmocka_unit_test(a_file_is_whole_or_old), cmocka_unit_test(failed_copies_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
