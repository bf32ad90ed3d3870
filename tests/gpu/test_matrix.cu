// SPDX-License-Identifier: Apache-2.0
// The instructions of src/ops/gpu/matrix against their plain versions: the same words of every
// function, exact but for those that are near by contract. What a GPU lacks is left out of both.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/matrix_cases.cuh"

static struct case_arrays make_arrays(void) {
    struct case_arrays a;
    static __half halves[8192];
    for (int i = 0; i < 8192; i++)
        halves[i] = __float2half_rn((float)((i * 37 + i / 64 * 11) % 9 - 4));
    cudaMalloc(&a.in, sizeof halves);
    cudaMalloc(&a.global, sizeof(uint32_t) * 2 * CASE_THREADS);
    cudaMalloc(&a.out, sizeof(uint32_t) * CASE_WORDS * CASE_THREADS);
    cudaMalloc(&a.stored, 64 * 128 * 2);
    cudaMalloc(&a.near, sizeof(float) * 2 * CASE_NEAR);
    cudaMemcpy(a.in, halves, sizeof halves, cudaMemcpyHostToDevice);
    cudaMemset(a.out, 0, sizeof(uint32_t) * CASE_WORDS * CASE_THREADS);
    cudaMemset(a.stored, 0, 64 * 128 * 2);
    return a;
}

// Both versions' maps are those of matrix_plain.cu.
static bool make_maps(const struct case_arrays *a, struct case_maps *maps) {
    void *maker = gpu_map_maker();
    const cuuint64_t size3[3] = {64, 60, 2}, step3[2] = {256, 128};
    const cuuint32_t box3[3] = {64, 16, 1};
    const cuuint64_t size5[5] = {64, 30, 2, 1, 2}, step5[4] = {256, 128, 256, 7680};
    const cuuint32_t box5[5] = {64, 8, 1, 1, 2};
    memset(maps, 0, sizeof *maps);
    return gpu_make_map(maker, &maps->two, a->in, 128, 60, 64, 16) == GPU_OK &&
           gpu_make_map(maker, &maps->to, a->stored, 128, 64, 64, 16) == GPU_OK &&
           gpu_make_map_of(maker, &maps->three, a->in, 3, size3, step3, box3) == GPU_OK &&
           gpu_make_map_of(maker, &maps->five, a->in, 5, size5, step5, box5) == GPU_OK;
}

// Words that differ; prints where the first does.
static int compare(const char *what, const void *x, const void *y, size_t words) {
    uint32_t *a = (uint32_t *)malloc(words * 4), *b = (uint32_t *)malloc(words * 4);
    int differ = 0, written = 0;
    cudaMemcpy(a, x, words * 4, cudaMemcpyDeviceToHost);
    cudaMemcpy(b, y, words * 4, cudaMemcpyDeviceToHost);
    for (size_t i = 0; i < words; i++) {
        written += a[i] != 0;
        if (a[i] != b[i] && differ++ == 0)
            printf("FAIL   %s: result %zu of thread %zu is %08x, plainly %08x\n", what,
                   i / CASE_THREADS, i % CASE_THREADS, a[i], b[i]);
    }
    free(a);
    free(b);
    printf("%-12s %d words that are not 0, %d differ\n", what, written, differ);
    return differ != 0 || written == 0;
}

// Results that are near by contract: in units of 2^-23 of themselves, at most `ulps` apart.
static int compare_near(const float *x, const float *y, float ulps) {
    static float a[2 * CASE_NEAR], b[2 * CASE_NEAR];
    float max = 0;
    cudaMemcpy(a, x, sizeof a, cudaMemcpyDeviceToHost);
    cudaMemcpy(b, y, sizeof b, cudaMemcpyDeviceToHost);
    for (int i = 0; i < 2 * CASE_NEAR; i++)
        max = fmaxf(max, fabsf(a[i] - b[i]) / (fabsf(b[i]) * 1.1920929e-7f));
    printf("near         %d values, at most %.2f ulp apart\n", 2 * CASE_NEAR, (double)max);
    return !(max <= ulps);
}

int main(void) {
    struct case_maps maps;
    cudaDeviceProp p;
    if (cudaGetDeviceProperties(&p, 0) != cudaSuccess) {
        printf("no usable GPU\n0 passed, 1 failed\n");
        return 1;
    }
    const struct case_arrays a = make_arrays(), b = make_arrays();
    if (!make_maps(&a, &maps) && p.major == 9) {
        printf("no maps for the copy engine\n0 passed, 1 failed\n");
        return 1;
    }
    start_cases(a, maps);
    run_plain_cases(&b);
    const gpu_error code = cudaDeviceSynchronize();
    if (code != GPU_OK) {
        printf("the device failed: %s\n0 passed, 1 failed\n", gpu_error_text(code));
        return 1;
    }
    int failed = compare("functions", a.out, b.out, CASE_WORDS * CASE_THREADS);
    if (p.major == 9)
        failed += compare("stored tile", a.stored, b.stored, 64 * 128 / 2);
    failed += compare_near(a.near, b.near, 3);
    const int all = p.major == 9 ? 3 : 2;
    printf("%d passed, %d failed\n", all - failed, failed);
    return failed != 0;
}
