// SPDX-License-Identifier: Apache-2.0
// How codecs of keys and values become pieces of eight halves for tiles in shared memory: a
// specialisation of kv_halves for each that is not F16 and has at most 16 bits. Sixteen values come
// from one read of their codes and are worked on as pairs of halves: a value is the nearest fp16 of
// what the scalar codec says (of TQ3_0: of the scale times the nearest fp16 of a centroid), and
// ends at 65504. For .cu files only.
#ifndef COPPICE_OPS_GPU_KV_HALVES_CUH
#define COPPICE_OPS_GPU_KV_HALVES_CUH

#include "ops/gpu/kv/stored.cuh"
#include "ops/gpu/linear/form/codes.cuh"

#define KV_HALVES_CODECS(X) X(KV_BF16) X(KV_Q8_0) CUDA_KV_ROTATED(X)

static __device__ inline unsigned pack(float a, float b) {
    __half2 h = __floats2half2_rn(a, b);
    return *(unsigned *)&h;
}

static __device__ inline float bounded(float x) {
    return fminf(fmaxf(x, -65504.0f), 65504.0f);
}

// Eight floats as a piece of halves, which end at 65504.
static __device__ inline uint4 pack_eight(const float *x) {
    return make_uint4(pack(bounded(x[0]), bounded(x[1])), pack(bounded(x[2]), bounded(x[3])),
                      pack(bounded(x[4]), bounded(x[5])), pack(bounded(x[6]), bounded(x[7])));
}

// The same of halves that may be infinite.
static __device__ __forceinline__ unsigned bounded_two(__half2 x) {
    return bits_of(__hmin2(__hmax2(x, half2_of(0xFBFFFBFF)), half2_of(0x7BFF7BFF)));
}

// read: sixteen values, number `at` of their row, where there is one; else all is zero. make: two
// pieces of them. first(at) is the number of the first piece in its row, the second is APART after
// it. AT_ONCE: how many of these a thread of few registers may read before it makes the first.
template <int CODEC> struct kv_halves;

template <> struct kv_halves<KV_BF16> {
    enum { APART = 1, AT_ONCE = 2 };
    uint4 v[2];

    static __device__ inline int first(int at) {
        return 2 * at;
    }
    __device__ inline void read(struct kv_row row, int at) {
        v[0] = ((const uint4 *)row.codes)[2 * at];
        v[1] = ((const uint4 *)row.codes)[2 * at + 1];
    }
    __device__ inline void make(uint4 *two) const {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const unsigned w[4] = {v[i].x, v[i].y, v[i].z, v[i].w};
            float x[8];
#pragma unroll
            for (int j = 0; j < 8; j++)
                x[j] = __uint_as_float(j % 2 ? w[j / 2] & 0xFFFF0000u : w[j / 2] << 16);
            two[i] = pack_eight(x);
        }
    }
};

// A code plus 128 in the mantissa of 1024, from which 1152 is subtracted exactly.
template <> struct kv_halves<KV_Q8_0> {
    enum { APART = 1, AT_ONCE = 4 };
    uint4 codes;
    unsigned short d;

    static __device__ inline int first(int at) {
        return 2 * at;
    }
    __device__ inline void read(struct kv_row row, int at) {
        codes = ((const uint4 *)row.codes)[at];
        d = ((const unsigned short *)row.scales)[at / 2];
    }
    __device__ __forceinline__ unsigned value(unsigned thousand) const {
        const __half2 c = __hadd2_rn(half2_of(thousand), half2_of(0xE480E480u));
        return bounded_two(__hmul2_rn(c, half2_of(d * 0x10001u)));
    }
    __device__ __forceinline__ uint2 four(unsigned bytes) const {
        const unsigned c = bytes ^ 0x80808080u;
        return make_uint2(value(permuted(c, 0x64646464u, 0x4140)),
                          value(permuted(c, 0x64646464u, 0x4342)));
    }
    __device__ inline void make(uint4 *two) const {
        const uint2 a = four(codes.x), b = four(codes.y), c = four(codes.z), e = four(codes.w);
        two[0] = make_uint4(a.x, a.y, b.x, b.y);
        two[1] = make_uint4(c.x, c.y, e.x, e.y);
    }
};

// Of a block eights h and h + 2, h = at % 2: their codes lie in the same bytes.
struct kv_eights {
    enum { APART = 2 };
    static __device__ inline int first(int at) {
        return at / 2 * 4 + at % 2;
    }
    // Both, of a codec that makes values of the low halves of four bytes and four further bits.
    template <class HALVES> static __device__ inline void make_of(const HALVES &h, uint4 *two) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint2 a = h.four(h.codes.x >> 4 * i, h.s.bits >> 16 * i),
                        b = h.four(h.codes.y >> 4 * i, h.s.bits >> (16 * i + 4));
            two[i] = make_uint4(a.x, a.y, b.x, b.y);
        }
    }
};

// Bits 0 to 3 as bit BIT of bytes 0 to 3.
template <int BIT> static __device__ __forceinline__ unsigned spread_bits(unsigned bits) {
    return (bits & 15) * (0x00204081u << BIT) & 0x01010101u << BIT;
}

// Eight bytes hold eights h and h + 2, in their low and high halves. A code in the mantissa of 1024
// is 1024 + c, from which 1024 + ZERO is subtracted exactly; what is left is rounded once.
template <class STORED> struct kv_halves_nibbles : kv_eights {
    enum { AT_ONCE = STORED::FIFTH ? 4 : 8 };
    uint2 codes;
    typename STORED::scales s;

    __device__ inline void read(struct kv_row row, int at) {
        codes = ((const uint2 *)row.codes)[at];
        s.read(row, at / 2);
        s.bits >>= at % 2 * 8;
    }
    __device__ __forceinline__ unsigned value(unsigned thousand) const {
        const __half2 minus = half2_of((0xE400u + STORED::ZERO) * 0x10001u);
        const __half2 c = __hadd2_rn(half2_of(thousand), minus), d = half2_of(s.d * 0x10001u);
        return bounded_two(STORED::MINIMUM ? fused(c, d, half2_of(s.m * 0x10001u))
                                           : __hmul2_rn(c, d));
    }
    // Values of the low halves of four bytes.
    __device__ __forceinline__ uint2 four(unsigned bytes, unsigned bits) const {
        unsigned c = bytes & 0x0F0F0F0Fu;
        if (STORED::FIFTH)
            c |= spread_bits<4>(bits);
        return make_uint2(value(permuted(c, 0x64646464u, 0x4140)),
                          value(permuted(c, 0x64646464u, 0x4342)));
    }
    __device__ inline void make(uint4 *two) const {
        make_of(*this, two);
    }
};

template <> struct kv_halves<KV_Q5_1> : kv_halves_nibbles<kv_stored<KV_Q5_1>> {};
template <> struct kv_halves<KV_Q5_0> : kv_halves_nibbles<kv_stored<KV_Q5_0>> {};
template <> struct kv_halves<KV_Q4_1> : kv_halves_nibbles<kv_stored<KV_Q4_1>> {};
template <> struct kv_halves<KV_Q4_0> : kv_halves_nibbles<kv_stored<KV_Q4_0>> {};

// The bits of the nearest fp16 of a number within its normal ones.
constexpr unsigned half_bits(float x) {
    float size = x < 0 ? -x : x;
    unsigned exponent = 15;
    for (; size >= 2; size *= 0.5f)
        exponent++;
    for (; size < 1; size *= 2)
        exponent--;
    return (x < 0 ? 0x8000u : 0u) + (exponent << 10) + (unsigned)((size - 1) * 1024 + 0.5f);
}

// Byte `byte` of centroids first to first + 3 as fp16.
constexpr unsigned centroid_bytes(int first, int byte) {
    const float c[8] = KV_TQ3_CENTROIDS;
    unsigned r = 0;
    for (int i = 0; i < 4; i++)
        r |= (half_bits(c[first + i]) >> 8 * byte & 255) << 8 * i;
    return r;
}

// A code of three bits chooses among the eight bytes of two registers, once for the low bytes of
// the centroids and once for the high ones.
template <> struct kv_halves<KV_TQ3_0> : kv_eights {
    enum { AT_ONCE = 4 };
    uint2 codes;
    kv_stored<KV_TQ3_0>::scales s;

    __device__ inline void read(struct kv_row row, int at) {
        codes = ((const uint2 *)row.codes)[at / 2];
        codes.x >>= at % 2 * 2;
        codes.y >>= at % 2 * 2;
        s.read(row, at / 2);
        s.bits >>= at % 2 * 8;
    }
    __device__ __forceinline__ uint2 four(unsigned bytes, unsigned bits) const {
        constexpr unsigned LOW[2] = {centroid_bytes(0, 0), centroid_bytes(4, 0)};
        constexpr unsigned HIGH[2] = {centroid_bytes(0, 1), centroid_bytes(4, 1)};
        const unsigned c = (bytes & 0x03030303u) | spread_bits<2>(bits);
        const unsigned which = permuted(c | c >> 4, 0, 0x4420); // a code a nibble
        const unsigned low = permuted(LOW[0], LOW[1], which),
                       high = permuted(HIGH[0], HIGH[1], which);
        const __half2 d = half2_of(s.d * 0x10001u);
        return make_uint2(bounded_two(__hmul2_rn(half2_of(permuted(low, high, 0x5140)), d)),
                          bounded_two(__hmul2_rn(half2_of(permuted(low, high, 0x7362)), d)));
    }
    __device__ inline void make(uint4 *two) const {
        make_of(*this, two);
    }
};

#endif
