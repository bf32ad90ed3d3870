// SPDX-License-Identifier: Apache-2.0
// What every unit test includes: cmocka with the headers it needs before it, and nothing else.
#ifndef COPPICE_TESTS_UNIT_TEST_H
#define COPPICE_TESTS_UNIT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#endif
