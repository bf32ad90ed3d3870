// SPDX-License-Identifier: Apache-2.0
// See ids.h.
#include "serve/conversation/ids.h"

#include <stdio.h>

#include "base/map.h"

// The id of a call, of kinds that have no name here, too.
static struct words call_id(const struct conversation_part *p) {
    struct words id = p->kind == PART_CALL ? p->id : (struct words){0};
    if (p->kind == PART_OTHER) {
        id = words_of(json_get(p->raw, "call_id"));
        id = id.s ? id : words_of(json_get(p->raw, "id"));
    }
    return id;
}

// In the words that OpenAI's servers have for it, which clients look for.
static bool refuse(const char *where, struct words id, struct api_error *x) {
    api_refuse(x, where,
               "No tool call found for function call output with call_id %.64s in %s: send the "
               "call, too, or leave the result out",
               id.s, where);
    struct err clean;
    err_set(&clean, 0, "%.64s", id.s);
    snprintf(x->lost_call, sizeof x->lost_call, "%.67s", clean.text);
    return false;
}

bool conversation_ids_check(const struct conversation *v, const char *where, struct api_error *x) {
    struct map calls = {0};
    uint32_t any;
    bool ok = true;
    for (int i = 0; i < v->n_turns && ok; i++)
        for (int k = 0; k < v->turns[i].n_parts && ok; k++) {
            const struct conversation_part *p = &v->turns[i].parts[k];
            struct words id = call_id(p);
            if (id.n && map_insert(&calls, id.s, id.n, 0) < 0) {
                api_fail(x, 503, NULL, "no memory for the conversation");
                ok = false;
            }
            if (ok && p->kind == PART_RESULT && p->id.n &&
                !map_find(&calls, p->id.s, p->id.n, &any))
                ok = refuse(where, p->id, x);
        }
    map_fini(&calls);
    return ok;
}
