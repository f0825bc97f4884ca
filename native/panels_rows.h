/* Passes over one row; included once for each instruction set (NAME, TARGET, OFFSET; EXTRA(x) is
 * what a number adds to `extra`). */

/* A row of activations as bytes.
 *
 * scale = max |x| / 127; x / scale, as a product with 127 / max |x|, is rounded half to even to the
 * first byte. The second has what that leaves over, at most a half, in steps of 1 / FINE_STEPS. The
 * operations are the same everywhere, so the bytes are the same everywhere too.
 */
static TARGET void NAME(quantize)(uint8_t *restrict bytes, float *restrict scale,
                                  int32_t *restrict extra, const float *restrict values,
                                  int64_t k, int terms)
{
    int64_t i = 0, depth = panels_up(k, 4);
    /* Sizes of floats have the order of their bits, and integers are what compilers vectorize. */
    uint32_t top = 0, bits;
    for (; i < k; i++) {
        memcpy(&bits, values + i, 4);
        bits &= 0x7fffffff;
        top = bits > top ? bits : top;
    }
    float most;
    memcpy(&most, &top, 4);
    /* Rows too small for a scale are zero; those with NaN stay NaN. */
    int zero = most <= 1e-30f;
    *scale = zero ? 0.0f : most / 127.0f;
    float factor = zero ? 0.0f : 127.0f / most;
    /* Adding 1.5 * 2^23 leaves the rounded number in the low bits. */
    const float rounding = 12582912.0f;
    int32_t more = 0;
    for (i = 0; i < k; i++) {
        float shifted = values[i] * factor + rounding;
        memcpy(&bits, &shifted, 4);
        bytes[i] = (uint8_t)(bits + OFFSET);
        more += EXTRA((int32_t)(bits - 0x4b400000));
    }
    extra[0] = more;
    for (; i < depth; i++)
        bytes[i] = OFFSET; /* a zero: the weights there are zero too */
    if (terms == 1)
        return;
    more = 0;
    for (i = 0; i < k; i++) {
        float exact = values[i] * factor, shifted = exact + rounding;
        float left = (exact - (shifted - rounding)) * FINE_STEPS + rounding;
        memcpy(&bits, &left, 4);
        bytes[depth + i] = (uint8_t)(bits + OFFSET);
        more += EXTRA((int32_t)(bits - 0x4b400000));
    }
    extra[1] = more;
    for (; i < depth; i++)
        bytes[depth + i] = OFFSET;
}

static TARGET void NAME(add)(float *output, const float *before, const float *restrict tile,
                             float bound, int64_t columns)
{
    for (int64_t j = 0; j < columns; j++) {
        float value = before[j] + tile[j];
        value = value > bound ? bound : value;
        output[j] = value < -bound ? -bound : value;
    }
}
