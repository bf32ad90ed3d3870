// SPDX-License-Identifier: Apache-2.0
// See at_hand.h.
#include "cli/models/at_hand.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/gguf/gguf.h"
#include "models/draft/dflash.h"

#define BUNDLED "coppice-tiny-q8_0.gguf"

enum { PATH_MOST = 4096, DRAFTS_MOST = 64 };

// The folder that a path lies in, without the slash; "." when it names none.
static void folder_of(struct str *out, const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash)
        str_puts(out, ".");
    else
        str_append(out, path, slash == path ? 1 : (size_t)(slash - path));
}

static void beside_program(struct str *out) {
    char program[PATH_MOST];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n <= 0)
        return;
    program[n] = '\0';
    folder_of(out, program);
    str_puts(out, "/../share/coppice/models");
}

int at_hand_model(struct str *out, struct err *e) {
    struct str beside = {0};
    beside_program(&beside);
    const char *places[] = {beside.len && !beside.failed ? beside.data : "", COPPICE_DATA_MODELS,
                            COPPICE_SOURCE_MODELS};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        str_clear(out);
        str_printf(out, "%s/" BUNDLED, places[i]);
        if (places[i][0] && !out->failed && access(out->data, R_OK) == 0)
            break;
        str_clear(out);
    }
    str_fini(&beside);
    if (out->failed)
        return err_set(e, ERR_MEMORY, "no memory for a path");
    if (out->len)
        return 0;
    return err_set(e, ERR_IO,
                   "no model was given, and the bundled one is neither in %s nor in %s; name one "
                   "with -m FILE",
                   COPPICE_DATA_MODELS, COPPICE_SOURCE_MODELS);
}

struct drafts {
    const struct session_options *o;
    const char *target;      // file name, not its own draft
    char *path[DRAFTS_MOST]; // [n] that fit
    int n;
};

static void tell(const struct drafts *d, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void tell(const struct drafts *d, const char *format, ...) {
    char line[PATH_MOST + 512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (d->o->note)
        d->o->note(d->o->note_arg, line);
}

// Whether the file says of itself that it is a draft.
static bool is_draft(const char *path) {
    struct gguf *g = NULL;
    const char *name;
    size_t n;
    bool yes = !gguf_open(&g, path, NULL) &&
               !gguf_get_str(g, "general.architecture", &name, &n, NULL) &&
               dflash_architecture(name, n);
    gguf_close(g);
    return yes;
}

static int look_at(struct drafts *d, const char *path, struct err *e) {
    struct session_options o = *d->o;
    struct memory_plan plan;
    struct err why = {0};
    if (!is_draft(path))
        return 0;
    o.draft = path;
    o.make_plan = true;
    o.note = NULL;
    int rc = session_measure(&o, &plan, &why);
    if (rc && rc != ERR_MEMORY) {
        tell(d, "%s lies beside the target and is not used: %s", path, why.text);
        return 0;
    }
    if (d->n == DRAFTS_MOST)
        return 0;
    d->path[d->n] = strdup(path);
    return d->path[d->n++] ? 0 : err_set(e, ERR_MEMORY, "no memory for a path");
}

static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_gguf(const struct dirent *f) {
    size_t n = strlen(f->d_name);
    return n > 5 && !strcmp(f->d_name + n - 5, ".gguf");
}

static int look_through(struct drafts *d, const char *folder, struct err *e) {
    struct dirent **files = NULL;
    int rc = 0, n = scandir(folder, &files, is_gguf, by_name);
    for (int i = 0; i < n; i++) {
        struct str path = {0};
        str_printf(&path, "%s/%s", folder, files[i]->d_name);
        if (path.failed)
            rc = err_set(e, ERR_MEMORY, "no memory for a path");
        else if (!rc && strcmp(files[i]->d_name, d->target) != 0)
            rc = look_at(d, path.data, e);
        str_fini(&path);
        free(files[i]);
    }
    free(files);
    return rc;
}

int at_hand_draft(const struct session_options *o, struct str *out, struct err *e) {
    const char *slash = strrchr(o->model, '/');
    struct drafts d = {.o = o, .target = slash ? slash + 1 : o->model};
    struct str folder = {0};
    folder_of(&folder, o->model);
    int rc = folder.failed ? err_set(e, ERR_MEMORY, "no memory for a path")
                           : look_through(&d, folder.data, e);
    if (!rc && d.n == 1) {
        str_puts(out, d.path[0]);
        tell(&d, "guessing with the draft %s, which lies beside the target", d.path[0]);
    } else if (!rc && d.n > 1) {
        tell(&d, "several drafts fit, among them %s and %s: name one with -d", d.path[0],
             d.path[1]);
    }
    for (int i = 0; i < d.n; i++)
        free(d.path[i]);
    str_fini(&folder);
    return rc || !out->failed ? rc : err_set(e, ERR_MEMORY, "no memory for a path");
}
