// SPDX-License-Identifier: Apache-2.0
// `coppice serve`: starts the server that the options describe and runs it until it is told to
// stop. What it serves is in src/serve.
#include <stdio.h>

#include "cli/decode.h"
#include "serve/server.h"

// One line of standard error for each request.
static void log_line(void *arg, const char *line, size_t n) {
    (void)arg;
    fwrite(line, 1, n, stderr);
}

static void loaded(void *arg, struct server *v, const struct err *failure) {
    (void)arg;
    if (failure) // the error of server_run
        return;
    for (size_t i = 0; server_address(v, i); i++)
        fprintf(stderr, "coppice: %s at %s\n", server_model(v), server_address(v, i));
}

int cmd_serve(const struct cli_args *a, struct err *e) {
    struct server_options o = server_options_default();
    struct server *v = NULL;
    struct str prices = {0};
    const struct options *opt = &a->opt;
    const char *key = options_str(opt, OPT_API_KEY);
    double grace = options_float(opt, OPT_GRACE);
    int rc = decode_session(a, &o.engine.session, &prices, e);
    if (!rc) {
        o.engine.slots = (int)options_int(opt, OPT_SLOTS);
        o.engine.queue = (int)options_int(opt, OPT_QUEUE);
        o.http.host = options_str(opt, OPT_HOST);
        o.http.port = (int)options_int(opt, OPT_PORT);
        o.http.keys = &key;
        o.http.n_keys = key ? 1 : 0;
        o.http.grace_s = grace > 0 ? grace : -1; // 0 is the default there
        o.http.signals = true;
        o.log = log_line;
        o.loaded = loaded;
        rc = server_create(&v, &o, e);
    }
    if (!rc)
        rc = server_run(v, e);
    server_destroy(v);
    str_fini(&prices);
    return rc;
}
