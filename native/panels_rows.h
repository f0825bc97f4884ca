/* A row of activations as bytes; included once for each instruction set (NAME, TARGET, OFFSET;
 * EXTRA(x) is what a number adds to `extra`).
 *
 * scale = max |x| / 127; x / scale, as a product with 127 / max |x|, is rounded half to even to the
 * first byte. The second has what that leaves over in steps of 1 / 256, cut off at 127 of them. The
 * operations are the same everywhere, so the bytes are the same everywhere too.
 */
static TARGET void NAME(quantize)(uint8_t *restrict bytes, float *restrict scale,
                                  int32_t *restrict extra, const float *restrict values,
                                  int64_t k, int terms)
{
    float lanes[16] = {0};
    int64_t i = 0, depth = panels_up(k, 4);
    for (; i + 16 <= k; i += 16)
        for (int64_t j = 0; j < 16; j++) {
            float size = fabsf(values[i + j]);
            lanes[j] = size > lanes[j] ? size : lanes[j];
        }
    float most = 0;
    for (int64_t j = 0; j < 16; j++)
        most = lanes[j] > most ? lanes[j] : most;
    for (; i < k; i++) {
        float size = fabsf(values[i]);
        most = size > most ? size : most;
    }
    /* Rows too small for a scale are zero. */
    int usable = most > 1e-30f;
    *scale = usable ? most / 127.0f : 0.0f;
    float factor = usable ? 127.0f / most : 0.0f;
    /* Adding 1.5 * 2^23 leaves the rounded number in the low bits. */
    const float rounding = 12582912.0f;
    int32_t more = 0;
    for (i = 0; i < k; i++) {
        float shifted = values[i] * factor + rounding;
        uint32_t bits;
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
        float left = (exact - (shifted - rounding)) * 256.0f;
        left = left > 127.0f ? 127.0f : left;
        left = (left < -127.0f ? -127.0f : left) + rounding;
        uint32_t bits;
        memcpy(&bits, &left, 4);
        bytes[depth + i] = (uint8_t)(bits + OFFSET);
        more += EXTRA((int32_t)(bits - 0x4b400000));
    }
    extra[1] = more;
    for (; i < depth; i++)
        bytes[depth + i] = OFFSET;
}
