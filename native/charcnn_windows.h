/* Included once for each instruction set: NAME, TARGET, VECTOR, LANES, LOAD, STORE, ADD, MAX, LOWEST. */
static TARGET void NAME(largest)(float *output, const int32_t *ids, const int64_t *tails,
                                 const float *tables, const float *bias, int64_t words,
                                 int64_t chars, int64_t characters, int64_t width, int64_t count,
                                 int64_t stride)
{
    for (int64_t first = 0; first < count; first += FILTERS) {
        const float *table = tables + first * width * characters;
        int64_t filters = count - first < FILTERS ? count - first : FILTERS;
        for (int64_t word = 0; word < words; word++) {
            const int32_t *id = ids + word * chars;
            int64_t last = chars - width < tails[word] ? chars - width : tails[word];
            float found[FILTERS];
            VECTOR best[FILTERS / LANES];
            for (int v = 0; v < FILTERS / LANES; v++)
                best[v] = LOWEST();
            for (int64_t place = 0; place <= last; place++) {
                VECTOR sum[FILTERS / LANES];
                const float *row = table + (int64_t)(id[place] - 1) * FILTERS;
                for (int v = 0; v < FILTERS / LANES; v++)
                    sum[v] = LOAD(row + v * LANES);
                for (int64_t k = 1; k < width; k++) {
                    row = table + (k * characters + id[place + k] - 1) * FILTERS;
                    for (int v = 0; v < FILTERS / LANES; v++)
                        sum[v] = ADD(sum[v], LOAD(row + v * LANES));
                }
                for (int v = 0; v < FILTERS / LANES; v++)
                    best[v] = MAX(best[v], sum[v]);
            }
            for (int v = 0; v < FILTERS / LANES; v++)
                STORE(found + v * LANES, best[v]);
            for (int64_t j = 0; j < filters; j++)
                output[word * stride + first + j] = found[j] + bias[first + j];
        }
    }
}
