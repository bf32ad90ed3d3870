// SPDX-License-Identifier: Apache-2.0
// The text of a freeform tool out of the arguments that carry it, {"input": "..."}, as they come.
#ifndef COPPICE_TEXT_TOOLS_FREEFORM_H
#define COPPICE_TEXT_TOOLS_FREEFORM_H

#include <stdint.h>

#include "base/str.h"

enum freeform_state {
    FREEFORM_HEAD,   // before the text
    FREEFORM_TEXT,   // in it
    FREEFORM_ESCAPE, // behind a backslash
    FREEFORM_HEX,    // in the digits of one
    FREEFORM_DONE,   // behind the text
    FREEFORM_BAD,    // it is something else
};

// Zeroed is valid: nothing has come.
struct freeform {
    enum freeform_state state;
    int at, digits; // in the head, without blanks; of four
    uint32_t code;
    uint32_t high; // a first surrogate that waits for the second, or 0
};

// Appends to out what of the text is known behind s[n], in whole characters where s has them. A
// surrogate without its other half is U+FFFD.
void freeform_push(struct freeform *f, const char *s, size_t n, struct str *out);

#endif
