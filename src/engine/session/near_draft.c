// SPDX-License-Identifier: Apache-2.0
// See near_draft.h.
#include "engine/session/near_draft.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/gguf/gguf.h"
#include "models/draft/dflash/dflash.h"
#include "models/draft/eagle3/eagle3.h"
#include "models/draft/mtp/mtp.h"

enum { NOTE_BYTES = 4096 + 512 };

static void note(const struct near_drafts *d, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void note(const struct near_drafts *d, const char *format, ...) {
    char line[NOTE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (d->o->note && !d->quiet)
        d->o->note(d->o->note_arg, line);
}

static const char *base_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool same_architecture(const struct gguf *g, const char *name, size_t n) {
    struct err ignored;
    const char *other;
    size_t k;
    return !gguf_get_str(g, "general.architecture", &other, &k, &ignored) && other && n == k &&
           !memcmp(name, other, n);
}

// Whether the file says of itself that it is a draft: a DFlash or EAGLE-3 draft of whatever model,
// or a prediction block of the target's architecture. *e: why it says nothing.
static bool is_draft(const struct near_drafts *d, const char *path, struct err *e) {
    struct gguf *g = NULL, *target = NULL;
    struct err ignored;
    const char *name;
    size_t n;
    bool yes = !gguf_open(&g, path, e) && !gguf_get_str(g, "general.architecture", &name, &n, e);
    if (yes && !dflash_architecture(name, n) && !eagle3_in_file(g))
        yes = name && mtp_sidecar(g) && !gguf_open(&target, d->o->model, &ignored) &&
              same_architecture(target, name, n);
    gguf_close(target);
    gguf_close(g);
    return yes;
}

static int measure(const struct near_drafts *d, const char *draft, struct err *e) {
    struct session_options o = *d->o;
    struct memory_plan plan;
    o.draft = draft;
    o.draft_optional = false;
    o.make_plan = true;
    o.note = NULL;
    return session_measure(&o, &plan, e);
}

// Whether the target can be loaded without a draft; if not, its loading says why.
static bool is_target_whole(const struct near_drafts *d) {
    return !measure(d, NULL, NULL);
}

// Options that somebody gave and that make no sense are no reason to go on without a draft.
static bool is_for_user(struct near_drafts *d, int rc, const struct err *why, struct err *e) {
    if (rc != ERR_USAGE)
        return false;
    d->failed = true;
    err_set(e, rc, "%s", why->text);
    return true;
}

int near_draft_in_target(struct near_drafts *d, struct err *e) {
    struct gguf *g = NULL;
    struct err why = {0};
    bool there = !gguf_open(&g, d->o->model, &why) && mtp_in_file(g, NULL) && !mtp_sidecar(g);
    gguf_close(g);
    if (!there)
        return 0;
    int rc = measure(d, DRAFT_OF_TARGET, &why);
    if (is_for_user(d, rc, &why, e))
        return rc;
    d->of_target = !rc || rc == ERR_MEMORY; // which the session sees to
    if (!d->of_target && is_target_whole(d))
        note(d, "the block of %s that predicts further tokens is not used: %s",
             base_of(d->o->model), why.text);
    return 0;
}

int near_draft_file(struct near_drafts *d, const char *path, struct err *e) {
    struct err why = {0};
    if (!str_ends(path, ".safetensors") && !is_draft(d, path, &why)) {
        if (why.code && (d->own || (d->by_name && d->by_name(path)))) // else it may be anything
            note(d, "a draft that %s is not used: %s", d->where, why.text);
        return 0;
    }
    int rc = measure(d, path, &why);
    if (!d->own && is_for_user(d, rc, &why, e))
        return rc;
    if (rc && rc != ERR_MEMORY) {
        if ((!d->own || rc != ERR_MISMATCH) && is_target_whole(d))
            note(d, "%s %s and is not used: %s", path, d->where, why.text);
        return 0;
    }
    if (d->n == NEAR_DRAFTS_MAX)
        return 0;
    d->path[d->n] = strdup(path);
    return d->path[d->n++] ? 0 : err_set(e, ERR_MEMORY, "no memory for a path");
}

static int compare_names(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int has_gguf_name(const struct dirent *f) {
    return str_ends(f->d_name, ".gguf");
}

int near_draft_folder(struct near_drafts *d, const char *folder, struct err *e) {
    struct dirent **files = NULL;
    const char *target = base_of(d->o->model); // not its own draft
    int rc = 0, n = scandir(folder, &files, has_gguf_name, compare_names);
    for (int i = 0; i < n; i++) {
        struct str path = {0};
        str_printf(&path, "%s/%s", folder, files[i]->d_name);
        if (path.failed)
            rc = err_set(e, ERR_MEMORY, "no memory for a path");
        else if (!rc && strcmp(files[i]->d_name, target) != 0)
            rc = near_draft_file(d, path.data, e);
        str_fini(&path);
        free(files[i]);
    }
    free(files);
    return rc;
}

int near_draft_beside(struct near_drafts *d, struct err *e) {
    const char *slash = strrchr(d->o->model, '/');
    struct str folder = {0};
    if (slash)
        str_append(&folder, d->o->model, slash == d->o->model ? 1 : (size_t)(slash - d->o->model));
    else
        str_puts(&folder, ".");
    d->where = "lies next to the target";
    int rc = folder.failed ? err_set(e, ERR_MEMORY, "no memory for a path")
                           : near_draft_folder(d, folder.data, e);
    str_fini(&folder);
    return rc;
}

int near_draft_choose(struct near_drafts *d, struct str *path, const char **draft, struct err *e) {
    int rc = 0;
    *draft = NULL;
    if (d->failed) {
        d->of_target = false;
    } else if (d->of_target) {
        *draft = DRAFT_OF_TARGET;
        note(d, "guessing with the block of %s that predicts further tokens%s%s%s",
             base_of(d->o->model), d->n ? "; to guess with the draft " : "", d->n ? d->path[0] : "",
             d->n ? ", name it with -d" : "");
    } else if (d->n == 1) {
        str_puts(path, d->path[0]);
        rc = path->failed ? err_set(e, ERR_MEMORY, "no memory for a path") : 0;
        *draft = rc ? NULL : path->data;
        note(d, "guessing with the draft %s, which %s", d->path[0], d->where);
    } else if (d->n > 1) {
        note(d, "several drafts fit, among them %s and %s: name one with -d", d->path[0],
             d->path[1]);
    }
    for (int i = 0; i < d->n; i++)
        free(d->path[i]);
    d->n = 0;
    return rc;
}
