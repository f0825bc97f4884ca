/* The k largest of each row and the sum of exps (compute/softmax.py checks arguments). */
#ifndef ELMORE_RANK_H
#define ELMORE_RANK_H

#include <stdint.h>

typedef struct {
    const char *name;
    /* Returns whether every row has k values above minus infinity; else results are not set.
     * `found` has room for rank_bytes(n). */
    int (*rows)(int32_t *ids, float *best, float *total, const float *values, uint64_t *found,
                int64_t rows, int64_t n, int64_t k);
} rank_kernels;

int64_t rank_bytes(int64_t n);

/* The kernels of an instruction set of cpu.h, NULL where it was not compiled. */
const rank_kernels *rank_find(const char *name);

#endif
