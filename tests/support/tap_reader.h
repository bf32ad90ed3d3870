// SPDX-License-Identifier: Apache-2.0
// A reader of a model that draws no conclusions: for every committed position of a sequence it
// keeps a hash of the features that came with it, so that a test can say whether
// two sequences were told the same. It is an attachment like a draft's: cut, copied, saved and
// restored with its sequence.
#ifndef COPPICE_TESTS_SUPPORT_TAP_READER_H
#define COPPICE_TESTS_SUPPORT_TAP_READER_H

#include "models/model.h"

enum { TAP_LAYERS = 4 };

struct tap_reader {
    struct attachment_kind kind;
    struct model *m; // NULL: not attached
    int32_t layers[TAP_LAYERS];
    int n_layers;
    int64_t width;   // floats of a row: layers times D
    float *features; // [rows of a pass][width], on the device
    float *host;     // [the same]
};

// layers: as in struct model_reader, at most TAP_LAYERS. t stays where it is until
// tap_reader_close, which comes before the model's end and after its sequences' (a zeroed one is
// allowed).
int tap_reader_open(struct tap_reader *t, struct model *m, const char *name, const int32_t *layers,
                    int n_layers, struct err *e);
void tap_reader_close(struct tap_reader *t);

// Features of row `row` of the last pass: host, until the next call.
const float *tap_reader_row(struct tap_reader *t, int64_t row);

// Hashes of the committed positions of s: [sequence_len(s)], until s changes.
const uint64_t *tap_reader_seen(const struct tap_reader *t, const struct sequence *s);

#endif
