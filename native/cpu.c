/* Finds the instruction sets that both the processor and the operating system support. */
#include "cpu.h"

#include <stddef.h>
#include <string.h>

#include "compiler.h"

#if defined(WITH_X86)
#include <cpuid.h>
#elif defined(WITH_NEON_DOT) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(WITH_NEON_DOT) && defined(__APPLE__)
#include <sys/types.h>
#include <sys/sysctl.h>
#endif

const char *const cpu_sets[CPU_SETS] = {
    "plain",
    "avx2",        /* AVX2 with FMA and F16C */
    "avx_vnni",    /* the above with VNNI in 256 bits, of processors without AVX-512 */
    "avx512",      /* AVX2 with AVX-512 F, BW, VL and DQ */
    "avx512_vnni", /* the above with VNNI in 512 bits */
    "neon",        /* of every 64-bit ARM processor */
    "neon_dot",    /* the above with the dot product of bytes */
};

#ifdef WITH_X86
/* __builtin_cpu_supports looks at the saved register state of the system too, but not every
 * compiler lets it ask for F16C. */
static int has_avx2(void)
{
    unsigned int a, b, c, d;
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
}

#ifdef WITH_AVX_VNNI
static int has_avx_vnni(void)
{
    unsigned int a, b, c, d;
    return has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1) != 0;
}
#endif

static int has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

static int has_avx512_vnni(void)
{
    return has_avx512() && __builtin_cpu_supports("avx512vnni");
}
#endif

#ifdef WITH_NEON_DOT
static int has_neon_dot(void)
{
#if defined(__linux__)
    return (getauxval(AT_HWCAP) >> 20 & 1) != 0; /* HWCAP_ASIMDDP, missing in old headers */
#elif defined(__APPLE__)
    int present = 0;
    size_t size = sizeof present;
    return sysctlbyname("hw.optional.arm.FEAT_DotProd", &present, &size, NULL, 0) == 0 && present;
#else
    return 0;
#endif
}
#endif

int cpu_has(const char *set)
{
#ifdef WITH_X86
    if (strcmp(set, "avx2") == 0)
        return has_avx2();
#ifdef WITH_AVX_VNNI
    if (strcmp(set, "avx_vnni") == 0)
        return has_avx_vnni();
#endif
    if (strcmp(set, "avx512") == 0)
        return has_avx512();
    if (strcmp(set, "avx512_vnni") == 0)
        return has_avx512_vnni();
#endif
#ifdef WITH_NEON
    if (strcmp(set, "neon") == 0)
        return 1;
#endif
#ifdef WITH_NEON_DOT
    if (strcmp(set, "neon_dot") == 0)
        return has_neon_dot();
#endif
    return strcmp(set, "plain") == 0;
}

const char *cpu_best(void)
{
    int best = CPU_SETS - 1;
    while (!cpu_has(cpu_sets[best]))
        best--;
    return cpu_sets[best];
}
