// SPDX-License-Identifier: Apache-2.0
// Mixing. The tree numbers the nodes that it requests; a draft whose candidates depend on the path
// is called for some of them only, at most as many of a depth as it takes, and numbers these
// itself. A node below one that it was not called for is none of its own.
#include "spec/tree/mix.h"

#include <math.h>
#include <string.h>

#include "base/num.h"

enum {
    NODES = 1 + TREE_MAX_ROWS * TREE_MAX_DEPTH, // that a tree may request
    CANDIDATES = PRICE_DRAFTS * TREE_MAX_K,
};

struct part {
    struct mix_part of;
    bool failed;
    int n_asked;            // nodes so far
    int32_t number[NODES];  // of each of the tree's nodes its own number, or -1
    int at[TREE_MAX_ROWS];  // of each node of this level its place in the question, or -1
    struct tree_question q; // n is 0 where nothing is requested
    struct tree_node nodes[TREE_MAX_ROWS];
};

struct mix {
    struct part part[PRICE_DRAFTS];
    int n_parts;
    int n_requested;               // nodes of the tree so far
    const struct tree_node *nodes; // [n] of this level, with k candidates each
    int n, k;
    int32_t ids[TREE_MAX_ROWS * TREE_MAX_K];
    float logp[TREE_MAX_ROWS * TREE_MAX_K];
    uint8_t origin[TREE_MAX_ROWS * TREE_MAX_K];
};

size_t mix_bytes(void) {
    return sizeof(struct mix);
}

// Which of the level's nodes the draft is called for: the first, as many as it takes.
static void ask_part(const struct mix *m, struct part *p, int first) {
    const struct proposal *of = p->of.p;
    const int max = of->width > 0 ? min_i32(of->width, TREE_MAX_ROWS) : TREE_MAX_ROWS;
    const bool asks = of->expand && !p->failed && m->nodes[0].depth < of->depth;
    p->q = (struct tree_question){of->expand_arg, p->nodes, 0, m->k, {0}};
    for (int i = 0; i < m->n; i++) {
        const struct tree_node *node = &m->nodes[i];
        const int up = node->parent < 0 ? -1 : p->number[node->parent];
        const bool own = asks && p->q.n < max && (node->parent < 0 || up >= 0);
        p->number[first + i] = own ? p->n_asked++ : -1;
        p->at[i] = own ? p->q.n : -1;
        if (own) {
            p->nodes[p->q.n] = *node;
            p->nodes[p->q.n++].parent = up;
        }
    }
}

void mix_level(struct mix *m, const struct tree_node *nodes, int n, int k) {
    m->nodes = nodes;
    m->n = n;
    m->k = k;
    for (int i = 0; i < m->n_parts; i++)
        ask_part(m, &m->part[i], m->n_requested);
    m->n_requested += n;
}

static struct part *part_of(struct mix *m, int draft) {
    for (int i = 0; i < m->n_parts; i++)
        if (m->part[i].of.draft == draft)
            return &m->part[i];
    return NULL;
}

struct tree_question *mix_question(struct mix *m, int draft) {
    struct part *p = part_of(m, draft);
    return p && p->q.n && !p->failed ? &p->q : NULL;
}

void mix_drop(struct mix *m, int draft) {
    struct part *p = part_of(m, draft);
    if (p)
        p->failed = true;
}

unsigned mix_failed(const struct mix *m) {
    unsigned failed = 0;
    for (int i = 0; i < m->n_parts; i++)
        failed |= m->part[i].failed ? 1u << m->part[i].of.draft : 0;
    return failed;
}

// What all drafts together say below a node.
struct mixed {
    int32_t id;
    uint8_t origin;
    double chance;
    double own; // of the draft that is being added
};
struct union_of {
    struct mixed c[CANDIDATES];
    int n;
};

// What a draft says below a node: n candidates.
static int said_below(const struct mix *m, const struct part *p, int node, const int32_t **ids,
                      const float **logp) {
    const struct proposal *of = p->of.p;
    const struct tree_node *t = &m->nodes[node];
    const ptrdiff_t k = of->k, at = (ptrdiff_t)t->depth * k;
    if (of->expand) {
        const ptrdiff_t from = (ptrdiff_t)p->at[node] * m->k;
        if (p->failed || p->at[node] < 0)
            return 0;
        *ids = p->q.answer.ids + from;
        *logp = p->q.answer.logp + from;
        return m->k;
    }
    if (t->depth >= of->depth)
        return 0;
    *ids = of->ids + at;
    *logp = of->logp + at;
    const float *pair = NULL;
    if (of->pair && t->depth > 0)
        pair = proposal_pair(of, t->depth, t->path[t->depth - 1]);
    *logp = pair ? pair : *logp;
    return min_i32(of->k, TREE_MAX_K);
}

static struct mixed *find_candidate(struct union_of *u, int32_t id) {
    for (int i = 0; i < u->n; i++)
        if (u->c[i].id == id)
            return &u->c[i];
    u->c[u->n] = (struct mixed){.id = id};
    return &u->c[u->n++];
}

// Adds what a draft says; the best of equal ids counts. Whether it says anything is returned.
static bool add_part(struct union_of *u, const struct part *p, const int32_t *ids,
                     const float *logp, int n) {
    bool any = false;
    for (int i = 0; i < u->n; i++)
        u->c[i].own = 0;
    for (int i = 0; i < n; i++) {
        if (!isfinite(logp[i]))
            continue;
        struct mixed *c = find_candidate(u, ids[i]);
        const double chance = p->of.weight * exp(fmin((double)logp[i], 0));
        any = true;
        c->origin |= (uint8_t)(TREE_BY_CANDIDATES << p->of.draft);
        if (chance > c->own) {
            c->chance += chance - c->own;
            c->own = chance;
        }
    }
    return any;
}

static bool comes_before(const struct mixed *a, const struct mixed *b) {
    return a->chance != b->chance ? a->chance > b->chance : a->id < b->id;
}

// The k best of all, best first.
static void take_best(struct mix *m, int node, struct union_of *u, double weight) {
    const ptrdiff_t at = (ptrdiff_t)node * m->k;
    for (int i = 0; i < m->k; i++) {
        int best = i;
        for (int j = i + 1; j < u->n; j++)
            if (comes_before(&u->c[j], &u->c[best]))
                best = j;
        const bool there = i < u->n && u->c[best].chance > 0;
        m->ids[at + i] = there ? u->c[best].id : -1;
        m->logp[at + i] = there ? (float)log(u->c[best].chance / weight) : -INFINITY;
        m->origin[at + i] = there ? u->c[best].origin : 0;
        if (there)
            u->c[best] = u->c[i];
    }
}

struct tree_candidates mix_answer(struct mix *m) {
    for (int node = 0; node < m->n; node++) {
        struct union_of u;
        double weight = 0;
        u.n = 0;
        for (int i = 0; i < m->n_parts; i++) {
            const struct part *p = &m->part[i];
            const int32_t *ids = NULL;
            const float *logp = NULL;
            int n = said_below(m, p, node, &ids, &logp);
            weight += add_part(&u, p, ids, logp, n) ? p->of.weight : 0;
        }
        take_best(m, node, &u, weight);
    }
    return (struct tree_candidates){m->ids, m->logp, m->origin};
}

// A tree_expand_fn.
static int expand(void *arg, const struct tree_node *nodes, int n, int k,
                  struct tree_candidates *out, struct err *e) {
    struct mix *m = arg;
    mix_level(m, nodes, n, k);
    for (int i = 0; i < m->n_parts; i++) {
        struct part *p = &m->part[i];
        if (p->q.n && p->of.p->expand(p->q.arg, p->nodes, p->q.n, k, &p->q.answer, e))
            p->failed = true;
    }
    *out = mix_answer(m);
    return 0;
}

void mix_offer(struct mix *m, const struct mix_part *parts, int n, struct proposal *out) {
    bool by_depth = false; // a whole depth at once
    m->n_parts = n;
    m->n_requested = 0;
    *out = (struct proposal){.expand = expand, .expand_arg = m, .k = TREE_MAX_K};
    for (int i = 0; i < n; i++) {
        const struct proposal *p = parts[i].p;
        m->part[i].of = parts[i];
        m->part[i].failed = false;
        m->part[i].n_asked = 0;
        out->depth = max_i32(out->depth, p->depth);
        by_depth = by_depth || (p->expand && p->width > 0);
        for (int c = 0; c < p->n_chains && out->n_chains < TREE_MAX_CHAINS; c++)
            out->chains[out->n_chains++] = p->chains[c];
    }
    out->width = by_depth ? TREE_MAX_ROWS : 0;
}

// Before anything is known a draft counts as one of whose two guesses one came true.
double mix_weight(const struct mix_record *r) {
    return (r->right + 1) / (r->guessed + 2);
}

static void learn_row(struct mix_record *r, unsigned guessed, unsigned right) {
    for (int d = 0; d < PRICE_DRAFTS; d++) {
        if (!(guessed >> d & 1))
            continue;
        r[d].guessed += 1 - r[d].guessed / PRICE_STEPS;
        r[d].right += (right >> d & 1) - r[d].right / PRICE_STEPS;
    }
}

void mix_learn(struct mix_record *r, const struct ddtree *t, const struct walk *w) {
    for (int i = 0; i < w->count; i++) {
        const int row = w->path[i];
        unsigned guessed = 0, right = 0;
        for (int node = row + 1; node < t->n; node++) {
            if (t->parent[node] != row)
                continue;
            guessed |= tree_drafts(t->origin[node]);
            if (t->token[node] == w->chosen[i])
                right = tree_drafts(t->origin[node]);
        }
        learn_row(r, guessed, right);
    }
}
