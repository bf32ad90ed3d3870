// SPDX-License-Identifier: Apache-2.0
// Children are a list with the one used last in front; see prefix_tree.h.
#include "engine/cache/prefix_tree.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"

static int64_t bytes_of(const struct prefix_node *n) {
    return (int64_t)sizeof *n + n->n * (int64_t)sizeof *n->ids;
}

static void free_node(struct prefix_tree *t, struct prefix_node *n) {
    t->bytes -= bytes_of(n);
    free(n->ids);
    free(n);
}

void prefix_tree_fini(struct prefix_tree *t) {
    struct prefix_node *at = &t->root;
    while (t->root.child) {
        while (at->child)
            at = at->child;
        struct prefix_node *up = at->parent;
        up->child = at->next;
        free_node(t, at);
        at = up;
    }
}

// A node of its own with a copy of n tokens.
static struct prefix_node *make_node(struct prefix_tree *t, struct prefix_node *parent,
                                     const int32_t *ids, int64_t n) {
    struct prefix_node *y = calloc(1, sizeof *y);
    if (y)
        y->ids = malloc((size_t)n * sizeof *ids);
    if (!y || !y->ids) {
        free(y);
        return NULL;
    }
    memcpy(y->ids, ids, (size_t)n * sizeof *ids);
    y->parent = parent;
    y->n = n;
    y->end = parent->end + n;
    t->bytes += bytes_of(y);
    return y;
}

// The child that begins with this token, brought to the front; NULL: none does.
static struct prefix_node *child_of(struct prefix_node *parent, int32_t id) {
    for (struct prefix_node **at = &parent->child; *at; at = &(*at)->next) {
        struct prefix_node *y = *at;
        if (y->ids[0] != id)
            continue;
        *at = y->next;
        y->next = parent->child;
        parent->child = y;
        return y;
    }
    return NULL;
}

static int64_t same(const int32_t *a, const int32_t *b, int64_t n) {
    int64_t i = 0;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

struct prefix_match prefix_find(struct prefix_tree *t, const int32_t *ids, int64_t n, int64_t now) {
    struct prefix_match m = {&t->root, 0};
    while (m.common == m.node->end && m.common < n) {
        struct prefix_node *y = child_of(m.node, ids[m.common]);
        if (!y)
            break;
        m.common += same(y->ids, ids + m.common, min_i64(y->n, n - m.common));
        m.node = y;
        if (now)
            y->touched = now;
    }
    return m;
}

// Cuts a node in two: the upper one is new and ends at `end`. NULL: no memory.
static struct prefix_node *split(struct prefix_tree *t, struct prefix_node *y, int64_t end) {
    int64_t n = end - y->parent->end;
    struct prefix_node *up = make_node(t, y->parent, y->ids, n);
    if (!up)
        return NULL;
    struct prefix_node **at = &y->parent->child;
    while (*at != y)
        at = &(*at)->next;
    *at = up;
    up->next = y->next;
    up->child = y;
    up->touched = y->touched;
    y->next = NULL;
    y->parent = up;
    y->n -= n;
    memmove(y->ids, y->ids + n, (size_t)y->n * sizeof *y->ids);
    t->bytes -= n * (int64_t)sizeof *y->ids;
    return up;
}

int prefix_add(struct prefix_tree *t, const int32_t *ids, int64_t n, struct prefix_node **out,
               struct err *e) {
    struct prefix_match m = prefix_find(t, ids, n, 0);
    if (m.common < m.node->end)
        m.node = split(t, m.node, m.common);
    if (m.node && m.common < n) {
        struct prefix_node *y = make_node(t, m.node, ids + m.common, n - m.common);
        if (y) {
            y->next = m.node->child;
            m.node->child = y;
        }
        m.node = y;
    }
    *out = m.node;
    return m.node ? 0 : err_set(e, ERR_MEMORY, "no memory for a text in the prefix cache");
}

// Puts the tokens of a node in front of its only child's and takes it out.
static void join(struct prefix_tree *t, struct prefix_node *up) {
    struct prefix_node *y = up->child;
    int32_t *ids = realloc(y->ids, (size_t)(up->n + y->n) * sizeof *ids);
    if (!ids)
        return; // it may stay as it is
    memmove(ids + up->n, ids, (size_t)y->n * sizeof *ids);
    memcpy(ids, up->ids, (size_t)up->n * sizeof *ids);
    y->ids = ids;
    y->n += up->n;
    t->bytes += up->n * (int64_t)sizeof *ids;
    struct prefix_node **at = &up->parent->child;
    while (*at != up)
        at = &(*at)->next;
    *at = y;
    y->next = up->next;
    y->parent = up->parent;
    free_node(t, up);
}

void prefix_prune(struct prefix_tree *t, struct prefix_node *y) {
    while (y->parent && !y->entries && !y->child) {
        struct prefix_node *up = y->parent, **at = &up->child;
        while (*at != y)
            at = &(*at)->next;
        *at = y->next;
        free_node(t, y);
        y = up;
    }
    if (y->parent && !y->entries && y->child && !y->child->next)
        join(t, y);
}

void prefix_text(const struct prefix_node *y, int32_t *ids) {
    for (; y->parent; y = y->parent)
        memcpy(ids + y->parent->end, y->ids, (size_t)y->n * sizeof *ids);
}

int32_t prefix_token(const struct prefix_node *y, int64_t place) {
    while (y->parent->end > place)
        y = y->parent;
    return y->ids[place - y->parent->end];
}

struct prefix_node *prefix_next(const struct prefix_node *top, struct prefix_node *at) {
    if (at->child)
        return at->child;
    while (at != top && !at->next)
        at = at->parent;
    return at == top ? NULL : at->next;
}
