// SPDX-License-Identifier: Apache-2.0
// A folder for the files of one test, so that a test that is interrupted leaves nothing where it
// was started.
#ifndef COPPICE_TESTS_SUPPORT_TEMP_FOLDER_H
#define COPPICE_TESTS_SUPPORT_TEMP_FOLDER_H

#include "base/err.h"

// Makes a new folder below TMPDIR, or /tmp without one, and makes it the current one until the
// process ends, which removes it with all that it holds. Once in a process.
int temp_folder_enter(const char *test, struct err *e);

// Removes a folder with all that it holds, if it is there.
void temp_folder_remove(const char *path);

#endif
