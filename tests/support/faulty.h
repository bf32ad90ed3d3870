// SPDX-License-Identifier: Apache-2.0
// A backend that fails as a device does: one of its ops is left out, those after it run all the
// same, and the next exec_status reports it once. Between faulty_open and faulty_close the exec's
// table and status are replaced; one exec at a time.
#ifndef COPPICE_TESTS_SUPPORT_FAULTY_H
#define COPPICE_TESTS_SUPPORT_FAULTY_H

#include <stdbool.h>

#include "ops/ops.h"

// The n-th op from now on (0: the next one) is left out; n < 0: none.
void faulty_open(struct exec *x, int n);
void faulty_again(int n); // the same while it is open
void faulty_next(int n);  // the same, and a fault that has not been reported is still pending
// And until faulty_close each pass that has this token among its rows; -1: none.
void faulty_token(int32_t id);
void faulty_drafts(void);     // and each call of a draft's head
void faulty_uploads(int max); // and that many uploads, the next ones; not counted among the ops
int faulty_uploaded(void);    // that failed so far
// What exec_status returns instead of ERR_MEMORY, from then on where it is ERR_DEVICE.
void faulty_tells(int rc);
void faulty_holds(void (*wait)(void)); // called by the op that is left out, until faulty_close
int faulty_drafted(void);              // calls that failed for faulty_drafts
bool faulty_hit(void);                 // whether that op has come
void faulty_close(void);

#endif
