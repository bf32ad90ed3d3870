// SPDX-License-Identifier: Apache-2.0
// The lines and the sum of `coppice verify`; see verify.h.
#include "cli/verify/verify.h"

static int show_json(struct verify *v, const struct verdict *x) {
    struct json_writer *w = &v->json;
    jw_begin(w, '{');
    jw_key_str(w, "id", x->id);
    if (x->choice >= 0)
        jw_key_int(w, "choice", x->choice);
    jw_key_str(w, "verdict", x->skipped ? "not compared" : x->why ? "different" : "equal");
    if (!x->skipped) {
        jw_key_int(w, "tokens", x->tokens);
        jw_key_bool(w, "cut", x->cut);
        jw_key_bool(w, "logits", x->hashed);
    }
    if (x->at >= 0)
        jw_key_int(w, "at", x->at);
    if (x->why)
        jw_key_str(w, "why", x->why);
    jw_end(w, '}');
    return 0;
}

int verify_show(struct verify *v, const struct verdict *x, struct err *e) {
    struct str s = {0};
    v->skipped += x->skipped;
    v->different += x->why && !x->skipped;
    v->equal += !x->why;
    v->tokens += x->skipped ? 0 : x->tokens;
    if (options_flag(&v->a->opt, OPT_JSON))
        return show_json(v, x);
    str_puts(&s, x->id);
    if (x->choice > 0)
        str_printf(&s, " (choice %d)", x->choice);
    if (x->skipped)
        str_printf(&s, ": not compared: %s\n", x->why);
    else
        str_printf(&s, ": %lld tokens%s, ", (long long)x->tokens,
                   x->cut ? " until it was cut" : "");
    if (!x->skipped && !x->why)
        str_puts(&s, x->hashed ? "equal\n" : "equal; no hash of its logits was kept\n");
    else if (!x->skipped && x->at >= 0)
        str_printf(&s, "DIFFERENT from token %lld on: %s\n", (long long)x->at, x->why);
    else if (!x->skipped)
        str_printf(&s, "DIFFERENT: %s\n", x->why);
    return cli_print(&s, e);
}

int verify_sum(struct verify *v, struct err *e) {
    struct str s = {0};
    struct json_writer w = {0};
    int64_t compared = v->equal + v->different;
    if (!options_flag(&v->a->opt, OPT_JSON)) {
        str_printf(&s, "%lld answers compared, %lld tokens: %lld equal, %lld different",
                   (long long)compared, (long long)v->tokens, (long long)v->equal,
                   (long long)v->different);
        if (v->skipped)
            str_printf(&s, "; %lld not compared", (long long)v->skipped);
        str_putc(&s, '\n');
        return cli_print(&s, e);
    }
    jw_begin(&w, '{');
    jw_key(&w, "answers");
    str_append(&w.out, v->json.out.data, v->json.out.len);
    w.comma = true;
    jw_key_str(&w, "device", exec_label(model_exec(session_model(v->s))));
    jw_key_int(&w, "compared", compared);
    jw_key_int(&w, "tokens", v->tokens);
    jw_key_int(&w, "equal", v->equal);
    jw_key_int(&w, "different", v->different);
    jw_key_int(&w, "not_compared", v->skipped);
    jw_end(&w, '}');
    w.out.failed |= v->json.out.failed;
    return cli_print_json(&w, e);
}
