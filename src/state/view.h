// SPDX-License-Identifier: Apache-2.0
// What rows of replies see of the text before them, where they do not see everything (--fa-window,
// --kv-pool): the first page of keys and values, the newest ones, and pages between these that were
// chosen by their keys. Keys are stored with their positions turned into them, so a table of the
// pages that remain, with positions counted in it, is all that attention needs. What a row sees
// depends on its own position and the text before it alone (rule E): it changes at multiples of a
// page, and all rows of a sequence in one pass lie between two of them.
#ifndef COPPICE_STATE_VIEW_H
#define COPPICE_STATE_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "state/kv.h"

enum {
    VIEW_SINKS = KV_PAGE, // tokens, first ones, that all rows see
    VIEW_MIN_WINDOW = KV_PAGE,
    VIEW_MAX_WINDOW = 1 << 20,
    VIEW_TAIL = 4 * KV_PAGE, // tokens before a row's own page that it sees in every pool
    VIEW_MIN_POOL = VIEW_SINKS + VIEW_TAIL + 2 * KV_PAGE, // these, its own page, and one to choose
};

// What options say; zeroed: rows see everything.
struct view_options {
    int64_t window;     // --fa-window
    int64_t pool;       // --kv-pool
    const char *policy; // --kv-pool-policy; NULL: the default
};

// A row of a reply in the page of positions [b, b + KV_PAGE) sees the first VIEW_SINKS positions,
// those from b - window on, and `chosen` pages between them. Rows of prompts see all.
struct view_rule {
    int64_t window; // a multiple of KV_PAGE; 0: no rule
    int64_t chosen; // pages
    int64_t pool;   // tokens that a row sees at most, where it was made of that number; else 0
};

// The rule that options describe, with sizes rounded up. A pool of the newest pages is a window:
// the first page and a row's own belong to it. ERR_USAGE.
int view_rule_make(struct view_rule *r, const struct view_options *o, struct err *e);
// The name of a pool's policy.
const char *view_policy(const struct view_rule *r);
bool view_rule_same(const struct view_rule *a, const struct view_rule *b); // in what rows see

// Pages that a row at pos of a reply does not see.
int64_t view_skipped(const struct view_rule *r, int64_t pos);
// Pages from the sinks' on, up to the newest, among which are the chosen ones.
int64_t view_candidates(const struct view_rule *r, int64_t pos);
// The first position after pos from which on rows may see other pages than that at pos, where the
// prompt ends at prompt_end.
int64_t view_end(const struct view_rule *r, int64_t prompt_end, int64_t pos);
// Pages of a view that leaves some out, at most, in a context of max_ctx.
int64_t view_most_pages(const struct view_rule *r, int64_t max_ctx);

// Which pages rows see, of one page of positions after the other: a list of rule.chosen pages each,
// ascending. Zeroed: none.
struct view_choices {
    int64_t first;  // page of positions of the first list
    int64_t n, cap; // lists; pages that there is room for
    int32_t *pages; // [n][rule.chosen]
};
void view_choices_fini(struct view_choices *c);
// Room for lists up to that of the page of positions `page`, so that adding cannot fail.
int view_choices_reserve(struct view_choices *c, const struct view_rule *r, int64_t page,
                         struct err *e);
// The list of that page of positions, which follows the others or takes their place.
void view_choices_add(struct view_choices *c, const struct view_rule *r, int64_t page,
                      const int32_t *pages);
const int32_t *view_choices_at(const struct view_choices *c, const struct view_rule *r,
                               int64_t page); // NULL: there is none
// Forgets lists of later pages of positions; below `first` all.
void view_choices_cut(struct view_choices *c, int64_t page);
// A copy up to a page of positions. ERR_MEMORY leaves `to` empty.
int view_choices_copy(struct view_choices *to, const struct view_choices *from,
                      const struct view_rule *r, int64_t page, struct err *e);

// The r->chosen best of n > r->chosen candidates by score, equal ones the lower first, ascending.
// order: room for n.
struct view_candidate {
    double score;
    int32_t page;
};
void view_pick(const struct view_rule *r, const double *score, int64_t n,
               struct view_candidate *order, int32_t *pages);

// The committed positions of k without `skipped` pages. Of those that are not the newest the first
// and the n listed ones are left. table: room for those that are left, where skipped is not 0; it
// is borrowed.
struct kv_view view_of(const struct kv *k, int64_t skipped, const int32_t *pages, int64_t n,
                       unsigned char **table);

#endif
