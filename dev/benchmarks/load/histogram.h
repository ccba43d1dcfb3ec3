// SPDX-License-Identifier: Apache-2.0
/* Latencies in logarithmic buckets: 64 for each power of two, so a percentile is at most 1.6 % too high. */
#ifndef HISTOGRAM_H
#define HISTOGRAM_H
#include <stdint.h>

#define SUB_BITS 6
#define SUB (1u << SUB_BITS)

struct histogram {
    uint64_t counts[64 * SUB], total, sum, max;
};

static void record(struct histogram *h, uint64_t ns) {
    unsigned shift = ns < SUB ? 0 : 63u - (unsigned)__builtin_clzll(ns) - SUB_BITS;
    h->counts[(shift << SUB_BITS) + (ns >> shift)]++;
    h->total++;
    h->sum += ns;
    if (ns > h->max) h->max = ns;
}

/* Nanoseconds that a share of the recorded values does not exceed. */
static uint64_t percentile(const struct histogram *h, double share) {
    uint64_t wanted = (uint64_t)(share * (double)h->total + 0.9999999), seen = 0;
    for (unsigned i = 0; i < 64 * SUB; i++) {
        seen += h->counts[i];
        if (seen < wanted || !seen) continue;
        /* values of at least SUB have their highest bit at SUB_BITS after the shift */
        unsigned shift = i < 2 * SUB ? 0 : (i >> SUB_BITS) - 1;
        uint64_t top = (((uint64_t)(i - (shift << SUB_BITS)) + 1) << shift) - 1;
        return top < h->max ? top : h->max;
    }
    return h->max;
}
#endif
