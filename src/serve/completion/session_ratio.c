// SPDX-License-Identifier: Apache-2.0
// See session_ratio.h.
#include "serve/completion/session_ratio.h"

#include <stdlib.h>

struct news {
    struct service *s;
    uint64_t session;
    double share;
};

static void take_news(void *arg) {
    struct news *n = arg;
    adapt_note(&n->s->adapt, n->session, n->share);
    free(n);
}

struct prefill_options session_ratio_options(struct service *s, uint64_t session) {
    struct prefill_options o = s->o->prefill;
    if (o.adapt && session)
        prefill_adapt(&o, adapt_keep(&s->adapt, session));
    return o;
}

void session_ratio_tell(struct service *s, uint64_t session, const struct answer_totals *t) {
    double share = t->drafted > 0 ? adapt_share(t->tokens - t->choices, t->steps) : -1;
    struct news *n = share >= 0 ? malloc(sizeof *n) : NULL;
    if (!n)
        return;
    *n = (struct news){s, session, share};
    if (workers_run(s->shorteners, 0, take_news, n, NULL))
        free(n);
}
