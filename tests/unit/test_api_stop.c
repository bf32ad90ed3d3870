// SPDX-License-Identifier: Apache-2.0
// Stop strings: random texts over a small alphabet, cut at random, against a search of the whole
// text; nothing of a stop string is ever let out, and nothing is held back without need.
#include "test.h"

#include "base/rng.h"
#include "serve/reply/stop_match.h"

static void add(struct stop_set *s, const char *text) {
    struct err e = {0};
    assert_int_equal(stop_set_add(s, text, strlen(text), &e), 0);
}

// Where the text ends by definition: before the stop string that is complete first after `ignored`
// bytes, of those that are complete together the longest. n where there is none.
static size_t cut_of(const struct stop_set *s, const char *text, size_t n, size_t ignored,
                     int *found) {
    *found = -1;
    for (size_t end = ignored + 1; end <= n; end++) {
        size_t best = 0;
        for (int i = 0; i < s->n; i++) {
            size_t len = (size_t)s->len[i];
            if (len <= end && len > best &&
                !memcmp(text + end - len, s->bytes + s->start[i], len)) {
                best = len;
                *found = i;
            }
        }
        if (best)
            return end - best;
    }
    return n;
}

// The longest end of text that begins a stop string.
static size_t pending(const struct stop_set *s, const char *text, size_t n) {
    size_t max = 0;
    for (int i = 0; i < s->n; i++)
        for (size_t k = 1; k < (size_t)s->len[i] && k <= n; k++)
            if (!memcmp(text + n - k, s->bytes + s->start[i], k) && k > max)
                max = k;
    return max;
}

static void random_string(struct rng *r, char *out, int min, int max) {
    int n = min + (int)rng_below(r, (uint32_t)(max - min + 1));
    for (int i = 0; i < n; i++)
        out[i] = "ab"[rng_below(r, 2)];
    out[n] = 0;
}

static void one_case(struct rng *r) {
    struct stop_set s = {0};
    struct stop_match m;
    struct str out = {0};
    struct err e = {0};
    char text[64], stop[16];
    for (uint32_t i = rng_below(r, 4); i > 0; i--) {
        random_string(r, stop, 1, 6);
        add(&s, stop);
    }
    random_string(r, text, 0, 40);
    size_t n = strlen(text), at = 0, ignored = rng_below(r, 2) ? 0 : rng_below(r, 20);
    int found;
    size_t cut = cut_of(&s, text, n, ignored, &found);
    assert_int_equal(stop_match_init(&m, &s, &e), 0);
    m.keeps = rng_below(r, 2);
    if (m.keeps && found >= 0)
        cut += (size_t)s.len[found];
    while (at < n) {
        size_t piece = rng_below(r, 5);
        piece = piece > n - at ? n - at : piece;
        m.ignored = at < ignored;
        if (m.ignored && piece > ignored - at)
            piece = ignored - at;
        bool stopped = stop_match_push(&m, text + at, piece, &out);
        at += piece;
        assert_true(out.len <= cut);
        assert_memory_equal(out.data ? out.data : "", text, out.len);
        if (!stopped)
            assert_int_equal(out.len, at - pending(&s, text, at));
        assert_int_equal(stopped, found >= 0 && m.found == found);
        if (stopped)
            break;
    }
    stop_match_end(&m, &out);
    assert_int_equal(out.len, cut);
    assert_int_equal(m.found, found);
    stop_match_fini(&m);
    stop_set_fini(&s);
    str_fini(&out);
}

static void random_cuts_change_nothing(void **state) {
    (void)state;
    struct rng r = {7};
    for (int i = 0; i < 20000; i++)
        one_case(&r);
}

static void limits_are_kept(void **state) {
    (void)state;
    struct stop_set s = {0};
    struct err e = {0};
    static char big[STOP_MAX_BYTES];
    for (int i = 0; i < STOP_MAX_STRINGS; i++)
        add(&s, "x");
    assert_int_equal(stop_set_add(&s, "x", 1, &e), ERR_LIMIT);
    stop_set_fini(&s);
    memset(big, 'x', sizeof big);
    assert_int_equal(stop_set_add(&s, big, sizeof big, &e), 0);
    assert_int_equal(stop_set_add(&s, "x", 1, &e), ERR_LIMIT);
    stop_set_fini(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_cuts_change_nothing),
        cmocka_unit_test(limits_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
