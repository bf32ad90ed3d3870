// SPDX-License-Identifier: Apache-2.0
// Kept answers given again plainly; see verify.h. What concerns one line is a sentence about it,
// and the others are compared all the same.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "cli/verify/verify.h"
#include "serve/keep/read.h"

enum { LINE_MAX_BYTES = 256 << 20 };

struct kept_file {
    struct verify *v;
    const char *wanted; // NULL: all
    struct keep_reader reader;
    struct keep_setup setup; // of this session
    struct str line;
    int64_t number, found;
    bool told; // another version of the program was named
};

static int compare_reply(struct kept_file *f, const struct kept_answer *k, const struct reply *y,
                         struct err *e) {
    static char goes_on[] = "plain decoding goes on", ends[] = "plain decoding ends before";
    struct verdict x = {.id = k->id,
                        .choice = k->choice,
                        .tokens = k->n,
                        .cut = !k->whole,
                        .hashed = k->has_hash,
                        .at = -1};
    char why[96];
    int64_t n = min_i64(y->n, k->n);
    for (int64_t i = 0; i < n && x.at < 0; i++)
        if (y->ids[i] != k->ids[i])
            x.at = i;
    if (x.at >= 0) {
        snprintf(why, sizeof why, "plain decoding gives %d, the answer has %d", y->ids[x.at],
                 k->ids[x.at]);
        x.why = why;
    } else if (y->n != k->n) {
        x.at = n;
        x.why = y->n > k->n ? goes_on : ends;
    } else if (k->has_hash && y->hash != k->hash) {
        snprintf(why, sizeof why,
                 "the tokens are equal and the logits are not: %016llx, not %016llx",
                 (unsigned long long)y->hash, (unsigned long long)k->hash);
        x.why = why;
    }
    return verify_show(f->v, &x, e);
}

// Of one line only.
static bool is_of_line(int rc) {
    return rc == ERR_FORMAT || rc == ERR_UNSUPPORTED || rc == ERR_MISMATCH || rc == ERR_USAGE ||
           rc == ERR_LIMIT || rc == ERR_STATE;
}

static int skip(struct kept_file *f, const struct kept_answer *k, const struct err *why,
                struct err *e) {
    char id[64];
    struct verdict x = {.choice = k->id ? k->choice : -1, .at = -1, .why = why->text};
    snprintf(id, sizeof id, "line %lld", (long long)f->number);
    x.id = k->id ? k->id : id;
    x.skipped = true;
    return verify_show(f->v, &x, e);
}

static void tell_program(struct kept_file *f, const struct kept_answer *k) {
    if (f->told || !strcmp(k->setup.program, f->setup.program))
        return;
    f->told = true;
    fprintf(
        stderr,
        "coppice: answers of version %s are compared with this one, %s: equal bits are promised "
        "within a version only\n",
        k->setup.program, f->setup.program);
}

static int replay(struct kept_file *f, struct kept_answer *k, struct err *e) {
    struct err why = {0};
    struct reply y = {0};
    int rc = keep_setup_check(&k->setup, &f->setup, &why);
    if (!rc) {
        tell_program(f, k);
        rc = kept_answer_read(k, &f->reader, &why);
    }
    if (!rc)
        rc = session_generate(f->v->s, &k->r, &y, &why);
    if (!rc && !cli_interrupted())
        rc = compare_reply(f, k, &y, e);
    else if (rc && is_of_line(rc))
        rc = skip(f, k, &why, e);
    else if (rc)
        *e = why;
    reply_fini(&y);
    return rc;
}

static bool is_blank(const struct str *s) {
    size_t n = 0;
    while (n < s->len && strchr(" \t\r\n", s->data[n]))
        n++;
    return n == s->len;
}

static int take_line(struct kept_file *f, struct err *e) {
    struct kept_answer k = {0};
    struct err why = {0};
    f->number++;
    if (is_blank(&f->line))
        return 0;
    int rc = kept_answer_open(&k, f->line.data, f->line.len, &why);
    bool other = f->wanted && (!k.id || strcmp(k.id, f->wanted) != 0);
    if (!other) {
        f->found++;
        if (!rc)
            rc = replay(f, &k, e);
        else if (is_of_line(rc))
            rc = skip(f, &k, &why, e);
        else
            *e = why;
    } else {
        rc = 0;
    }
    kept_answer_fini(&k);
    return rc;
}

// Reads a line without its end. False at the end of the file.
static bool read_line(struct kept_file *f, FILE *file, int *rc, struct err *e) {
    int c;
    str_clear(&f->line);
    while ((c = getc(file)) != EOF && c != '\n' && !f->line.failed) {
        str_putc(&f->line, (char)c);
        if (f->line.len > LINE_MAX_BYTES) {
            *rc = err_set(e, ERR_FORMAT, "line %lld has more than %d MiB", (long long)f->number + 1,
                          LINE_MAX_BYTES >> 20);
            return false;
        }
    }
    if (f->line.failed)
        *rc = err_set(e, ERR_MEMORY, "no memory for a line");
    else if (ferror(file))
        *rc = err_set(e, ERR_IO, "%s", strerror(errno));
    return !*rc && (c == '\n' || f->line.len > 0);
}

int verify_kept(struct verify *v, const char *path, struct err *e) {
    struct kept_file f = {
        .v = v, .wanted = options_str(&v->a->opt, OPT_VERIFY_ID), .reader = {.s = v->s}};
    FILE *file = fopen(path, "r");
    int rc = file ? 0 : err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    keep_setup_of(&f.setup, v->s, &v->used);
    while (!rc && !cli_interrupted() && read_line(&f, file, &rc, e))
        rc = take_line(&f, e);
    if (rc && rc != ERR_DEVICE)
        err_prefix(e, "%s", path);
    if (!rc && f.wanted && !f.found && !cli_interrupted())
        rc = err_set(e, ERR_FORMAT, "%s has no answer of the id '%.100s'", path, f.wanted);
    if (file)
        fclose(file);
    str_fini(&f.line);
    keep_reader_fini(&f.reader);
    return rc;
}
