// SPDX-License-Identifier: Apache-2.0
// Best-first construction of the draft tree. A heap holds the frontier: taking a node out adds its
// next sibling and its first child, neither of which can score above it, so nodes leave the heap in
// the final order and each prefix is met once. Scores are doubles summed from the root outwards,
// which makes equal prefixes of equal steps equal in every bit, and the order total.
#include "spec/ddtree.h"

#include <math.h>
#include <stddef.h>

struct candidate {
    int32_t token;
    uint32_t chains; // chains whose next token this is
    double step;     // log-probability, <= 0
};

struct candidates {
    int n;
    struct candidate c[TREE_MAX_K + TREE_MAX_CHAINS];
};

// A node that may be taken next.
struct entry {
    double score;
    int32_t depth, parent, rank, token;
    uint32_t chains; // chains that begin with the path to this node
};

struct builder {
    const struct proposal *p;
    const struct tree_options *o;
    struct ddtree *t;
    uint32_t chains[TREE_MAX_ROWS]; // per node
    struct entry heap[2 * TREE_MAX_ROWS];
    int heap_n;
    double min_score;
};

// Siblings never meet in the heap (each is added when the one before it leaves), so that score,
// depth and parent decide between any two entries.
static bool entry_before(const struct entry *a, const struct entry *b) {
    if (a->score != b->score)
        return a->score > b->score;
    if (a->depth != b->depth)
        return a->depth < b->depth;
    return a->parent < b->parent;
}

static void heap_push(struct builder *b, const struct entry *e) {
    int i = b->heap_n++;
    while (i > 0) {
        int up = (i - 1) / 2;
        if (!entry_before(e, &b->heap[up]))
            break;
        b->heap[i] = b->heap[up];
        i = up;
    }
    b->heap[i] = *e;
}

static struct entry heap_pop(struct builder *b) {
    struct entry top = b->heap[0];
    struct entry last = b->heap[--b->heap_n];
    int i = 0;
    for (;;) {
        int down = 2 * i + 1;
        if (down >= b->heap_n)
            break;
        if (down + 1 < b->heap_n && entry_before(&b->heap[down + 1], &b->heap[down]))
            down++;
        if (!entry_before(&b->heap[down], &last))
            break;
        b->heap[i] = b->heap[down];
        i = down;
    }
    b->heap[i] = last;
    return top;
}

// Adds a candidate in order of (step descending, token ascending); an id that is there already
// keeps the better step and gains the chains.
static void candidate_add(struct candidates *list, struct candidate c) {
    for (int i = 0; i < list->n; i++) {
        if (list->c[i].token != c.token)
            continue;
        c.chains |= list->c[i].chains;
        if (list->c[i].step > c.step)
            c.step = list->c[i].step;
        list->n--;
        for (int j = i; j < list->n; j++)
            list->c[j] = list->c[j + 1];
        break;
    }
    int at = list->n++;
    for (; at > 0; at--) {
        const struct candidate *prev = &list->c[at - 1];
        if (prev->step > c.step || (prev->step == c.step && prev->token < c.token))
            break;
        list->c[at] = *prev;
    }
    list->c[at] = c;
}

// The candidates below a node at `depth - 1` whose path begins the given chains.
static void candidates_at(const struct builder *b, int depth, uint32_t chains,
                          struct candidates *out) {
    const struct proposal *p = b->p;
    out->n = 0;
    int k = p->k < b->o->k ? p->k : b->o->k;
    if (k > TREE_MAX_K)
        k = TREE_MAX_K;
    for (int r = 0; depth <= p->depth && r < k; r++) {
        ptrdiff_t i = (ptrdiff_t)(depth - 1) * p->k + r;
        double step = (double)p->logp[i];
        if (isfinite(step))
            candidate_add(out, (struct candidate){p->ids[i], 0, step < 0 ? step : 0});
    }
    for (int c = 0; c < p->n_chains; c++) {
        const struct draft_chain *chain = &p->chains[c];
        if (!(chains & (1u << c)) || chain->len < depth || !isfinite(chain->logp))
            continue;
        double step = chain->logp < 0 ? (double)chain->logp : 0;
        candidate_add(out, (struct candidate){chain->ids[depth - 1], 1u << c, step});
    }
}

// Finds the child of `parent` with this rank; false when there is none that may join.
static bool child_entry(const struct builder *b, int parent, int rank, struct entry *e) {
    int depth = b->t->depth[parent] + 1;
    if (depth > b->o->max_depth || depth > TREE_MAX_DEPTH)
        return false;
    struct candidates list;
    candidates_at(b, depth, b->chains[parent], &list);
    if (rank >= list.n)
        return false;
    *e = (struct entry){.score = b->t->score[parent] + list.c[rank].step,
                        .depth = depth,
                        .parent = parent,
                        .rank = rank,
                        .token = list.c[rank].token,
                        .chains = list.c[rank].chains};
    return e->score >= b->min_score;
}

// Makes e a node and offers its next sibling. Returns the node's index.
static int take(struct builder *b, const struct entry *e) {
    struct ddtree *t = b->t;
    int i = t->n++;
    t->token[i] = e->token;
    t->parent[i] = e->parent;
    t->depth[i] = e->depth;
    t->score[i] = e->score;
    b->chains[i] = e->chains;
    struct entry sibling;
    if (child_entry(b, e->parent, e->rank + 1, &sibling))
        heap_push(b, &sibling);
    return i;
}

void ddtree_build(struct ddtree *t, int32_t root, const struct proposal *p,
                  const struct tree_options *o) {
    struct builder b = {.p = p, .o = o, .t = t, .min_score = -INFINITY};
    if (o->min_prob > 0)
        b.min_score = log(o->min_prob);
    int rows = 1 + (o->budget < TREE_MAX_BUDGET ? o->budget : TREE_MAX_BUDGET);
    t->n = 1;
    t->token[0] = root;
    t->parent[0] = -1;
    t->depth[0] = 0;
    t->score[0] = 0;
    b.chains[0] = (1u << p->n_chains) - 1;

    int tip = 0;
    struct entry e;
    while (o->chain_seed && t->n < rows && child_entry(&b, tip, 0, &e))
        tip = take(&b, &e);
    if (child_entry(&b, tip, 0, &e))
        heap_push(&b, &e);
    while (t->n < rows && b.heap_n > 0) {
        e = heap_pop(&b);
        int node = take(&b, &e);
        if (child_entry(&b, node, 0, &e))
            heap_push(&b, &e);
    }
}

int ddtree_child(const struct ddtree *t, int node, int32_t token) {
    for (int i = node + 1; i < t->n; i++)
        if (t->parent[i] == node && t->token[i] == token)
            return i;
    return -1;
}

int ddtree_path(const struct ddtree *t, int node, int32_t path[TREE_MAX_DEPTH + 1]) {
    int count = t->depth[node] + 1;
    for (int d = count - 1; d >= 0; d--) {
        path[d] = node;
        node = t->parent[node];
    }
    return count;
}
