// SPDX-License-Identifier: Apache-2.0
// Prices learnt from times: scale, slope and stairs, disturbances, sequences and members, and the
// file that keeps them.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "spec/tree/price.h"
#include "unit/test.h"

static struct price *fresh(enum price_kind kind) {
    struct price *p;
    assert_int_equal(price_create(&p, kind, NULL, NULL, NULL), 0);
    assert_false(price_ready(p));
    return p;
}

static void near(double got, double want, double part) {
    if (!(fabs(got / want - 1) < part)) {
        print_error("got %g, want %g within %g %%\n", got, want, 100 * part);
        fail();
    }
}

// One pass gives the scale; passes of two sizes the slope, in between and beyond.
static void learns_scale_and_slope(void **state) {
    (void)state;
    struct price *p = fresh(PRICE_GPU);
    price_note_pass(p, 1, 1, 40);
    assert_true(price_ready(p));
    near(price_pass_ms(p, 1, 1), 40, 0.02);
    double before = price_pass_ms(p, 32, 1);
    assert_true(before > 48 && before < 70);
    for (int i = 0; i < 4; i++)
        price_note_pass(p, 24, 1, 41);
    near(price_pass_ms(p, 24, 1), 41, 0.03);
    assert_true(price_pass_ms(p, 32, 1) < 0.9 * before);
    assert_true(price_pass_ms(p, 16, 1) < 42);
    // what is little known compared with the newest pass is priced lower
    assert_true(price_optimistic_ms(p, 64, 1) < 0.98 * price_pass_ms(p, 64, 1));
    near(price_optimistic_ms(p, 24, 1), price_pass_ms(p, 24, 1), 0.02);
    for (int rows = 2; rows < 5000; rows++)
        assert_true(price_pass_ms(p, rows, 1) >= price_pass_ms(p, rows - 1, 1));
    price_destroy(p);
}

// 8 of 128 experts, nine tenths of what a row reads: 8 rows that choose for themselves go through
// 51.6, 24 through 100.8, a great many through all. One pass of each kind gives more than that.
static void rows_cost_experts(void **state) {
    (void)state;
    const struct price_experts some = {128, 8, 0.9}, all = {8, 8, 0.9}, none = {128, 8, 0};
    struct price *dense = fresh(PRICE_GPU), *p;
    double many[3], plain = 0;
    const struct price_experts *kinds[] = {&some, &all, &none};
    price_note_pass(dense, 1, 1, 10);
    plain = price_pass_ms(dense, 24, 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(price_create(&p, PRICE_GPU, kinds[i], NULL, NULL), 0);
        price_note_pass(p, 1, 1, 10);
        near(price_pass_ms(p, 1, 1), 10, 0.02);
        many[i] = price_pass_ms(p, 24, 1);
        near(price_pass_ms(p, 8, 1),
             i ? price_pass_ms(dense, 8, 1) : 10 * (0.703 * 1.1 + 0.297 * 6.45), 0.05);
        price_destroy(p);
    }
    near(many[0], 10 * (0.703 * 1.29 + 0.297 * 12.6 * 1.018), 0.05);
    near(many[1], plain, 0.02);
    near(many[2], plain, 0.02);
    price_destroy(dense);
}

// What rows of one or several members go through of e experts, k each: every choice of every row,
// counted.
static double experts_of_rows(int e, int k, int rows) {
    unsigned choice[1 << 6];
    int n = 0;
    for (unsigned set = 0; set < 1u << e; set++)
        if (__builtin_popcount(set) == k)
            choice[n++] = set;
    long all = 1, sum = 0;
    for (int i = 0; i < rows; i++)
        all *= n;
    for (long way = 0; way < all; way++) {
        unsigned used = 0;
        long rest = way;
        for (int i = 0; i < rows; i++, rest /= n)
            used |= choice[rest % n];
        sum += __builtin_popcount(used);
    }
    return (double)sum / (double)all;
}

// A pass is priced by the union of what its rows read, whosever they are: two trees of two rows
// read as much as one of four, besides what one more sequence takes.
static void rows_share_experts(void **state) {
    (void)state;
    static const int of[][2] = {{4, 1}, {4, 2}, {5, 2}, {6, 3}, {6, 6}};
    struct price *p, *dense = fresh(PRICE_CPU);
    price_note_pass(dense, 1, 1, 10);
    const double dense_seq = price_pass_ms(dense, 4, 2) - price_pass_ms(dense, 4, 1);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const struct price_experts all = {of[i][0], of[i][1], 1};
        assert_int_equal(price_create(&p, PRICE_CPU, &all, NULL, NULL), 0);
        price_note_pass(p, 1, 1, 10);
        for (int rows = 1; rows <= 4; rows *= 2) {
            double used = experts_of_rows(of[i][0], of[i][1], rows);
            // Each has the rows that chose it: between the points of a CPU's shape they are linear.
            double each = fmax(1, rows * of[i][1] / used);
            double shape = each < 2 ? 1 + 0.04 * (each - 1) : 1.04 + 0.08 * (each - 2);
            near(price_pass_ms(p, rows, 1), 10 * used / of[i][1] * shape, 0.001);
        }
        near(price_pass_ms(p, 4, 2) - price_pass_ms(p, 4, 1), dense_seq, 0.001);
        price_destroy(p);
    }
    price_destroy(dense);
}

// Drafts that are loaded together are measured each for itself; all share the machine's speed.
static void several_drafts(void **state) {
    (void)state;
    const struct price_drafts drafts = {3, {{4, 0.05}, {0, 0}, {0, 0}}};
    char folder[] = "/tmp/coppice-price-XXXXXX";
    struct price *p, *q, *one = fresh(PRICE_GPU);
    struct str path = {0};
    struct err e;
    assert_int_equal(price_create(&p, PRICE_GPU, NULL, &drafts, NULL), 0);
    assert_int_equal(price_create(&q, PRICE_GPU, NULL, &drafts, NULL), 0);
    assert_int_equal(price_drafts_of(p), 3);
    assert_int_equal(price_drafts_of(one), 1);
    for (int i = 0; i < 20; i++) {
        price_note_pass(p, 1, 1, 10);
        price_note_draft(p, 0, 1, 0, 6);
        price_note_draft(p, 1, 1, 1, 1.5);
        price_note_draft(p, 1, 8, 1, 3);
    }
    near(price_draft_ms(p, 0, 1, 0), 6, 0.03);
    near(price_draft_ms(p, 1, 1, 1), 1.5, 0.03);
    near(price_draft_ms(p, 1, 8, 1), 3, 0.03);
    near(price_draft_ms(p, 2, 1, 0), 1.8, 0.05); // as is usual beside passes of 10
    near(price_draft_ms(p, 2, 8, 0), 1.8 * 2.4, 0.05);
    assert_true(price_draft_ready(p, 0) && price_draft_ready(p, 1) && !price_draft_ready(p, 2));
    assert_non_null(mkdtemp(folder));
    price_path(&path, folder, "a");
    assert_int_equal(price_save(p, path.data, "a", &e), 0);
    assert_int_equal(price_load(one, path.data, "a", &e), ERR_FORMAT);
    assert_int_equal(price_load(q, path.data, "a", &e), 0);
    near(price_draft_ms(q, 0, 1, 0), 6, 0.05);
    near(price_draft_ms(q, 1, 8, 1), 3, 0.05);
    assert_false(price_draft_ready(q, 2));
    unlink(path.data);
    rmdir(folder);
    str_fini(&path);
    price_destroy(p);
    price_destroy(q);
    price_destroy(one);
}

// A file has what was measured; between and beyond, the shape is still that of a mixture.
static void experts_with_a_file(void **state) {
    (void)state;
    const struct price_experts some = {128, 8, 0.9};
    char folder[] = "/tmp/coppice-price-XXXXXX";
    struct str path = {0};
    struct err e;
    struct price *p, *q;
    assert_non_null(mkdtemp(folder));
    price_path(&path, folder, "a");
    assert_int_equal(price_create(&p, PRICE_GPU, &some, NULL, NULL), 0);
    assert_int_equal(price_create(&q, PRICE_GPU, &some, NULL, NULL), 0);
    price_note_pass(p, 1, 1, 10);
    assert_int_equal(price_save(p, path.data, "a", &e), 0);
    assert_int_equal(price_load(q, path.data, "a", &e), 0);
    near(price_pass_ms(q, 24, 1), price_pass_ms(p, 24, 1), 0.05);
    price_destroy(p);
    price_destroy(q);
    unlink(path.data);
    rmdir(folder);
    str_fini(&path);
}

static void sequences_and_members(void **state) {
    (void)state;
    struct price *p = fresh(PRICE_GPU);
    for (int i = 0; i < 20; i++) {
        price_note_pass(p, 1, 1, 8.4);
        price_note_pass(p, 8, 1, 9.2);
        price_note_pass(p, 8, 8, 12.4);
        price_note_pass(p, 32, 32, 26.5);
        price_note_draft(p, 0, 1, 0, 1.2);
        price_note_draft(p, 0, 8, 0, 2.4);
    }
    near(price_pass_ms(p, 8, 1), 9.2, 0.03);
    near(price_pass_ms(p, 8, 8), 12.4, 0.04);
    near(price_pass_ms(p, 16, 16), 17, 0.06);
    near(price_draft_ms(p, 0, 1, 0), 1.2, 0.03);
    near(price_draft_ms(p, 0, 8, 0), 2.4, 0.03);
    assert_true(price_draft_ms(p, 0, 4, 0) > 1.5 && price_draft_ms(p, 0, 4, 0) < 2);
    assert_true(price_draft_ms(p, 0, 1, 2) < 1.3);
    price_destroy(p);
}

// One late pass says little, a lasting change is followed, and so is a first pass that was slow.
static void disturbances(void **state) {
    (void)state;
    struct price *p = fresh(PRICE_CPU);
    price_note_pass(p, 8, 1, 30);
    price_note_pass(p, 8, 1, 10);
    near(price_pass_ms(p, 8, 1), 10, 0.1);
    for (int i = 0; i < 10; i++)
        price_note_pass(p, 8, 1, 10);
    price_note_pass(p, 8, 1, 50);
    near(price_pass_ms(p, 8, 1), 10, 0.05);
    for (int i = 0; i < 6; i++)
        price_note_pass(p, 8, 1, 16);
    near(price_pass_ms(p, 8, 1), 16, 0.05);
    price_note_pass(p, 8, 1, 0); // no time: not taken
    price_note_pass(p, 8, 1, -1);
    price_note_draft(p, 0, 1, 0, 0);
    near(price_pass_ms(p, 8, 1), 16, 0.05);
    price_destroy(p);
}

static void depths(void **state) {
    (void)state;
    assert_int_equal(price_depth(15, 0), 15);
    assert_int_equal(price_depth(15, 1), 7);
    assert_int_equal(price_depth(15, 2), 3);
    assert_int_equal(price_depth(15, 3), 0);
    assert_int_equal(price_depth(2, 0), 2);
    assert_int_equal(price_depth(2, 1), 0);
}

// A draft with a pass for each depth: what one depth takes says what others take, its depths are
// the first ones and the whole, and they are kept in a file that prices of other drafts refuse.
static void passes_by_depth(void **state) {
    (void)state;
    static const int of[][PRICE_DEPTHS + 1] = {{6, 5, 4, 3, 2, 1, 0},
                                               {3, 2, 1, 0, 0, 0, 0},
                                               {1, 0, 0, 0, 0, 0, 0},
                                               {7, 6, 4, 3, 2, 1, 0},
                                               {16, 10, 4, 3, 2, 1, 0}};
    const struct price_drafts draft = {1, {{6, 0.04}}};
    char folder[] = "/tmp/coppice-price-XXXXXX";
    struct price *p, *q, *other = fresh(PRICE_GPU);
    struct str path = {0};
    struct err e;
    assert_int_equal(price_create(&p, PRICE_GPU, NULL, &draft, NULL), 0);
    assert_int_equal(price_create(&q, PRICE_GPU, NULL, &draft, NULL), 0);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        for (int reach = 0; reach <= PRICE_DEPTHS; reach++)
            assert_int_equal(price_depth_of(p, 0, of[i][0], reach), of[i][reach]);
    assert_int_equal(price_depth_of(other, 0, 15, 1), 7);
    assert_int_equal(price_depth_of(other, 0, 15, 3), 0);
    price_note_pass(p, 1, 1, 10);
    for (int reach = 0; reach < PRICE_DEPTHS; reach++)
        near(price_draft_ms(p, 0, 1, reach), 0.7 * (6 - reach), 0.02); // 10 (0.04 + 0.03)
    assert_false(price_draft_ready(p, 0));
    for (int i = 0; i < 8; i++)
        price_note_draft(p, 0, 1, 5, 1.4); // of depth 1: twice as much as usual
    assert_true(price_draft_ready(p, 0));
    for (int reach = 0; reach < PRICE_DEPTHS; reach++)
        near(price_draft_ms(p, 0, 1, reach), 1.4 * (6 - reach), 0.1);
    assert_non_null(mkdtemp(folder));
    price_path(&path, folder, "a");
    assert_int_equal(price_save(p, path.data, "a", &e), 0);
    assert_int_equal(price_load(q, path.data, "a", &e), 0);
    near(price_draft_ms(q, 0, 1, 5), 1.4, 0.05);
    near(price_draft_ms(q, 0, 1, 0), 8.4, 0.15);
    assert_int_equal(price_load(other, path.data, "a", &e), ERR_FORMAT);
    price_destroy(p);
    price_destroy(q);
    price_destroy(other);
    unlink(path.data);
    rmdir(folder);
    str_fini(&path);
}

static void replace(const char *path, const char *text) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

// What a file of prices says, or why it is not taken; a price that fails to load one stays as it
// was.
static void kept_in_a_file(void **state) {
    static const struct {
        const char *text;
        int rc;
    } bad[] = {
        {"", ERR_FORMAT},
        {"{\"version\":2,\"key\":\"a\",\"passes\":[[1,1,5", ERR_FORMAT},
        {"[]", ERR_MISMATCH},
        {"{\"version\":9,\"key\":\"a\",\"passes\":[],\"drafts\":[]}", ERR_MISMATCH},
        {"{\"version\":2,\"key\":\"b\",\"passes\":[],\"drafts\":[]}", ERR_MISMATCH},
        {"{\"version\":2,\"key\":\"a\",\"passes\":[[1,1,5,0.1]]}", ERR_FORMAT},
        {"{\"version\":2,\"key\":\"a\",\"passes\":[[0,1,5,0.1]],\"drafts\":[[]]}", ERR_FORMAT},
        {"{\"version\":2,\"key\":\"a\",\"passes\":[[1,2,5,0.1]],\"drafts\":[[]]}", ERR_FORMAT},
        {"{\"version\":2,\"key\":\"a\",\"passes\":[[1,1,-5,0.1]],\"drafts\":[[]]}", ERR_FORMAT},
        {"{\"version\":2,\"key\":\"a\",\"passes\":[[1,1,5]],\"drafts\":[[]]}", ERR_FORMAT},
        {"{\"version\":2,\"key\":\"a\",\"passes\":[],\"drafts\":[[[1,3,5,0.1]]]}", ERR_FORMAT},
        {"{\"version\":2,\"key\":\"a\",\"passes\":[],\"drafts\":[]}", ERR_FORMAT},
        {"{\"version\":2,\"key\":\"a\",\"passes\":[],\"drafts\":[[],[]]}", ERR_FORMAT},
        {"{\"version\":2,\"key\":\"a\",\"passes\":[],\"drafts\":[[[1,-1,5,0.1]]]}", ERR_FORMAT},
    };
    struct str path = {0};
    struct err e;
    (void)state;
    char folder[] = "/tmp/coppice-price-XXXXXX";
    assert_non_null(mkdtemp(folder));
    price_path(&path, folder, "a");
    struct price *p = fresh(PRICE_GPU), *q = fresh(PRICE_GPU);
    assert_int_equal(price_load(q, path.data, "a", &e), ERR_IO);
    for (int i = 0; i < 10; i++) {
        price_note_pass(p, 1, 1, 8.4);
        price_note_pass(p, 24, 1, 14);
        price_note_draft(p, 0, 1, 0, 1.5);
    }
    assert_int_equal(price_save(p, path.data, "a", &e), 0);
    assert_int_equal(price_load(q, path.data, "a", &e), 0);
    assert_true(price_ready(q));
    near(price_pass_ms(q, 1, 1), 8.4, 0.03);
    near(price_pass_ms(q, 24, 1), 14, 0.03);
    near(price_pass_ms(q, 40, 1), price_pass_ms(p, 40, 1), 0.1);
    near(price_draft_ms(q, 0, 1, 0), 1.5, 0.03);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        replace(path.data, bad[i].text);
        e.text[0] = 0;
        assert_int_equal(price_load(q, path.data, "a", &e), bad[i].rc);
        assert_true(e.text[0]);
        near(price_pass_ms(q, 24, 1), 14, 0.03);
    }
    unlink(path.data);
    rmdir(folder);
    assert_int_equal(price_save(p, path.data, "a", &e), ERR_IO); // the folder is gone
    price_destroy(p);
    price_destroy(q);
    str_fini(&path);
}

// On a CPU drafts wait for a plain step; what is little known is cautiously dear, and less so once
// it was seen. Dear rows make a draft that was not seen dearer, too.
static void little_known_is_dear(void **state) {
    struct price *cpu, *gpu;
    (void)state;
    assert_int_equal(price_create(&cpu, PRICE_CPU, NULL, NULL, NULL), 0);
    assert_int_equal(price_create(&gpu, PRICE_GPU, NULL, NULL, NULL), 0);
    assert_true(!price_settled(cpu) && price_settled(gpu));
    price_note_pass(cpu, 1, 1, 10);
    assert_true(price_settled(cpu));
    double draft = price_draft_ms(cpu, 0, 1, 0), far = price_cautious_draft_ms(cpu, 0, 1, 0);
    assert_true(far > 1.3 * draft);
    for (int i = 0; i < 4; i++) {
        price_note_pass(cpu, 4, 1, 23);
        price_note_pass(cpu, 1, 1, 10);
    }
    double dearer = price_draft_ms(cpu, 0, 1, 0);
    assert_true(dearer > 2 * draft && dearer < 5 * draft);
    assert_true(price_pass_ms(cpu, 2, 1) > 1.3 * price_pass_ms(cpu, 1, 1));
    draft = price_draft_ms(cpu, 0, 1, 0);
    for (int i = 0; i < 4; i++)
        price_note_draft(cpu, 0, 1, 0, draft);
    assert_true(price_cautious_draft_ms(cpu, 0, 1, 0) < 1.1 * price_draft_ms(cpu, 0, 1, 0));
    price_destroy(cpu);
    price_destroy(gpu);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(little_known_is_dear),
        cmocka_unit_test(learns_scale_and_slope),
        cmocka_unit_test(sequences_and_members),
        cmocka_unit_test(disturbances),
        cmocka_unit_test(depths),
        cmocka_unit_test(passes_by_depth),
        cmocka_unit_test(kept_in_a_file),
        cmocka_unit_test(rows_cost_experts),
        cmocka_unit_test(experts_with_a_file),
        cmocka_unit_test(rows_share_experts),
        cmocka_unit_test(several_drafts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
