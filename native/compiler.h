/* What the compiler offers beyond standard C11.
 *
 * Vector kernels need GCC or Clang. Other compilers (MSVC), and any with -DELMORE_PLAIN_C, build
 * plain C alone: nothing outside WITH_X86, WITH_NEON and this file may use an extension.
 */
#ifndef ELMORE_COMPILER_H
#define ELMORE_COMPILER_H

#if (defined(__GNUC__) || defined(__clang__)) && !defined(ELMORE_PLAIN_C)
#define PREFETCH(at) __builtin_prefetch(at)
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
/* GCC for Windows keeps AVX registers at addresses that it does not align (GCC bug 54412). */
#if defined(__x86_64__) && (!defined(__MINGW32__) || defined(__clang__))
#define WITH_X86 1
#if defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11
#define WITH_AVX_VNNI 1
#endif
#elif defined(__aarch64__) && !defined(__AARCH64EB__)
#define WITH_NEON 1
/* Old versions of Clang have the dot product only where the whole file is compiled for it. */
#ifdef __ARM_FEATURE_DOTPROD
#define TARGET_DOT
#elif !defined(__clang__)
#define TARGET_DOT __attribute__((target("arch=armv8.2-a+dotprod")))
#elif __clang_major__ >= 16
#define TARGET_DOT __attribute__((target("dotprod")))
#endif
#ifdef TARGET_DOT
#define WITH_NEON_DOT 1
#endif
#endif
#else
#define PREFETCH(at) ((void)(at))
#endif

/* A fused product would round differently from the reference. Other compilers get a flag. */
#ifdef _MSC_VER
#pragma fp_contract(off)
#endif

#endif
