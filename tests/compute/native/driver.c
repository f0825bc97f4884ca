/* Runs every kernel on odd sizes with buffers of exactly the right size, each instruction set
 * beside plain C; built by test_sanitizers.py and test_processors.py.
 *
 * Prints the largest difference of each kernel from plain C, and a checksum of all that plain C
 * gave: it rounds after every operation, so every processor and compiler must give the same bits.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "charcnn.h"
#include "cpu.h"
#include "denormals.h"
#include "lstm.h"
#include "panels.h"
#include "rank.h"
#include "recurrence.h"

enum { PRODUCT = 0, RECURRENCE = 4, FORWARD = 8, BACKWARD, CHARACTERS, RANK, KERNELS };
static const char *const NAMES[KERNELS] = {
    "product float32",    "product float16",    "product int8",    "product int8, fine",
    "recurrence float32", "recurrence float16", "recurrence int8", "recurrence int8, fine",
    "gates forward",      "gates backward",     "characters",      "rank"};
static float largest[CPU_SETS][KERNELS];
static uint32_t checksum = 2166136261u;
static int failures;
/* Whether weights and inputs are all at the ends of their range. */
static int extreme;

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

/* Compares a set's numbers with those of plain C (set 0), which become part of the checksum. */
static void compare(int kernel, int set, const float *found, const float *expected, int64_t n,
                    float tolerance)
{
    if (set == 0) {
        const unsigned char *bytes = (const unsigned char *)found;
        for (int64_t i = 0; i < n * 4; i++)
            checksum = (checksum ^ bytes[i]) * 16777619u;
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        float difference = fabsf(found[i] - expected[i]);
        if (!(difference <= tolerance)) {
            printf("%s, %s: %g and %g at %d\n", cpu_sets[set], NAMES[kernel], (double)found[i],
                   (double)expected[i], (int)i);
            failures++;
            return;
        }
        if (difference > largest[set][kernel])
            largest[set][kernel] = difference;
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
            ((int8_t *)values)[i] = (int8_t)(extreme ? drawn() < 0 ? -128 : 127
                                                     : (int)(drawn() * 127.4f));
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
    float *input = floats(rows * k), *bias = floats(n), *expected = room(rows * n * 4);
    /* The second bytes are at the ends too where the first are about half of the largest. */
    float most = kind == PANELS_INT8_FINE ? 0.49999f : 1;
    for (int64_t i = 0; extreme && i < rows * k; i++)
        input[i] = i % k == 0 ? 1 : input[i] < 0 ? -most : most;
    for (int s = 0; s < CPU_SETS; s++) {
        if (!cpu_has(cpu_sets[s]))
            continue;
        const panels_kernels *kernels = panels_find(cpu_sets[s]);
        float *output = room(rows * n * 4), *alone = room(n * 4);
        const float *added = rows % 2 ? bias : NULL;
        void *workspace = room(panels_workspace(k, kind));
        panels_affine(kernels, output, &matrix, input, added, workspace, INFINITY, rows);
        if (s == 0)
            memcpy(expected, output, (size_t)(rows * n * 4));
        /* Integer sums are exact, and so is all that is done with them here. */
        compare(PRODUCT + kind, s, output, expected, rows * n, kind < PANELS_INT8 ? 1e-4f : 0);
        for (int64_t r = 0; r < rows; r++) {
            panels_affine(kernels, alone, &matrix, input + r * k, added, workspace, INFINITY, 1);
            if (memcmp(alone, output + r * n, (size_t)(n * 4)) != 0) {
                printf("%s, %s: row %d of %d is not the row alone\n", cpu_sets[s],
                       NAMES[PRODUCT + kind], (int)r, (int)rows);
                failures++;
            }
        }
        free(workspace);
        free(output);
        free(alone);
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
    for (int s = 0; s < CPU_SETS; s++) {
        if (!cpu_has(cpu_sets[s]))
            continue;
        run.output = room(total * dim * 4);
        run.cell = room(batch * cells * 4);
        memset(run.cell, 0, (size_t)(batch * cells * 4));
        void *workspace = room(recurrence_workspace(batch, cells, dim, kind, kind));
        recurrence_run(panels_find(cpu_sets[s]), lstm_find(cpu_sets[s]), &run, workspace);
        free(workspace);
        /* One rounding of int8 may fall the other way and is then carried along. */
        float tolerance = kind < PANELS_INT8 ? 1e-4f : 0.05f;
        compare(RECURRENCE + kind, s, run.output, expected, total * dim, tolerance);
        compare(RECURRENCE + kind, s, run.cell, last, batch * cells, tolerance);
        if (s == 0) {
            expected = run.output;
            last = run.cell;
        } else {
            free(run.output);
            free(run.cell);
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
    for (int s = 0; s < CPU_SETS; s++) {
        if (!cpu_has(cpu_sets[s]))
            continue;
        /* The last row ends with its last filter. */
        int64_t size = (words - 1) * stride + count;
        float *output = room(size * 4);
        memset(output, 0, (size_t)(size * 4));
        charcnn_find(cpu_sets[s])->largest(output, ids, tails, tables, bias, words, chars, alphabet,
                                           width, count, stride);
        compare(CHARACTERS, s, output, expected, size, 0); /* the same sums in the same order */
        if (s == 0)
            expected = output;
        else
            free(output);
    }
    free(expected);
    free(ids);
    free(tails);
    free(tables);
    free(bias);
}

/* Ids and values are exact; the sum of exps is not, but is at least 1. */
static void ranks(int64_t rows, int64_t n, int64_t k)
{
    float *values = floats(rows * n), *expected[3] = {NULL, NULL, NULL};
    for (int64_t i = 0; i < rows * n; i++)
        values[i] *= 20;
    void *space = room(rank_bytes(n));
    for (int s = 0; s < CPU_SETS; s++) {
        if (!cpu_has(cpu_sets[s]))
            continue;
        float *found[3] = {room(rows * k * 4), room(rows * k * 4), room(rows * 4)};
        int32_t *ids = room(rows * k * 4);
        if (!rank_find(cpu_sets[s])->rows(ids, found[1], found[2], values, space, rows, n, k))
            failures++;
        for (int64_t i = 0; i < rows * k; i++)
            found[0][i] = (float)ids[i];
        for (int64_t i = 0; i < rows && s; i++)
            found[2][i] /= expected[2][i]; /* their ratio is compared with 1 */
        for (int i = 0; i < 2; i++)
            compare(RANK, s, found[i], expected[i], rows * k, 0);
        for (int64_t i = 0; i < rows; i++) {
            float one = 1;
            compare(RANK, s, found[2] + i, &one, 1, 2e-6f);
        }
        free(ids);
        for (int i = 0; i < 3; i++) {
            if (s == 0)
                expected[i] = found[i];
            else
                free(found[i]);
        }
    }
    for (int i = 0; i < 3; i++)
        free(expected[i]);
    free(values);
    free(space);
}

/* Both passes over the gates; the backward pass of every set starts from the same numbers. */
static void gates(int64_t rows, int64_t cells)
{
    int64_t n = rows * cells;
    float *before = floats(n), *d_output = floats(n), *d_after = floats(n);
    float *drawn_gates = floats(4 * n);
    for (int64_t i = 0; i < 4 * n; i++)
        drawn_gates[i] *= 9; /* beyond the bounds of tanh too */
    float *expected[5] = {room(16 * n), room(4 * n), room(4 * n), room(4 * n), room(4 * n)};
    float *d_expected[2] = {room(16 * n), room(4 * n)};
    for (int s = 0; s < CPU_SETS; s++) {
        if (!cpu_has(cpu_sets[s]))
            continue;
        const lstm_kernels *kernels = lstm_find(cpu_sets[s]);
        /* activated gates, cell after, kept, tanh_cell, output */
        float *found[5] = {room(16 * n), room(4 * n), room(4 * n), room(4 * n), room(4 * n)};
        memcpy(found[0], drawn_gates, (size_t)(16 * n));
        memcpy(found[1], before, (size_t)(4 * n));
        kernels->forward(found[4], found[0], found[1], found[2], found[3], 0.8f, rows, cells);
        for (int i = 0; i < 5; i++) {
            int64_t count = i == 0 ? 4 * n : n;
            compare(FORWARD, s, found[i], expected[i], count, 2e-6f);
            if (s == 0)
                memcpy(expected[i], found[i], (size_t)(4 * count));
            free(found[i]);
        }
        float *d_found[2] = {room(16 * n), room(4 * n)};
        memcpy(d_found[1], d_after, (size_t)(4 * n));
        kernels->backward(d_found[0], d_found[1], d_output, expected[0], expected[2], expected[3],
                          before, 0.8f, rows, cells);
        for (int i = 0; i < 2; i++) {
            int64_t count = i == 0 ? 4 * n : n;
            compare(BACKWARD, s, d_found[i], d_expected[i], count, 2e-6f);
            if (s == 0)
                memcpy(d_expected[i], d_found[i], (size_t)(4 * count));
            free(d_found[i]);
        }
    }
    for (int i = 0; i < 5; i++)
        free(expected[i]);
    free(d_expected[0]);
    free(d_expected[1]);
    free(before);
    free(d_output);
    free(d_after);
    free(drawn_gates);
}

/* A product that is a denormal number is kept, or zero where it is asked for; nothing stays set. */
static void denormals(void)
{
    float value = 1e-20f, packed[GROUP] = {1e-20f}, output;
    panels_matrix matrix = {packed, NULL, NULL, 1, 1, PANELS_FLOAT32};
    volatile float small = 1e-38f;
    for (int s = 0; s < CPU_SETS; s++) {
        if (!cpu_has(cpu_sets[s]))
            continue;
        const panels_kernels *kernels = panels_find(cpu_sets[s]);
        panels_affine(kernels, &output, &matrix, &value, NULL, NULL, INFINITY, 1);
        volatile int kept = output > 0; /* compared before the setting changes */
        FLUSHED(panels_affine(kernels, &output, &matrix, &value, NULL, NULL, INFINITY, 1));
        if (!kept || (FLUSHES && output != 0) || !(small / 8 > 0)) {
            printf("%s: denormal numbers are not flushed, or not restored\n", cpu_sets[s]);
            failures++;
        }
    }
}

int main(void)
{
    const int64_t depths[] = {1, 3, 4, 12, 65, 512, 515, 1030};
    for (int kind = 0; kind <= PANELS_INT8_FINE; kind++) {
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
    for (int64_t cells = 1; cells <= 37; cells += 4)
        gates(1 + cells % 3, cells);
    const int64_t lengths[] = {1, 5, 63, 64, 1000, 4096, 4097, 9000};
    for (int i = 0; i < 8; i++) {
        ranks(2, lengths[i], 1);
        ranks(3, lengths[i], (lengths[i] + 1) / 2);
        ranks(1, lengths[i], lengths[i]);
    }
    extreme = 1;
    products(7, 64, 1024, PANELS_INT8);
    products(7, 64, 1024, PANELS_INT8_FINE);
    denormals();
    for (int s = 1; s < CPU_SETS; s++)
        for (int kernel = 0; kernel < KERNELS && cpu_has(cpu_sets[s]); kernel++)
            printf("%s, %s: %.1e\n", cpu_sets[s], NAMES[kernel], (double)largest[s][kernel]);
    printf("plain C: %08x\n", (unsigned int)checksum);
    printf("%d failures\n", failures);
    return failures != 0;
}
