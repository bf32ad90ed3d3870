// SPDX-License-Identifier: Apache-2.0
// Stands in for libFuzzer where clang is missing, and runs in every ctest: each seed of a folder,
// also with each of its allocations failing, then mutations of them from a fixed random stream, so
// that a failure repeats.
// Usage: PROGRAM FOLDER COUNT [ONE], where ONE runs only the mutation of that number;
// PROGRAM FILE runs that input with each of its allocations failing.
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/rng.h"
#include "fuzz.h"

enum { SEEDS_MAX = 1024, SEED_BYTES = 1 << 20, WALK = 250, WALK_ONE = 1 << 20 };

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct corpus {
    struct str seed[SEEDS_MAX];
    int count;
};

static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int corpus_load(struct corpus *c, const char *folder) {
    struct dirent **names;
    int n = scandir(folder, &names, NULL, by_name);
    for (int i = 0; i < n; i++) {
        char path[PATH_MAX];
        struct err e = {0};
        snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name);
        FUZZ_CHECK(c->count < SEEDS_MAX);
        if (names[i]->d_name[0] != '.' && file_read(&c->seed[c->count], path, SEED_BYTES, &e) == 0)
            c->count++;
        free(names[i]);
    }
    if (n >= 0)
        free(names);
    return c->count;
}

// One change at a random place.
static size_t mutate_once(struct rng *r, uint8_t *data, size_t n, const struct str *other) {
    static const uint64_t values[] = {
        0,          1,       0x7F,       0x80,       0xFF,
        0x7FFF,     0xFFFF,  0x7FFFFFFF, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF,
        UINT64_MAX, 1u << 30};
    size_t at = n ? rng_below(r, (uint32_t)n) : 0, width = (size_t)1 << rng_below(r, 4);
    uint64_t value = values[rng_below(r, sizeof values / sizeof *values)];
    switch (n ? rng_below(r, 7) : 6) {
    case 0:
        data[at] ^= (uint8_t)(1u << rng_below(r, 8));
        return n;
    case 1:
        data[at] = (uint8_t)rng_next(r);
        return n;
    case 2: // an integer that is often a bound
        width = width < n - at ? width : n - at;
        memcpy(data + at, &value, width);
        return n;
    case 3: // cut
        return at;
    case 4: // remove a piece
        width = width < n - at ? width : n - at;
        memmove(data + at, data + at + width, n - at - width);
        return n - width;
    case 5: // double a piece
        width = width < n - at ? width : n - at;
        memmove(data + at + width, data + at, n - at);
        return n + width;
    default: { // the tail of another seed
        size_t from = other->len ? rng_below(r, (uint32_t)other->len) : 0;
        if (other->len)
            memcpy(data + at, other->data + from, other->len - from);
        return at + other->len - from;
    }
    }
}

// Runs an input from memory of its own size, so that a read past the end is seen. walk: how many of
// its allocations fail, one after the other; 0: the one that the input chooses.
static size_t run_exact(const void *data, size_t n, size_t walk) {
    uint8_t *exact = malloc(n ? n : 1);
    size_t runs = 0;
    if (!exact)
        return 0;
    if (n)
        memcpy(exact, data, n);
    if (walk)
        runs = fuzz_walk(exact, n, walk);
    else
        LLVMFuzzerTestOneInput(exact, n);
    free(exact);
    return runs;
}

static int run_file(const char *path) {
    struct str bytes = {0};
    struct err e = {0};
    if (file_read(&bytes, path, SEED_BYTES, &e)) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    LLVMFuzzerInitialize(NULL, NULL);
    printf("%zu runs\n", run_exact(bytes.data, bytes.len, WALK_ONE));
    str_fini(&bytes);
    return 0;
}

static int run_mutation(const struct corpus *c, uint64_t number) {
    struct rng r = {rng_hash(number, 0, 0, 0)};
    const struct str *seed = &c->seed[rng_below(&r, (uint32_t)c->count)];
    uint8_t *data = malloc(2 * SEED_BYTES + 64);
    if (!data)
        return -1;
    size_t n = seed->len;
    memcpy(data, seed->data, n);
    for (uint32_t k = 1 + rng_below(&r, 6); k > 0 && n < SEED_BYTES; k--)
        n = mutate_once(&r, data, n, &c->seed[rng_below(&r, (uint32_t)c->count)]);
    run_exact(data, n, 0);
    free(data);
    return 0;
}

int main(int argc, char **argv) {
    static struct corpus c;
    if (argc == 2)
        return run_file(argv[1]);
    if (argc < 3 || corpus_load(&c, argv[1]) == 0) {
        fprintf(stderr, "usage: %s FOLDER COUNT [ONE], or %s FILE; the folder must hold seeds\n",
                argv[0], argv[0]);
        return 2;
    }
    LLVMFuzzerInitialize(NULL, NULL);
    uint64_t count = strtoull(argv[2], NULL, 10), one = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
    size_t runs = 0;
    for (int i = 0; i < c.count && argc == 3; i++)
        runs += run_exact(c.seed[i].data, c.seed[i].len, WALK);
    for (uint64_t i = argc > 3 ? one : 0; i < (argc > 3 ? one + 1 : count); i++)
        if (run_mutation(&c, i))
            return 1;
    printf("%d seeds in %zu runs and %llu mutations ran\n", c.count, runs,
           (unsigned long long)count);
    for (int i = 0; i < c.count; i++)
        str_fini(&c.seed[i]);
    return 0;
}
