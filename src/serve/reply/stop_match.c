// SPDX-License-Identifier: Apache-2.0
// Stop strings in text that comes in pieces; see stop_match.h.
#include "serve/reply/stop_match.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/vec.h"

// The border table of one string: fail[i] is the longest proper beginning of s[0..i] that it also
// ends in.
static void fill_borders(const char *s, int32_t n, int32_t *fail) {
    fail[0] = 0;
    for (int32_t i = 1, k = 0; i < n; i++) {
        while (k > 0 && s[i] != s[k])
            k = fail[k - 1];
        if (s[i] == s[k])
            k++;
        fail[i] = k;
    }
}

int stop_set_add(struct stop_set *s, const char *text, size_t n, struct err *e) {
    if (s->n >= STOP_MAX_STRINGS || n > (size_t)(STOP_MAX_BYTES - s->n_bytes))
        return err_set(e, ERR_LIMIT,
                       "the stop strings are more than %d, or more than %d bytes in all",
                       STOP_MAX_STRINGS, STOP_MAX_BYTES);
    int64_t needed = s->n_bytes + (int64_t)n;
    int rc = vec_reserve(&s->bytes, &s->cap, needed, 1, e);
    if (!rc)
        rc = vec_reserve(&s->fail, &s->fcap, needed, sizeof *s->fail, e);
    if (!rc)
        rc = vec_reserve(&s->start, &s->scap, s->n + 1, sizeof *s->start, e);
    if (!rc)
        rc = vec_reserve(&s->len, &s->lcap, s->n + 1, sizeof *s->len, e);
    if (rc)
        return rc;
    memcpy(s->bytes + s->n_bytes, text, n);
    fill_borders(s->bytes + s->n_bytes, (int32_t)n, s->fail + s->n_bytes);
    s->start[s->n] = (int32_t)s->n_bytes;
    s->len[s->n++] = (int32_t)n;
    s->n_bytes = needed;
    return 0;
}

void stop_set_fini(struct stop_set *s) {
    free(s->bytes);
    free(s->fail);
    free(s->start);
    free(s->len);
    *s = (struct stop_set){0};
}

int stop_match_init(struct stop_match *m, const struct stop_set *s, struct err *e) {
    *m = (struct stop_match){.set = s, .found = -1};
    if (s->n > 0 && !(m->state = calloc((size_t)s->n, sizeof *m->state)))
        return err_set(e, ERR_MEMORY, "no memory for %d stop strings", s->n);
    return 0;
}

void stop_match_fini(struct stop_match *m) {
    free(m->state);
    str_fini(&m->held);
    *m = (struct stop_match){0};
}

// Takes one byte in. Returns the length of the longest string that it completes, with found set, or
// 0; *longest: the longest beginning that the text now ends in.
static int32_t match_byte(struct stop_match *m, char c, int32_t *longest) {
    const struct stop_set *s = m->set;
    int32_t done = 0;
    *longest = 0;
    for (int i = 0; i < s->n; i++) {
        const char *text = s->bytes + s->start[i];
        const int32_t *fail = s->fail + s->start[i];
        int32_t k = m->state[i];
        while (k > 0 && text[k] != c)
            k = fail[k - 1];
        m->state[i] = text[k] == c ? k + 1 : k;
        if (m->ignored && m->state[i] == s->len[i])
            m->state[i] = fail[s->len[i] - 1];
        if (m->state[i] == s->len[i] && s->len[i] > done) {
            done = s->len[i];
            m->found = i;
        }
        *longest = max_i32(*longest, m->state[i]);
    }
    return done;
}

// Moves all but the last `keep` bytes of what is held to out.
static void release_held_bytes(struct stop_match *m, size_t keep, struct str *out) {
    if (m->held.len <= keep)
        return;
    size_t n = m->held.len - keep;
    str_append(out, m->held.data, n);
    memmove(m->held.data, m->held.data + n, keep + 1);
    m->held.len = keep;
}

bool stop_match_push(struct stop_match *m, const char *text, size_t n, struct str *out) {
    if (m->found >= 0)
        return true;
    if (m->set->n == 0) {
        str_append(out, text, n);
        return false;
    }
    int32_t longest = 0;
    for (size_t i = 0; i < n; i++) {
        str_putc(&m->held, text[i]);
        if (m->held.failed)
            return false;
        int32_t done = match_byte(m, text[i], &longest);
        if (done > 0) {
            release_held_bytes(m, m->keeps ? 0 : (size_t)done, out);
            str_clear(&m->held);
            return true;
        }
    }
    if (n > 0)
        release_held_bytes(m, (size_t)longest, out);
    return false;
}

void stop_match_end(struct stop_match *m, struct str *out) {
    if (m->found < 0 && m->held.len)
        str_append(out, m->held.data, m->held.len);
    str_clear(&m->held);
    if (m->state && m->set)
        memset(m->state, 0, (size_t)m->set->n * sizeof *m->state);
}
