// SPDX-License-Identifier: Apache-2.0
// Masks of a member. The tree builder requests the candidates of nodes as they join
// (a proposal with `expand`), which is where the constraint comes in: a node that is requested gets
// its state from its parent's. States of the rows that were built are those, or made when a mask is
// looked at.
#include "spec/constraint/masks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/vec.h"

enum {
    WIDER = 4, // candidates requested, as a multiple of those that a node may have,
    WIDE = 16, // and at least
};
static const double LIKELY = 0.9; // the chance of a token that the constraint expects

// A node that the tree builder has requested, by its number.
struct requested_node {
    struct constraint_state *state; // NULL: it could not be had
    int32_t parent, token, base;    // base: its number where the drafter gave it, too
    uint32_t chains;                // chains that begin with the path to it
    bool only;                      // one token is allowed after it
};

struct masks {
    struct constraint *c;
    int64_t work;                   // that it has counted for this member
    int64_t root_room, room;        // steps that the root, and guesses, may take in the pass
    int32_t pending;                // a chosen token that `root` is not after yet; -1: none
    struct constraint_state *root;  // after all chosen tokens but that one; NULL: failed
    int rc;                         // why it failed,
    struct err err;                 // with its sentence
    struct constraint_state **held; // [n_held] of the present step
    int64_t n_held, cap_held;
    const struct proposal *base;
    int k;        // candidates of a node
    int wide;     // those of base, some of which may be forbidden
    int max;      // candidates of an answer
    int first, n; // numbers of the nodes of the depth that is being answered,
    int depth;    // the depth
    struct tree_node asked[TREE_MAX_ROWS]; // the same as base numbers them
    int n_requested;                       // nodes
    int n_base;                            // for these the drafter was called
    // A drafter that answers depth by depth may be called for many more than a tree has
    // (spec/tree/ddtree.h).
    struct requested_node *requested; // [n_requested]
    int64_t cap_requested;
    int32_t ids[TREE_MAX_ROWS * TREE_MAX_K]; // answers
    float logp[TREE_MAX_ROWS * TREE_MAX_K];
    uint8_t origin[TREE_MAX_ROWS * TREE_MAX_K]; // TREE_BY_* of each
    const struct ddtree *tree;
    int number[TREE_MAX_ROWS]; // of each row among those requested, or -1
    bool forced_node[TREE_MAX_ROWS], forced_row[TREE_MAX_ROWS];
    struct constraint_state *row[TREE_MAX_ROWS]; // NULL: not made yet
};

// Of all that share it.
static int64_t counted_steps(const struct constraint *c) {
    return c->class->work ? c->class->work(c->self) : 0;
}

// Lets calls take that many steps. Returns what has been counted before.
static int64_t open_steps(const struct masks *m, int64_t steps) {
    if (m->c->class->allow)
        m->c->class->allow(m->c->self, steps);
    return counted_steps(m->c);
}

// Returns what the calls since then have taken.
static int64_t close_steps(struct masks *m, int64_t before) {
    int64_t took = counted_steps(m->c) - before;
    m->work += took;
    if (m->c->class->allow)
        m->c->class->allow(m->c->self, INT64_MAX);
    return took;
}

static void close_guess(struct masks *m, int64_t before) {
    int64_t took = close_steps(m, before);
    if (m->room != INT64_MAX)
        m->room = max_i64(m->room - took, 0);
}

int masks_create(struct masks **out, struct constraint *c, int64_t vocab, struct err *e) {
    if (c->vocab != vocab)
        return err_set(e, ERR_MISMATCH,
                       "the constraint was made for a vocabulary of %lld tokens, and the model has "
                       "%lld",
                       (long long)c->vocab, (long long)vocab);
    struct masks *m = calloc(1, sizeof *m);
    if (!m)
        return err_set(e, ERR_MEMORY, "no memory for the masks of a constraint");
    m->c = constraint_keep(c);
    m->root_room = m->room = INT64_MAX;
    m->pending = -1;
    int rc = c->class->begin(c->self, &m->root, e);
    if (rc) {
        masks_destroy(m);
        return rc;
    }
    *out = m;
    return 0;
}

static void drop_state(struct masks *m, struct constraint_state *s) {
    if (s)
        m->c->class->drop(m->c->self, s);
}

static void forget_nodes(struct masks *m) {
    for (int64_t i = 0; i < m->n_held; i++)
        drop_state(m, m->held[i]);
    m->n_held = 0;
    m->n_requested = m->n_base = 0;
    m->tree = NULL;
}

void masks_destroy(struct masks *m) {
    if (!m)
        return;
    forget_nodes(m);
    drop_state(m, m->root);
    constraint_drop(m->c);
    free(m->held);
    free(m->requested);
    free(m);
}

// The root's state, if it is not made yet. ERR_UNFINISHED: of that nothing is kept.
static int make_root(struct masks *m) {
    struct constraint_state *to = NULL;
    if (m->pending < 0)
        return m->rc;
    int rc = m->c->class->next(m->c->self, m->root, m->pending, &to, &m->err);
    if (rc == ERR_UNFINISHED)
        return rc;
    drop_state(m, m->root);
    m->root = rc ? NULL : to;
    m->pending = -1;
    m->rc = rc;
    return rc;
}

int masks_prepare(struct masks *m, int64_t steps) {
    struct constraint_view v;
    struct err e;
    int64_t before = open_steps(m, steps);
    int rc = make_root(m);
    if (!rc)
        rc = m->c->class->look(m->c->self, m->root, &v, &e);
    close_steps(m, before);
    return rc;
}

void masks_allow(struct masks *m, int64_t root, int64_t guesses) {
    m->root_room = root;
    m->room = guesses;
}

int masks_begin(struct masks *m, struct err *e) {
    forget_nodes(m);
    int64_t before = open_steps(m, m->root_room);
    int rc = make_root(m);
    close_steps(m, before);
    memset(m->forced_node, 0, sizeof m->forced_node);
    memset(m->forced_row, 0, sizeof m->forced_row);
    memset(m->row, 0, sizeof m->row);
    m->row[0] = m->root;
    m->number[0] = -1;
    if (rc && e)
        *e = m->err;
    return rc;
}

int masks_wanted(int k) {
    return min_i32(max_i32(WIDER * k, WIDE), TREE_MAX_K);
}

// The state after `token`, kept until the next step; NULL where it cannot be had.
static struct constraint_state *follow_token(struct masks *m, struct constraint_state *from,
                                             int32_t token) {
    struct constraint_state *to = NULL;
    struct err e;
    if (!from || vec_reserve(&m->held, &m->cap_held, m->n_held + 1, sizeof(void *), &e) ||
        m->c->class->next(m->c->self, from, token, &to, &e))
        return NULL;
    m->held[m->n_held++] = to;
    return to;
}

// Gives the node its number, its state, and the chains that lead to it.
static struct requested_node *enter_node(struct masks *m, const struct tree_node *node) {
    struct requested_node *a = &m->requested[m->n_requested++];
    *a = (struct requested_node){.state = m->root, .parent = node->parent, .token = -1};
    a->chains = (1u << m->base->n_chains) - 1;
    if (node->parent < 0)
        return a;
    const struct requested_node *up = &m->requested[node->parent];
    a->token = node->path[node->depth - 1];
    a->state = follow_token(m, up->state, a->token);
    a->chains = up->chains;
    for (int i = 0; i < m->base->n_chains; i++) {
        const struct draft_chain *chain = &m->base->chains[i];
        if (chain->len < node->depth || chain->ids[node->depth - 1] != a->token)
            a->chains &= ~(1u << i);
    }
    return a;
}

// The candidates of the drafter below a node: the first that are allowed are taken.
struct offer {
    const int32_t *ids;
    const float *logp;
    int n;
    bool unordered;        // the best are, instead
    const uint8_t *origin; // of each; NULL: all of base
};

// Log-probabilities below a node by its token, where they depend on it; else those of its depth.
static struct offer offer_below(const struct proposal *p, const struct tree_node *node) {
    const ptrdiff_t at = (ptrdiff_t)node->depth * p->k;
    const float *pair = NULL;
    if (p->pair && node->depth > 0)
        pair = proposal_pair(p, node->depth, node->path[node->depth - 1]);
    return (struct offer){p->ids + at, pair ? pair : p->logp + at, min_i32(p->k, TREE_MAX_K),
                          pair != NULL, NULL};
}

static struct offer offer_of(const struct masks *m, int i, const struct tree_candidates *answer) {
    const struct proposal *p = m->base;
    if (m->depth >= p->depth)
        return (struct offer){.n = 0};
    if (!p->expand)
        return offer_below(p, &m->asked[i]);
    ptrdiff_t at = (ptrdiff_t)i * m->wide;
    return (struct offer){answer->ids + at, answer->logp + at, m->wide, false,
                          answer->origin ? answer->origin + at : NULL};
}

// The candidates of an offer in the order in which they are taken: order[n].
static void order_offer(const struct offer *o, uint8_t *order) {
    for (int i = 0; i < o->n; i++) {
        int at = i;
        for (; o->unordered && at > 0 && o->logp[i] > o->logp[order[at - 1]]; at--)
            order[at] = order[at - 1];
        order[at] = (uint8_t)i;
    }
}

struct answer {
    int32_t *ids;
    float *logp;
    uint8_t *origin;
    int n;
};

static void add_answer(struct answer *a, int32_t token, float logp, uint8_t origin) {
    a->ids[a->n] = token;
    a->origin[a->n] = origin;
    a->logp[a->n++] = logp;
}

// The first k candidates that are allowed. What the forbidden ones before them weigh is taken from
// the whole.
static void add_allowed(const struct masks *m, const struct requested_node *node,
                        const struct offer *o, struct answer *out) {
    const struct constraint *c = m->c;
    const uint8_t usual = m->base->origin ? m->base->origin : TREE_BY_CANDIDATES;
    double forbidden = 0, allowed = 0;
    int first = out->n;
    uint8_t order[TREE_MAX_K];
    order_offer(o, order);
    for (int j = 0; j < o->n && out->n - first < m->k; j++) {
        const int i = order[j];
        if (!isfinite(o->logp[i]) || o->ids[i] < 0 || o->ids[i] >= c->vocab)
            continue;
        bool good = c->class->allows(c->self, node->state, o->ids[i]);
        *(good ? &allowed : &forbidden) += exp((double)o->logp[i]);
        if (good)
            add_answer(out, o->ids[i], o->logp[i], o->origin ? o->origin[i] : usual);
    }
    if (forbidden <= 0)
        return;
    float rest = (float)log(fmax(1 - forbidden, allowed));
    for (int i = first; i < out->n; i++)
        out->logp[i] -= rest;
}

static void add_chains(const struct masks *m, const struct requested_node *node, int depth,
                       struct answer *out) {
    const struct constraint *c = m->c;
    for (int i = 0; i < m->base->n_chains; i++) {
        const struct draft_chain *chain = &m->base->chains[i];
        if (!(node->chains >> i & 1) || chain->len <= depth || !isfinite(chain->logp))
            continue;
        int32_t token = chain->ids[depth];
        if (token >= 0 && token < c->vocab && c->class->allows(c->self, node->state, token))
            add_answer(out, token, chain->logp, TREE_BY_CHAIN);
    }
}

static void answer_one(struct masks *m, struct requested_node *node, int depth,
                       const struct offer *o, struct answer *out) {
    int32_t token = -1;
    enum constraint_hint hint = CONSTRAINT_NO_HINT;
    if (node->state)
        hint = m->c->class->hint(m->c->self, node->state, &token);
    node->only = hint == CONSTRAINT_ONLY;
    if (hint != CONSTRAINT_NO_HINT)
        add_answer(out, token, node->only ? 0 : (float)log(LIKELY), TREE_BY_CONSTRAINT);
    if (node->state && !node->only) {
        add_allowed(m, node, o, out);
        add_chains(m, node, depth, out);
    }
    while (out->n < m->max)
        add_answer(out, -1, -INFINITY, 0);
}

int masks_level(struct masks *m, const struct tree_node *nodes, int n,
                const struct tree_node **asked, struct err *e) {
    bool asks = m->base->expand && nodes[0].depth < m->base->depth;
    int64_t before = open_steps(m, m->room);
    m->first = m->n_requested;
    m->n = n;
    m->depth = nodes[0].depth;
    int rc = vec_reserve(&m->requested, &m->cap_requested, m->first + n, sizeof *m->requested, e);
    for (int i = 0; !rc && i < n; i++) {
        struct requested_node *node = enter_node(m, &nodes[i]);
        m->asked[i] = nodes[i];
        m->asked[i].parent = nodes[i].parent < 0 ? -1 : m->requested[nodes[i].parent].base;
        node->base = asks ? m->n_base++ : -1;
    }
    close_guess(m, before);
    *asked = m->asked;
    return rc ? rc : asks ? n : 0;
}

int masks_candidates(const struct masks *m) {
    return m->wide;
}

struct tree_candidates masks_answer(struct masks *m, const struct tree_candidates *answer) {
    int64_t before = open_steps(m, m->room);
    for (int i = 0; i < m->n; i++) {
        ptrdiff_t at = (ptrdiff_t)i * m->max;
        struct answer own = {m->ids + at, m->logp + at, m->origin + at, 0};
        struct offer o = offer_of(m, i, answer);
        answer_one(m, &m->requested[m->first + i], m->depth, &o, &own);
    }
    close_guess(m, before);
    return (struct tree_candidates){m->ids, m->logp, m->origin};
}

// A tree_expand_fn.
static int expand(void *arg, const struct tree_node *nodes, int n, int k,
                  struct tree_candidates *out, struct err *e) {
    struct masks *m = arg;
    const struct tree_node *asked;
    struct tree_candidates answer = {0};
    (void)k; // m->max
    int rc = masks_level(m, nodes, n, &asked, e);
    if (rc > 0)
        rc = m->base->expand(m->base->expand_arg, asked, n, m->wide, &answer, e);
    if (!rc)
        *out = masks_answer(m, &answer);
    return rc;
}

void masks_offer(struct masks *m, const struct proposal *base, struct tree_options *o,
                 struct proposal *out) {
    m->base = base;
    m->k = min_i32(o->k, TREE_MAX_K - 1 - TREE_MAX_CHAINS);
    m->wide = masks_wanted(m->k);
    m->max = o->k = m->k + 1 + base->n_chains;
    *out = (struct proposal){.depth = o->max_depth,
                             .k = o->k,
                             .expand = expand,
                             .expand_arg = m,
                             .width = base->expand ? base->width : 0};
}

static int number_of(const struct masks *m, int32_t parent, int32_t token) {
    for (int i = 1; parent >= 0 && i < m->n_requested; i++)
        if (m->requested[i].parent == parent && m->requested[i].token == token)
            return i;
    return -1;
}

void masks_take(struct masks *m, const struct ddtree *t) {
    m->tree = t;
    m->number[0] = m->n_requested ? 0 : -1;
    for (int i = 1; i < t->n; i++) {
        int up = m->number[t->parent[i]];
        m->number[i] = number_of(m, up, t->token[i]);
        m->forced_node[i] = up >= 0 && m->requested[up].only;
        if (m->number[i] >= 0)
            m->row[i] = m->requested[m->number[i]].state;
    }
}

const bool *masks_forced_nodes(const struct masks *m) {
    return m->forced_node;
}

int masks_look(struct masks *m, int row, struct constraint_view *out, struct err *e) {
    const struct ddtree *t = m->tree;
    struct err own;
    int64_t before = open_steps(m, row ? m->room : m->root_room);
    int rc = 0;
    *out = (struct constraint_view){.only = -1, .none = true};
    if (row > 0 && !m->row[row])
        m->row[row] = follow_token(m, m->row[t->parent[row]], t->token[row]);
    if (m->row[row])
        rc = m->c->class->look(m->c->self, m->row[row], out, row ? &own : e);
    if (row)
        close_guess(m, before);
    else
        close_steps(m, before);
    if (rc)
        *out = (struct constraint_view){.only = -1, .none = true};
    if (!rc && row == 0 && out->none)
        rc = err_set(e, ERR_STATE,
                     "the constraint (%s) allows no token here: nothing that the model can say "
                     "would satisfy it",
                     m->c->class->name);
    m->forced_row[row] = !rc && out->only >= 0;
    return row ? 0 : rc;
}

int64_t masks_work(const struct masks *m) {
    return m->work;
}

bool masks_forced(const struct masks *m, int row) {
    return m->forced_row[row];
}

void masks_advance(struct masks *m, const struct walk *w) {
    struct constraint_state *from = m->row[w->path[w->count - 1]];
    if (w->end != END_NONE)
        return;
    for (int64_t i = 0; i < m->n_held && from != m->root; i++) {
        if (m->held[i] != from)
            continue;
        m->held[i] = m->root;
        m->root = from;
    }
    m->pending = w->chosen[w->count - 1];
}
