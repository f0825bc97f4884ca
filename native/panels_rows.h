/* A row of activations as bytes; included once for each instruction set (NAME, TARGET, OFFSET;
 * EXTRA(x) is what a number adds to `extra`).
 *
 * scale = max |x| / 127, byte = round half to even of x / scale: the same operations everywhere,
 * so the bytes are the same everywhere too.
 */
static TARGET void NAME(quantize)(uint8_t *restrict bytes, float *restrict scale,
                                  int32_t *restrict extra, const float *restrict values,
                                  int64_t k)
{
    float lanes[16] = {0};
    int64_t i = 0;
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
    float unit = most > 1e-30f ? most / 127.0f : 0.0f;
    float divisor = unit > 0 ? unit : INFINITY;
    *scale = unit;
    int32_t more = 0;
    for (i = 0; i < k; i++) {
        /* Adding 1.5 * 2^23 leaves the rounded number in the low bits. */
        float shifted = values[i] / divisor + 12582912.0f;
        uint32_t bits;
        memcpy(&bits, &shifted, 4);
        bytes[i] = (uint8_t)(bits + OFFSET);
        more += EXTRA((int32_t)bits - 0x4b400000);
    }
    *extra = more;
    for (; i < panels_up(k, 4); i++)
        bytes[i] = OFFSET; /* a zero: the weights there are zero too */
}
