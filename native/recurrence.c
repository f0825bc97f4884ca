/* Step by step: state product and gates on tiles that are still in the first cache, then the
 * projection. Rows are walked in blocks, so that their state stays in the second cache. */
#include "recurrence.h"

#include <stddef.h>
#include <string.h>

#include "compiler.h"

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t recurrence_workspace(int64_t rows, int64_t cells, int64_t dim, int state, int project)
{
    int64_t block = least(rows, BLOCK_ROWS), terms = panels_terms(state);
    int64_t bytes = block * cells * 4 + panels_workspace(cells, project);
    return terms ? bytes + block * (4 + terms * (4 + panels_up(dim, 4))) : bytes;
}

int recurrence_fits(const recurrence *run, int64_t packed, int64_t batch, int64_t n_gates)
{
    int64_t sum = 0, before = batch;
    for (int64_t t = 0; t < run->steps; t++) {
        int64_t size = run->sizes[t];
        if (size < 1 || size > before)
            return 0;
        sum += size;
        before = size;
    }
    if (sum != packed)
        return 0;
    if (run->rows == NULL)
        return packed <= n_gates;
    for (int64_t row = 0; row < packed; row++)
        if (run->rows[row] < 0 || run->rows[row] >= n_gates)
            return 0;
    return 1;
}

static const float *gates_of(const recurrence *run, int64_t packed)
{
    return run->gates + (run->rows ? run->rows[packed] : packed) * 4 * run->cells;
}

/* One step of up to BLOCK_ROWS rows; `row` is the packed row of the first, `place` its sentence. */
static void step(const panels_kernels *kernels, const lstm_kernels *lstm, const recurrence *run,
                 const float *hidden, char *workspace, int64_t row, int64_t place, int64_t count)
{
    int64_t cells = run->cells, dim = run->dim, depth = panels_up(dim, 4);
    float *unprojected = (float *)(void *)workspace; /* (count, cells) */
    /* with int8 only: */
    int terms = panels_terms(run->state.kind);
    float *scales = unprojected + count * cells;          /* (count,) */
    int32_t *extra = (int32_t *)(void *)(scales + count); /* (count, terms) */
    uint8_t *bytes = (uint8_t *)(extra + count * terms);  /* (count, terms, depth) */
    char *rest = (char *)scales;
    for (int64_t r = 0; r < count && terms; r++)
        kernels->quantize(bytes + r * terms * depth, scales + r, extra + r * terms,
                          hidden + r * dim, dim, terms);
    panels_input x = {hidden, dim, bytes, scales, extra};
    float tile[TILE_ROWS * GROUP];
    float *to = run->project.panels ? unprojected : run->output + row * dim;
    for (int64_t first = 0; first < cells; first += PANEL)
        for (int64_t r = 0; r < count; r += TILE_ROWS) {
            int64_t few = least(count - r, TILE_ROWS);
            /* Rows lie far apart, where no processor guesses the next one: fetched while the
             * product runs. */
            for (int64_t s = 0; s < few; s++) {
                const float *gates = gates_of(run, row + r + s) + first;
                for (int64_t gate = 0; gate < 4; gate++)
                    PREFETCH(gates + gate * cells);
                PREFETCH(run->cell + (place + r + s) * cells + first);
            }
            kernels->tile(tile, &run->state, &x, r, few, first / PANEL, 0, dim);
            for (int64_t s = 0; s < few; s++) {
                lstm->cells(to + (r + s) * cells, run->cell + (place + r + s) * cells,
                            tile + s * GROUP, gates_of(run, row + r + s), run->cell_clip, cells,
                            first);
            }
        }
    if (run->project.panels)
        panels_affine(kernels, run->output + row * dim, &run->project, unprojected, NULL, rest,
                      run->output_clip, count);
}

void recurrence_run(const panels_kernels *kernels, const lstm_kernels *lstm, const recurrence *run,
                    void *workspace)
{
    const float *hidden = run->hidden;
    int64_t start = 0;
    for (int64_t t = 0; t < run->steps; t++) {
        int64_t size = run->sizes[t];
        for (int64_t place = 0; place < size; place += BLOCK_ROWS)
            step(kernels, lstm, run, hidden + place * run->dim, workspace, start + place, place,
                 least(size - place, BLOCK_ROWS));
        hidden = run->output + start * run->dim;
        start += size;
    }
}
