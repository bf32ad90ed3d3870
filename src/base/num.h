// SPDX-License-Identifier: Apache-2.0
// Small arithmetic of integers: the lesser and the greater of two, a value kept between two bounds,
// digits, division and rounding upwards.
#ifndef COPPICE_BASE_NUM_H
#define COPPICE_BASE_NUM_H

#include <stddef.h>
#include <stdint.h>

static inline int32_t min_i32(int32_t a, int32_t b) {
    return a < b ? a : b;
}

static inline int32_t max_i32(int32_t a, int32_t b) {
    return a > b ? a : b;
}

static inline int64_t min_i64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline int64_t max_i64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static inline size_t min_size(size_t a, size_t b) {
    return a < b ? a : b;
}

static inline size_t max_size(size_t a, size_t b) {
    return a > b ? a : b;
}

// v, or the bound that it lies beyond; low <= high.
static inline int32_t clamp_i32(int32_t v, int32_t low, int32_t high) {
    return v < low ? low : v > high ? high : v;
}

static inline int64_t clamp_i64(int64_t v, int64_t low, int64_t high) {
    return v < low ? low : v > high ? high : v;
}

static inline size_t clamp_size(size_t v, size_t low, size_t high) {
    return v < low ? low : v > high ? high : v;
}

// The value of a hexadecimal digit; -1: it is none.
static inline int hex_digit(char c) {
    const char low = (char)(c | 0x20);
    return c >= '0' && c <= '9' ? c - '0' : low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

// Blocks of `size` that n things need: n / size rounded up, for 0 <= n and 0 < size.
static inline int64_t ceil_div(int64_t n, int64_t size) {
    return n > 0 ? (n - 1) / size + 1 : 0;
}

static inline int32_t ceil_div_i32(int32_t n, int32_t size) {
    return n > 0 ? (n - 1) / size + 1 : 0;
}

// n rounded up to a multiple of `to`, for 0 <= n, 0 < to and n + to within the type.
static inline int64_t round_up(int64_t n, int64_t to) {
    return (n + to - 1) / to * to;
}

static inline size_t round_up_size(size_t n, size_t to) {
    return (n + to - 1) / to * to;
}

#endif
