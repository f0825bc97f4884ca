/* Packing, the products of all instruction sets, and the walk over a whole matrix. */
#include "panels.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "compiler.h"

/* Steps of the second byte of an input in one step of the first. */
#define FINE_STEPS 254.0f

/* ---------------------------------------------------------------- plain C, the reference */

static float half_to_float(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fff, bits;
    if (rest >= 0x7c00)
        bits = sign | 0x7f800000 | (rest & 0x3ff) << 13;
    else if (rest >= 0x400)
        bits = sign | ((rest << 13) + (112u << 23));
    else {
        float small = (float)rest * 5.9604644775390625e-08f; /* 2^-24 */
        memcpy(&bits, &small, 4);
        bits |= sign;
    }
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static void panels_tile_plain(float *out, const panels_matrix *matrix, const panels_input *input,
                              int64_t row, int64_t rows, int64_t group, int64_t begin, int64_t end)
{
    int terms = panels_terms(matrix->kind);
    int64_t depth = terms ? panels_up(matrix->k, 4) : matrix->k;
    for (int64_t p = 0; p < 4; p++)
        for (int64_t r = 0; r < rows; r++) {
            int64_t first = (group * 4 + p) * depth * PANEL;
            float *to = out + r * GROUP + p * PANEL;
            if (terms) {
                int32_t sums[2 * PANEL] = {0};
                const uint8_t *x = input->bytes + (row + r) * terms * depth;
                const int8_t *w = (const int8_t *)matrix->panels + first;
                for (int64_t t = 0; t < terms; t++)
                    for (int64_t k = begin; k < end; k++)
                        for (int64_t j = 0; j < PANEL; j++)
                            sums[t * PANEL + j] +=
                                (int8_t)x[t * depth + k] * w[(k / 4 * PANEL + j) * 4 + k % 4];
                const float *scales = matrix->scales + group * GROUP + p * PANEL;
                for (int64_t j = 0; j < PANEL; j++)
                    to[j] = ((float)sums[j] + (float)sums[PANEL + j] * (1 / FINE_STEPS)) *
                            (input->scales[row + r] * scales[j]);
                continue;
            }
            float sums[PANEL] = {0};
            const float *x = input->values + (row + r) * input->stride;
            if (matrix->kind == PANELS_FLOAT16) {
                const uint16_t *w = (const uint16_t *)matrix->panels + first;
                for (int64_t k = begin; k < end; k++)
                    for (int64_t j = 0; j < PANEL; j++)
                        sums[j] += x[k] * half_to_float(w[k * PANEL + j]);
            } else {
                const float *w = (const float *)matrix->panels + first;
                for (int64_t k = begin; k < end; k++)
                    for (int64_t j = 0; j < PANEL; j++)
                        sums[j] += x[k] * w[k * PANEL + j];
            }
            memcpy(to, sums, sizeof sums);
        }
}

#define NAME(f) panels_##f##_plain
#define TARGET
#define OFFSET 0
#define EXTRA(x) 0
#include "panels_rows.h"
#undef NAME
#undef TARGET
#undef OFFSET
#undef EXTRA

/* ---------------------------------------------------------------- x86 */

#ifdef WITH_X86
#include <immintrin.h>

#define VECTOR __m256
#define LANES 8
#define VECTORS 2
#define PANELS_OF_2 2
#define PANELS_OF_6 1
#define ZERO() _mm256_setzero_ps()
#define LOAD(at) _mm256_loadu_ps(at)
#define LOAD_HALF(at) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(at)))
#define SPREAD(x) _mm256_set1_ps(x)
#define FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define STORE(at, v) _mm256_storeu_ps(at, v)

#define BYTES __m256i
#define BYTE_VECTORS 2
#define BYTES_ZERO() _mm256_setzero_si256()
#define BYTES_LOAD(at) _mm256_loadu_si256((const __m256i *)(const void *)(at))
#define BYTES_SPREAD(four) _mm256_set1_epi32(four)
#define BYTES_STORE(at, sum) _mm256_storeu_si256((__m256i *)(void *)(at), sum)

/* Bytes with VNNI: (x + 128) times w, from which 128 times the sum of w is taken again. */
#ifdef WITH_AVX_VNNI
#define BYTES_DOT(sum, x, w) _mm256_dpbusd_avx_epi32(sum, x, w)
#define BYTES_AT_ONCE(rows) (rows)
#define BYTE_PANELS(rows) ((rows) == 1 ? 4 : (rows) == 2 ? 2 : 1)
#define OFFSET 128
#define EXTRA(x) 0
#define NAME(f) panels_##f##_avx_vnni
#define TARGET __attribute__((target("avx2,fma,f16c,avxvnni")))
#include "panels_rows.h"
#include "panels_tiles.h"
#undef NAME
#undef TARGET
#undef BYTES_DOT
#undef BYTES_AT_ONCE
#undef BYTE_PANELS
#undef OFFSET
#undef EXTRA
#endif

/* Bytes on AVX2: |x| times w, whose bits are turned over where x is negative. Turned over, w is
 * -w - 1, so a row's sums lack the sum of its negative numbers' sizes (EXTRA). A pair of products
 * stays within 2 * 127 * 128 = 32,512, so nothing saturates: the sums are exact. */
#define BYTES_DOT(sum, x, w)                                                                      \
    _mm256_add_epi32(                                                                             \
        sum, _mm256_madd_epi16(                                                                   \
                 _mm256_maddubs_epi16(                                                            \
                     _mm256_abs_epi8(x),                                                          \
                     _mm256_xor_si256(w, _mm256_cmpgt_epi8(_mm256_setzero_si256(), x))),          \
                 _mm256_set1_epi16(1)))
#define BYTES_AT_ONCE(rows) 1
#define BYTE_PANELS(rows) 4
#define OFFSET 0
#define EXTRA(x) ((x) < 0 ? -(x) : 0)

#define NAME(f) panels_##f##_avx2
#define TARGET __attribute__((target("avx2,fma,f16c")))
#include "panels_rows.h"
#include "panels_tiles.h"
#undef NAME
#undef TARGET
#undef VECTOR
#undef LANES
#undef VECTORS
#undef PANELS_OF_2
#undef PANELS_OF_6
#undef ZERO
#undef LOAD
#undef LOAD_HALF
#undef SPREAD
#undef FMA
#undef STORE

#define VECTOR __m512
#define LANES 16
#define VECTORS 1
#define PANELS_OF_2 4
#define PANELS_OF_6 4
#define ZERO() _mm512_setzero_ps()
#define LOAD(at) _mm512_loadu_ps(at)
#define LOAD_HALF(at) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(at)))
#define SPREAD(x) _mm512_set1_ps(x)
#define FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define STORE(at, v) _mm512_storeu_ps(at, v)

#define NAME(f) panels_##f##_avx512
#define TARGET                                                                                    \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")))
#include "panels_rows.h"
#include "panels_tiles.h"
#undef NAME
#undef TARGET

/* Bytes with VNNI, as above in 512 bits. */
#undef BYTES
#undef BYTE_VECTORS
#undef BYTES_ZERO
#undef BYTES_LOAD
#undef BYTES_SPREAD
#undef BYTES_DOT
#undef BYTES_STORE
#undef BYTES_AT_ONCE
#undef BYTE_PANELS
#undef OFFSET
#undef EXTRA
#define BYTES __m512i
#define BYTE_VECTORS 1
#define BYTES_ZERO() _mm512_setzero_si512()
#define BYTES_LOAD(at) _mm512_loadu_si512(at)
#define BYTES_SPREAD(four) _mm512_set1_epi32(four)
#define BYTES_DOT(sum, x, w) _mm512_dpbusd_epi32(sum, x, w)
#define BYTES_STORE(at, sum) _mm512_storeu_si512(at, sum)
#define BYTES_AT_ONCE(rows) (rows)
#define BYTE_PANELS(rows) 4
#define OFFSET 128
#define EXTRA(x) 0

#define NAME(f) panels_##f##_avx512_vnni
#define TARGET                                                                                    \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")))
#include "panels_rows.h"
#include "panels_tiles.h"
#undef NAME
#undef TARGET
#endif

/* ---------------------------------------------------------------- ARM */

#ifdef WITH_NEON
#include <arm_neon.h>

#define VECTOR float32x4_t
#define LANES 4
#define VECTORS 4
#define PANELS_OF_2 2
#define PANELS_OF_6 1
#define ZERO() vdupq_n_f32(0)
#define LOAD(at) vld1q_f32(at)
#define LOAD_HALF(at) vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(at)))
#define SPREAD(x) vdupq_n_f32(x)
#define FMA(a, b, c) vfmaq_f32(c, a, b)
#define STORE(at, v) vst1q_f32(at, v)

/* Both operands are signed, so nothing is to be taken off the sums. */
#define BYTES int32x4_t
#define BYTE_VECTORS 4
#define BYTES_ZERO() vdupq_n_s32(0)
#define BYTES_LOAD(at) vreinterpretq_s32_s8(vld1q_s8(at))
#define BYTES_SPREAD(four) vdupq_n_s32(four)
#define BYTES_STORE(at, sum) vst1q_s32(at, sum)
#define OFFSET 0

/* Products of 16 bits are added in pairs, which stay within 2 * 127 * 128 = 32,512: exact. */
static inline int32x4_t panels_dot_neon(int32x4_t sum, int32x4_t x, int32x4_t w)
{
    int8x16_t a = vreinterpretq_s8_s32(x), b = vreinterpretq_s8_s32(w);
    int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(b)), high = vmull_high_s8(a, b);
    return vpadalq_s16(sum, vpaddq_s16(low, high));
}

#define NAME(f) panels_##f##_neon
#define TARGET
#define BYTES_DOT(sum, x, w) panels_dot_neon(sum, x, w)
#define BYTES_AT_ONCE(rows) 1
#define BYTE_PANELS(rows) 4
#include "panels_tiles.h"
#undef NAME
#undef TARGET
#undef BYTES_DOT
#undef BYTES_AT_ONCE
#undef BYTE_PANELS

#ifdef WITH_NEON_DOT
#define NAME(f) panels_##f##_neon_dot
#define TARGET TARGET_DOT
#define BYTES_DOT(sum, x, w) vdotq_s32(sum, vreinterpretq_s8_s32(x), vreinterpretq_s8_s32(w))
#define BYTES_AT_ONCE(rows) (rows)
#define BYTE_PANELS(rows) ((rows) == 1 ? 4 : (rows) == 2 ? 2 : 1)
#include "panels_tiles.h"
#endif
#endif

static const panels_kernels kernels_of[] = {
    {"plain", panels_tile_plain, panels_quantize_plain, panels_add_plain},
#ifdef WITH_X86
    {"avx2", panels_tile_avx2, panels_quantize_avx2, panels_add_avx2},
#ifdef WITH_AVX_VNNI
    {"avx_vnni", panels_tile_avx_vnni, panels_quantize_avx_vnni, panels_add_avx_vnni},
#endif
    {"avx512", panels_tile_avx512, panels_quantize_avx512, panels_add_avx512},
    {"avx512_vnni", panels_tile_avx512_vnni, panels_quantize_avx512_vnni, panels_add_avx512_vnni},
#endif
/* Plain C is compiled to NEON here, and the bytes are those of plain C. */
#ifdef WITH_NEON
    {"neon", panels_tile_neon, panels_quantize_plain, panels_add_plain},
#endif
#ifdef WITH_NEON_DOT
    {"neon_dot", panels_tile_neon_dot, panels_quantize_plain, panels_add_plain},
#endif
};

const panels_kernels *panels_find(const char *name)
{
    for (size_t i = 0; i < sizeof kernels_of / sizeof kernels_of[0]; i++)
        if (strcmp(kernels_of[i].name, name) == 0)
            return &kernels_of[i];
    return NULL;
}

/* ---------------------------------------------------------------- whole matrices */

static int64_t item_bytes(int kind)
{
    return kind == PANELS_FLOAT32 ? 4 : kind == PANELS_FLOAT16 ? 2 : 1;
}

int64_t panels_bytes(int64_t n, int64_t k, int kind)
{
    int64_t depth = panels_terms(kind) ? panels_up(k, 4) : k;
    return panels_up(n, GROUP) * depth * item_bytes(kind);
}

/* Row of the matrix that a packed column holds, -1 for none. */
static int64_t source_row(int64_t column, int64_t n, int gates)
{
    if (!gates)
        return column < n ? column : -1;
    int64_t cells = n / 4, cell = column / GROUP * PANEL + column % PANEL;
    return cell < cells ? column % GROUP / PANEL * cells + cell : -1;
}

void panels_pack(void *packed, int32_t *sums, const void *values, int64_t n, int64_t k, int kind,
                 int gates)
{
    int64_t columns = gates ? 4 * panels_up(n / 4, PANEL) : panels_up(n, GROUP);
    int64_t depth = panels_terms(kind) ? panels_up(k, 4) : k;
    for (int64_t first = 0; first < columns; first += PANEL)
        for (int64_t j = 0; j < PANEL; j++) {
            int64_t row = source_row(first + j, n, gates);
            int64_t place = row < 0 ? 0 : row * k;
            if (kind == PANELS_FLOAT32) {
                float *to = (float *)packed + first * depth + j;
                const float *from = (const float *)values + place;
                for (int64_t i = 0; i < k; i++)
                    to[i * PANEL] = row < 0 ? 0 : from[i];
            } else if (kind == PANELS_FLOAT16) {
                uint16_t *to = (uint16_t *)packed + first * depth + j;
                const uint16_t *from = (const uint16_t *)values + place;
                for (int64_t i = 0; i < k; i++)
                    to[i * PANEL] = row < 0 ? 0 : from[i];
            } else {
                int8_t *to = (int8_t *)packed + first * depth + j * 4;
                const int8_t *from = (const int8_t *)values + place;
                int32_t sum = 0;
                for (int64_t i = 0; i < depth; i++) {
                    int8_t value = row < 0 || i >= k ? 0 : from[i];
                    to[i / 4 * 4 * PANEL + i % 4] = value;
                    sum += value;
                }
                sums[first + j] = sum;
            }
        }
}

int64_t panels_workspace(int64_t k, int kind)
{
    int terms = panels_terms(kind);
    return terms ? BLOCK_ROWS * (4 + terms * (4 + panels_up(k, 4))) : 0;
}

void panels_affine(const panels_kernels *kernels, float *output, const panels_matrix *matrix,
                   const float *input, const float *bias, void *workspace, float bound,
                   int64_t rows)
{
    int64_t n = matrix->n, k = matrix->k, depth = panels_up(k, 4);
    int terms = panels_terms(matrix->kind);
    float *scales = workspace;
    int32_t *extra = (int32_t *)(void *)(scales + BLOCK_ROWS);
    uint8_t *bytes = (uint8_t *)(extra + terms * BLOCK_ROWS);
    static const float zeros[GROUP];
    float tile[TILE_ROWS * GROUP];
    for (int64_t block = 0; block < rows; block += BLOCK_ROWS) {
        int64_t count = rows - block < BLOCK_ROWS ? rows - block : BLOCK_ROWS;
        panels_input x = {input + block * k, k, bytes, scales, extra};
        /* Integer sums may run over all inputs; floats are summed in pieces. */
        int64_t piece = DEPTH;
        if (terms) {
            piece = k;
            for (int64_t r = 0; r < count; r++)
                kernels->quantize(bytes + r * terms * depth, scales + r, extra + r * terms,
                                  x.values + r * k, k, terms);
        }
        for (int64_t begin = 0; begin < k; begin += piece) {
            int64_t end = k - begin < piece ? k : begin + piece;
            for (int64_t group = 0; group * GROUP < n; group++) {
                int64_t left = n - group * GROUP, columns = left < GROUP ? left : GROUP;
                for (int64_t r = 0; r < count; r += TILE_ROWS) {
                    int64_t few = count - r < TILE_ROWS ? count - r : TILE_ROWS;
                    kernels->tile(tile, matrix, &x, r, few, group, begin, end);
                    for (int64_t s = 0; s < few; s++) {
                        float *to = output + (block + r + s) * n + group * GROUP;
                        const float *before = begin ? to : bias ? bias + group * GROUP : zeros;
                        kernels->add(to, before, tile + s * GROUP, end == k ? bound : INFINITY,
                                     columns);
                    }
                }
            }
        }
    }
}
