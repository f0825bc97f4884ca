/* Character convolutions as sums of table rows (compute/charcnn.py). */
#ifndef ELMORE_CHARCNN_H
#define ELMORE_CHARCNN_H

#include <stdint.h>

/* Filters that are computed together; their share of a table stays in the second cache. */
#define FILTERS 16

typedef struct {
    const char *name;
    /* Largest response of one filter width over all windows of each word, with the bias. Windows
     * from `tails` on are all equal, so one of them is enough. */
    void (*largest)(float *output,        /* (words, stride), from the width's first filter on */
                    const int32_t *ids,   /* (words, chars), from 1 to `characters` */
                    const int64_t *tails, /* (words,): columns before the constant end */
                    const float *tables,  /* (count up to 16 / 16, width, characters, 16) */
                    const float *bias,    /* (count,) */
                    int64_t words, int64_t chars, int64_t characters, int64_t width, int64_t count,
                    int64_t stride);
} charcnn_kernels;

const charcnn_kernels *charcnn_find(const char *name);

#endif
