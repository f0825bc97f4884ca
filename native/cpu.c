/* Finds the instruction sets that both the processor and the operating system support. */
#include "cpu.h"

cpu_features cpu_detect(void)
{
    cpu_features found = {0, 0, 0};
#if (defined(__GNUC__) || defined(__clang__)) && (defined(__x86_64__) || defined(__i386__))
    /* __builtin_cpu_supports looks at the saved register state of the system too. */
    __builtin_cpu_init();
    found.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                 __builtin_cpu_supports("f16c");
    found.avx512 = found.avx2 && __builtin_cpu_supports("avx512f") &&
                   __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                   __builtin_cpu_supports("avx512dq");
    found.avx512_vnni = found.avx512 && __builtin_cpu_supports("avx512vnni");
#endif
    return found;
}
