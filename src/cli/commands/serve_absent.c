// SPDX-License-Identifier: Apache-2.0
// Stands in for serve.c in a build of the engine alone, which has no server.
#include "cli/cli.h"

int cmd_serve(const struct cli_args *a, struct err *e) {
    (void)a;
    return err_set(e, ERR_UNSUPPORTED,
                   "this program was built without a server; build it with the preset release or "
                   "cuda");
}
