// SPDX-License-Identifier: Apache-2.0
// Whether what a command would write is one of the files that it reads: by device and inode, so
// that links and other spellings are seen. Inputs are the operands and the options that name files,
// with all parts of a split model and all files of a folder but the GGUF files in it, which a
// conversion never reads.
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/vec.h"
#include "cli/cli.h"

static const int outputs[] = {OPT_RAW, OPT_SAVE_LOGITS, OPT_TRACE, OPT_HISTORY, OPT_KEEP_REQUESTS};
enum { OUTPUTS = sizeof outputs / sizeof *outputs };

struct inputs {
    struct stat *list;
    int64_t count, cap;
};

struct visitor {
    int (*visit)(void *arg, const char *path, struct err *e);
    void *arg;
};

// Length of a name without -NNNNN-of-NNNNN.gguf, 0: it does not end so.
static size_t part_stem(const char *name) {
    static const char form[] = "-00000-of-00000.gguf";
    size_t n = strlen(name), k = sizeof form - 1;
    for (size_t i = 0; i < k && n > k; i++) {
        char c = name[n - k + i];
        if (form[i] == '0' ? c < '0' || c > '9' : c != form[i])
            return 0;
    }
    return n > k ? n - k : 0;
}

// The files of a folder: those that are parts of `stem`, or where that is NULL, all but GGUF files.
static int each_in(const char *folder, const char *stem, size_t n, const struct visitor *v,
                   struct err *e) {
    DIR *d = opendir(folder);
    struct str path = {0};
    int rc = 0;
    for (struct dirent *f; d && !rc && (f = readdir(d));) {
        bool wanted = stem ? part_stem(f->d_name) == n && !memcmp(f->d_name, stem, n)
                           : !str_ends(f->d_name, ".gguf");
        str_clear(&path);
        str_printf(&path, "%s/%s", folder, f->d_name);
        if (path.failed)
            rc = err_set(e, ERR_MEMORY, "no memory for the names of files");
        else if (wanted)
            rc = v->visit(v->arg, path.data, e);
    }
    if (d)
        closedir(d);
    str_fini(&path);
    return rc;
}

// A path with the other parts of the model whose part it is, or which is written there.
static int each_part(const char *path, bool split, const struct visitor *v, struct err *e) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t stem = part_stem(name);
    struct str folder = {0};
    int rc = v->visit(v->arg, path, e);
    if (stem == 0 && split)
        stem = strlen(name) - (str_ends(name, ".gguf") ? 5 : 0);
    if (rc || stem == 0)
        return rc;
    str_append(&folder, slash ? path : ".", slash > path ? (size_t)(slash - path) : 1);
    rc = folder.failed ? err_set(e, ERR_MEMORY, "no memory for the names of files")
                       : each_in(folder.data, name, stem, v, e);
    str_fini(&folder);
    return rc;
}

static int add_input(void *arg, const char *path, struct err *e) {
    struct inputs *in = arg;
    struct stat st;
    if (stat(path, &st) || !S_ISREG(st.st_mode))
        return 0;
    int rc = vec_reserve(&in->list, &in->cap, in->count + 1, sizeof *in->list, e);
    if (!rc)
        in->list[in->count++] = st;
    return rc;
}

static int check_output(void *arg, const char *path, struct err *e) {
    const struct inputs *in = arg;
    struct stat st;
    if (stat(path, &st))
        return 0;
    for (int64_t i = 0; i < in->count; i++)
        if (in->list[i].st_dev == st.st_dev && in->list[i].st_ino == st.st_ino)
            return err_set(e, ERR_USAGE,
                           "'%s' is read and cannot be written over; give another name", path);
    return 0;
}

static bool is_output(int row) {
    for (int i = 0; i < OUTPUTS; i++)
        if (outputs[i] == row)
            return true;
    return false;
}

static int add_path(struct inputs *in, const char *path, struct err *e) {
    const struct visitor v = {add_input, in};
    struct stat st;
    if (!stat(path, &st) && S_ISDIR(st.st_mode))
        return each_in(path, NULL, 0, &v, e);
    return each_part(path, false, &v, e);
}

// written: the operand that is an output, or -1.
static int add_inputs(struct inputs *in, const struct cli_args *a, int written, struct err *e) {
    int rc = 0;
    for (int i = 0; i < a->opt.n_operands && !rc; i++)
        if (i != written)
            rc = add_path(in, a->opt.operands[i], e);
    for (int row = 0; row < (int)a->opt.count && !rc; row++) {
        const struct option *o = &a->opt.table[row];
        bool file = o->kind == OPTION_STRING && o->metavar &&
                    (!strcmp(o->metavar, "FILE") || !strcmp(o->metavar, "PATH"));
        if (file && options_given(&a->opt, row) && !is_output(row))
            rc = add_path(in, options_str(&a->opt, row), e);
    }
    return rc;
}

static int written_operand(const struct cli_args *a) {
    switch (a->command->id) {
    case CLI_CONVERT:
    case CLI_QUANTIZE:
        return 1;
    case CLI_IMATRIX:
    case CLI_SYNTH:
        return 0;
    default:
        return -1;
    }
}

int cli_keep_inputs(const struct cli_args *a, const char *out, struct err *e) {
    struct inputs in = {0};
    const struct visitor v = {check_output, &in};
    int written = written_operand(a);
    int rc = add_inputs(&in, a, written, e);
    if (!rc && out)
        rc = each_part(out, false, &v, e);
    for (int i = 0; i < OUTPUTS && !rc; i++)
        if (options_given(&a->opt, outputs[i]))
            rc = each_part(options_str(&a->opt, outputs[i]), false, &v, e);
    if (!rc && written >= 0 && written < a->opt.n_operands)
        rc = each_part(a->opt.operands[written], options_int(&a->opt, OPT_SPLIT_SIZE) > 0, &v, e);
    free(in.list);
    return rc;
}
