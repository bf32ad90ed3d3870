// SPDX-License-Identifier: Apache-2.0
// Names of source tensors: the prefixes under which checkpoints have them, layers, and the blocks
// after the last layer that predict further tokens (multi-token prediction). Qwen3.5 keeps the only
// one under names of its own ("mtp.*"), the others number them on ("layers.N.*").
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "convert/plan.h"

enum { MAX_NEXTN = 16 };

static const char *const prefixes[] = {"model.language_model.", "language_model.model.",
                                       "language_model.", "model.", ""};
static const int prefix_count = (int)(sizeof prefixes / sizeof *prefixes);

const char *convert_prefix(int i) {
    return i < prefix_count ? prefixes[i] : NULL;
}

const char *convert_bare(const char *name) {
    for (int i = 0; i < prefix_count; i++)
        if (!strncmp(name, prefixes[i], strlen(prefixes[i])))
            return name + strlen(prefixes[i]);
    return name;
}

const char *convert_place(const struct convert_job *j, int layer, char buf[CONVERT_PLACE]) {
    bool apart = j->nextn > 0 && layer >= j->layers && convert_nextn_apart(j);
    *buf = 0;
    if (layer >= 0)
        snprintf(buf, CONVERT_PLACE, "%slayers.%d.", apart ? "mtp." : "",
                 apart ? layer - (int)j->layers : layer);
    return buf;
}

bool convert_nextn_apart(const struct convert_job *j) {
    return str_lists("qwen35 qwen35moe", j->arch, strlen(j->arch));
}

static bool go_on(const struct convert_job *j) {
    return str_lists("glm4moe deepseek2", j->arch, strlen(j->arch));
}

// The number of the prediction block that a tensor belongs to, -1: none.
static int64_t block_of(const struct convert_job *j, const char *name) {
    const char *at = convert_bare(name);
    if (convert_nextn_apart(j) && !strncmp(at, "mtp.", 4))
        return strncmp(at, "mtp.layers.", 11) != 0 ? 0 : strtoll(at + 11, NULL, 10);
    if (!go_on(j) || strncmp(at, "layers.", 7) != 0)
        return -1;
    int64_t block = strtoll(at + 7, NULL, 10) - j->layers;
    return block < 0 ? -1 : block;
}

bool convert_is_nextn(const struct convert_job *j, const char *name) {
    return block_of(j, name) >= 0;
}

static void note_other_count(const struct convert_job *j) {
    const char *key = convert_nextn_apart(j) ? "mtp_num_hidden_layers" : "num_nextn_predict_layers";
    int64_t said = json_int(hf_get(&j->config, key), 0);
    if (said != j->nextn && j->options->note)
        j->options->note("%s has %s %" PRId64 ", but the folder holds %" PRId64
                         " such blocks, which is what is written",
                         j->config.path, key, said, j->nextn);
}

int convert_count_nextn(struct convert_job *j, struct err *e) {
    size_t readable = safetensors_count(j->weights);
    j->nextn = 0;
    if (j->options->mtp == CONVERT_MTP_DROP)
        return 0;
    for (size_t i = 0; i < readable + safetensors_unreadable_count(j->weights); i++) {
        const char *name = i < readable ? safetensors_at(j->weights, i)->name
                                        : safetensors_unreadable_at(j->weights, i - readable);
        int64_t block = block_of(j, name);
        if (block >= (convert_nextn_apart(j) ? 1 : MAX_NEXTN))
            return err_set(e, ERR_UNSUPPORTED,
                           "%s holds the tensor '%.100s', of prediction block %" PRId64
                           ", and so many cannot be converted: leave them out with --no-mtp",
                           j->dir, name, block);
        if (block >= j->nextn)
            j->nextn = block + 1;
    }
    if (convert_nextn_apart(j) || go_on(j))
        note_other_count(j);
    return 0;
}
