// SPDX-License-Identifier: Apache-2.0
// Files: mappings and reads give the bytes; what cannot be read gives a sentence with the path.
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

static char folder[] = "/tmp/coppice-file-XXXXXX";

static int make_folder(void **state) {
    (void)state;
    return mkdtemp(folder) ? chdir(folder) : -1;
}

static int drop_folder(void **state) {
    (void)state;
    unlink("data");
    unlink("empty");
    return rmdir(folder);
}

static void write_file(const char *path, const char *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void a_mapping_shows_the_bytes(void **state) {
    (void)state;
    write_file("data", "a\0b\n", 4);
    write_file("empty", "", 0);
    struct file_map m = {0};
    struct err e = {0};
    assert_int_equal(file_map_open(&m, "data", &e), 0);
    assert_int_equal(m.size, 4);
    assert_memory_equal(m.data, "a\0b\n", 4);
    file_map_close(&m);
    assert_null(m.data);
    assert_int_equal(file_map_open(&m, "empty", &e), 0);
    assert_int_equal(m.size, 0);
    assert_non_null(m.data);
    file_map_close(&m);
}

static void reads_obey_the_limit(void **state) {
    (void)state;
    struct str s = {0};
    struct err e = {0};
    write_file("data", "12345", 5);
    assert_int_equal(file_read(&s, "data", 5, &e), 0);
    assert_string_equal(s.data, "12345");
    str_clear(&s);
    assert_int_equal(file_read(&s, "data", 4, &e), ERR_LIMIT);
    assert_non_null(strstr(e.text, "'data'"));
    write_file("empty", "", 0);
    str_fini(&s);
    assert_int_equal(file_read(&s, "empty", 0, &e), 0);
    assert_string_equal(s.data, "");
    str_fini(&s);
}

static void standard_input_is_a_dash(void **state) {
    (void)state;
    struct str s = {0};
    struct err e = {0};
    int ends[2], saved = dup(STDIN_FILENO);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "piped", 5), 5);
    close(ends[1]);
    assert_int_equal(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
    assert_int_equal(file_read(&s, "-", 100, &e), 0);
    assert_string_equal(s.data, "piped");
    dup2(saved, STDIN_FILENO);
    close(saved);
    close(ends[0]);
    str_fini(&s);
}

static void errors_name_the_path(void **state) {
    (void)state;
    struct file_map m = {0};
    struct str s = {0};
    struct err e = {0};
    assert_int_equal(file_map_open(&m, "missing", &e), ERR_IO);
    assert_string_equal(e.text, "cannot open 'missing': No such file or directory; check the path");
    assert_int_equal(file_map_open(&m, folder, &e), ERR_IO);
    assert_non_null(strstr(e.text, "is a folder"));
    assert_int_equal(file_read(&s, folder, 10, &e), ERR_IO);
    assert_non_null(strstr(e.text, folder));
    str_fini(&s);
}

// Opens a file that must not be this user's own, and says why.
static void refuses(const char *path, const char *why) {
    struct err e = {0};
    assert_int_equal(file_open_own(path, &e), -1);
    assert_int_equal(e.code, ERR_IO);
    assert_non_null(strstr(e.text, path));
    assert_non_null(strstr(e.text, why));
}

static void only_own_files_are_opened_as_such(void **state) {
    (void)state;
    struct stat info;
    write_file("data", "12345", 5);
    assert_int_equal(chmod("data", 0644), 0);
    int fd = file_open_own("data", NULL);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(stat("data", &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600); // others could read it
    assert_int_equal(chmod("data", 0660), 0);
    refuses("data", "other users may write to it");
    assert_int_equal(chmod("data", 0600), 0);
    if (geteuid() == 0) {
        assert_int_equal(chown("data", 12345, (gid_t)-1), 0);
        refuses("data", "another user's");
    }
    assert_int_equal(symlink("data", "link"), 0);
    assert_int_equal(mkfifo("pipe", 0600), 0);
    refuses("link", "cannot open");
    refuses("pipe", "not a regular file"); // at once, though no process writes there
    refuses(".", "not a regular file");
    refuses("none", "cannot open");
    unlink("link");
    unlink("pipe");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mapping_shows_the_bytes),         cmocka_unit_test(reads_obey_the_limit),
        cmocka_unit_test(standard_input_is_a_dash),          cmocka_unit_test(errors_name_the_path),
        cmocka_unit_test(only_own_files_are_opened_as_such),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
