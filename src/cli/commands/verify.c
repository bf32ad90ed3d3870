// SPDX-License-Identifier: Apache-2.0
// `coppice verify`: whether answers are those of plain decoding, token by token and in the logits
// that decided them.
#include "cli/verify/verify.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "serve/keep/read.h"

// Whether a file is one of serve --keep-requests, which its first bytes tell. It is read again, so
// what can be read once only is refused, without waiting for who writes it.
static int is_kept_file(const char *path, bool *kept, struct err *e) {
    static const char begin[] = "{\"" KEEP_MARK "\"";
    char first[sizeof begin] = "";
    struct stat s;
    int rc = 0, fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &s))
        rc = err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(s.st_mode))
        rc = err_set(e, ERR_IO, "%s is %s: give a regular file", path,
                     S_ISDIR(s.st_mode) ? "a folder" : "a pipe or a device");
    else if (s.st_size == 0)
        rc = err_set(e, ERR_FORMAT, "%s is empty", path);
    else if (read(fd, first, sizeof begin - 1) < 0)
        rc = err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    *kept = !memcmp(first, begin, sizeof begin - 1);
    if (fd >= 0)
        close(fd);
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
