// SPDX-License-Identifier: Apache-2.0
// Writes the seeds of fuzz_cache: an entry of the prefix cache, and one that goes on from it, with
// pages of a few bytes, since the form does not depend on what is in them.
// Usage: fuzz_cache_seeds FOLDER
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cache/disk.h"

enum { TOKENS = 200, COMMON = 150, PAGES = 4, PAGE = 24, REST = 40, KEY_AT = 12 + 20 + 9 + 12 + 8 };

static int write_seed(const char *folder, const char *name, struct record *f,
                      const struct record *base) {
    static struct ram_copy_page pages[2][PAGES];
    static unsigned char bytes[PAGE], rest[REST], form[] = "form";
    struct ram_copy m = {.len = TOKENS,
                         .n_groups = 2,
                         .form = form,
                         .form_bytes = sizeof form,
                         .rest = rest,
                         .rest_bytes = sizeof rest};
    struct ram_copy_page *table[2][PAGES];
    char path[512];
    struct err e = {0};
    for (int g = 0; g < 2; g++) {
        m.groups[g] = (struct ram_copy_group){PAGE, TOKENS - 20 * g, g, 4 - g, table[g]};
        for (int i = 0; i < PAGES; i++) {
            pages[g][i] = (struct ram_copy_page){.refs = 1, .bytes = PAGE, .data = bytes};
            table[g][i] = &pages[g][i];
        }
    }
    int rc = record_of(f, "of: this\n", &m, base, COMMON, &e);
    f->key = base ? 3 : 2;
    f->tokens = calloc(TOKENS, sizeof *f->tokens);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (!rc && f->tokens)
        rc = cache_file_write(f, &m, path, NULL, &e);
    if (rc)
        fprintf(stderr, "%s\n", e.text);
    return rc || !f->tokens;
}

// The first one with a number changed, and cut off at `bytes` where that is not 0.
static int write_changed(const char *folder, const char *name, long at, int number, long bytes) {
    char from[512], to[512];
    int c, rc = 1;
    snprintf(from, sizeof from, "%s/first", folder);
    snprintf(to, sizeof to, "%s/%s", folder, name);
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    for (long i = 0; in && out && (c = fgetc(in)) != EOF && (!bytes || i < bytes); i++)
        rc = fputc(i == at ? number : c, out) == EOF;
    if (in)
        fclose(in);
    return (out && fclose(out)) || rc;
}

int main(int argc, char **argv) {
    struct record first = {0}, continued = {0};
    if (argc != 2)
        return 2;
    int rc = write_seed(argv[1], "first", &first, NULL);
    rc = rc ? rc : write_seed(argv[1], "behind", &continued, &first);
    rc = rc ? rc : write_changed(argv[1], "newer", 8, 4, 0);
    rc = rc ? rc : write_changed(argv[1], "of-another-key", KEY_AT, 9, 0);
    rc = rc ? rc : write_changed(argv[1], "in-the-middle-of-sums", -1, 0, first.data - 30);
    record_fini(&first);
    record_fini(&continued);
    return rc;
}
