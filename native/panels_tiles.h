/* Register tiles of the vector instruction sets; included once for each.
 *
 * The including file defines NAME(f), TARGET, and the vector operations below; VECTORS is how many
 * vectors a panel of 16 outputs takes. Accumulators are arrays whose loops are unrolled by force:
 * left alone, compilers keep them on the stack and lose half of the speed.
 */
#define INLINE static inline __attribute__((always_inline)) TARGET

/* `rows` and `panels` are constants wherever this is called. */
INLINE void NAME(floats)(float *out, const float *x, int64_t stride, const char *w, int64_t step,
                         int64_t depth, const int rows, const int panels, const int half)
{
    VECTOR sum[TILE_ROWS * 4];
    const int vectors = panels * VECTORS;
    const int64_t bytes = half ? 2 * PANEL : 4 * PANEL;
    UNROLL for (int i = 0; i < rows * vectors; i++) sum[i] = ZERO();
    for (int64_t k = 0; k < depth; k++) {
        VECTOR weight[4 * VECTORS];
        UNROLL for (int v = 0; v < vectors; v++)
        {
            const char *at = w + (v / VECTORS) * step + k * bytes;
            weight[v] = half ? LOAD_HALF((const uint16_t *)(const void *)at + v % VECTORS * LANES)
                             : LOAD((const float *)(const void *)at + v % VECTORS * LANES);
        }
        UNROLL for (int r = 0; r < rows; r++)
        {
            VECTOR value = SPREAD(x[r * stride + k]);
            UNROLL for (int v = 0; v < vectors; v++)
                sum[r * vectors + v] = FMA(value, weight[v], sum[r * vectors + v]);
        }
    }
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int v = 0; v < vectors; v++)
            STORE(out + r * GROUP + v * LANES, sum[r * vectors + v]);
}

/* Sums of products of bytes, four inputs at a time. */
INLINE void NAME(bytes)(int32_t *out, const uint8_t *x, int64_t stride, const int8_t *w,
                        int64_t step, int64_t depth, const int rows, const int panels)
{
    BYTES sum[TILE_ROWS * 4];
    const int vectors = panels * BYTE_VECTORS;
    UNROLL for (int i = 0; i < rows * vectors; i++) sum[i] = BYTES_ZERO();
    for (int64_t k = 0; k < depth; k += 4) {
        BYTES weight[4 * BYTE_VECTORS];
        UNROLL for (int v = 0; v < vectors; v++)
            weight[v] = BYTES_LOAD(w + (v / BYTE_VECTORS) * step + k * PANEL +
                                   v % BYTE_VECTORS * (4 * PANEL / BYTE_VECTORS));
        UNROLL for (int r = 0; r < rows; r++)
        {
            int32_t four;
            __builtin_memcpy(&four, x + r * stride + k, 4);
            BYTES value = BYTES_SPREAD(four);
            UNROLL for (int v = 0; v < vectors; v++)
                sum[r * vectors + v] = BYTES_DOT(sum[r * vectors + v], value, weight[v]);
        }
    }
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int v = 0; v < vectors; v++)
            BYTES_STORE(out + r * GROUP + v * (PANEL / BYTE_VECTORS), sum[r * vectors + v]);
}

/* All four panels at once where the registers hold them, else as many as they hold. */
#define FLOATS(rows, panels)                                                                      \
    for (int p = 0; p < 4; p += panels)                                                           \
    NAME(floats)(out + p * PANEL, x, stride, w + p * step, step, depth, rows, panels, half)

INLINE void NAME(any_floats)(float *out, const float *x, int64_t stride, const char *w,
                             int64_t step, int64_t depth, int64_t rows, const int half)
{
    switch (rows) {
    case 1: FLOATS(1, 4); break;
    case 2: FLOATS(2, PANELS_OF_2); break;
    case 3: FLOATS(3, PANELS_OF_6); break;
    case 4: FLOATS(4, PANELS_OF_6); break;
    case 5: FLOATS(5, PANELS_OF_6); break;
    case 6: FLOATS(6, PANELS_OF_6); break;
    }
}

/* As many rows and panels at once as the registers hold. Where that is one row (AVX2, NEON without
 * the dot product), the weights of the others come from the first cache. */
#define BYTE_ROWS(rows)                                                                           \
    for (int r = 0; r < rows; r += BYTES_AT_ONCE(rows))                                           \
        for (int p = 0; p < 4; p += BYTE_PANELS(rows))                                            \
    NAME(bytes)(out + r * GROUP + p * PANEL, x + r * stride, stride, w + p * step, step, depth,   \
                BYTES_AT_ONCE(rows), BYTE_PANELS(rows))

static TARGET void NAME(any_bytes)(int32_t *out, const uint8_t *x, int64_t stride, const int8_t *w,
                                   int64_t step, int64_t depth, int64_t rows)
{
    switch (rows) {
    case 1: BYTE_ROWS(1); break;
    case 2: BYTE_ROWS(2); break;
    case 3: BYTE_ROWS(3); break;
    case 4: BYTE_ROWS(4); break;
    case 5: BYTE_ROWS(5); break;
    case 6: BYTE_ROWS(6); break;
    }
}

static TARGET void NAME(tile)(float *out, const panels_matrix *matrix, const panels_input *input,
                              int64_t row, int64_t rows, int64_t group, int64_t begin, int64_t end)
{
    const float *x = input->values + row * input->stride + begin;
    int terms = panels_terms(matrix->kind);
    if (terms) {
        int64_t k = panels_up(matrix->k, 4), n = rows * terms;
        int32_t sums[2 * TILE_ROWS * GROUP];
        const uint8_t *bytes = input->bytes + row * terms * k + begin;
        const int8_t *w = (const int8_t *)matrix->panels + (group * 4 * k + begin) * PANEL;
        for (int64_t r = 0; r < n; r += TILE_ROWS)
            NAME(any_bytes)(sums + r * GROUP, bytes + r * k, k, w, k * PANEL,
                            panels_up(end - begin, 4), n - r < TILE_ROWS ? n - r : TILE_ROWS);
        const float *scales = matrix->scales + group * GROUP;
        const int32_t *all = matrix->sums + group * GROUP;
        const int32_t *extra = input->extra + row * terms;
        for (int64_t r = 0; r < rows; r++) {
            const int32_t *high = sums + r * terms * GROUP, *low = high + GROUP;
            float scale = input->scales[row + r];
            for (int64_t j = 0; j < GROUP && terms == 1; j++)
                out[r * GROUP + j] =
                    (float)(high[j] - OFFSET * all[j] + extra[r]) * (scale * scales[j]);
            for (int64_t j = 0; j < GROUP && terms == 2; j++)
                out[r * GROUP + j] = ((float)(high[j] - OFFSET * all[j] + extra[2 * r]) +
                                      (float)(low[j] - OFFSET * all[j] + extra[2 * r + 1]) *
                                          (1 / FINE_STEPS)) *
                                     (scale * scales[j]);
        }
    } else if (matrix->kind == PANELS_FLOAT16) {
        const uint16_t *w = (const uint16_t *)matrix->panels + (group * 4 * matrix->k + begin) * PANEL;
        NAME(any_floats)(out, x, input->stride, (const char *)w, matrix->k * PANEL * 2, end - begin,
                         rows, 1);
    } else {
        const float *w = (const float *)matrix->panels + (group * 4 * matrix->k + begin) * PANEL;
        NAME(any_floats)(out, x, input->stride, (const char *)w, matrix->k * PANEL * 4, end - begin,
                         rows, 0);
    }
}
#undef INLINE
#undef FLOATS
#undef BYTE_ROWS
