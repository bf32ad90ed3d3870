// SPDX-License-Identifier: Apache-2.0
// Sessions by their ids, the least recently used leaving first.
#include "compress/adapt.h"

#include "base/hash.h"

static const double start = 0.10, least = 0.025, most = 0.20;

static struct adapt_session *find(struct adapt *a, uint64_t id) {
    for (int i = 0; i < a->n; i++)
        if (a->sessions[i].id == id)
            return &a->sessions[i];
    return NULL;
}

static struct adapt_session *make(struct adapt *a, uint64_t id) {
    struct adapt_session *s = &a->sessions[0];
    if (a->n < ADAPT_SESSIONS)
        s = &a->sessions[a->n++];
    else
        for (int i = 1; i < a->n; i++)
            s = a->sessions[i].used < s->used ? &a->sessions[i] : s;
    *s = (struct adapt_session){.id = id, .keep = start, .accepted = -1};
    return s;
}

uint64_t adapt_id(const char *name, size_t n) {
    uint64_t id = hash_bytes(name, n, 0);
    return id ? id : 1;
}

double adapt_share(int64_t tokens, int64_t passes) {
    return tokens > 0 && passes > 0 ? 1 - (double)passes / (double)tokens : -1;
}

double adapt_keep(struct adapt *a, uint64_t session) {
    struct adapt_session *s = find(a, session);
    if (!s)
        return start;
    s->used = ++a->clock;
    return s->keep;
}

void adapt_note(struct adapt *a, uint64_t session, double accepted) {
    struct adapt_session *s = find(a, session);
    if (!s)
        s = make(a, session);
    double share = accepted > 1 ? 1 : accepted > 0 ? accepted : 0; // what is no number: 0
    s->used = ++a->clock;
    s->accepted = s->accepted < 0 ? share : 0.7 * s->accepted + 0.3 * share;
    double step = s->accepted < 0.70 || s->accepted > 0.90 ? 0.01 : 0.005;
    if (s->accepted < 0.75)
        s->keep += step;
    else if (s->accepted > 0.85)
        s->keep -= step;
    s->keep = s->keep < least ? least : s->keep > most ? most : s->keep;
}
