/* The element-wise part of LSTM steps, forward and backward (compute/recurrence.py checks arguments). */
#ifndef ELMORE_LSTM_H
#define ELMORE_LSTM_H

#include <stdint.h>

/* Shapes are those of lstm_gates.h with a leading axis of rows; all arrays are contiguous. */
typedef struct {
    const char *name;
    void (*forward)(float *output, float *gates, float *cell, float *kept_cell,
                    float *kept_tanh_cell, float clip, int64_t rows, int64_t cells);
    void (*backward)(float *d_gates, float *d_cell, const float *d_output, const float *gates,
                     const float *cell, const float *tanh_cell, const float *before, float clip,
                     int64_t rows, int64_t cells);
    /* Up to 16 cells of one row from `first` on; see some_cells in lstm_gates.h. */
    void (*cells)(float *output, float *cell, const float *tile, const float *gates, float clip,
                  int64_t cells, int64_t first);
} lstm_kernels;

/* The kernels of an instruction set of cpu.h, NULL where it was not compiled. */
const lstm_kernels *lstm_find(const char *name);

#endif
