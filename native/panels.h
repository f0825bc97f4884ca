/* Products of a few rows with a weight matrix that was packed ahead of time (compute/matrix.py).
 *
 * A matrix of n outputs and k inputs lies in panels of 16 outputs: (n / 16, k, 16) in float32 or
 * float16; (n / 16, k / 4, 16, 4) in int8, k filled up with zeros to a multiple of 4. n is filled
 * up to a multiple of 64: four panels make a group, the unit of work. In the gate matrix of an
 * LSTM a group holds the input, forget, candidate and output gates of the same 16 cells.
 *
 * Every output is one sum over the inputs in rising order, whatever the number of rows, so a
 * row's result depends on that row alone. Integer sums are exact on every instruction set.
 */
#ifndef ELMORE_PANELS_H
#define ELMORE_PANELS_H

#include <stdint.h>

#define PANEL 16
#define GROUP 64
/* Rows of one tile; a caller never passes more. */
#define TILE_ROWS 6
/* Inputs that are summed at one go: 16 outputs of 512 inputs fit into the first cache. */
#define DEPTH 512
/* Rows that share one walk over the weights: their inputs stay in the second cache. */
#define BLOCK_ROWS 144

/* With int8 weights an input is rounded to a byte, and with INT8_FINE what that leaves over to a
 * second one. */
enum { PANELS_FLOAT32 = 0, PANELS_FLOAT16 = 1, PANELS_INT8 = 2, PANELS_INT8_FINE = 3 };

typedef struct {
    const void *panels;
    const float *scales;  /* (n up to GROUP,) of int8 */
    const int32_t *sums;  /* (n up to GROUP,): sum of the weights of an output, of int8 */
    int64_t n, k;
    int kind;
} panels_matrix;

typedef struct {
    const float *values;  /* (rows, stride) */
    int64_t stride;
    /* The others with int8 weights only; terms as in panels_terms. */
    const uint8_t *bytes; /* (rows, terms, k up to 4) */
    const float *scales;  /* (rows,) */
    const int32_t *extra; /* (rows, terms): what `tile` adds to the sums of products of bytes */
} panels_input;

typedef struct {
    const char *name;
    /* out (rows, GROUP) = inputs [begin, end) of `rows` rows, times a group's weights */
    void (*tile)(float *out, const panels_matrix *matrix, const panels_input *input, int64_t row,
                 int64_t rows, int64_t group, int64_t begin, int64_t end);
    /* bytes (terms, k up to 4), scale (1), extra (terms): one row, as `tile` of int8 wants it */
    void (*quantize)(uint8_t *bytes, float *scale, int32_t *extra, const float *values, int64_t k,
                     int terms);
    /* output (columns) = clip(before + tile); `before` may be the output */
    void (*add)(float *output, const float *before, const float *tile, float bound,
                int64_t columns);
} panels_kernels;

/* The kernels of an instruction set, NULL where it was not compiled. */
const panels_kernels *panels_find(const char *name);

/* Bytes of a packed matrix. */
int64_t panels_bytes(int64_t n, int64_t k, int kind);
/* Packs (n, k) `values` of float32, float16 or int8; `gates` interleaves four gates of n / 4 cells,
 * each filled up to 16. `sums` is written for int8. */
void panels_pack(void *packed, int32_t *sums, const void *values, int64_t n, int64_t k, int kind,
                 int gates);

/* output (rows, n) = clip(input * matrix + bias); workspace: panels_workspace bytes */
void panels_affine(const panels_kernels *kernels, float *output, const panels_matrix *matrix,
                   const float *input, const float *bias, void *workspace, float bound,
                   int64_t rows);
int64_t panels_workspace(int64_t k, int kind);

/* Bytes of one input; 0 with floats. */
static inline int panels_terms(int kind)
{
    return kind < PANELS_INT8 ? 0 : kind - PANELS_INT8 + 1;
}

static inline int64_t panels_up(int64_t value, int64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

#endif
