// SPDX-License-Identifier: Apache-2.0
// An Aho-Corasick automaton (CACM 18(6), 1975) over the reversed tokens, run over the text from
// its end to its beginning. When it stands at byte i, the tokens it recognises are those that
// BEGIN at i, so the longest token at every place is known after one pass; a pass forward
// over those places picks leftmost-longest. A forward automaton would have to back up after a
// token that is a prefix of a longer one and lose linear time.
#include "text/tokenizer/special.h"

#include <stdlib.h>

#include "base/vec.h"

struct special_node {
    uint32_t child, sibling; // 0: none
    uint32_t fail;           // longest proper suffix that is a node
    int32_t longest[2];      // token index found here or on the fail chain, -1: none; [1]: of all
    unsigned char byte;
};

static int no_special_memory(struct err *e) {
    return err_set(e, ERR_MEMORY,
                   "no memory for the special tokens of the vocabulary; "
                   "free some memory");
}

static int add_node(struct special *s, uint32_t parent, unsigned char byte, uint32_t *out,
                    struct err *e) {
    if (s->n_nodes == UINT32_MAX ||
        vec_reserve(&s->nodes, &s->nodes_cap, (int64_t)s->n_nodes + 1, sizeof *s->nodes, NULL))
        return no_special_memory(e);
    struct special_node *nodes = s->nodes;
    *out = s->n_nodes++;
    nodes[*out] = (struct special_node){.longest = {-1, -1}, .byte = byte};
    if (*out > 0) {
        nodes[*out].sibling = nodes[parent].child;
        nodes[parent].child = *out;
    }
    return 0;
}

static uint32_t find_child(const struct special *s, uint32_t node, unsigned char byte) {
    uint32_t c = s->nodes[node].child;
    while (c && s->nodes[c].byte != byte)
        c = s->nodes[c].sibling;
    return c;
}

int special_add(struct special *s, const char *text, size_t n, int32_t id, bool always,
                struct err *e) {
    uint32_t at = 0;
    int rc = s->n_nodes == 0 ? add_node(s, 0, 0, &at, e) : 0;
    for (size_t i = n; i-- > 0 && !rc;) {
        unsigned char byte = (unsigned char)text[i];
        uint32_t next = find_child(s, at, byte);
        if (!next)
            rc = add_node(s, at, byte, &next, e);
        at = next;
    }
    if (rc || s->nodes[at].longest[!always] >= 0) // a text of several tokens is the first of them
        return rc;
    if (s->n_tokens == INT32_MAX ||
        vec_reserve(&s->tokens, &s->tokens_cap, (int64_t)s->n_tokens + 1, sizeof *s->tokens, NULL))
        return no_special_memory(e);
    s->tokens[s->n_tokens] = (struct special_token){n, id, always};
    if (s->nodes[at].longest[1] < 0)
        s->nodes[at].longest[1] = (int32_t)s->n_tokens;
    if (always)
        s->nodes[at].longest[0] = (int32_t)s->n_tokens;
    s->n_tokens++;
    return 0;
}

// The node after `byte` from `node`; falls back along the suffixes.
static uint32_t walk_node(const struct special *s, uint32_t node, unsigned char byte) {
    while (node) {
        uint32_t next = find_child(s, node, byte);
        if (next)
            return next;
        node = s->nodes[node].fail;
    }
    return s->root_next[byte];
}

// Visits nodes by depth, so that the fail node of each is complete before it.
static void link_nodes(struct special *s, uint32_t *queue) {
    size_t head = 0, tail = 0;
    queue[tail++] = 0;
    while (head < tail) {
        uint32_t at = queue[head++];
        for (uint32_t c = s->nodes[at].child; c; c = s->nodes[c].sibling) {
            struct special_node *node = &s->nodes[c];
            node->fail = at ? walk_node(s, s->nodes[at].fail, node->byte) : 0;
            const struct special_node *fail = &s->nodes[node->fail];
            for (int k = 0; k < 2; k++)
                node->longest[k] = node->longest[k] < 0 ? fail->longest[k] : node->longest[k];
            queue[tail++] = c;
        }
    }
}

int special_finish(struct special *s, struct err *e) {
    if (s->n_nodes == 0)
        return 0;
    uint32_t *queue = malloc(s->n_nodes * sizeof *queue);
    s->root_next = calloc(256, sizeof *s->root_next);
    if (!queue || !s->root_next) {
        free(queue);
        return no_special_memory(e);
    }
    for (uint32_t c = s->nodes[0].child; c; c = s->nodes[c].sibling)
        s->root_next[s->nodes[c].byte] = c;
    link_nodes(s, queue);
    free(queue);
    return 0;
}

// Notes the token with that index, if it is one, as beginning at `at`.
static int add_hit(const struct special *s, struct special_hits *h, size_t at, int32_t found,
                   struct err *e) {
    if (found < 0)
        return 0;
    const struct special_token *t = &s->tokens[found];
    int rc = vec_reserve(&h->hit, &h->cap, (int64_t)h->count + 1, sizeof *h->hit, e);
    if (!rc)
        h->hit[h->count++] = (struct special_hit){at, at + t->length, t->id};
    return rc;
}

// Turns the candidates, which lie in falling order of begin, into the chosen ones in text order.
static void choose_longest(struct special_hits *h) {
    for (size_t i = 0, j = h->count; i + 1 < j; i++) {
        struct special_hit swap = h->hit[i];
        h->hit[i] = h->hit[--j];
        h->hit[j] = swap;
    }
    size_t kept = 0, end = 0;
    for (size_t i = 0; i < h->count; i++) {
        if (h->hit[i].begin < end)
            continue;
        end = h->hit[i].end;
        h->hit[kept++] = h->hit[i];
    }
    h->count = kept;
}

int special_scan(const struct special *s, const char *text, size_t n, bool all,
                 struct special_hits *hits, struct err *e) {
    hits->count = 0;
    if (s->n_nodes == 0)
        return 0;
    uint32_t at = 0;
    for (size_t i = n; i-- > 0;) {
        at = walk_node(s, at, (unsigned char)text[i]);
        int rc = add_hit(s, hits, i, s->nodes[at].longest[all], e);
        if (rc)
            return rc;
    }
    choose_longest(hits);
    return 0;
}

static bool is_guarded(const struct special_where *w, int32_t id) {
    size_t lo = 0, hi = w->n_guarded;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (w->guarded[mid] == id)
            return true;
        if (w->guarded[mid] < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return false;
}

// The token that begins at text[i], of those that the two automata found there, or -1: `within`
// knows the span from i on, `whole` all text from i on.
static int32_t pick(const struct special *s, const struct special_where *w,
                    const struct special_span *span, const uint32_t at[2], size_t i) {
    int32_t found = span->all ? s->nodes[at[0]].longest[1] : -1;
    int32_t other = s->nodes[at[1]].longest[0];
    if (other < 0 || (found >= 0 && s->tokens[found].length >= s->tokens[other].length))
        return found;
    const struct special_token *t = &s->tokens[other];
    bool free = span->all && i + t->length <= span->end;
    return free || !is_guarded(w, t->id) ? other : found;
}

// Two automata run side by side: one begins anew in every span, one goes over the whole text for
// tokens that any text may hold.
int special_scan_spans(const struct special *s, const char *text, size_t n,
                       const struct special_where *w, struct special_hits *hits, struct err *e) {
    hits->count = 0;
    if (s->n_nodes == 0 || w->n_spans == 0)
        return 0;
    uint32_t at[2] = {0};
    size_t k = w->n_spans - 1;
    for (size_t i = n; i-- > 0;) {
        while (k > 0 && i < w->spans[k - 1].end) {
            k--;
            at[0] = 0;
        }
        at[0] = walk_node(s, at[0], (unsigned char)text[i]);
        at[1] = walk_node(s, at[1], (unsigned char)text[i]);
        int rc = add_hit(s, hits, i, pick(s, w, &w->spans[k], at, i), e);
        if (rc)
            return rc;
    }
    choose_longest(hits);
    return 0;
}

void special_hits_fini(struct special_hits *h) {
    free(h->hit);
    *h = (struct special_hits){0};
}

void special_fini(struct special *s) {
    free(s->nodes);
    free(s->root_next);
    free(s->tokens);
    *s = (struct special){0};
}
