// SPDX-License-Identifier: Apache-2.0
// Stands in for what needs the server's code, in a build of the engine alone.
#include "cli/bench/url/url.h"
#include "cli/cli.h"

int cmd_serve(const struct cli_args *a, struct err *e) {
    (void)a;
    return err_set(e, ERR_UNSUPPORTED,
                   "this program was built without a server; build it with the preset release or "
                   "cuda");
}

int cmd_verify(const struct cli_args *a, struct err *e) {
    (void)a;
    return err_set(e, ERR_UNSUPPORTED,
                   "this program was built without a server and JSON; build it with the preset "
                   "release or cuda, or use 'bench', which compares ways of decoding as well");
}

bool bench_url_wanted(const struct cli_args *a, int *rc, struct err *e) {
    (void)e;
    *rc = 0;
    return options_given(&a->opt, OPT_URL);
}

int bench_url(const struct cli_args *a, struct err *e) {
    (void)a;
    return err_set(e, ERR_UNSUPPORTED,
                   "this program was built without HTTP and JSON; build it with the preset release "
                   "or cuda for bench --url");
}
