// SPDX-License-Identifier: Apache-2.0
// Construction of the draft tree. The best prefixes offered so far are kept in their final order,
// at most as many as the tree may hold: a child never comes before its parent, so a prefix that
// falls out at the end takes no part any more, and nor do its descendants. Expanding the kept
// prefixes from the front on is the best-first search; expanding those of one depth after another
// lets a drafter answer for a whole depth at once, and ends with the same tree if it expands all.
// Scores are doubles summed from the root outwards, which makes equal prefixes of equal steps equal
// in every bit, and the order total.
#include "spec/tree/ddtree.h"

#include <math.h>
#include <string.h>

#include "base/num.h"

struct candidate {
    int32_t token;
    uint32_t chains; // chains whose next token this is
    double step;     // log-probability, <= 0
    uint8_t origin;  // TREE_BY_*
};

// In order of (step descending, token ascending).
struct candidates {
    int n;
    struct candidate c[TREE_MAX_K + TREE_MAX_CHAINS + 1];
};

struct node {
    double score;
    int32_t token, depth;
    int32_t slot, parent; // index in nodes[] of itself, of its parent (-1: none)
    int32_t number;       // among those that the drafter was called for
    uint32_t chains;      // chains that begin with the path to this node
    uint8_t origin;       // TREE_BY_*
    bool seed;            // the root, and the best candidate of a seed, of trees with a seed
};

struct ddtree_build {
    const struct proposal *p;
    int k, max_depth;
    double min_score;
    int requested;                    // nodes that the drafter was called for
    int n, limit;                     // nodes kept, at most; the root is one
    struct node nodes[TREE_MAX_ROWS]; // in no order
    uint8_t order[TREE_MAX_ROWS];     // [n] indices of nodes[], the root first
    int at;                           // the place, or depth, to be expanded next
    // Those that are being expanded, and the same as the drafter sees them. They are copies: as
    // children join, some may fall out; what these offer is then not kept either.
    int n_parents;
    struct node parents[TREE_MAX_ROWS];
    struct tree_node asked[TREE_MAX_ROWS];
};

// Of two nodes for which neither comes first, the one that was offered earlier does: parents are
// expanded in this order, and siblings offered by rank.
static bool comes_before(const struct node *a, const struct node *b) {
    if (a->seed != b->seed)
        return a->seed;
    if (!a->seed && a->score != b->score)
        return a->score > b->score;
    return a->depth < b->depth;
}

static const struct node *last_of(const struct ddtree_build *b) {
    return &b->nodes[b->order[b->n - 1]];
}

// Where the node belongs: in front of the first that it comes before, which is never the root.
static int order_place(const struct ddtree_build *b, const struct node *node) {
    int from = 1, to = b->n;
    while (from < to) {
        int mid = (from + to) / 2;
        if (comes_before(node, &b->nodes[b->order[mid]]))
            to = mid;
        else
            from = mid + 1;
    }
    return from;
}

// Keeps a node that is good enough; false when it is not, as all later siblings then are not.
static bool keep_node(struct ddtree_build *b, const struct node *node) {
    int slot = b->n;
    if (node->score < b->min_score)
        return false;
    if (b->n == b->limit) {
        if (!comes_before(node, last_of(b)))
            return false;
        slot = last_of(b)->slot; // it falls out
        b->n--;
    }
    int at = order_place(b, node);
    memmove(b->order + at + 1, b->order + at, (size_t)(b->n - at));
    b->order[at] = (uint8_t)slot;
    b->nodes[slot] = *node;
    b->nodes[slot].slot = slot;
    b->n++;
    return true;
}

// Whether a child of the node could be kept.
static bool is_expandable(const struct ddtree_build *b, const struct node *node) {
    struct node best = {.score = node->score, .depth = node->depth + 1, .seed = node->seed};
    return best.depth <= b->max_depth && (b->n < b->limit || comes_before(&best, last_of(b)));
}

// Adds a candidate, of which the first `max` stay; an id that is there already keeps the better
// step and gains the chains.
static void candidate_add(struct candidates *list, struct candidate c, int max) {
    for (int i = 0; i < list->n; i++) {
        if (list->c[i].token != c.token)
            continue;
        c.chains |= list->c[i].chains;
        c.origin |= list->c[i].origin;
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
    list->n = min_i32(list->n, max);
}

static void add_candidates(struct candidates *list, const struct proposal *p,
                           const struct tree_candidates *of, int n, int max) {
    const uint8_t usual = p->origin ? p->origin : TREE_BY_CANDIDATES;
    for (int r = 0; r < n; r++) {
        const double step = (double)of->logp[r];
        const uint8_t origin = of->origin ? of->origin[r] : usual;
        if (isfinite(step))
            candidate_add(list, (struct candidate){of->ids[r], 0, step < 0 ? step : 0, origin},
                          max);
    }
}

const float *proposal_pair(const struct proposal *p, int depth, int32_t token) {
    const int32_t *ids = p->ids + (ptrdiff_t)(depth - 1) * p->k;
    for (int q = 0; q < p->k; q++)
        if (ids[q] == token)
            return p->pair(p->pair_arg, depth - 1, q);
    return NULL;
}

// The candidates below a node. answer: the drafter's for this node, where it was called.
static void candidates_below(const struct ddtree_build *b, const struct node *node,
                             const struct tree_candidates *answer, struct candidates *out) {
    const struct proposal *p = b->p;
    ptrdiff_t at = (ptrdiff_t)node->depth * p->k; // of depth + 1
    out->n = 0;
    if (answer) {
        add_candidates(out, p, answer, b->k, b->k);
    } else if (!p->expand && node->depth < p->depth) {
        const float *pair =
            p->pair && node->depth > 0 ? proposal_pair(p, node->depth, node->token) : NULL;
        int n = p->pair ? p->k : min_i32(p->k, b->k);
        const struct tree_candidates of = {p->ids + at, pair ? pair : p->logp + at, NULL};
        add_candidates(out, p, &of, n, b->k);
    }
    for (int c = 0; c < p->n_chains; c++) {
        const struct draft_chain *chain = &p->chains[c];
        if (!(node->chains & (1u << c)) || chain->len <= node->depth || !isfinite(chain->logp))
            continue;
        double step = chain->logp < 0 ? (double)chain->logp : 0;
        candidate_add(out,
                      (struct candidate){chain->ids[node->depth], 1u << c, step, TREE_BY_CHAIN},
                      TREE_MAX_K + TREE_MAX_CHAINS);
    }
}

static void offer_children(struct ddtree_build *b, const struct node *parent,
                           const struct tree_candidates *answer) {
    struct candidates list;
    candidates_below(b, parent, answer, &list);
    for (int r = 0; r < list.n; r++) {
        struct node child = {.score = parent->score + list.c[r].step,
                             .token = list.c[r].token,
                             .depth = parent->depth + 1,
                             .parent = parent->slot,
                             .chains = list.c[r].chains,
                             .origin = list.c[r].origin,
                             .seed = parent->seed && r == 0};
        if (!keep_node(b, &child))
            break;
    }
}

// Numbers the parents and describes them to the drafter.
static void ask_drafter(struct ddtree_build *b) {
    for (int i = 0; i < b->n_parents; i++) {
        const struct node *node = &b->parents[i], *up = node;
        struct tree_node *to = &b->asked[i];
        b->nodes[node->slot].number = b->requested++;
        to->depth = node->depth;
        to->score = node->score;
        to->parent = node->parent < 0 ? -1 : b->nodes[node->parent].number;
        for (int d = node->depth; d > 0; d--, up = &b->nodes[up->parent])
            to->path[d - 1] = up->token;
    }
}

// The next node in the order. Nodes join in their order, so that the places before one that is
// expanded stay as they are.
static void take_best(struct ddtree_build *b) {
    for (b->n_parents = 0; b->n_parents == 0 && b->at < b->n; b->at++)
        if (is_expandable(b, &b->nodes[b->order[b->at]]))
            b->parents[b->n_parents++] = b->nodes[b->order[b->at]];
}

// The nodes of the next depth, in their order.
static void take_depth(struct ddtree_build *b) {
    b->n_parents = 0;
    if (b->at >= b->max_depth)
        return;
    const int depth = b->at++;
    const int max = depth < b->p->depth ? b->p->width : TREE_MAX_ROWS;
    for (int i = 0; i < b->n && b->n_parents < max; i++) {
        const struct node *node = &b->nodes[b->order[i]];
        if (node->depth == depth && is_expandable(b, node))
            b->parents[b->n_parents++] = *node;
    }
}

// Writes the nodes out in their order.
void ddtree_finish(const struct ddtree_build *b, struct ddtree *t) {
    int32_t row[TREE_MAX_ROWS]; // of each of nodes[]
    t->n = b->n;
    for (int i = 0; i < b->n; i++) {
        const struct node *node = &b->nodes[b->order[i]];
        row[node->slot] = i;
        t->token[i] = node->token;
        t->parent[i] = node->parent < 0 ? -1 : row[node->parent];
        t->depth[i] = node->depth;
        t->score[i] = node->score;
        t->origin[i] = node->origin;
    }
}

size_t ddtree_build_bytes(void) {
    return sizeof(struct ddtree_build);
}

void ddtree_start(struct ddtree_build *b, int32_t root, const struct proposal *p,
                  const struct tree_options *o) {
    b->p = p;
    b->k = min_i32(o->k, TREE_MAX_K);
    b->max_depth = min_i32(o->max_depth, TREE_MAX_DEPTH);
    b->min_score = o->min_prob > 0 ? log(o->min_prob) : -INFINITY;
    b->limit = 1 + (o->budget > 0 ? min_i32(o->budget, TREE_MAX_BUDGET) : 0);
    b->requested = b->at = b->n_parents = 0;
    b->n = 1;
    b->order[0] = 0;
    b->nodes[0] = (struct node){
        .token = root, .parent = -1, .chains = (1u << p->n_chains) - 1, .seed = o->chain_seed};
}

int ddtree_level(struct ddtree_build *b, const struct tree_node **nodes) {
    const struct proposal *p = b->p;
    for (;;) {
        if (p->expand && p->width > 0)
            take_depth(b);
        else
            take_best(b);
        if (b->n_parents && p->expand && b->k > 0 && b->parents[0].depth < p->depth)
            break;
        for (int i = 0; i < b->n_parents; i++)
            offer_children(b, &b->parents[i], NULL);
        if (!b->n_parents)
            return 0;
    }
    ask_drafter(b);
    *nodes = b->asked;
    return b->n_parents;
}

int ddtree_candidates(const struct ddtree_build *b) {
    return b->k;
}

void ddtree_answer(struct ddtree_build *b, const struct tree_candidates *answer) {
    for (int i = 0; i < b->n_parents; i++) {
        ptrdiff_t at = (ptrdiff_t)i * b->k;
        struct tree_candidates one = {answer->ids + at, answer->logp + at,
                                      answer->origin ? answer->origin + at : NULL};
        offer_children(b, &b->parents[i], &one);
    }
}

int ddtree_build(struct ddtree *t, int32_t root, const struct proposal *p,
                 const struct tree_options *o, struct err *e) {
    struct ddtree_build b;
    const struct tree_node *nodes;
    struct tree_candidates answer;
    int rc = 0;
    ddtree_start(&b, root, p, o);
    for (int n; !rc && (n = ddtree_level(&b, &nodes));) {
        rc = p->expand(p->expand_arg, nodes, n, b.k, &answer, e);
        if (!rc)
            ddtree_answer(&b, &answer);
    }
    b.n = rc ? 1 : b.n;
    ddtree_finish(&b, t);
    return rc;
}

int ddtree_child(const struct ddtree *t, int node, int32_t token) {
    for (int i = node + 1; i < t->n; i++)
        if (t->parent[i] == node && t->token[i] == token)
            return i;
    return -1;
}

const char *end_reason_name(enum end_reason r) {
    static const char *const names[] = {"none", "stop", "length", "context", "caller"};
    return names[r];
}

static enum end_reason ending(const struct walk_limits *l, int count, int32_t token) {
    if (l->stop && l->stop(l->stop_arg, token))
        return END_STOP;
    if (count >= l->tokens_left)
        return END_LENGTH;
    return count >= l->context_left ? END_CONTEXT : END_NONE;
}

void walk_tree(const struct ddtree *t, const int32_t *choice, const struct walk_limits *limits,
               struct walk *out) {
    int row = 0;
    out->count = 0;
    out->end = END_NONE;
    while (row >= 0 && choice[row] >= 0 && out->end == END_NONE) {
        out->path[out->count] = row;
        out->chosen[out->count++] = choice[row];
        out->end = ending(limits, out->count, choice[row]);
        row = ddtree_child(t, row, choice[row]);
    }
}
