// SPDX-License-Identifier: Apache-2.0
// Prediction blocks of random models (their numbers: tests/golden/test_golden_mtp.c): rows of a
// tree are those of the chains it consists of, sequences that draft together get what each gets
// alone, and a state that grew in any pieces, was cut, saved, forked or read back drafts as a fresh
// one does; to the bit, all of it. Files of blocks: test_mtp_file.c.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "models/checkpoint.h"
#include "support/bytes.h"
#include "unit/mtp_scene.h"

// Two first guesses, with two and one below them, and one more below: four passes.
static void rows_of_trees(void **state) {
    (void)state;
    static float one[3 * ROW], two[4 * ROW], tree[7 * ROW];
    for (enum kind k = 0; k < KINDS; k++) {
        struct scene c;
        open_scene(&c, k);
        struct sequence *s = text(&c, 100, 70);
        const int32_t a[] = {5, 11, 7}, b[] = {5, 20, 9, 8};
        chain(&c, s, a, 3, one);
        chain(&c, s, b, 4, two);
        must(&c, path_begin(mtp_path(c.m), &s, 1, &c.r.e));
        const struct path_row level[4][3] = {
            {{0, -1, 5}}, {{0, 0, 11}, {0, 0, 20}}, {{0, 1, 7}, {0, 2, 3}, {0, 2, 9}}, {{0, 5, 8}}};
        const int n[] = {1, 2, 3, 1};
        for (int i = 0, at = 0; i < 4; at += n[i++]) {
            must(&c, path_rows(mtp_path(c.m), level[i], n[i], &c.r.e));
            fetch(&c, 0, n[i], tree + at * ROW);
        }
        const size_t row = ROW * sizeof(float);
        assert_memory_equal(tree, one, row);
        assert_memory_equal(tree + 1 * ROW, one + 1 * ROW, row);
        assert_memory_equal(tree + 3 * ROW, one + 2 * ROW, row);
        assert_memory_equal(tree + 2 * ROW, two + 1 * ROW, row);
        assert_memory_equal(tree + 5 * ROW, two + 2 * ROW, row);
        assert_memory_equal(tree + 6 * ROW, two + 3 * ROW, row);
        assert_memory_not_equal(tree + 4 * ROW, tree + 5 * ROW, row);
        drafts_as_fresh(&c, s, "after a tree");
        sequence_destroy(s);
        close_scene(&c);
    }
}

// Chains and a tree of four sequences, one of which has no tokens and drafts nothing.
static void together_as_alone(void **state) {
    (void)state;
    enum { N = 4 };
    static const int64_t len[N] = {65, 0, 20, 130};
    static float alone[N][2 * ROW], all[5 * ROW];
    for (enum kind k = 0; k < KINDS; k++) {
        struct scene c;
        struct sequence *s[N];
        open_scene(&c, k);
        for (int i = 0; i < N; i++) {
            s[i] = text(&c, len[i], 33);
            const int32_t own[] = {guesses[i], guesses[i + 1]};
            if (len[i])
                chain(&c, s[i], own, 2, alone[i]);
        }
        must(&c, path_begin(mtp_path(c.m), s, N, &c.r.e));
        for (int i = 0; i < N; i++)
            assert_int_equal(path_ready(mtp_path(c.m), i), len[i] > 0);
        const struct path_row first[] = {{0, -1, 5}, {2, -1, 7}, {3, -1, 250}};
        const struct path_row more[] = {{0, 0, 11}, {2, 0, 250}, {2, 0, 2}, {3, 0, 9}};
        must(&c, path_rows(mtp_path(c.m), first, 3, &c.r.e));
        fetch(&c, 0, 3, all);
        assert_memory_equal(all, alone[0], ROW * sizeof(float));
        assert_memory_equal(all + ROW, alone[2], ROW * sizeof(float));
        assert_memory_equal(all + 2 * ROW, alone[3], ROW * sizeof(float));
        must(&c, path_rows(mtp_path(c.m), more, 4, &c.r.e));
        fetch(&c, 0, 4, all);
        assert_memory_equal(all, alone[0] + ROW, ROW * sizeof(float));
        assert_memory_equal(all + ROW, alone[2] + ROW, ROW * sizeof(float));
        assert_memory_equal(all + 3 * ROW, alone[3] + ROW, ROW * sizeof(float));
        const struct path_row none = {1, -1, 3}, early = {0, 7, 3}, beyond = {0, 1, ROW};
        assert_int_equal(path_rows(mtp_path(c.m), &none, 1, &c.r.e), ERR_USAGE);
        must(&c, path_begin(mtp_path(c.m), s, N, &c.r.e));
        assert_int_equal(path_rows(mtp_path(c.m), &early, 1, &c.r.e), ERR_USAGE);
        must(&c, path_begin(mtp_path(c.m), s, N, &c.r.e));
        assert_int_equal(path_rows(mtp_path(c.m), &beyond, 1, &c.r.e), ERR_USAGE);
        for (int i = 0; i < N; i++)
            sequence_destroy(s[i]);
        close_scene(&c);
    }
}

// The first n tokens in pieces of many sizes, with drafts between them.
static struct sequence *grown(struct scene *c, int64_t n, int64_t step) {
    static float some[2 * ROW];
    struct sequence *s = tiny_rig_sequence(&c->r);
    for (int64_t at = 0, part; at < n; at += part) {
        part = n - at < step ? n - at : step;
        tiny_rig_prompt(&c->r, s, c->tokens + at, part, part, NULL, NULL);
        if (step % 3 == 0)
            chain(c, s, guesses + 3, 2, some);
        step = 1 + step * 5 % 71;
    }
    return s;
}

// Lengths around pages and around what waits.
static void grows_in_any_pieces(void **state) {
    (void)state;
    static const int64_t lengths[] = {1, 2, 31, 63, 64, 65, 66, 127, 128, 129, 192, 250};
    for (enum kind k = 0; k < KINDS; k++) {
        struct scene c;
        open_scene(&c, k);
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            struct sequence *s = grown(&c, lengths[i], 1 + (int64_t)i);
            drafts_as_fresh(&c, s, "grown in pieces");
            sequence_destroy(s);
        }
        close_scene(&c);
    }
}

// Runs the tokens from the sequence's length to n.
static void run_to(struct scene *c, struct sequence *s, int64_t n) {
    const int64_t at = sequence_len(s);
    tiny_rig_prompt(&c->r, s, c->tokens + at, n - at, 40, NULL, NULL);
}

// Back by less than what the tail has, after other tokens.
static void goes_back(void **state) {
    (void)state;
    static float some[2 * ROW];
    for (enum kind k = 0; k < KINDS; k++)
        for (int64_t len = 70; len < 200; len += 31) {
            struct scene c;
            int64_t kept = 0;
            open_scene(&c, k);
            struct sequence *s = text(&c, len, 50);
            const int32_t others[] = {9, 8, 7, 6};
            const int64_t base = len / 32 * 32;
            tiny_rig_prompt(&c.r, s, others, 4, 4, NULL, NULL);
            if (len % 2)
                chain(&c, s, guesses, 2, some);
            must(&c, sequence_truncate(s, base, &kept, &c.r.e));
            if (kept != base) // the other tokens have come to a new base
                assert_int_equal(kept, 0);
            run_to(&c, s, len);
            drafts_as_fresh(&c, s, "cut back");
            must(&c, sequence_truncate(s, 0, &kept, &c.r.e));
            run_to(&c, s, 3);
            drafts_as_fresh(&c, s, "emptied");
            sequence_destroy(s);
            close_scene(&c);
        }
}

// Far back, where attention alone allows it: the newest hidden state is gone, the draft still is
// one, and all but the key of that position is as before.
static void goes_far_back(void **state) {
    (void)state;
    static float some[3 * ROW], want[ROW], got[ROW];
    for (enum kind k = GLM; k <= LATENT; k++) {
        struct scene c;
        int64_t kept = 0;
        open_scene(&c, k);
        struct sequence *s = text(&c, 250, 100), *fresh = text(&c, 50, 50), *copy = NULL;
        must(&c, sequence_truncate(s, 50, &kept, &c.r.e));
        assert_int_equal(kept, 50);
        must(&c, sequence_fork(s, &copy, &c.r.e));
        chain(&c, s, guesses, 3, some);
        for (int i = 0; i < 3 * ROW; i++)
            assert_true(some[i] == some[i] && some[i] - some[i] == 0);
        tiny_rig_prompt(&c.r, s, guesses, 1, 1, NULL, got);
        tiny_rig_prompt(&c.r, fresh, guesses, 1, 1, NULL, want);
        assert_memory_equal(got, want, sizeof want);
        // After another cut to where the tail is whole again.
        run_to(&c, copy, 130);
        must(&c, sequence_truncate(copy, 128, &kept, &c.r.e));
        must(&c, sequence_truncate(copy, 0, &kept, &c.r.e));
        run_to(&c, copy, 90);
        drafts_as_fresh(&c, copy, "after a far cut and none");
        sequence_destroy(s);
        sequence_destroy(copy);
        sequence_destroy(fresh);
        close_scene(&c);
    }
}

// Checkpoints restored, also below what they have, as bytes into a second model, and forks.
static void saved_and_forked(void **state) {
    (void)state;
    static const int64_t lengths[] = {1, 33, 64, 65, 130, 200};
    static float some[2 * ROW];
    for (enum kind k = 0; k < KINDS; k++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            struct scene c, d;
            struct checkpoint *p = NULL, *q = NULL;
            struct sequence *fork = NULL;
            int64_t kept = 0, len = lengths[i];
            open_scene(&c, k);
            open_scene(&d, k);
            struct sequence *s = text(&c, len, 60), *t = tiny_rig_sequence(&d.r);
            if (i % 2)
                chain(&c, s, guesses, 2, some);
            must(&c, sequence_checkpoint(s, &p, &c.r.e));
            must(&c, sequence_fork(s, &fork, &c.r.e));
            drafts_as_fresh(&c, fork, "forked");
            run_to(&c, s, len + 70);
            drafts_as_fresh(&c, s, "origin of a fork");
            struct bytes b = {0};
            struct record_sink to = {.sink = bytes_sink, .arg = &b};
            must(&c, model_checkpoint_write(c.r.m, p, NULL, &to, &c.r.e));
            struct record_source from = {bytes_source, &b, (int64_t)b.n};
            must(&d, model_checkpoint_read(d.r.m, &q, NULL, &from, &d.r.e));
            assert_int_equal(checkpoint_bytes(p), checkpoint_bytes(q));
            must(&d, sequence_restore(t, q, &d.r.e));
            run_to(&d, t, len + 1);
            drafts_as_fresh(&d, t, "read back");
            must(&c, sequence_restore(s, p, &c.r.e));
            if (k == GLM || k == LATENT)
                must(&c, sequence_truncate(s, len - len / 8, &kept, &c.r.e));
            run_to(&c, s, len);
            drafts_as_fresh(&c, s, "restored");
            free(b.data);
            checkpoint_destroy(p);
            checkpoint_destroy(q);
            sequence_destroy(s);
            sequence_destroy(fork);
            sequence_destroy(t);
            close_scene(&c);
            close_scene(&d);
        }
}

static int64_t absorbed(const struct scene *c, const struct sequence *s) {
    return path_state_of(mtp_path(c->m), s)->absorbed;
}

// Drafts whose row 0 has the token that is committed next, alone or with others after it: the row's
// key and value are kept, and are those that a fresh sequence makes.
static void keeps_the_root(void **state) {
    (void)state;
    static const int64_t lengths[] = {1, 31, 62, 64, 127, 200}, counts[] = {1, 5, 66};
    static float some[3 * ROW];
    for (enum kind k = 0; k < KINDS; k++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            struct scene c;
            open_scene(&c, k);
            struct sequence *s = text(&c, lengths[i], 50);
            for (int j = 0; j < 3; j++) {
                const int64_t n = sequence_len(s);
                chain(&c, s, c.tokens + n, 3, some);
                tiny_rig_prompt(&c.r, s, c.tokens + n, counts[j], counts[j], NULL, NULL);
                assert_int_equal(absorbed(&c, s), counts[j] < PATH_TAIL ? n : n + counts[j] - 1);
                drafts_as_fresh(&c, s, "with the root's key and value");
            }
            sequence_destroy(s);
            close_scene(&c);
        }
}

// And where it has another token, its page has been copied or the sequence cut, they are made anew.
static void drops_the_root(void **state) {
    (void)state;
    enum { N = 100 };
    static float some[3 * ROW];
    for (enum kind k = 0; k < KINDS; k++) {
        struct scene c;
        struct sequence *fork = NULL;
        int64_t kept = 0;
        open_scene(&c, k);
        struct sequence *s = text(&c, N, 50);
        const int32_t other[] = {(c.tokens[N] + 1) % ROW};
        chain(&c, s, other, 1, some);
        run_to(&c, s, N + 2);
        assert_int_equal(absorbed(&c, s), N - 1);
        drafts_as_fresh(&c, s, "after another root");
        chain(&c, s, c.tokens + N + 2, 1, some);
        must(&c, sequence_fork(s, &fork, &c.r.e));
        run_to(&c, s, N + 4);
        run_to(&c, fork, N + 4);
        assert_int_equal(absorbed(&c, s), N + 1);
        assert_int_equal(absorbed(&c, fork), N + 1);
        drafts_as_fresh(&c, s, "after a fork with a root");
        drafts_as_fresh(&c, fork, "forked with a root");
        const int32_t instead[] = {(c.tokens[96] + 1) % ROW};
        chain(&c, s, instead, 1, some);
        must(&c, sequence_truncate(s, 96, &kept, &c.r.e));
        assert_int_equal(kept, 96);
        c.tokens[96] = instead[0];
        run_to(&c, s, 98);
        assert_int_equal(absorbed(&c, s), 95);
        drafts_as_fresh(&c, s, "cut with a root");
        sequence_destroy(s);
        sequence_destroy(fork);
        close_scene(&c);
    }
}

// Pages for what is committed and no more: a sequence does not draft then, and goes on.
static void without_room(void **state) {
    (void)state;
    struct scene c;
    float last[ROW];
    open_scene(&c, DENSE);
    struct sequence *s = text(&c, 64, 64), *t = text(&c, 10, 10), *both[] = {s, t};
    kv_pool_limit(c.m->path.pool, kv_pool_allocated(c.m->path.pool));
    must(&c, path_begin(mtp_path(c.m), both, 2, &c.r.e)); // position 64 would be on a second page
    assert_false(path_ready(mtp_path(c.m), 0));
    assert_true(path_ready(mtp_path(c.m), 1));
    const struct path_row row = {1, -1, 3};
    must(&c, path_rows(mtp_path(c.m), &row, 1, &c.r.e));
    kv_pool_limit(c.m->path.pool, 0);
    run_to(&c, s, 70);
    drafts_as_fresh(&c, s, "with room again");
    tiny_rig_prompt(&c.r, s, guesses, 1, 1, NULL, last);
    sequence_destroy(s);
    sequence_destroy(t);
    assert_int_equal(kv_pool_used(c.m->path.pool), 0);
    close_scene(&c);
}

// A head of some tokens gives the numbers that the whole one gives for them, whosever it is, also
// to a sidecar.
static void some_tokens(void **state) {
    (void)state;
    enum { SOME = 50, MARKS = 3 };
    for (int i = 0; i < 2 * KINDS; i++) {
        const enum kind k = (enum kind)(i % KINDS);
        static float all[3 * ROW], row[SOME];
        const struct tiny_shape t = shape_of(k);
        struct scene whole, cut;
        open_scene(&whole, k);
        open_scene_as(&cut, &t, 160, SOME);
        if (i >= KINDS) {
            const struct mtp_options o = cut.m->options;
            char path[128];
            snprintf(path, sizeof path, "%s/mtp.gguf", cut.r.dir);
            must(&cut, tiny_sidecar_write(&cut.r.shape, path, &cut.r.e));
            mtp_destroy(cut.m);
            must(&cut, mtp_load(&cut.m, cut.r.m, path, &o, false, &cut.r.e));
            unlink(path);
        }
        assert_int_equal(path_head(mtp_path(cut.m))->rows, SOME + MARKS);
        struct sequence *s = text(&whole, 90, 90), *u = text(&cut, 90, 90);
        chain(&whole, s, guesses, 3, all);
        must(&cut, path_begin(mtp_path(cut.m), &u, 1, &cut.r.e));
        for (int j = 0; j < 3; j++) {
            const struct path_row one = {0, j - 1, guesses[j]};
            must(&cut, path_rows(mtp_path(cut.m), &one, 1, &cut.r.e));
            exec_ops(cut.r.x)->download(cut.r.x, row, path_logits(mtp_path(cut.m), 0, 1),
                                        sizeof row);
            assert_memory_equal(row, all + j * ROW, sizeof row);
        }
        sequence_destroy(s);
        sequence_destroy(u);
        close_scene(&whole);
        close_scene(&cut);
    }
}

static uint64_t payload(const struct bytes *b, size_t at) {
    uint64_t n = 0;
    for (int i = 0; i < 8; i++)
        n |= (uint64_t)b->data[at + 4 + (size_t)i] << (8 * i);
    return n;
}

// Where a section's payload ends, before its hash.
static size_t section_end(const struct bytes *b, size_t at) {
    return at + 12 + (size_t)payload(b, at);
}

static size_t find_section(const struct bytes *b, const char *tag) {
    size_t at = 12;
    while (at + 12 < b->n && memcmp(b->data + at, tag, 4) != 0)
        at = section_end(b, at) + 8;
    assert_true(at + 12 < b->n);
    return at;
}

static void rehash(struct bytes *b, size_t at) {
    const size_t end = section_end(b, at);
    const uint64_t h = hash_bytes(b->data + at, end - at, 0);
    for (int i = 0; i < 8; i++)
        b->data[end + (size_t)i] = (unsigned char)(h >> (8 * i));
}

// Another block's checkpoint, and one whose tokens are outside the vocabulary.
static void refuses_states(void **state) {
    (void)state;
    struct scene c, d;
    struct checkpoint *p = NULL, *q = NULL;
    open_scene(&c, GLM);
    open_scene(&d, GLM);
    struct sequence *s = text(&c, 40, 40);
    must(&c, sequence_checkpoint(s, &p, &c.r.e));
    struct bytes b = {0};
    struct record_sink to = {.sink = bytes_sink, .arg = &b};
    must(&c, model_checkpoint_write(c.r.m, p, NULL, &to, &c.r.e));
    struct record_source from = {bytes_source, &b, (int64_t)b.n};
    d.m->content = mtp_content(d.m) ^ 2;
    assert_int_equal(model_checkpoint_read(d.r.m, &q, NULL, &from, &d.r.e), ERR_MISMATCH);
    assert_non_null(strstr(d.r.e.text, "another prediction block"));
    // The newest token of the state, at the end of its section, which is in the form.
    const size_t form = find_section(&b, "FORM");
    size_t section = form + 12;
    while (memcmp(b.data + section, "ATTD", 4) != 0)
        section++;
    memcpy(b.data + section_end(&b, section) - 4, "\x2c\x01\0\0", 4); // 300
    rehash(&b, section);
    rehash(&b, form);
    b.at = 0;
    assert_int_equal(model_checkpoint_read(c.r.m, &q, NULL, &from, &c.r.e), ERR_FORMAT);
    assert_non_null(strstr(c.r.e.text, "damaged"));
    free(b.data);
    checkpoint_destroy(p);
    sequence_destroy(s);
    close_scene(&c);
    close_scene(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_trees),       cmocka_unit_test(together_as_alone),
        cmocka_unit_test(grows_in_any_pieces), cmocka_unit_test(goes_back),
        cmocka_unit_test(goes_far_back),       cmocka_unit_test(saved_and_forked),
        cmocka_unit_test(without_room),        cmocka_unit_test(refuses_states),
        cmocka_unit_test(some_tokens),         cmocka_unit_test(keeps_the_root),
        cmocka_unit_test(drops_the_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
