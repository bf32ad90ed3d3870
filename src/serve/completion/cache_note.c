// SPDX-License-Identifier: Apache-2.0
// Sentences about the prefix cache; see cache_note.h.
#include "serve/completion/cache_note.h"

#include <string.h>

#include "base/json/json.h"

// A token as a quoted text, or its end.
static void put_token(struct str *out, const struct tokenizer *t, int32_t id) {
    struct json_writer w = {0};
    struct str s = {0};
    if (id < 0) {
        str_puts(out, "the end");
        return;
    }
    tokenizer_decode(t, id, true, &s);
    jw_str(&w, s.data ? s.data : "", s.len);
    str_puts(out, w.out.data ? w.out.data : "");
    str_fini(&w.out);
    str_fini(&s);
}

// Whether a token is the mark that opens a block of reasoning.
static bool opens_reasoning(const struct cache_note *n, int32_t id) {
    const char *mark = reasoning_opening(n->family);
    struct str s = {0};
    if (!mark || id < 0)
        return false;
    tokenizer_decode(n->tokenizer, id, true, &s);
    bool opens = s.len && s.len <= strlen(mark) && !memcmp(s.data, mark, s.len);
    str_fini(&s);
    return opens;
}

static const char *changed_by(const struct cache_note *n) {
    const struct cache_report *r = n->report;
    if (opens_reasoning(n, r->there) && !opens_reasoning(n, r->here))
        return "the template left the reasoning of an earlier answer out";
    if (r->common < n->system)
        return "the system message or the tools have changed";
    return "an earlier message was edited, or another conversation begins alike";
}

void cache_note_write(struct str *out, const struct cache_note *n) {
    const struct cache_report *r = n->report;
    long long common = (long long)r->common;
    switch (r->why) {
    case CACHE_OFF:
    case CACHE_HIT:
        return;
    case CACHE_NEW:
        str_puts(out, "cache: no text that is kept begins like this one");
        return;
    case CACHE_CHANGED:
        str_printf(out, "cache: token %lld is ", common);
        if (n->words) {
            put_token(out, n->tokenizer, r->here);
            str_puts(out, " and was ");
            put_token(out, n->tokenizer, r->there);
        } else {
            str_puts(out, "another one than in the nearest text that is kept");
        }
        str_printf(out, ": %s", changed_by(n));
        return;
    case CACHE_EVICTED:
        str_printf(out,
                   "cache: %lld tokens are known, and their state was dropped for others; a larger "
                   "--cache-ram keeps more",
                   common);
        return;
    case CACHE_SETTINGS:
        str_printf(out, "cache: the state of %lld tokens was read by another --sparse-prefill",
                   common);
        return;
    case CACHE_BETWEEN:
        str_printf(out, "cache: %lld tokens are known, and no state was kept nearer to them",
                   common);
        return;
    case CACHE_FAILED:
        str_printf(out, "cache: the state of %lld tokens could not be put back", common);
        return;
    }
}
