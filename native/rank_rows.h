/* The likeliest words of one row; included once for each instruction set (NAME, TARGET, MADD).
 *
 * Loops have a fixed number of independent steps, and sums and maxima fold an array in halves, so
 * that compilers turn all of it into vector code without reordering anything.
 */

/* The sum of exp(value - largest) over CHUNK values, none above `largest`; within 1e-7 of each. */
static TARGET float NAME(sum_exps)(const float *restrict values, float largest,
                                   float *restrict exps /* (CHUNK,) */)
{
    for (int j = 0; j < CHUNK; j++) {
        float x = values[j] - largest;
        x = x < -87.0f ? -87.0f : x;
        /* The last bits of this are x / log(2), rounded. */
        float t = MADD(x, 1.44269504088896341f, 12582912.0f);
        float whole = t - 12582912.0f;
        float r = MADD(whole, -1.42860682030941723e-6f, MADD(whole, -0.693145751953125f, x));
        float p = MADD(r, 1.3981999507e-3f, 8.3334519073e-3f);
        p = MADD(r, p, 4.1665795894e-2f);
        p = MADD(r, p, 1.6666665459e-1f);
        p = MADD(r, p, 5.0000001201e-1f);
        p = MADD(r * r, p, r) + 1.0f;
        union { float number; uint32_t bits; } power = {t};
        power.bits = (power.bits << 23) + 0x3f800000u;
        exps[j] = p * power.number;
    }
    for (int half = CHUNK / 2; half >= LANES; half /= 2)
        for (int j = 0; j < half; j++)
            exps[j] += exps[j + half];
    float sum = 0;
    for (int j = 0; j < LANES; j++)
        sum += exps[j];
    return sum;
}

/* Maxima of the groups of a chunk: values GROUPS apart are one group. */
static TARGET void NAME(group_maxima)(float *restrict maxima /* (GROUPS,) */,
                                      const float *restrict values)
{
    for (int j = 0; j < GROUPS; j++)
        maxima[j] = values[j];
    for (int first = GROUPS; first < CHUNK; first += GROUPS)
        for (int j = 0; j < GROUPS; j++)
            maxima[j] = values[first + j] > maxima[j] ? values[first + j] : maxima[j];
}

static TARGET int NAME(row)(
    int32_t *restrict ids,        /* (k,) */
    float *restrict best,         /* (k,) */
    float *restrict total,        /* (1,): of exp(value - largest) */
    const float *restrict values, /* (n,) */
    uint64_t *restrict found,     /* (n rounded up to chunks,) */
    float *restrict maxima,       /* (n rounded up to chunks, over CHUNK / GROUPS) */
    int64_t n, int64_t k)
{
    float edge[CHUNK], scratch[CHUNK], bound = -INFINITY, sum = 0;
    int64_t chunks = rank_chunks(n), n_groups = chunks * GROUPS, last = n / CHUNK;
    for (int64_t j = 0; last < chunks && j < CHUNK; j++)
        edge[j] = last * CHUNK + j < n ? values[last * CHUNK + j] : -INFINITY;
    for (int64_t c = 0; c < chunks; c++)
        NAME(group_maxima)(maxima + c * GROUPS, c < last ? values + c * CHUNK : edge);
    for (int64_t g = 0; g < n_groups; g++)
        found[g] = key_of(maxima[g], (uint32_t)g);
    uint64_t highest = largest_of(found, n_groups);
    float largest = value_of(highest);
    if (n_groups > k) {
        /* k groups reach this, so that at least k values do: few others have to be looked at. */
        keep_largest(found, n_groups, k);
        bound = value_of(smallest(found, k));
    }
    if (!(largest > -INFINITY))
        return 0;
    int64_t count = 0;
    for (int64_t g = 0; g < n_groups; g++) {
        if (!(maxima[g] >= bound))
            continue;
        const float *here = g / GROUPS < last ? values + g / GROUPS * CHUNK : edge;
        for (int64_t j = g % GROUPS; j < CHUNK; j += GROUPS)
            if (here[j] >= bound && here[j] > -INFINITY)
                found[count++] = key_of(here[j], (uint32_t)(g / GROUPS * CHUNK + j));
    }
    if (count < k)
        return 0;
    for (int64_t c = 0; c < chunks; c++)
        sum += NAME(sum_exps)(c < last ? values + c * CHUNK : edge, largest, scratch);
    keep_largest(found, count, k);
    sort_falling(found, k);
    for (int64_t j = 0; j < k; j++) {
        ids[j] = id_of(found[j]);
        best[j] = value_of(found[j]);
    }
    *total = sum;
    return 1;
}

static TARGET int NAME(rows)(int32_t *ids, float *best, float *total, const float *values,
                             uint64_t *found, int64_t rows, int64_t n, int64_t k)
{
    float *maxima = (float *)(found + rank_chunks(n) * CHUNK);
    int complete = 1;
    for (int64_t r = 0; r < rows; r++)
        complete &= NAME(row)(ids + r * k, best + r * k, total + r, values + r * n, found, maxima,
                              n, k);
    return complete;
}
