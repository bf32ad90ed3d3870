// SPDX-License-Identifier: Apache-2.0
// The JSON files of a HuggingFace folder, config.json and its neighbours, shared by the files of
// convert only.
#ifndef COPPICE_CONVERT_CONFIG_H
#define COPPICE_CONVERT_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json/json.h"

// A parsed JSON file of a folder. Zeroed is valid; `root` is NULL when the file is absent.
struct hf_file {
    char *path;
    struct json *root;
    const struct json *text; // the object that holds the language model's configuration
};
int hf_read(struct hf_file *f, const char *dir, const char *name, bool required, struct err *e);
void hf_close(struct hf_file *f);

// The member `key`, possibly "outer.inner", of f->text, else of the root; NULL when absent or null.
const struct json *hf_get(const struct hf_file *f, const char *key);
// An integer in lo..hi. A missing one gives `otherwise`, or an error when that is outside lo..hi.
int hf_int(const struct hf_file *f, const char *key, int64_t lo, int64_t hi, int64_t otherwise,
           int64_t *out, struct err *e);
// The same for a list of keys, in order, until one fails.
struct hf_number {
    const char *key;
    int64_t lo, hi, otherwise;
    int64_t *to;
    const int64_t *max; // read by then, in place of hi; NULL: hi
};
int hf_ints(const struct hf_file *f, const struct hf_number *rows, size_t n, struct err *e);
// A positive finite number; otherwise <= 0 makes it required.
int hf_float(const struct hf_file *f, const char *key, double otherwise, double *out,
             struct err *e);
// Whether a value is that text.
bool hf_is(const struct json *v, const char *text);
bool hf_string_is(const struct hf_file *f, const char *key, const char *value);
// ERR_UNSUPPORTED when the model names another activation than SiLU.
int hf_check_silu(const struct hf_file *f, struct err *e);

#endif
