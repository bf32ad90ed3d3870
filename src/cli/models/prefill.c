// SPDX-License-Identifier: Apache-2.0
// Rows of the option table to the options of compression.
#include "cli/models/prefill.h"

#include <string.h>

static int read_budget(const struct options *o, struct select_options *s, struct err *e) {
    const char *curve = options_str(o, OPT_PREFILL_CURVE);
    bool ratio = options_given(o, OPT_PREFILL_KEEP), mass = options_given(o, OPT_PREFILL_MASS);
    if (ratio + mass + (curve != NULL) > 1)
        return err_set(e, ERR_USAGE,
                       "--prefill-keep-ratio, --prefill-curve and --prefill-mass each say how much "
                       "to keep; give one of them");
    s->mass = options_float(o, OPT_PREFILL_MASS);
    s->least = options_float(o, OPT_PREFILL_LEAST);
    s->most = options_float(o, OPT_PREFILL_MOST);
    if (ratio) {
        s->budget = SELECT_RATIO;
        s->keep = options_float(o, OPT_PREFILL_KEEP);
    }
    int rc = curve ? select_curve_read(s, curve, strlen(curve), e) : 0;
    return rc ? err_prefix(e, "--prefill-curve") : select_options_check(s, e);
}

int prefill_options(const struct options *o, struct compress_options *out, struct err *e) {
    *out = compress_options_default();
    out->select.anchors = !options_flag(o, OPT_PREFILL_NO_ANCHORS);
    if (options_flag(o, OPT_PREFILL_FLOWKV))
        out->continued = COMPRESS_FLOW;
    return read_budget(o, &out->select, e);
}

int prefill_scorer_options(const struct options *o, struct score_options *out, struct err *e) {
    *out = score_options_default();
    out->layers = (int)options_int(o, OPT_PREFILL_LAYERS);
    out->last = (int)options_int(o, OPT_PREFILL_SCORE_LAYERS);
    out->dense = options_flag(o, OPT_PREFILL_DENSE);
    out->keep = options_int(o, OPT_PREFILL_MEMORY);
    out->sparse.alpha = (float)options_float(o, OPT_PREFILL_ALPHA);
    out->sparse.density = (float)options_float(o, OPT_PREFILL_DENSITY);
    return score_options_check(out, e);
}
