// SPDX-License-Identifier: Apache-2.0
// HuggingFace folders on their way to GGUF: the parts of an input are the files of a folder and of
// a draft's target. What the converter writes can be opened, and its tokenizer is accepted or
// refused with a sentence; what it refuses leaves no files.
#include "fuzz.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "convert/convert.h"
#include "text/tokenizer/tokenizer.h"

static const struct {
    char letter;
    const char *name;
} files[] = {
    {'c', "config.json"},
    {'t', "tokenizer.json"},
    {'o', "tokenizer_config.json"},
    {'m', "model.safetensors"},
    {'g', "generation_config.json"},
    {'j', "chat_template.jinja"},
    {'p', "tokenizer.model"},
    {'a', "added_tokens.json"},
    {'x', "a.safetensors"},
    {'y', "b.safetensors"},
    {'i', "model.safetensors.index.json"},
    {'C', "target/config.json"},
    {'T', "target/tokenizer.json"},
    {'P', "target/tokenizer.model"},
};

void fuzz_setup(void) {
    fuzz_folder();
}

static bool open_written(const char *path) {
    struct gguf *g = NULL;
    struct tokenizer *t = NULL;
    struct err e = {0};
    int rc = gguf_open(&g, path, &e);
    fuzz_sentence(rc, &e);
    if (rc)
        return rc == ERR_MEMORY;
    if (gguf_find(g, "tokenizer.ggml.model"))
        fuzz_sentence(tokenizer_create(&t, g, &e), &e);
    tokenizer_destroy(t);
    gguf_close(g);
    return true;
}

// A part R chooses the recipe by the low five bits of its first byte, and what becomes of
// prediction blocks by the high two.
static void write_parts(const uint8_t *data, size_t size, struct convert_options *o) {
    struct fuzz_part part;
    o->recipe = convert_recipe("F16");
    while (fuzz_part(&data, &size, &part)) {
        if (part.letter == 'R' && part.size && convert_recipe_at(part.data[0] & 31))
            o->recipe = convert_recipe_at(part.data[0] & 31);
        if (part.letter == 'R' && part.size)
            o->mtp = (enum convert_mtp)((part.data[0] >> 6) % 3);
        for (size_t i = 0; i < sizeof files / sizeof *files; i++)
            if (files[i].letter == part.letter)
                fuzz_folder_write(files[i].name, part.data, part.size);
    }
}

void fuzz_one(const uint8_t *data, size_t size, bool fragile) {
    char out[PATH_MAX], target[PATH_MAX];
    struct err e = {0};
    const char *folder = fuzz_folder();
    if (!fuzz_has_parts(data, size))
        return;
    struct convert_options o = {.threads = 1};
    write_parts(data, size, &o);
    snprintf(out, sizeof out, "%s/out.gguf", folder);
    snprintf(target, sizeof target, "%s/target", folder);
    o.target_dir = access(target, F_OK) ? folder : target;
    int rc = convert_hf(folder, out, &o, &e);
    fuzz_result(rc, &e, fragile);
    FUZZ_CHECK(rc || (open_written(out) || fragile));
    FUZZ_CHECK(rc == 0 || access(out, F_OK) != 0);
    fuzz_folder_clear();
}
