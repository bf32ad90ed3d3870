// SPDX-License-Identifier: Apache-2.0
// See view.h.
#include "state/view.h"

#include <string.h>

#include "base/num.h"

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
    return 0;
}

static int check_policy(const struct view_options *o, struct err *e) {
    if (!o->policy || !strcmp(o->policy, "lru"))
        return 0;
    return err_set(e, ERR_USAGE, "'%s' is no policy of --kv-pool; use lru", o->policy);
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
    (void)r;
    return "lru";
}

int64_t view_skipped(const struct view_rule *r, int64_t pos) {
    int64_t first = pos / KV_PAGE - r->window / KV_PAGE;
    return r->window ? max_i64(first - SINK_PAGES, 0) : 0;
}

int64_t view_end(const struct view_rule *r, int64_t prompt_end, int64_t pos) {
    if (!r->window)
        return INT64_MAX;
    return pos < prompt_end ? prompt_end : (pos / KV_PAGE + 1) * KV_PAGE;
}

int64_t view_most_pages(const struct view_rule *r, int64_t max_ctx) {
    return r->window ? min_i64(SINK_PAGES + r->window / KV_PAGE + 1, ceil_div(max_ctx, KV_PAGE))
                     : 0;
}

struct kv_view view_of(const struct kv *k, int64_t skipped, unsigned char **table) {
    struct kv_view all = kv_view_of(k);
    if (!skipped)
        return all;
    int64_t pages = ceil_div(k->len, KV_PAGE), rest = pages - skipped - SINK_PAGES;
    memcpy(table, k->pages, SINK_PAGES * sizeof *table);
    memcpy(table + SINK_PAGES, k->pages + SINK_PAGES + skipped, (size_t)rest * sizeof *table);
    return (struct kv_view){table, k->len - skipped * KV_PAGE};
}
