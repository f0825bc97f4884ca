/* One source for every instruction set; plain C is the reference. */
#include "charcnn.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "compiler.h"

#define NAME(f) charcnn_##f##_plain
#define TARGET
#define VECTOR float
#define LANES 1
#define LOAD(at) (*(at))
#define STORE(at, v) (*(at) = (v))
#define ADD(a, b) ((a) + (b))
#define MAX(a, b) ((b) > (a) ? (b) : (a))
#define LOWEST() (-INFINITY)
#include "charcnn_windows.h"
#undef NAME
#undef TARGET
#undef VECTOR
#undef LANES
#undef LOAD
#undef STORE
#undef ADD
#undef MAX
#undef LOWEST

#ifdef WITH_X86
#include <immintrin.h>

#define NAME(f) charcnn_##f##_avx2
#define TARGET __attribute__((target("avx2,fma")))
#define VECTOR __m256
#define LANES 8
#define LOAD(at) _mm256_loadu_ps(at)
#define STORE(at, v) _mm256_storeu_ps(at, v)
#define ADD(a, b) _mm256_add_ps(a, b)
#define MAX(a, b) _mm256_max_ps(b, a)
#define LOWEST() _mm256_set1_ps(-INFINITY)
#include "charcnn_windows.h"
#undef NAME
#undef TARGET
#undef VECTOR
#undef LANES
#undef LOAD
#undef STORE
#undef ADD
#undef MAX
#undef LOWEST

#define NAME(f) charcnn_##f##_avx512
#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")))
#define VECTOR __m512
#define LANES 16
#define LOAD(at) _mm512_loadu_ps(at)
#define STORE(at, v) _mm512_storeu_ps(at, v)
#define ADD(a, b) _mm512_add_ps(a, b)
#define MAX(a, b) _mm512_max_ps(b, a)
#define LOWEST() _mm512_set1_ps(-INFINITY)
#include "charcnn_windows.h"
#endif

#ifdef WITH_NEON
#include <arm_neon.h>

#define NAME(f) charcnn_##f##_neon
#define TARGET
#define VECTOR float32x4_t
#define LANES 4
#define LOAD(at) vld1q_f32(at)
#define STORE(at, v) vst1q_f32(at, v)
#define ADD(a, b) vaddq_f32(a, b)
/* vmaxq_f32 would keep a NaN, which the others do not. */
#define MAX(a, b) vbslq_f32(vcgtq_f32(b, a), b, a)
#define LOWEST() vdupq_n_f32(-INFINITY)
#include "charcnn_windows.h"
#endif

static const charcnn_kernels kernels_of[] = {
    {"plain", charcnn_largest_plain},
#ifdef WITH_X86
    {"avx2", charcnn_largest_avx2},
    {"avx_vnni", charcnn_largest_avx2},
    {"avx512", charcnn_largest_avx512},
    {"avx512_vnni", charcnn_largest_avx512},
#endif
#ifdef WITH_NEON
    {"neon", charcnn_largest_neon},
    {"neon_dot", charcnn_largest_neon},
#endif
};

const charcnn_kernels *charcnn_find(const char *name)
{
    for (size_t i = 0; i < sizeof kernels_of / sizeof kernels_of[0]; i++)
        if (strcmp(kernels_of[i].name, name) == 0)
            return &kernels_of[i];
    return NULL;
}
