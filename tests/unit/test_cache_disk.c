// SPDX-License-Identifier: Apache-2.0
// The thread of the cache's folder: jobs with a waiting request come before others, also in
// the middle of a file that is being written; and nothing that lies in the folder stops it.
#include "engine/cache/disk.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state/identity.h"
#include "support/wait.h"
#include "unit/test.h"

static const char identity[] = "of: this\n";

enum { PAGE = 1 << 20, PAGES = 12, TOKENS = PAGES * KV_PAGE };

static struct {
    struct cache_disk *disk;
    pthread_mutex_t gate; // the thread goes on while it is open
    char order[16];       // of jobs that have ended
} scene = {.gate = PTHREAD_MUTEX_INITIALIZER};

static void wake(void *arg) {
    (void)arg;
    pthread_mutex_lock(&scene.gate);
    pthread_mutex_unlock(&scene.gate);
}

static void open_disk(const char *dir) {
    struct cache_disk_options o = {.dir = dir, .wake = wake};
    struct err e = {0};
    assert_int_equal(cache_disk_open(&scene.disk, &o, &e), 0);
    assert_true(cache_disk_writes(scene.disk));
}

// A RAM copy of one group of pages, and its file.
static struct {
    struct ram_copy ram_copy;
    struct ram_copy_page pages[PAGES], *table[PAGES];
    int32_t tokens[TOKENS];
    unsigned char page[PAGE], form[4];
} made;

// Once: the disk's thread reads it.
static void make_ram_copy(void) {
    made.ram_copy = (struct ram_copy){
        .len = TOKENS, .n_groups = 1, .form = made.form, .form_bytes = sizeof made.form};
    made.ram_copy.groups[0] = (struct ram_copy_group){PAGE, TOKENS, 0, PAGES, made.table};
    for (int i = 0; i < PAGES; i++) {
        made.pages[i] = (struct ram_copy_page){.refs = 1, .bytes = PAGE, .data = made.page};
        made.table[i] = &made.pages[i];
    }
}

static struct record *make_file(uint64_t key) {
    struct record *f = calloc(1, sizeof *f);
    assert_non_null(f);
    assert_int_equal(record_of(f, identity, &made.ram_copy, NULL, 0, NULL), 0);
    f->key = key;
    f->tokens = made.tokens;
    return f;
}

static struct cache_job *job(enum cache_job_kind what, uint64_t key) {
    struct cache_job *j = calloc(1, sizeof *j);
    assert_non_null(j);
    *j = (struct cache_job){.what = what, .kind = identity_key(identity), .key = key};
    if (what == CACHE_WRITE) {
        j->file = make_file(key);
        j->ram_copy = &made.ram_copy;
    }
    return j;
}

static void end_jobs(void) {
    struct cache_job *j;
    size_t n = 0;
    cache_disk_wait(scene.disk);
    memset(scene.order, 0, sizeof scene.order);
    while ((j = cache_disk_ended(scene.disk))) {
        assert_int_equal(j->rc, 0);
        scene.order[n++] = "isWLRT"[j->what];
        if (j->file) {
            j->file->tokens = NULL;
            record_fini(j->file);
        }
        free(j->file);
        cache_scan_fini(&j->scan);
        free(j);
    }
}

static void close_disk(const char *dir) {
    char command[64];
    cache_disk_stop(scene.disk);
    cache_disk_close(scene.disk);
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

static void loads_come_before_writes(void **state) {
    (void)state;
    char dir[] = "/tmp/cache_disk.XXXXXX";
    assert_non_null(mkdtemp(dir));
    open_disk(dir);
    pthread_mutex_lock(&scene.gate);
    cache_disk_queue(scene.disk, job(CACHE_TOUCH, 1)); // it stops after this one
    WAIT_UNTIL(!cache_disk_waiting(scene.disk));
    cache_disk_queue(scene.disk, job(CACHE_WRITE, 2));
    cache_disk_queue(scene.disk, job(CACHE_WRITE, 3));
    cache_disk_queue(scene.disk, job(CACHE_LOAD, 4));
    cache_disk_queue(scene.disk, job(CACHE_REMOVE, 2));
    cache_disk_queue(scene.disk, job(CACHE_LOAD, 5));
    pthread_mutex_unlock(&scene.gate);
    end_jobs();
    assert_string_equal(scene.order, "TLLWWR");
    close_disk(dir);
}

// A pause of a write is where others come in between.
static int pauses;
static void count(void *arg) {
    (void)arg;
    pauses++;
}

static void a_write_is_in_pieces(void **state) {
    (void)state;
    const struct record_pause pause = {count, NULL};
    char dir[] = "/tmp/cache_disk.XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/file", dir);
    struct record *f = make_file(2);
    assert_int_equal(cache_file_write(f, &made.ram_copy, path, &pause, NULL), 0);
    assert_int_equal(pauses, 2 * PAGES); // for its sum and for itself
    f->tokens = NULL;
    record_fini(f);
    free(f);
    open_disk(dir);
    close_disk(dir);
}

static struct cache_found *found_key(struct cache_job *j, uint64_t key) {
    for (int64_t i = 0; i < j->scan.n; i++)
        if (j->scan.found[i].key == key)
            return &j->scan.found[i];
    return NULL;
}

static void name(char *path, const char *dir, int key) {
    snprintf(path, 96, "%s/%016llx-%016x.kvc", dir, (unsigned long long)identity_key(identity),
             (unsigned)key);
}

// Heads of a folder in which everything else has gone wrong: names that are swapped, times of a
// clock that was wrong, what is no file, what was left by others.
static void a_scan_ignores_damaged_and_foreign_files(void **state) {
    (void)state;
    static const struct timespec future[] = {{1 << 30, 0}, {INT64_C(1) << 33, 0}},
                                 past[] = {{0, 0}, {-1000000, 0}};
    char dir[] = "/tmp/cache_disk.XXXXXX", a[96], b[128];
    assert_non_null(mkdtemp(dir));
    open_disk(dir);
    for (int key = 2; key < 7; key++)
        cache_disk_queue(scene.disk, job(CACHE_WRITE, (uint64_t)key));
    end_jobs();
    name(a, dir, 2);
    assert_int_equal(utimensat(AT_FDCWD, a, future, 0), 0);
    name(a, dir, 3);
    assert_int_equal(utimensat(AT_FDCWD, a, past, 0), 0);
    name(a, dir, 4);
    name(b, dir, 5);
    assert_int_equal(rename(a, b), 0); // 5 says that it is 4
    assert_int_equal(mkfifo(a, 0600), 0);
    name(a, dir, 6);
    assert_int_equal(truncate(a, 100), 0);
    name(a, dir, 7);
    assert_int_equal(mkdir(a, 0700), 0);
    name(a, dir, 8);
    name(b, dir, 2);
    assert_int_equal(symlink(b, a), 0);
    name(a, dir, 3);
    snprintf(b, sizeof b, "%s.tmp.1.0", a);
    assert_int_equal(link(a, b), 0);
    struct cache_job *j = job(CACHE_SCAN, 0);
    cache_disk_queue(scene.disk, j);
    cache_disk_wait(scene.disk);
    assert_int_equal(j->scan.n, 4);
    assert_true(found_key(j, 2)->head && found_key(j, 2)->age == 0);
    assert_true(found_key(j, 3)->head && found_key(j, 3)->age > 0);
    assert_non_null(strstr(found_key(j, 5)->why, "the name of another file"));
    assert_non_null(strstr(found_key(j, 6)->why, "cut off"));
    assert_int_equal(access(b, F_OK), -1); // of a writer that was killed
    end_jobs();
    snprintf(b, sizeof b, "mv %s %s.away", dir, dir); // the folder vanishes
    assert_int_equal(system(b), 0);
    cache_disk_queue(scene.disk, j = job(CACHE_SCAN, 0));
    struct cache_job *w = job(CACHE_WRITE, 9), *l = job(CACHE_LOAD, 2);
    cache_disk_queue(scene.disk, w);
    l->loads = calloc(1, sizeof *l->loads);
    l->loads[0].key = 2;
    l->n_loads = 1;
    cache_disk_queue(scene.disk, l);
    cache_disk_wait(scene.disk);
    assert_int_equal(j->scan.n, 0);
    assert_int_equal(w->rc, ERR_IO);
    assert_int_equal(l->rc, ERR_IO);
    assert_int_equal(l->failed, 2);
    w->rc = l->rc = 0;
    free(l->loads);
    end_jobs();
    snprintf(b, sizeof b, "mv %s.away %s", dir, dir);
    assert_int_equal(system(b), 0);
    close_disk(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loads_come_before_writes),
        cmocka_unit_test(a_write_is_in_pieces),
        cmocka_unit_test(a_scan_ignores_damaged_and_foreign_files),
    };
    make_ram_copy();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
