// SPDX-License-Identifier: Apache-2.0
// Choosing a device: every kind of machine, good and bad, gives the right device, sentence or
// error; a GPU that nobody requested by name is never a reason to fail.
#include "test.h"

#include <stdio.h>

#include "ops/device_choice.h"

static struct device_request request(const char *text) {
    struct device_request r;
    struct err e = {0};
    assert_int_equal(device_request_parse(&r, text, &e), 0);
    return r;
}

// A machine with GPUs of these capabilities (0 ends) and kernels for `built`.
static struct device_survey machine(const char *built, const int *sm) {
    struct device_survey s = {
        .runtime = RUNTIME_READY, .driver = 13000, .version = 13000, .built = built};
    for (; sm[s.n]; s.n++) {
        s.devices[s.n].sm = sm[s.n];
        snprintf(s.devices[s.n].name, sizeof s.devices[s.n].name, "Card %d", s.n);
    }
    return s;
}

static void parses_requests(void **state) {
    (void)state;
    struct device_request r;
    struct err e = {0};
    assert_int_equal(request(NULL).kind, DEVICE_AUTO);
    assert_int_equal(request("auto").kind, DEVICE_AUTO);
    assert_int_equal(request("cpu").kind, DEVICE_CPU);
    assert_int_equal(request("cuda").index, -1);
    assert_int_equal(request("cuda:0").index, 0);
    assert_int_equal(request("cuda:12").index, 12);
    static const char *const wrong[] = {"",        "gpu",  "cuda:",     "cuda:x", "cuda:-1",
                                        "cuda:1x", "CUDA", "cuda:1234", "cuda0"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        e = (struct err){0};
        assert_int_equal(device_request_parse(&r, wrong[i], &e), ERR_USAGE);
        assert_non_null(strstr(e.text, wrong[i]));
    }
}

static void kernels_run_where_they_can(void **state) {
    (void)state;
    assert_true(device_runs("90a", 90));
    assert_false(device_runs("90a", 80));
    assert_false(device_runs("90a", 100)); // "a" is for that one only
    assert_true(device_runs("80", 90));
    assert_false(device_runs("80", 75));
    assert_true(device_runs("75 80 86 89 90a 120", 121));
    assert_true(device_runs("120 75", 86));
    assert_false(device_runs("", 90));
    assert_true(device_has_special("80 90a", 90));
    assert_false(device_has_special("80 90", 90));
}

static void takes_the_first_usable_gpu(void **state) {
    (void)state;
    struct device_choice c;
    struct err e = {0};
    const int sm[] = {70, 80, 90, 0};
    struct device_survey s = machine("80 90a", sm);
    struct device_request automatic = request("auto"), cpu = request("cpu"),
                          third = request("cuda:2"), first = request("cuda:0"),
                          fourth = request("cuda:3");
    assert_int_equal(device_choose(&c, &automatic, &s, &e), 0);
    assert_int_equal(c.device, 1);
    assert_string_equal(c.note, "");
    assert_int_equal(device_choose(&c, &cpu, &s, &e), 0);
    assert_int_equal(c.device, DEVICE_CPU_NUMBER);
    assert_string_equal(c.note, "");
    assert_int_equal(device_choose(&c, &third, &s, &e), 0);
    assert_int_equal(c.device, 2);
    assert_int_equal(device_choose(&c, &first, &s, &e), ERR_DEVICE);
    assert_non_null(strstr(e.text, "compute capability 7.0"));
    assert_int_equal(device_choose(&c, &fourth, &s, &e), ERR_DEVICE);
    assert_non_null(strstr(e.text, "no GPU 3"));
}

// One bad machine: what auto says (NULL: nothing), and what the error of "cuda" holds.
struct bad {
    struct device_survey s;
    const char *note, *error;
    int code;
};

static void falls_back_or_refuses(void **state) {
    (void)state;
    const int none[] = {0}, old[] = {61, 0}, other[] = {80, 0};
    const struct bad cases[] = {
        {{.runtime = RUNTIME_ABSENT}, NULL, "built without CUDA", ERR_UNSUPPORTED},
        {{.runtime = RUNTIME_NO_DEVICE}, NULL, "no NVIDIA GPU", ERR_DEVICE},
        {machine("90a", none), NULL, "no NVIDIA GPU", ERR_DEVICE},
        {{.runtime = RUNTIME_OLD_DRIVER, .version = 13000}, NULL, "no NVIDIA driver", ERR_DEVICE},
        {{.runtime = RUNTIME_OLD_DRIVER, .driver = 12020, .version = 13000},
         "supports CUDA 12.2",
         "needs 13.0; update the driver",
         ERR_DEVICE},
        {{.runtime = RUNTIME_FAILED, .reason = "system not yet initialized"},
         "system not yet initialized",
         "CUDA cannot start",
         ERR_DEVICE},
        {machine("75 80 90a", old), "7.5 is the least", "capability 6.1", ERR_DEVICE},
        {machine("90a", other), "only for 90a", "CMAKE_CUDA_ARCHITECTURES=native", ERR_DEVICE},
    };
    struct device_request automatic = request("auto"), cuda = request("cuda"), cpu = request("cpu");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct device_choice c;
        struct err e = {0};
        assert_int_equal(device_choose(&c, &cpu, &cases[i].s, &e), 0);
        assert_string_equal(c.note, "");
        assert_int_equal(device_choose(&c, &automatic, &cases[i].s, &e), 0);
        assert_int_equal(c.device, DEVICE_CPU_NUMBER);
        if (cases[i].note)
            assert_non_null(strstr(c.note, cases[i].note));
        else
            assert_string_equal(c.note, "");
        assert_int_equal(device_choose(&c, &cuda, &cases[i].s, &e), cases[i].code);
        assert_non_null(strstr(e.text, cases[i].error));
        assert_int_equal(c.device, DEVICE_CPU_NUMBER);
    }
}

static int path(enum cuda_path want, const char *built, int sm) {
    enum cuda_path p;
    struct err e = {0};
    int rc = device_path(&p, want, built, sm, &e);
    assert_true(rc == 0 || strstr(e.text, device_path_name(want)));
    return rc ? rc : (int)p;
}

static void picks_a_path(void **state) {
    (void)state;
    assert_int_equal(path(CUDA_PATH_AUTO, "90a", 90), CUDA_PATH_WGMMA);
    assert_int_equal(path(CUDA_PATH_AUTO, "80", 90), CUDA_PATH_MMA); // kernels without wgmma
    assert_int_equal(path(CUDA_PATH_AUTO, "80 90a", 89), CUDA_PATH_MMA);
    assert_int_equal(path(CUDA_PATH_AUTO, "120", 120), CUDA_PATH_MMA);
    assert_int_equal(path(CUDA_PATH_AUTO, "75", 75), CUDA_PATH_SMALL);
    assert_int_equal(path(CUDA_PATH_AUTO, "75", 86), CUDA_PATH_SMALL); // older kernels only
    assert_int_equal(path(CUDA_PATH_MMA, "75", 86), ERR_UNSUPPORTED);
    assert_int_equal(path(CUDA_PATH_SMALL, "90a", 90), CUDA_PATH_SMALL);
    assert_int_equal(path(CUDA_PATH_MMA, "90a", 90), CUDA_PATH_MMA);
    assert_int_equal(path(CUDA_PATH_MMA, "75", 75), ERR_UNSUPPORTED);
    assert_int_equal(path(CUDA_PATH_WGMMA, "80", 90), ERR_UNSUPPORTED);
    assert_int_equal(path(CUDA_PATH_WGMMA, "80 90a 120", 120), ERR_UNSUPPORTED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parses_requests),
        cmocka_unit_test(kernels_run_where_they_can),
        cmocka_unit_test(takes_the_first_usable_gpu),
        cmocka_unit_test(falls_back_or_refuses),
        cmocka_unit_test(picks_a_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
