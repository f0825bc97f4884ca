/* The recurrent loop of a projected LSTM over a packed batch, without gradients. */
#ifndef ELMORE_RECURRENCE_H
#define ELMORE_RECURRENCE_H

#include "lstm.h"
#include "panels.h"

typedef struct {
    float *output;         /* (sum of sizes, dim) */
    float *cell;         /* (sizes[0], cells): before, then after each row's last step */
    const float *gates;    /* (n, 4 * cells): the inputs' share of the gates with all biases */
    const int64_t *rows;   /* (sum of sizes,): row of `gates` of each packed row; NULL: in order */
    const float *hidden;   /* (sizes[0], dim): output before the first step */
    const int64_t *sizes;  /* (steps,): rows of each step, never growing */
    panels_matrix state;   /* gates of panels.h: 4 * cells outputs, dim inputs */
    panels_matrix project; /* dim outputs, cells inputs; panels NULL: dim == cells, no product */
    float cell_clip, output_clip;
    int64_t steps, cells, dim;
} recurrence;

/* Whether sizes and rows stay inside buffers of so many rows (packed, of the state, of `gates`). */
int recurrence_fits(const recurrence *run, int64_t packed, int64_t batch, int64_t n_gates);
void recurrence_run(const panels_kernels *kernels, const lstm_kernels *lstm, const recurrence *run,
                    void *workspace);
/* Bytes of workspace for steps of up to `rows` rows, with the kinds of both matrices. */
int64_t recurrence_workspace(int64_t rows, int64_t cells, int64_t dim, int state, int project);

#endif
