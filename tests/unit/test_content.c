// SPDX-License-Identifier: Apache-2.0
// The content hash of model files: the same for copies, another one for other metadata, shapes and
// data, in whole tensors and in the pieces that are looked at of large ones; that of all bytes, and
// how it is remembered.
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "formats/content.h"
#include "formats/quant/quant.h"
#include "support/wait.h"
#include "unit/test.h"

enum { LARGE = 40000, SMALL = 100 }; // floats

struct file {
    const char *name;           // metadata
    int64_t rows;               // of the large tensor
    int64_t at_large, at_small; // a value that is changed; -1: none
};

static uint64_t hash_of(const struct file *f) {
    char path[64];
    struct gguf_writer *w;
    struct gguf *g;
    float *large = calloc(LARGE, sizeof *large), small[SMALL] = {0};
    int64_t ne[2] = {LARGE / f->rows, f->rows}, one[1] = {SMALL};
    assert_non_null(large);
    if (f->at_large >= 0)
        large[f->at_large] = 1;
    if (f->at_small >= 0)
        small[f->at_small] = 1;
    snprintf(path, sizeof path, "/tmp/coppice-content-%d.gguf", (int)getpid());
    assert_int_equal(gguf_writer_open(&w, path, NULL), 0);
    gguf_put_str(w, "general.name", f->name, strlen(f->name));
    const char *words[] = {"a", "bc"};
    const size_t lengths[] = {1, 2};
    gguf_put_str_array(w, "words", words, lengths, 2);
    gguf_add_tensor(w, "large", TYPE_F32, 2, ne);
    gguf_add_tensor(w, "small", TYPE_F32, 1, one);
    assert_int_equal(gguf_write_data(w, large, LARGE * sizeof *large, NULL), 0);
    assert_int_equal(gguf_write_data(w, small, sizeof small, NULL), 0);
    assert_int_equal(gguf_writer_close(w, NULL), 0);
    assert_int_equal(gguf_open(&g, path, NULL), 0);
    uint64_t h = content_sketch(g);
    gguf_close(g);
    unlink(path);
    free(large);
    return h;
}

static void distinguishes_files(void **state) {
    (void)state;
    static const struct file files[] = {
        {"model", 100, -1, -1}, {"mode", 100, -1, -1},         {"model", 200, -1, -1},
        {"model", 100, 0, -1},  {"model", 100, LARGE - 1, -1}, {"model", 100, LARGE - 1024, -1},
        {"model", 100, -1, 0},  {"model", 100, -1, SMALL - 1},
    };
    enum { FILES = sizeof files / sizeof *files };
    uint64_t h[FILES];
    for (int i = 0; i < FILES; i++) {
        h[i] = hash_of(&files[i]);
        assert_true(h[i] == hash_of(&files[i]));
        for (int j = 0; j < i; j++)
            assert_true(h[i] != h[j]);
    }
}

// A model of one tensor of five pieces and a bit; opened.
static struct gguf *open_large(const char *path, int64_t changed) {
    enum { ROW = 1 << 20, ROWS = 5 };
    struct gguf_writer *w;
    struct gguf *g;
    int64_t ne[2] = {ROW, ROWS}, one[1] = {SMALL};
    float *large = calloc(ROW * ROWS, sizeof *large), small[SMALL] = {0};
    assert_non_null(large);
    if (changed >= 0)
        large[changed] = 1;
    assert_int_equal(gguf_writer_open(&w, path, NULL), 0);
    gguf_add_tensor(w, "large", TYPE_F32, 2, ne);
    gguf_add_tensor(w, "small", TYPE_F32, 1, one);
    assert_int_equal(gguf_write_data(w, large, ROW * ROWS * sizeof *large, NULL), 0);
    assert_int_equal(gguf_write_data(w, small, sizeof small, NULL), 0);
    assert_int_equal(gguf_writer_close(w, NULL), 0);
    free(large);
    assert_int_equal(gguf_open(&g, path, NULL), 0);
    return g;
}

static bool stop_third(void *arg) {
    int *called = arg;
    return ++*called == 3;
}

static void every_byte_counts(void **state) {
    (void)state;
    char path[64];
    uint64_t first = 0;
    snprintf(path, sizeof path, "/tmp/coppice-content-%d.gguf", (int)getpid());
    for (int64_t at = -1; at < 5 << 20; at += 777777) {
        struct gguf *g = open_large(path, at);
        uint64_t one = content_whole(g, 1, NULL), several = content_whole(g, 3, NULL);
        int called = 0;
        const struct content_stop stop = {stop_third, &called};
        assert_true(one && one == several);
        assert_true(at < 0 || one != first);
        first = at < 0 ? one : first;
        assert_int_equal(content_whole(g, 1, &stop), 0);
        assert_int_equal(called, 3);
        gguf_close(g);
        unlink(path);
    }
}

struct seen {
    pthread_t caller;
    int called, last; // nice values of the callers
};

static bool see(void *arg) {
    struct seen *s = arg;
    assert_false(pthread_equal(pthread_self(), s->caller));
    s->last = getpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid));
    return ++s->called == 0;
}

// A server hashes its model during its first requests.
static void background_reads_have_the_lowest_priority(void **state) {
    (void)state;
    char path[64];
    struct seen s = {.caller = pthread_self(), .last = 1000};
    const struct content_stop stop = {see, &s};
    int mine = getpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid));
    snprintf(path, sizeof path, "/tmp/coppice-content-%d.gguf", (int)getpid());
    struct gguf *g = open_large(path, -1);
    assert_true(content_whole_aside(g, &stop) == content_whole(g, 1, NULL));
    assert_true(s.called > 3);
    assert_int_equal(s.last, 19);
    assert_int_equal(getpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid)), mine);
    gguf_close(g);
    unlink(path);
}

// What is remembered is of the file as it is, not of another one that looks like it.
static void is_remembered_until_the_file_is_touched(void **state) {
    (void)state;
    char folder[] = "/tmp/coppice-content-XXXXXX", models[48], path[64], command[64];
    struct stat info, untouched;
    uint64_t content = 0;
    assert_non_null(mkdtemp(folder));
    snprintf(models, sizeof models, "%s/models", folder);
    assert_int_equal(mkdir(models, 0700), 0);
    snprintf(path, sizeof path, "%s/m.gguf", models);
    struct gguf *g = open_large(path, -1);
    assert_int_equal(chmod(models, 0500), 0); // as a folder that cannot be written
    assert_int_equal(stat(models, &untouched), 0);
    content_remember(g, folder, 5);
    assert_false(content_known(g, folder, &content)); // it was written this second
    WAIT_UNTIL(content_known(g, folder, &content) || (content_remember(g, folder, 5), false));
    assert_int_equal(content, 5);
    gguf_close(g);
    assert_int_equal(gguf_open(&g, path, NULL), 0);
    assert_true(content_known(g, folder, &content));
    assert_int_equal(stat(path, &info), 0);
    const struct timespec times[] = {info.st_atim, info.st_mtim};
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, 10 << 20, SEEK_SET), 0);
    assert_int_equal(fputc(1, f), 1);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0); // size and time are as before
    WAIT_UNTIL(content_known(g, folder, &content) || (content_remember(g, folder, 6), false));
    assert_int_equal(content, 6);
    gguf_close(g);
    assert_int_equal(stat(models, &info), 0); // nothing has come or gone beside the model
    assert_memory_equal(&info.st_mtim, &untouched.st_mtim, sizeof info.st_mtim);
    assert_int_equal(chmod(models, 0700), 0);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

static int count_sums(const char *folder) {
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *f; (f = readdir(d));)
        n += strstr(f->d_name, ".sum") != NULL;
    closedir(d);
    return n;
}

// Models come and go: what is remembered of them is bounded, and what was requested last stays.
static void files_of_old_models_are_removed(void **state) {
    (void)state;
    enum { LIMIT = 64 };
    char folder[] = "/tmp/coppice-content-XXXXXX", path[96], command[64];
    const struct timespec old[] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    uint64_t content = 0;
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < LIMIT + 10; i++) {
        // Five have been left by a process that was killed.
        snprintf(path, sizeof path, "%s/%016x.sum%s", folder, (unsigned)i, i < 5 ? ".tmp.1.0" : "");
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fclose(f);
        assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    }
    snprintf(path, sizeof path, "%s/m.gguf", folder);
    struct gguf *g = open_large(path, -1);
    WAIT_UNTIL(content_known(g, folder, &content) || (content_remember(g, folder, 5), false));
    assert_int_equal(count_sums(folder), LIMIT);
    assert_true(content_known(g, folder, &content));
    gguf_close(g);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distinguishes_files),
        cmocka_unit_test(every_byte_counts),
        cmocka_unit_test(background_reads_have_the_lowest_priority),
        cmocka_unit_test(is_remembered_until_the_file_is_touched),
        cmocka_unit_test(files_of_old_models_are_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
