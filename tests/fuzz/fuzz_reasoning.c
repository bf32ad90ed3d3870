// SPDX-License-Identifier: Apache-2.0
// Replies that are parted into reasoning and content: the first byte chooses the family, whether
// the prompt opened a block, and how the stream is cut; the rest is the reply. Cuts change nothing,
// and what comes out is UTF-8.
#include "fuzz.h"

#include <string.h>

#include "base/rng.h"
#include "base/utf8.h"
#include "text/chat/reasoning.h"

struct parts {
    struct str reasoning, content;
};

static void push(struct reasoning *r, struct parts *p, const char *bytes, size_t n) {
    size_t before[2] = {p->reasoning.len, p->content.len};
    reasoning_push(r, bytes, n, &p->reasoning, &p->content);
    if (p->reasoning.failed || p->content.failed)
        return;
    FUZZ_CHECK(!p->reasoning.data ||
               utf8_valid(p->reasoning.data + before[0], p->reasoning.len - before[0]));
    FUZZ_CHECK(!p->content.data ||
               utf8_valid(p->content.data + before[1], p->content.len - before[1]));
}

static void part(struct parts *p, const uint8_t *data, size_t size, bool cut) {
    struct reasoning r;
    struct rng rng = {data[0]};
    const char *text = (const char *)data + 1;
    size_t n = size - 1;
    reasoning_init(&r, (enum reasoning_family)(data[0] / 2 % REASONING_FAMILIES), data[0] & 1);
    for (size_t at = 0; at < n;) {
        size_t piece = cut ? 1 + rng_below(&rng, 7) : n;
        piece = piece < n - at ? piece : n - at;
        push(&r, p, text + at, piece);
        at += piece;
    }
    reasoning_end(&r, &p->reasoning, &p->content);
    reasoning_fini(&r);
}

static bool same(const struct str *a, const struct str *b) {
    return a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}

void fuzz_setup(void) {
}

void fuzz_one(const uint8_t *data, size_t size, bool fragile) {
    struct parts whole = {0}, cut = {0};
    struct err e = {0};
    if (size == 0)
        return;
    part(&whole, data, size, false);
    part(&cut, data, size, true);
    bool failed = whole.reasoning.failed || whole.content.failed || cut.reasoning.failed ||
                  cut.content.failed;
    FUZZ_CHECK(!failed || fragile);
    FUZZ_CHECK(failed ||
               (same(&whole.reasoning, &cut.reasoning) && same(&whole.content, &cut.content)));
    int rc = failed ? err_set(&e, ERR_MEMORY, "no memory for the parts of a reply") : 0;
    fuzz_result(rc, &e, fragile);
    str_fini(&whole.reasoning);
    str_fini(&whole.content);
    str_fini(&cut.reasoning);
    str_fini(&cut.content);
}
