// SPDX-License-Identifier: Apache-2.0
// The costs of both halves of an entry are tables; an entry costs the sum of one of each.
#include "formats/quant/codebook.h"

#include "formats/quant/impl.h"

enum { HALF_CODES = 256 }; // four digits of two bits, or two of three

static int half_bits(const struct codebook *c) {
    return c->values == 8 ? 8 : 6;
}

void codebook_init(struct codebook *c, const uint16_t *entry, int n, int values) {
    *c = (struct codebook){.entry = entry, .values = values};
    for (int i = 0; i < n; i++) {
        uint16_t upper = (uint16_t)(entry[i] >> half_bits(c));
        if (!c->n || c->bucket[c->n - 1].upper != upper)
            c->bucket[c->n++] = (struct codebook_bucket){upper, (uint16_t)i, (uint16_t)i};
        c->bucket[c->n - 1].to = (uint16_t)(i + 1);
    }
}

// Sums of the costs of four values with three digits each, by the digits in two bits.
static void sums_of_four(const float (*cost)[8], float *sum) {
    float pair[16] = {0};
    for (int b = 0; b < 3; b++)
        for (int a = 0; a < 3; a++)
            pair[4 * b + a] = cost[0][a] + cost[1][b];
    for (int d = 0; d < 3; d++) {
        for (int c = 0; c < 3; c++) {
            float high = cost[2][c] + cost[3][d], *to = sum + 64 * d + 16 * c;
            for (int k = 0; k < 11; k++) // 3, 7 and 11 are no digits
                to[k] = pair[k] + high;
        }
    }
}

static void sums_of_two(const float (*cost)[8], float *sum) {
    for (int b = 0; b < 8; b++)
        for (int a = 0; a < 8; a++)
            sum[8 * b + a] = cost[0][a] + cost[1][b];
}

static float least_of(const float (*cost)[8], int values, int digits) {
    float sum = 0.0f;
    for (int j = 0; j < values; j++) {
        float least = cost[j][0];
        for (int d = 1; d < digits; d++)
            least = cost[j][d] < least ? cost[j][d] : least;
        sum += least;
    }
    return sum;
}

int codebook_nearest(const struct codebook *c, const codebook_costs cost, int first, float *least) {
    float lower[HALF_CODES] = {0}, upper[HALF_CODES] = {0};
    int half = c->values / 2, mask = (1 << half_bits(c)) - 1, found = first;
    if (c->values == 8) {
        sums_of_four(cost, lower);
        sums_of_four(cost + 4, upper);
    } else {
        sums_of_two(cost, lower);
        sums_of_two(cost + 2, upper);
    }
    float below = least_of(cost, half, c->values == 8 ? 3 : 8);
    float best = lower[c->entry[first] & mask] + upper[c->entry[first] >> half_bits(c)];
    for (int b = 0; b < c->n; b++) {
        const struct codebook_bucket *k = &c->bucket[b];
        float base = upper[k->upper];
        if (!(base + below < best))
            continue;
        for (int i = k->from; i < k->to; i++) {
            float sum = base + lower[c->entry[i] & mask];
            if (sum < best) {
                best = sum;
                found = i;
            }
        }
    }
    *least = best;
    return found;
}
