// SPDX-License-Identifier: Apache-2.0
// See pieces.h.
#include "serve/reply/pieces.h"

#include <stdlib.h>

void reply_pieces_fini(struct reply_pieces *r) {
    free(r->list);
    str_fini(&r->text);
    *r = (struct reply_pieces){0};
}

void reply_pieces_clear(struct reply_pieces *r) {
    r->n = 0;
    str_clear(&r->text);
}

// A new piece of the open part; NULL: no memory.
static struct reply_piece *add(struct reply_pieces *r, bool begins) {
    if (r->n == r->cap) {
        int cap = r->cap ? 2 * r->cap : 4;
        struct reply_piece *grown = realloc(r->list, (size_t)cap * sizeof *grown);
        if (!grown) {
            r->failed = true;
            return NULL;
        }
        r->list = grown;
        r->cap = cap;
    }
    struct reply_piece *p = &r->list[r->n++];
    *p = (struct reply_piece){.part = r->part,
                              .tool = r->part == REPLY_CALL ? r->tool : NULL,
                              .begins = begins,
                              .from = r->from,
                              .at = r->text.len};
    return p;
}

// The newest piece of the open part.
static struct reply_piece *newest(struct reply_pieces *r) {
    bool there = r->n > 0 && !r->list[r->n - 1].ends;
    return there ? &r->list[r->n - 1] : add(r, false);
}

static void begin(struct reply_pieces *r, enum reply_part part) {
    reply_pieces_end(r, true);
    r->part = part;
    r->open = true;
    add(r, true);
}

void reply_pieces_add(struct reply_pieces *r, enum reply_part part, const char *s, size_t n) {
    if (n == 0 || r->failed)
        return;
    if (!r->open || r->part != part)
        begin(r, part);
    struct reply_piece *p = r->failed ? NULL : newest(r);
    if (!p)
        return;
    str_append(&r->text, s, n);
    p->n += n;
    r->failed |= r->text.failed;
}

void reply_pieces_call(struct reply_pieces *r, const struct tool *t) {
    r->tool = t;
    if (!r->failed)
        begin(r, REPLY_CALL);
}

void reply_pieces_end(struct reply_pieces *r, bool whole) {
    struct reply_piece *p = r->open && !r->failed ? newest(r) : NULL;
    if (!p)
        return;
    p->ends = true;
    p->whole = whole;
    r->open = false;
}
