/* FLUSHED(work) does `work` with denormal numbers read and written as zero, then restores the
 * thread's setting. Some processors are many times slower on denormal numbers, and the setting of
 * the caller's thread must not show in a result. */
#ifndef ELMORE_DENORMALS_H
#define ELMORE_DENORMALS_H

#include <stdint.h>

#include "compiler.h"

#if (defined(__x86_64__) || defined(_M_X64)) && !defined(ELMORE_PLAIN_C)
#include <xmmintrin.h>
#define FLUSHES 1
#define FLOAT_MODE() _mm_getcsr()
#define SET_FLOAT_MODE(mode) _mm_setcsr((unsigned int)(mode))
#define FLUSH_BITS 0x8040u /* flush to zero, denormals are zero */
#elif defined(WITH_NEON)
#define FLUSHES 1
static inline uint64_t float_mode(void)
{
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
}
#define FLOAT_MODE() float_mode()
#define SET_FLOAT_MODE(mode) __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)(mode)) : "memory")
#define FLUSH_BITS (UINT64_C(1) << 24) /* FZ */
#else
#define FLUSHES 0
#define FLOAT_MODE() 0
#define SET_FLOAT_MODE(mode) ((void)(mode))
#define FLUSH_BITS 0
#endif

/* `work` calls a function of another file: arithmetic that is inlined here could move past the
 * change of the setting. */
#define FLUSHED(work)                                                                             \
    do {                                                                                          \
        uint64_t mode_before = FLOAT_MODE();                                                      \
        SET_FLOAT_MODE(mode_before | FLUSH_BITS);                                                 \
        work;                                                                                     \
        SET_FLOAT_MODE(mode_before);                                                              \
    } while (0)

#endif
