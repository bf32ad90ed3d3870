// SPDX-License-Identifier: Apache-2.0
// See tokens.h. Only the metadata of the file is read.
#include "cli/models/tokens.h"

int cli_open_tokenizer(const struct cli_args *a, struct tokenizer **out, struct err *e) {
    struct gguf *g;
    *out = NULL;
    int rc = cli_need(a, OPT_MODEL, e);
    if (rc)
        return rc;
    const char *path = options_str(&a->opt, OPT_MODEL);
    rc = gguf_open(&g, path, e);
    if (rc)
        return rc;
    rc = tokenizer_create(out, g, e);
    gguf_close(g);
    return rc ? err_prefix(e, "%s", path) : 0;
}
