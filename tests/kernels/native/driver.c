/* Runs every kernel on odd sizes with buffers of exactly the right size, each instruction set
 * beside plain C; built with sanitizers by test_sanitizers.py. Prints what differs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "charcnn.h"
#include "cpu.h"
#include "lstm.h"
#include "panels.h"
#include "recurrence.h"

static const char *const SETS[] = {"plain", "avx2", "avx512", "avx512_vnni"};
static int failures;

static float drawn(void)
{
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return (float)(int32_t)(state >> 8) / (float)(1 << 23) - 1.0f;
}

static void *room(int64_t bytes)
{
    void *found = malloc((size_t)bytes ? (size_t)bytes : 1);
    if (found == NULL)
        exit(3);
    return found;
}

static float *floats(int64_t count)
{
    float *values = room(count * 4);
    for (int64_t i = 0; i < count; i++)
        values[i] = drawn();
    return values;
}

static int present(const char *set)
{
    cpu_features found = cpu_detect();
    return strcmp(set, "plain") == 0 || (strcmp(set, "avx2") == 0 && found.avx2) ||
           (strcmp(set, "avx512") == 0 && found.avx512) ||
           (strcmp(set, "avx512_vnni") == 0 && found.avx512_vnni);
}

static void compare(const char *what, const char *set, const float *a, const float *b, int64_t n,
                    float tolerance)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(a[i] - b[i]) <= tolerance)) {
            printf("%s %s: %g and %g at %lld\n", what, set, (double)a[i], (double)b[i],
                   (long long)i);
            failures++;
            return;
        }
}

/* A packed matrix of random numbers and the buffers that it owns. */
static panels_matrix make(int64_t n, int64_t k, int kind, int gates, void *owned[3])
{
    int64_t columns = gates ? 4 * panels_up(n / 4, PANEL) : panels_up(n, GROUP);
    int64_t item = kind == PANELS_FLOAT32 ? 4 : kind == PANELS_FLOAT16 ? 2 : 1;
    void *values = room(n * k * item);
    for (int64_t i = 0; i < n * k; i++) {
        if (kind == PANELS_FLOAT32)
            ((float *)values)[i] = drawn() * 0.3f;
        else if (kind == PANELS_FLOAT16) /* any sign and fraction, small exponents */
            ((uint16_t *)values)[i] = (uint16_t)((int)(drawn() * 32767) & 0xb7ff);
        else
            ((int8_t *)values)[i] = (int8_t)(drawn() * 127.4f);
    }
    owned[0] = room(panels_bytes(columns, k, kind));
    float *scales = owned[1] = room(columns * 4);
    for (int64_t i = 0; i < columns; i++)
        scales[i] = 0.003f;
    owned[2] = room(columns * 4);
    panels_pack(owned[0], owned[2], values, n, k, kind, gates);
    free(values);
    panels_matrix matrix = {owned[0], owned[1], owned[2], n, k, kind};
    return matrix;
}

static void release(void *owned[3])
{
    for (int i = 0; i < 3; i++)
        free(owned[i]);
}

static void products(int64_t rows, int64_t n, int64_t k, int kind)
{
    void *owned[3];
    panels_matrix matrix = make(n, k, kind, 0, owned);
    float *input = floats(rows * k), *bias = floats(n), *expected = NULL;
    for (int s = 0; s < 4; s++) {
        if (!present(SETS[s]))
            continue;
        float *output = room(rows * n * 4);
        void *workspace = room(panels_workspace(k, kind));
        panels_affine(panels_find(SETS[s]), output, &matrix, input, rows % 2 ? bias : NULL,
                      workspace, INFINITY, rows);
        free(workspace);
        if (expected == NULL)
            expected = output;
        else {
            /* Integer sums are exact, and so is all that is done with them here. */
            compare("product", SETS[s], output, expected, rows * n,
                    kind == PANELS_INT8 ? 0 : 1e-4f);
            free(output);
        }
    }
    free(expected);
    free(input);
    free(bias);
    release(owned);
}

static void steps(int64_t batch, int64_t n_steps, int64_t cells, int64_t dim, int kind)
{
    void *state[3], *project[3] = {NULL, NULL, NULL};
    int64_t *sizes = room(n_steps * 8), total = 0;
    for (int64_t t = 0; t < n_steps; t++)
        total += sizes[t] = batch - t * (batch - 1) / n_steps;
    int64_t *rows = room(total * 8);
    for (int64_t i = 0; i < total; i++)
        rows[i] = i % 3;
    float *gates = floats((total > 3 ? total : 3) * 4 * cells), *hidden = floats(batch * dim);
    recurrence run = {.gates = gates, .hidden = hidden, .sizes = sizes, .cell_clip = 0.8f,
                      .output_clip = 0.5f, .steps = n_steps, .cells = cells, .dim = dim};
    run.rows = total % 2 ? rows : NULL;
    run.state = make(4 * cells, dim, kind, 1, state);
    if (dim != cells)
        run.project = make(dim, cells, kind, 0, project);
    int64_t needed = run.rows && total > 3 ? 3 : total; /* rows of `gates` */
    if (!recurrence_fits(&run, total, batch, needed) ||
        recurrence_fits(&run, total, batch, needed - 1) ||
        recurrence_fits(&run, total, batch - 1, needed) ||
        recurrence_fits(&run, total + 1, batch, total + 1)) {
        printf("recurrence_fits is wrong about %d steps\n", (int)n_steps);
        failures++;
    }
    float *expected = NULL, *last = NULL;
    for (int s = 0; s < 4; s++) {
        if (!present(SETS[s]))
            continue;
        run.output = room(total * dim * 4);
        run.memory = room(batch * cells * 4);
        memset(run.memory, 0, (size_t)(batch * cells * 4));
        void *workspace = room(recurrence_workspace(batch, cells, dim, kind));
        recurrence_run(panels_find(SETS[s]), lstm_find(SETS[s]), &run, workspace);
        free(workspace);
        if (expected == NULL) {
            expected = run.output;
            last = run.memory;
        } else {
            /* One rounding of int8 may fall the other way and is then carried along. */
            float tolerance = kind == PANELS_INT8 ? 0.05f : 1e-4f;
            compare("recurrence", SETS[s], run.output, expected, total * dim, tolerance);
            compare("memory", SETS[s], run.memory, last, batch * cells, tolerance);
            free(run.output);
            free(run.memory);
        }
    }
    free(expected);
    free(last);
    free(sizes);
    free(rows);
    free(gates);
    free(hidden);
    release(state);
    release(project);
}

static void characters(int64_t words, int64_t chars, int64_t width, int64_t count)
{
    int64_t alphabet = 7, stride = count + 3;
    int32_t *ids = room(words * chars * 4);
    int64_t *tails = room(words * 8);
    for (int64_t i = 0; i < words * chars; i++)
        ids[i] = 1 + (int32_t)((drawn() + 1) * 3.4f);
    for (int64_t w = 0; w < words; w++)
        tails[w] = chars - 1;
    float *tables = floats(panels_up(count, FILTERS) * width * alphabet), *bias = floats(count);
    float *expected = NULL;
    for (int s = 0; s < 4; s++) {
        if (!present(SETS[s]))
            continue;
        /* The last row ends with its last filter. */
        int64_t size = (words - 1) * stride + count;
        float *output = room(size * 4);
        memset(output, 0, (size_t)(size * 4));
        charcnn_find(SETS[s])->largest(output, ids, tails, tables, bias, words, chars, alphabet,
                                       width, count, stride);
        if (expected == NULL)
            expected = output;
        else {
            compare("characters", SETS[s], output, expected, size, 1e-5f);
            free(output);
        }
    }
    free(expected);
    free(ids);
    free(tails);
    free(tables);
    free(bias);
}

int main(void)
{
    const int64_t depths[] = {1, 3, 4, 12, 65, 512, 515, 1030};
    for (int kind = 0; kind < 3; kind++) {
        for (int64_t rows = 1; rows <= 13; rows++)
            for (int i = 0; i < 8; i++)
                products(rows, 1 + 37 * (rows % 4), depths[i], kind);
        products(BLOCK_ROWS + 5, 70, 33, kind);
        const int64_t shapes[][4] = {{1, 1, 1, 1},    {1, 5, 3, 2},  {13, 4, 16, 16}, {7, 9, 17, 5},
                                     {6, 3, 64, 12},  {2, 2, 33, 33}, {150, 2, 5, 3},  {5, 7, 48, 4}};
        for (int i = 0; i < 8; i++)
            steps(shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3], kind);
    }
    for (int64_t width = 1; width <= 7; width++)
        for (int64_t count = 1; count <= 33; count += 8)
            characters(1 + width % 3, width + count % 5, width, count);
    printf("%d failures\n", failures);
    return failures != 0;
}
