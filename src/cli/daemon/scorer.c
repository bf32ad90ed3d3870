// SPDX-License-Identifier: Apache-2.0
// Compression of rendered prompts for the daemon; see daemon.h. The scorer stays loaded until it is
// freed or another one is asked for.
#include <string.h>

#include "cli/daemon/daemon.h"
#include "cli/models/prefill.h"

int daemon_load_scorer(struct daemon *d, const char *path, struct err *e) {
    struct compression *k = &d->scorer;
    if (k->c && !strcmp(d->scorer_path.data, path))
        return 0;
    daemon_free_scorer(d);
    str_puts(&d->scorer_path, path);
    if (d->scorer_path.failed)
        return err_set(e, ERR_MEMORY, "no memory for a path");
    k->options = prefill_options_default();
    k->options.mode = PREFILL_ALWAYS;
    k->path = d->scorer_path.data;
    int rc = prefill_scorer_options(&d->a->opt, &k->scorer, e);
    if (!rc)
        rc = compression_open(k, d->a, e);
    if (rc) {
        daemon_free_scorer(d);
        return rc;
    }
    k->park = d->options.park; // planned with the first one
    k->lend = d->options.lend;
    daemon_lend(d);
    return 0;
}

void daemon_lend(struct daemon *d) {
    static const struct compress_turns none = {0};
    if (d->scorer.c && d->s)
        compression_lend(&d->scorer, d->s);
    else if (d->scorer.c)
        compressor_turns(d->scorer.c, &none);
}

int daemon_compress(struct daemon *d, const char *path, const struct daemon_ids *prompt, int keep,
                    struct token_list *kept, double *ms, struct err *e) {
    struct compress_result r = {0};
    const struct compress_ids in = {prompt->at, prompt->n};
    int rc = daemon_load_scorer(d, path, e);
    if (rc)
        return rc;
    struct compress_options o = compress_options_default();
    o.continued = COMPRESS_ANEW; // who calls this wants it compressed
    o.select.budget = SELECT_RATIO;
    o.select.keep = keep / 1e3;
    o.select.anchors = !options_flag(&d->a->opt, OPT_PREFILL_NO_ANCHORS);
    rc = compress_tokens(d->scorer.c, &in, &o, kept, &r, e);
    *ms = r.ms_encode + r.ms_score + r.ms_select;
    compress_result_fini(&r);
    return rc;
}

bool daemon_free_scorer(struct daemon *d) {
    bool loaded = d->scorer.c != NULL;
    compression_close(&d->scorer);
    str_fini(&d->scorer_path);
    return loaded;
}
