// SPDX-License-Identifier: Apache-2.0
// Dry loads of models that are not there yet; see plan.h.
#include "cli/hub/plan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory/machine.h"
#include "base/num.h"
#include "engine/session/near_draft.h"
#include "engine/session/session.h"
#include "formats/gguf/gguf.h"

static void put_file(struct str *out, const struct hub_set *s, int i, const char *folder) {
    const char *name = s->at[i].file.name, *slash = strrchr(name, '/');
    str_printf(out, "%s/%s", folder, slash ? slash + 1 : name);
}

// The first `head` bytes of what a descriptor is at, and zeros, which take no room.
static int copy_head(int from, const char *path, int64_t head, int64_t size, struct err *e) {
    enum { BYTES = 1 << 20 };
    int to = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    char *bytes = malloc(BYTES);
    bool ok = to >= 0 && bytes;
    for (int64_t at = 0; ok && at < head;) {
        ssize_t n = pread(from, bytes, (size_t)min_i64(BYTES, head - at), at);
        ok = n > 0 && write(to, bytes, (size_t)n) == n;
        at += n;
    }
    ok = ok && !ftruncate(to, size);
    int rc = ok ? 0 : err_set(e, ERR_IO, "cannot write %s: %s", path, strerror(errno));
    if (to >= 0)
        close(to);
    free(bytes);
    return rc;
}

int hub_plan_files(const struct hub_set *s, const char *folder, int64_t head, struct err *e) {
    int rc = mkdir(folder, 0700) && errno != EEXIST
                 ? err_set(e, ERR_IO, "cannot make %s: %s", folder, strerror(errno))
                 : 0;
    for (int i = 0; i < s->choice.n && !rc; i++) {
        const struct hub_download *d = &s->at[i];
        struct str path = {0}, blob = {0};
        char *there = NULL; // the folder of the link is another one
        put_file(&path, s, i, folder);
        if (d->there)
            hub_cache_path(&blob, s->name.repo, "blobs", d->file.etag, "");
        if (blob.len && !blob.failed)
            there = realpath(blob.data, NULL);
        if (path.failed || blob.failed)
            rc = err_set(e, ERR_MEMORY, "no memory for a path");
        else if (!d->there)
            rc = copy_head(d->fd - 1, path.data, min_i64(d->have, head), d->file.size, e);
        else if ((!there || symlink(there, path.data)) && errno != EEXIST)
            rc = err_set(e, ERR_IO, "cannot make %s: %s", path.data, strerror(errno));
        str_fini(&path);
        str_fini(&blob);
        free(there);
    }
    return rc;
}

int hub_plan_read(const struct hub_set *s, const char *folder, struct err *e) {
    struct gguf *g = NULL;
    struct str path = {0};
    put_file(&path, s, 0, folder);
    int rc =
        path.failed ? err_set(e, ERR_MEMORY, "no memory for a path") : gguf_open(&g, path.data, e);
    gguf_close(g);
    str_fini(&path);
    return rc;
}

static void say_note(void *arg, const char *sentence) {
    (void)arg;
    fprintf(stderr, "coppice: %s\n", sentence);
}

bool hub_plan_has_block(const struct hub_set *s, const char *folder) {
    struct session_options o = session_options_default();
    struct near_drafts d = {.o = &o};
    struct str path = {0};
    struct err ignored;
    put_file(&path, s, 0, folder);
    o.model = path.data;
    o.note = say_note;
    bool yes = !path.failed && !near_draft_in_target(&d, &ignored) && d.of_target;
    str_fini(&path);
    return yes;
}

int hub_plan_measure(const struct hub_set *model, const char *folder, const struct hub_set *draft,
                     const char *draft_folder, struct memory_plan *out, struct err *e) {
    struct session_options o = session_options_default();
    struct str path = {0}, other = {0};
    put_file(&path, model, 0, folder);
    if (draft)
        put_file(&other, draft, 0, draft_folder);
    o.model = path.data;
    o.draft = other.data;
    int rc = path.failed || other.failed ? err_set(e, ERR_MEMORY, "no memory for a path")
                                         : session_measure(&o, out, e);
    str_fini(&path);
    str_fini(&other);
    return rc;
}

static int64_t total_at(const struct memory_plan *p, int64_t context) {
    struct memory_plan at = *p;
    at.context = context;
    return plan_total(&at);
}

// The smallest usual size of memory, in GiB, that holds so much and half a GiB for the system.
static int usual_size(int64_t bytes) {
    static const int sizes[] = {2,  3,  4,  6,  8,   10,  12,  16,  24,  32,  40,
                                48, 64, 80, 96, 128, 141, 192, 256, 384, 512, 768};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (bytes + (INT64_C(1) << 29) <= (int64_t)sizes[i] << 30)
            return sizes[i];
    return (int)((bytes >> 30) + 1);
}

static void put_context(char *to, size_t size, int64_t n) {
    if (n % 1024 == 0 || n >= 100000)
        snprintf(to, size, "%lldK", (long long)(n / 1024));
    else
        snprintf(to, size, "%lld", (long long)n);
}

void hub_plan_say(const struct memory_plan *p) {
    const int64_t longest = p->trained > 0 ? p->trained : p->context;
    const int64_t few = min_i64(8192, longest), many = min_i64(65536, longest);
    const int64_t least = total_at(p, few), most = total_at(p, many);
    char a[32], b[32], here[96] = "";
    const int64_t machine = machine_memory();
    put_context(a, sizeof a, few);
    put_context(b, sizeof b, many);
    if (p->available > 0)
        snprintf(here, sizeof here, "; here there is room for %lld tokens",
                 (long long)plan_longest(p));
    else if (machine > 0 && least > machine)
        snprintf(here, sizeof here, "; this machine has %.1f GiB", (double)machine / (1 << 30));
    if (usual_size(least) < usual_size(most))
        fprintf(stderr, "coppice: fits in %d GB with %s of context, in %d GB with %s%s\n",
                usual_size(least), a, usual_size(most), b, here);
    else
        fprintf(stderr, "coppice: fits in %d GB with %s of context (%.1f GiB)%s\n",
                usual_size(most), b, (double)most / (1 << 30), here);
}
