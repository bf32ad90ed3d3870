// SPDX-License-Identifier: Apache-2.0
// Files that appear whole: the name has the old content until the new one is complete, and nothing
// else is left in the folder.
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "unit/test.h"

static int count_files(const char *folder) {
    DIR *d = opendir(folder);
    int n = 0;
    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2; // . and ..
}

static void holds(const char *path, const char *want) {
    char text[16] = {0};
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(text, 1, 15, f), strlen(want));
    assert_string_equal(text, want);
    fclose(f);
}

static void old_or_whole(void **state) {
    (void)state;
    char folder[] = "/tmp/coppice-file-XXXXXX", path[64];
    struct file_new f, other;
    mode_t mask = umask(0);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/a", folder);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(file_new_open(&f, path, NULL), 0);
        assert_int_equal(file_new_open(&other, path, NULL), 0); // a second one at once
        assert_int_equal(file_new_write(&f, i ? "new" : "old", 3, NULL), 0);
        assert_int_equal(file_new_write(&other, "none", 4, NULL), 0);
        assert_int_equal(access(path, F_OK), i ? 0 : -1);
        if (i)
            holds(path, i == 1 ? "old" : "new");
        file_new_abort(&other);
        assert_int_equal(file_new_close(&f, NULL), 0);
        holds(path, i ? "new" : "old");
        struct stat info;
        assert_int_equal(stat(path, &info), 0);
        assert_int_equal(info.st_mode & 0777, 0600); // whatever the umask says
        assert_int_equal(count_files(folder), 1);
    }
    unlink(path);
    rmdir(folder);
    umask(mask);
}

static void a_link_is_replaced(void **state) {
    (void)state;
    char folder[] = "/tmp/coppice-file-XXXXXX", path[64], other[64];
    struct file_new f;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/a", folder);
    snprintf(other, sizeof other, "%s/b", folder);
    assert_int_equal(file_new_open(&f, other, NULL), 0);
    assert_int_equal(file_new_write(&f, "other", 5, NULL), 0);
    assert_int_equal(file_new_close(&f, NULL), 0);
    assert_int_equal(symlink(other, path), 0);
    assert_int_equal(file_new_open(&f, path, NULL), 0);
    assert_int_equal(file_new_write(&f, "own", 3, NULL), 0);
    assert_int_equal(file_new_close(&f, NULL), 0);
    holds(path, "own");
    holds(other, "other");
    unlink(path);
    unlink(other);
    rmdir(folder);
}

static void says_what_cannot_be(void **state) {
    (void)state;
    struct err e = {0};
    struct file_new f;
    char folder[] = "/tmp/coppice-file-XXXXXX";
    assert_int_equal(file_new_open(&f, "/no/such/folder/a", &e), ERR_IO);
    assert_non_null(strstr(e.text, "/no/such/folder/a cannot be created"));
    assert_non_null(mkdtemp(folder));
    assert_int_equal(file_new_open(&f, folder, &e), 0); // the name of a folder
    assert_int_equal(file_new_close(&f, &e), ERR_IO);
    assert_non_null(strstr(e.text, "cannot be written"));
    assert_int_equal(count_files(folder), 0);
    rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(old_or_whole),
        cmocka_unit_test(a_link_is_replaced),
        cmocka_unit_test(says_what_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
