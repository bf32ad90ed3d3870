// SPDX-License-Identifier: Apache-2.0
// See view.h.
#include "state/view.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/vec.h"

enum { SINK_PAGES = VIEW_SINKS / KV_PAGE };

static int make_pool(struct view_rule *r, const struct view_options *o, struct err *e) {
    if (o->window)
        return err_set(e, ERR_USAGE,
                       "--fa-window and --kv-pool both say what replies see; give one of them");
    if (o->pool < VIEW_MIN_POOL || o->pool > VIEW_MAX_WINDOW)
        return err_set(e, ERR_USAGE,
                       "a pool of %lld tokens is not within %d (the first %d, the newest %d before "
                       "a token's own %d, and %d to choose) to %d; 0 lets replies see the whole "
                       "text",
                       (long long)o->pool, VIEW_MIN_POOL, VIEW_SINKS, VIEW_TAIL, KV_PAGE, KV_PAGE,
                       VIEW_MAX_WINDOW);
    r->pool = round_up(o->pool, KV_PAGE);
    r->window = r->pool - VIEW_SINKS - KV_PAGE;
    if (o->policy && !strcmp(o->policy, "lru"))
        return 0;
    r->chosen = (r->window - VIEW_TAIL) / KV_PAGE;
    r->window = VIEW_TAIL;
    return 0;
}

static int check_policy(const struct view_options *o, struct err *e) {
    if (o->policy && !o->pool)
        return err_set(e, ERR_USAGE, "--kv-pool-policy %s has no meaning without --kv-pool",
                       o->policy);
    if (!o->policy || !strcmp(o->policy, "lru") || !strcmp(o->policy, "qk"))
        return 0;
    if (!strcmp(o->policy, "scorer"))
        return err_set(e, ERR_UNSUPPORTED,
                       "--kv-pool-policy scorer is not there yet; qk chooses by the model's own "
                       "queries and keys");
    return err_set(e, ERR_USAGE, "'%s' is no policy of --kv-pool; use qk or lru", o->policy);
}

int view_rule_make(struct view_rule *r, const struct view_options *o, struct err *e) {
    *r = (struct view_rule){0};
    int rc = check_policy(o, e);
    if (rc || (!o->pool && !o->window))
        return rc;
    if (o->pool)
        return make_pool(r, o, e);
    if (o->window < VIEW_MIN_WINDOW || o->window > VIEW_MAX_WINDOW)
        return err_set(e, ERR_USAGE,
                       "a window of %lld tokens for replies is not within %d to %d; 0 lets them "
                       "see the whole text",
                       (long long)o->window, VIEW_MIN_WINDOW, VIEW_MAX_WINDOW);
    r->window = round_up(o->window, KV_PAGE);
    return 0;
}

const char *view_policy(const struct view_rule *r) {
    return r->chosen ? "qk" : "lru";
}

bool view_rule_same(const struct view_rule *a, const struct view_rule *b) {
    return a->window == b->window && a->chosen == b->chosen;
}

int64_t view_skipped(const struct view_rule *r, int64_t pos) {
    return r->window ? max_i64(view_candidates(r, pos) - r->chosen, 0) : 0;
}

int64_t view_candidates(const struct view_rule *r, int64_t pos) {
    return max_i64(pos / KV_PAGE - r->window / KV_PAGE - SINK_PAGES, 0);
}

int64_t view_end(const struct view_rule *r, int64_t prompt_end, int64_t pos) {
    if (!r->window)
        return INT64_MAX;
    return pos < prompt_end ? prompt_end : (pos / KV_PAGE + 1) * KV_PAGE;
}

int64_t view_most_pages(const struct view_rule *r, int64_t max_ctx) {
    const int64_t all = SINK_PAGES + r->chosen + r->window / KV_PAGE + 1;
    return r->window ? min_i64(all, ceil_div(max_ctx, KV_PAGE)) : 0;
}

void view_choices_fini(struct view_choices *c) {
    free(c->pages);
    *c = (struct view_choices){0};
}

int view_choices_reserve(struct view_choices *c, const struct view_rule *r, int64_t page,
                         struct err *e) {
    const int64_t lists = c->n ? page - c->first + 1 : 1;
    return vec_reserve(&c->pages, &c->cap, lists * r->chosen, sizeof *c->pages, e);
}

void view_choices_add(struct view_choices *c, const struct view_rule *r, int64_t page,
                      const int32_t *pages) {
    if (!c->n || page != c->first + c->n) {
        c->first = page;
        c->n = 0;
    }
    memcpy(c->pages + c->n++ * r->chosen, pages, (size_t)r->chosen * sizeof *pages);
}

const int32_t *view_choices_at(const struct view_choices *c, const struct view_rule *r,
                               int64_t page) {
    const int64_t i = page - c->first;
    return i >= 0 && i < c->n ? c->pages + i * r->chosen : NULL;
}

void view_choices_cut(struct view_choices *c, int64_t page) {
    c->n = clamp_i64(page - c->first + 1, 0, c->n);
}

int view_choices_copy(struct view_choices *to, const struct view_choices *from,
                      const struct view_rule *r, int64_t page, struct err *e) {
    *to = (struct view_choices){.first = from->first};
    const int64_t n = clamp_i64(page - from->first + 1, 0, from->n);
    int rc = n ? vec_reserve(&to->pages, &to->cap, n * r->chosen, sizeof *to->pages, e) : 0;
    if (rc || !n)
        return rc;
    to->n = n;
    memcpy(to->pages, from->pages, (size_t)(n * r->chosen) * sizeof *to->pages);
    return 0;
}

static int by_score(const void *a, const void *b) {
    const struct view_candidate *x = a, *y = b;
    return x->score > y->score ? -1 : x->score < y->score ? 1 : x->page - y->page;
}

static int by_page(const void *a, const void *b) {
    return *(const int32_t *)a - *(const int32_t *)b;
}

void view_pick(const struct view_rule *r, const double *score, int64_t n,
               struct view_candidate *order, int32_t *pages) {
    for (int64_t i = 0; i < n; i++) // no number is what a device that failed has left
        order[i] = (struct view_candidate){isnan(score[i]) ? -INFINITY : score[i],
                                           (int32_t)i + SINK_PAGES};
    qsort(order, (size_t)n, sizeof *order, by_score);
    for (int64_t i = 0; i < r->chosen; i++)
        pages[i] = order[i].page;
    qsort(pages, (size_t)r->chosen, sizeof *pages, by_page);
}

struct kv_view view_of(const struct kv *k, int64_t skipped, const int32_t *pages, int64_t n,
                       unsigned char **table) {
    struct kv_view all = kv_view_of(k);
    if (!skipped)
        return all;
    int64_t rest = ceil_div(k->len, KV_PAGE) - skipped - n - SINK_PAGES;
    memcpy(table, k->pages, SINK_PAGES * sizeof *table);
    for (int64_t i = 0; i < n; i++)
        table[SINK_PAGES + i] = k->pages[pages[i]];
    memcpy(table + SINK_PAGES + n, k->pages + SINK_PAGES + n + skipped,
           (size_t)rest * sizeof *table);
    return (struct kv_view){table, k->len - skipped * KV_PAGE};
}
