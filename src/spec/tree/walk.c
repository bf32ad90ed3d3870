// SPDX-License-Identifier: Apache-2.0
// The walk through a verified tree; see walk.h.
#include "spec/tree/walk.h"

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
