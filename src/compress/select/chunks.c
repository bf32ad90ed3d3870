// SPDX-License-Identifier: Apache-2.0
// Chunks, greedily from the begin of each part: for every token the border near its end is looked
// at, and the best one within bounds is taken.
#include "compress/select/chunks.h"

#include <stdlib.h>

#include "base/vec.h"
#include "compress/select/borders.h"

enum { LEAST = 16, AIM = 32, MOST = 48, FAR = 128 };

// The part that is being cut, relative to its begin.
struct cutter {
    const struct select_text *t;
    const char *text;
    size_t base, n;
};

struct choice {
    enum border kind;
    size_t at;
    int64_t off; // distance from AIM
};

static void consider(struct choice *best, enum border kind, size_t at, int64_t tokens) {
    int64_t off = tokens > AIM ? tokens - AIM : AIM - tokens;
    if (kind > best->kind || (kind == best->kind && off < best->off))
        *best = (struct choice){kind, at, off};
}

// The end of the chunk that begins at byte `from` of the part with token `first`.
static size_t chunk_end(const struct cutter *c, size_t from, int64_t first) {
    const struct select_text *t = c->t;
    struct choice best = {0}, late = {0};
    for (int64_t k = first; k < t->n_tokens && t->at[k + 1] <= c->base + c->n; k++) {
        int64_t tokens = k - first + 1;
        if (tokens > MOST && best.kind >= BORDER_LINE)
            return best.at;
        if (tokens > FAR && (best.kind || late.kind))
            break;
        size_t near = t->at[k + 1] < c->base ? 0 : t->at[k + 1] - c->base;
        size_t at = border_near(c->text, c->n, near);
        if (at <= from)
            continue;
        enum border kind = border_kind(c->text, c->n, at);
        if (kind == BORDER_END && tokens <= MOST)
            return c->n;
        if (tokens > MOST && kind >= BORDER_LINE)
            return at;
        if (kind && tokens >= LEAST && tokens <= MOST)
            consider(&best, kind, at, tokens);
        if (kind && tokens > MOST)
            consider(&late, kind, at, tokens);
        if (!best.kind && !late.kind && at - from > BORDER_WORD_MAX)
            return at;
    }
    return best.kind ? best.at : late.kind ? late.at : c->n;
}

static int push(struct chunks *out, const struct chunk *c, struct err *e) {
    int rc = vec_reserve(&out->c, &out->cap, out->n + 1, sizeof *out->c, e);
    if (!rc)
        out->c[out->n++] = *c;
    return rc;
}

int chunks_make(const struct select_text *t, struct chunks *out, struct err *e) {
    int64_t token = 0;
    for (int64_t p = 0; p < t->n_parts; p++) {
        const struct select_part *part = &t->parts[p];
        struct cutter c = {t, t->text + part->begin, part->begin, part->end - part->begin};
        while (token < t->n_tokens && t->at[token + 1] <= part->begin)
            token++; // of no part
        for (size_t from = 0; from < c.n;) {
            size_t end = part->whole ? c.n : chunk_end(&c, from, token);
            struct chunk made = {c.base + from, c.base + end, token, 0, p};
            while (token < t->n_tokens && t->at[token + 1] <= made.end)
                token++;
            made.count = token - made.first;
            int rc = push(out, &made, e);
            if (rc)
                return rc;
            from = end;
        }
    }
    return 0;
}

void chunks_fini(struct chunks *c) {
    free(c->c);
    *c = (struct chunks){0};
}
