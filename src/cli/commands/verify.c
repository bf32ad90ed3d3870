// SPDX-License-Identifier: Apache-2.0
// `coppice verify`: whether answers are those of plain decoding, token by token and in the logits
// that decided them.
#include "cli/verify/verify.h"

#include <errno.h>
#include <string.h>

#include "serve/keep/read.h"

// Whether a file is one of serve --keep-requests, which its first bytes tell.
static int is_kept_file(const char *path, bool *kept, struct err *e) {
    static const char begin[] = "{\"" KEEP_MARK "\"";
    char first[sizeof begin] = "";
    FILE *file = fopen(path, "r");
    if (!file)
        return err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    bool failed = fread(first, 1, sizeof begin - 1, file) == 0 && ferror(file);
    int rc = failed ? err_set(e, ERR_IO, "%s: %s", path, strerror(errno)) : 0;
    *kept = !memcmp(first, begin, sizeof begin - 1);
    if (!rc && !first[0])
        rc = err_set(e, ERR_FORMAT, "%s is empty", path);
    fclose(file);
    return rc;
}

static int compare_all(struct verify *v, const char *path, bool kept, struct err *e) {
    jw_begin(&v->json, '[');
    int rc = kept ? verify_kept(v, path, e) : verify_prompts(v, path, e);
    jw_end(&v->json, ']');
    if (!rc && !cli_interrupted())
        rc = verify_sum(v, e);
    if (!rc && v->different)
        rc = err_set(e, ERR_STATE, "%lld answers differ from plain decoding; please report this",
                     (long long)v->different);
    if (!rc && v->skipped)
        rc = err_set(e, ERR_STATE, "%lld answers could not be compared", (long long)v->skipped);
    return rc;
}

int cmd_verify(const struct cli_args *a, struct err *e) {
    struct verify v = {.a = a};
    const char *path = options_str(&a->opt, OPT_VERIFY_REQUESTS);
    bool kept = false;
    int rc = cli_need(a, OPT_VERIFY_REQUESTS, e);
    if (!rc)
        rc = is_kept_file(path, &kept, e);
    if (!rc)
        rc = decode_open_used(a, &v.s, &v.used, e);
    if (!rc) {
        cli_catch_interrupt();
        rc = compare_all(&v, path, kept, e);
    }
    session_close(v.s);
    str_fini(&v.json.out);
    return rc;
}
