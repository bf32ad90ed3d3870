// SPDX-License-Identifier: Apache-2.0
// A vocabulary made of text; see vocabulary.h. Pieces are words with the blank before them, runs of
// punctuation, of blanks and of up to three digits, and beginnings of long pieces.
#include "vocabulary.h"

#include <ctype.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "base/vec.h"

enum { END = 256, FIRST = 257, LONGEST = 24 };

struct piece {
    const char *bytes;
    size_t n;
};
static struct {
    struct str text, made;
    struct map seen;
    struct piece *list;
    int64_t count, cap, max;
} all;

static void add_piece(const char *bytes, size_t n) {
    if (all.count >= all.max || n < 2 || map_insert(&all.seen, bytes, n, 0) != 1)
        return;
    if (vec_reserve(&all.list, &all.cap, all.count + 1, sizeof *all.list, NULL) == 0)
        all.list[all.count++] = (struct piece){bytes, n};
}

static int kind(char c) {
    return isalpha((unsigned char)c) || c & 0x80 ? 1
           : isdigit((unsigned char)c)           ? 2
           : isspace((unsigned char)c)           ? 3
                                                 : 4;
}

// The end of the piece that begins at `at`.
static size_t piece_end(const char *text, size_t n, size_t at) {
    size_t end = at + (text[at] == ' ' && at + 1 < n && kind(text[at + 1]) != 3);
    int k = kind(text[end]);
    size_t max = at + (k == 2 ? 3 : LONGEST);
    while (end < n && kind(text[end]) == k && end < max)
        end++;
    while (end < n && (text[end] & 0xC0) == 0x80)
        end++;
    return end;
}

static void add_text(const char *pattern) {
    glob_t files;
    if (glob(pattern, 0, NULL, &files))
        return;
    for (size_t i = 0; i < files.gl_pathc && all.text.len < 24u << 20; i++) {
        FILE *f = fopen(files.gl_pathv[i], "rb");
        char buffer[4096];
        for (size_t n; f && (n = fread(buffer, 1, sizeof buffer, f)) > 0;)
            str_append(&all.text, buffer, n);
        if (f)
            fclose(f);
    }
    globfree(&files);
}

// Two to four letters of a script with `count` letters from `first` on.
static void add_script(uint32_t first, uint32_t count, int64_t max) {
    char text[16];
    for (int64_t i = 0; i < max; i++) {
        size_t n = 0;
        uint64_t draw = rng_hash(3, first, (uint64_t)i, 0);
        for (int k = 0; k < 2 + (int)(draw >> 60) % 3; k++) {
            uint32_t code =
                first + (uint32_t)(rng_hash(4, first, (uint64_t)i, (uint64_t)k) % count);
            n += (size_t)utf8_encode(text + n, code);
        }
        char *kept = malloc(n);
        if (!kept)
            return;
        memcpy(kept, text, n);
        add_piece(kept, n); // is kept until the process ends
    }
}

static void bytes_of(void *arg, int32_t id, struct str *append) {
    (void)arg;
    vocabulary_text(id, append);
}

static bool ends(void *arg, int32_t id) {
    (void)arg;
    return id == END;
}

void vocabulary_text(int32_t id, struct str *append) {
    if (id < 256)
        str_putc(append, (char)id);
    else if (id >= FIRST && id - FIRST < all.count)
        str_append(append, all.list[id - FIRST].bytes, all.list[id - FIRST].n);
}

struct grammar_vocab *vocabulary_make(int32_t size) {
    static const char *const folders[] = {"/docs/*.md",   "/src/*/*.c",         "/tests/*/*.c",
                                          "/src/*/*.h",   "/src/*/*/*.c",       "/web/*/*",
                                          "/docs/*/*.md", "/tests/*/*/*.json*", "/tools/*/*.py",
                                          "/scripts/*",   "/bench/*/*"};
    struct grammar_tokens tokens = {.size = size, .bytes = bytes_of, .ends = ends};
    struct grammar_vocab *v = NULL;
    struct err e;
    all.max = size - FIRST;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char pattern[512];
        snprintf(pattern, sizeof pattern, SOURCE_ROOT "%s", folders[i]);
        add_text(pattern);
    }
    if (all.text.failed || all.text.len == 0)
        return NULL;
    for (size_t at = 0; at < all.text.len;) {
        size_t end = piece_end(all.text.data, all.text.len, at);
        for (size_t cut = at + 2; cut < end && size > 100000; cut++)
            if ((all.text.data[cut] & 0xC0) != 0x80)
                add_piece(all.text.data + at, cut - at);
        add_piece(all.text.data + at, end - at);
        at = end;
    }
    add_script(0x4E00, 3000, (all.max - all.count) / 2);
    add_script(0x410, 64, all.max / 8);
    add_script(0x627, 36, all.max / 16);
    add_script(0x4E00, 9000, all.max);
    return grammar_vocab_create(&v, &tokens, &e) ? NULL : v;
}

void vocabulary_drop(struct grammar_vocab *v) {
    grammar_vocab_destroy(v);
    str_fini(&all.text);
    map_fini(&all.seen);
    free(all.list);
}
