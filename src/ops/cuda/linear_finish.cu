// SPDX-License-Identifier: Apache-2.0
// The end of few-row linear layers whose k was cut into parts (linear_stream.cuh): adds the parts
// up in order, takes the powers of two back, and stores, adds or joins. One warp a tile of 16
// outputs (a pair of them) and 8 rows. It may begin while the products end.
#include "ops/cuda/cuda.h"
#include "ops/cuda/linear_launch.h"

enum { WARPS = 4, BATCH = 8 };

// What one warp finishes.
struct finish_work {
    const struct linear_one *job;
    const float4 *at; // this lane's sums of part 0, first tile; the other is 32 n_tiles on
    int64_t step;     // to the next part
    int64_t row;      // first of this lane's two rows
    int64_t m[2];     // first of this lane's two outputs in both tiles (the second is 8 on)
};

// False beyond the last item.
static __device__ __forceinline__ bool work_of(const struct linear_launch &l, int64_t item,
                                               finish_work &w) {
    int j = 0, lane = threadIdx.x % 32;
    if (item >= l.units)
        return false;
    while (j + 1 < l.jobs && item >= l.job[j + 1].first)
        j++;
    const struct linear_one *o = &l.job[j];
    item -= o->first;
    int64_t tiles = (l.n + o->n_tiles * 8 - 1) / (o->n_tiles * 8); // of rows
    int64_t column = item % o->n_tiles, warp = item / o->n_tiles % o->warps;
    item /= o->n_tiles * o->warps;
    int64_t tile = item % tiles, group = item / tiles;
    int64_t each = 64 * o->n_tiles; // float4 of a warp
    w.job = o;
    w.at = o->partial + ((group * o->parts * tiles + tile) * o->warps + warp) * each + column * 32 +
           lane;
    w.step = tiles * o->warps * each;
    w.row = (tile * o->n_tiles + column) * 8 + lane % 4 * 2;
    int64_t index = group * o->warps + warp;
    for (int t = 0; t < 2; t++)
        w.m[t] = (o->pair ? index : index * 2 + t) * TILE_ROWS + lane / 4;
    return true;
}

// Adds v, or begins with it.
static __device__ __forceinline__ void add4(float *to, float4 v, bool begin) {
    to[0] = begin ? v.x : to[0] + v.x;
    to[1] = begin ? v.y : to[1] + v.y;
    to[2] = begin ? v.z : to[2] + v.z;
    to[3] = begin ? v.w : to[3] + v.w;
}

// Sums of both tiles; the loads of eight parts are under way at once.
static __device__ __forceinline__ void sum_parts(const finish_work &w, float (*sum)[4]) {
    const int parts = w.job->parts, apart = 32 * w.job->n_tiles;
    for (int first = 0; first < parts; first += BATCH) {
        float4 v[2 * BATCH];
        int end = parts - first;
#pragma unroll
        for (int i = 0; i < 2 * BATCH; i++)
            if (i / 2 < end)
                v[i] = __ldcg(w.at + (first + i / 2) * w.step + i % 2 * apart);
#pragma unroll
        for (int i = 0; i < 2 * BATCH; i++)
            if (i / 2 < end)
                add4(sum[i % 2], v[i], first + i / 2 == 0);
    }
}

static __global__ void __launch_bounds__(WARPS * 32)
    linear_finish(const __grid_constant__ struct linear_launch l) {
    finish_work w;
    float sum[2][4], power[2][2], back[2];
    bool mine = work_of(l, (int64_t)blockIdx.x * WARPS + threadIdx.x / 32, w);
    gpu_await();
    gpu_let_next();
    if (!mine)
        return;
    const struct linear_one *o = w.job;
#pragma unroll
    for (int i = 0; i < 2; i++)
        back[i] = w.row + i < l.n ? l.unscale[w.row + i] : 0.0f;
#pragma unroll
    for (int t = 0; t < 2; t++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const struct matrix_view *v = &o->w[o->pair ? t : 0];
            int64_t m = w.m[t] + 8 * h;
            power[t][h] = m < v->m ? __int_as_float((127 - v->exponent[m]) << 23) : 0.0f;
        }
    sum_parts(w, sum);
#pragma unroll
    for (int t = 0; t < 2; t++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int64_t m = w.m[t] + e / 2 * 8, n = w.row + e % 2;
            if (n >= l.n || m >= o->w[0].m || (o->pair && t))
                continue;
            float value = sum[t][e] * power[t][e / 2] * back[e % 2];
            float *out = o->out + n * o->out_stride + m;
            if (o->pair)
                *out = value / (1.0f + expf(-value)) * (sum[1][e] * power[1][e / 2] * back[e % 2]);
            else
                *out = o->add ? *out + value : value;
        }
}

void linear_finish_launch(struct gpu *g, struct linear_launch *l) {
    int64_t items = 0;
    for (int j = 0; j < l->jobs; j++) {
        struct linear_one *o = &l->job[j];
        int64_t tiles = (o->w[0].m + TILE_ROWS - 1) / TILE_ROWS, row = o->n_tiles * 8;
        int64_t each = o->pair ? o->warps : 2 * (int64_t)o->warps;
        o->first = items;
        items += (tiles + each - 1) / each * ((l->n + row - 1) / row) * o->warps * o->n_tiles;
    }
    l->units = (int)items;
    gpu_launch_early(g, "linear", linear_finish, dim3((unsigned)((items + WARPS - 1) / WARPS)),
                     dim3(WARPS * 32), 0, *l);
}
