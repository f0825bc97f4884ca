/* One source for every instruction set: plain C is the reference, the others are the same loops
 * compiled for wider vectors. */
#include "lstm.h"

#include <stddef.h>
#include <string.h>

#include "compiler.h"

#define NAME(f) lstm_##f##_plain
#define TARGET
#define MADD(a, b, c) ((a) * (b) + (c))
#include "lstm_gates.h"
#undef NAME
#undef TARGET
#undef MADD

#ifdef WITH_X86
#define MADD(a, b, c) __builtin_fmaf((a), (b), (c))

#define NAME(f) lstm_##f##_avx2
#define TARGET __attribute__((target("avx2,fma")))
#include "lstm_gates.h"
#undef NAME
#undef TARGET

#define NAME(f) lstm_##f##_avx512
#ifdef __clang__ /* which does not know the last one and would drop them all */
#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")))
#else
#define TARGET                                                                                    \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,prefer-vector-width=512")))
#endif
#include "lstm_gates.h"
#undef NAME
#undef TARGET
#undef MADD
#endif

#ifdef WITH_NEON
#define NAME(f) lstm_##f##_neon
#define TARGET
#define MADD(a, b, c) __builtin_fmaf((a), (b), (c))
#include "lstm_gates.h"
#endif

static const lstm_kernels kernels[] = {
    {"plain", lstm_forward_plain, lstm_backward_plain, lstm_cells_plain},
#ifdef WITH_X86
    {"avx2", lstm_forward_avx2, lstm_backward_avx2, lstm_cells_avx2},
    {"avx_vnni", lstm_forward_avx2, lstm_backward_avx2, lstm_cells_avx2},
    {"avx512", lstm_forward_avx512, lstm_backward_avx512, lstm_cells_avx512},
    /* VNNI and the dot product of bytes add nothing for floats. */
    {"avx512_vnni", lstm_forward_avx512, lstm_backward_avx512, lstm_cells_avx512},
#endif
#ifdef WITH_NEON
    {"neon", lstm_forward_neon, lstm_backward_neon, lstm_cells_neon},
    {"neon_dot", lstm_forward_neon, lstm_backward_neon, lstm_cells_neon},
#endif
};

const lstm_kernels *lstm_find(const char *name)
{
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++)
        if (strcmp(kernels[i].name, name) == 0)
            return &kernels[i];
    return NULL;
}
