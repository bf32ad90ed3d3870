// SPDX-License-Identifier: Apache-2.0
// See device_choice.h. A GPU that was not requested by name is never a reason to fail: the CPU
// takes its place, with a sentence when there is a GPU that could have been used.
#include "ops/device_choice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int device_request_parse(struct device_request *r, const char *text, struct err *e) {
    *r = (struct device_request){.kind = DEVICE_AUTO, .index = -1};
    if (!text || !strcmp(text, "auto"))
        return 0;
    if (!strcmp(text, "cpu")) {
        r->kind = DEVICE_CPU;
        return 0;
    }
    r->kind = DEVICE_CUDA;
    if (!strcmp(text, "cuda"))
        return 0;
    if (!strncmp(text, "cuda:", 5)) {
        size_t digits = strspn(text + 5, "0123456789");
        if (digits > 0 && digits < 4 && text[5 + digits] == '\0') {
            r->index = atoi(text + 5);
            return 0;
        }
    }
    return err_set(e, ERR_USAGE, "there is no device \"%.40s\"; use auto, cpu, cuda or cuda:N",
                   text);
}

// The next word of a list of architectures; false at its end.
static bool next_arch(const char **at, int *arch, bool *special) {
    *at += strspn(*at, " ;");
    if (!**at)
        return false;
    char *end;
    *arch = (int)strtol(*at, &end, 10);
    *special = *end == 'a';
    *at = end + strcspn(end, " ;");
    return true;
}

// The newest of the built architectures whose kernels a GPU of this capability runs; 0: none.
static int newest_arch(const char *built, int sm) {
    int arch, newest = 0;
    bool special;
    while (next_arch(&built, &arch, &special))
        if ((special ? arch == sm : arch <= sm) && arch > newest)
            newest = arch;
    return newest;
}

bool device_runs(const char *built, int sm) {
    return newest_arch(built, sm) > 0;
}

bool device_has_special(const char *built, int sm) {
    int arch;
    bool special;
    while (next_arch(&built, &arch, &special))
        if (special && arch == sm)
            return true;
    return false;
}

const char *device_path_name(enum cuda_path path) {
    static const char *const names[] = {"small", "mma", "wgmma", "auto"};
    return names[path];
}

int device_path(enum cuda_path *out, enum cuda_path requested, const char *built, int sm,
                struct err *e) {
    enum cuda_path best = newest_arch(built, sm) >= 80 ? CUDA_PATH_MMA : CUDA_PATH_SMALL;
    if (sm == 90 && device_has_special(built, sm))
        best = CUDA_PATH_WGMMA;
    *out = requested == CUDA_PATH_AUTO ? best : requested;
    if (*out <= best)
        return 0;
    if (requested == CUDA_PATH_WGMMA ? sm == 90 : sm >= 80)
        return err_set(e, ERR_UNSUPPORTED,
                       "the path %s was not built into this program, whose kernels are for %.60s; "
                       "build it for this GPU or use --cuda-path auto",
                       device_path_name(requested), built);
    return err_set(e, ERR_UNSUPPORTED,
                   "a GPU of compute capability %d.%d has no path %s; use --cuda-path auto",
                   sm / 10, sm % 10, device_path_name(requested));
}

// A reason why something cannot be used, and what to do about it. Empty text: it can.
struct refusal {
    char text[224];
    const char *advice;
    bool worth_saying; // a GPU is there, or may be
};

static void check_device(struct refusal *why, const struct device_survey *s, int i) {
    int sm = s->devices[i].sm;
    *why = (struct refusal){.advice = "use --device cpu", .worth_saying = true};
    if (sm < DEVICE_OLDEST) {
        snprintf(why->text, sizeof why->text,
                 "GPU %d (%.63s) has compute capability %d.%d and %d.%d is the least needed", i,
                 s->devices[i].name, sm / 10, sm % 10, DEVICE_OLDEST / 10, DEVICE_OLDEST % 10);
    } else if (!device_runs(s->built, sm)) {
        why->advice = "build it with -DCMAKE_CUDA_ARCHITECTURES=native or use --device cpu";
        snprintf(why->text, sizeof why->text,
                 "this program has no kernels for GPU %d (%.40s, compute capability %d.%d), only "
                 "for %.60s",
                 i, s->devices[i].name, sm / 10, sm % 10, s->built);
    }
}

// The first usable GPU of first..last; else DEVICE_CPU_NUMBER and what is wrong with the first.
static int first_usable(struct refusal *why, const struct device_survey *s, int first, int last) {
    for (int i = first; i <= last; i++) {
        struct refusal one;
        check_device(&one, s, i);
        if (!one.text[0])
            return i;
        if (i == first)
            *why = one;
    }
    return DEVICE_CPU_NUMBER;
}

// Why there is no list of GPUs at all.
static void why_none(struct refusal *why, const struct device_survey *s) {
    *why = (struct refusal){.advice = "use --device cpu"};
    size_t size = sizeof why->text;
    if (s->runtime == RUNTIME_ABSENT) {
        why->advice = "build it with the preset cuda or use --device cpu";
        snprintf(why->text, size, "this program was built without CUDA");
    } else if (s->runtime == RUNTIME_OLD_DRIVER && s->driver > 0) {
        why->worth_saying = true;
        why->advice = "update the driver or use --device cpu";
        snprintf(
            why->text, size, "the NVIDIA driver supports CUDA %d.%d and this program needs %d.%d",
            s->driver / 1000, s->driver % 1000 / 10, s->version / 1000, s->version % 1000 / 10);
    } else if (s->runtime == RUNTIME_OLD_DRIVER) {
        why->advice = "install one or use --device cpu";
        snprintf(why->text, size, "there is no NVIDIA driver");
    } else if (s->runtime == RUNTIME_FAILED) {
        why->worth_saying = true;
        snprintf(why->text, size, "CUDA cannot start (%.120s)",
                 s->reason ? s->reason : "no reason");
    } else {
        snprintf(why->text, size, "there is no NVIDIA GPU here");
    }
}

int device_choose(struct device_choice *out, const struct device_request *r,
                  const struct device_survey *s, struct err *e) {
    *out = (struct device_choice){.device = DEVICE_CPU_NUMBER};
    if (r->kind == DEVICE_CPU)
        return 0;
    struct refusal why = {0};
    bool any = s->runtime == RUNTIME_READY && s->n > 0;
    if (any && r->index >= s->n)
        return err_set(e, ERR_DEVICE, "there is no GPU %d; the last of this machine is cuda:%d",
                       r->index, s->n - 1);
    if (!any)
        why_none(&why, s);
    else if (r->index >= 0)
        out->device = first_usable(&why, s, r->index, r->index);
    else
        out->device = first_usable(&why, s, 0, s->n - 1);
    if (out->device >= 0)
        return 0;
    if (r->kind == DEVICE_CUDA)
        return err_set(e, s->runtime == RUNTIME_ABSENT ? ERR_UNSUPPORTED : ERR_DEVICE, "%s; %s",
                       why.text, why.advice);
    if (why.worth_saying)
        snprintf(out->note, sizeof out->note, "%s; the CPU is used", why.text);
    return 0;
}
