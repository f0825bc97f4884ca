/* One source for every instruction set. A value and its word are one number, by which candidates
 * are selected and sorted: larger values first, of equal ones the smaller id. */
#include "rank.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "compiler.h"

enum { LANES = 16, GROUPS = 64, CHUNK = 4096 };

static inline int64_t rank_chunks(int64_t n)
{
    return (n + CHUNK - 1) / CHUNK;
}

int64_t rank_bytes(int64_t n)
{
    return rank_chunks(n) * (CHUNK * (int64_t)sizeof(uint64_t) + GROUPS * (int64_t)sizeof(float));
}

/* Floats as unsigned numbers in the same order, and what is not the id below them. */
static inline uint64_t key_of(float value, uint32_t id)
{
    uint32_t bits;
    value += 0.0f; /* minus zero is zero */
    memcpy(&bits, &value, sizeof bits);
    bits ^= bits >> 31 ? 0xffffffffu : 0x80000000u;
    return (uint64_t)bits << 32 | (0xffffffffu - id);
}

static inline float value_of(uint64_t key)
{
    uint32_t bits = (uint32_t)(key >> 32);
    bits ^= bits >> 31 ? 0x80000000u : 0xffffffffu;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline int32_t id_of(uint64_t key)
{
    return (int32_t)(0xffffffffu - (uint32_t)key);
}

static uint64_t smallest(const uint64_t *keys, int64_t n)
{
    uint64_t least = keys[0];
    for (int64_t i = 1; i < n; i++)
        least = keys[i] < least ? keys[i] : least;
    return least;
}

static uint64_t largest_of(const uint64_t *keys, int64_t n)
{
    uint64_t most = keys[0];
    for (int64_t i = 1; i < n; i++)
        most = keys[i] > most ? keys[i] : most;
    return most;
}

/* Divide keys[low..high] around the one in the middle; all keys differ. */
static int64_t divide(uint64_t *keys, int64_t low, int64_t high)
{
    uint64_t middle = keys[low + (high - low) / 2];
    int64_t i = low - 1, j = high + 1;
    for (;;) {
        do
            i++;
        while (keys[i] > middle);
        do
            j--;
        while (keys[j] < middle);
        if (i >= j)
            return j;
        uint64_t other = keys[i];
        keys[i] = keys[j];
        keys[j] = other;
    }
}

/* Move the k largest of n keys to the front, in any order (Hoare's selection). */
static void keep_largest(uint64_t *keys, int64_t n, int64_t k)
{
    int64_t low = 0, high = n - 1;
    while (low < high) {
        int64_t border = divide(keys, low, high);
        if (border >= k - 1)
            high = border;
        else
            low = border + 1;
    }
}

static void sort_falling(uint64_t *keys, int64_t n)
{
    while (n > 24) { /* the smaller part by recursion, so that its depth is small */
        int64_t front = divide(keys, 0, n - 1) + 1;
        if (front < n - front) {
            sort_falling(keys, front);
            keys += front;
            n -= front;
        } else {
            sort_falling(keys + front, n - front);
            n = front;
        }
    }
    for (int64_t i = 1; i < n; i++) {
        uint64_t key = keys[i];
        int64_t j = i;
        for (; j > 0 && keys[j - 1] < key; j--)
            keys[j] = keys[j - 1];
        keys[j] = key;
    }
}

#define NAME(f) rank_##f##_plain
#define TARGET
#define MADD(a, b, c) ((a) * (b) + (c))
#include "rank_rows.h"
#undef NAME
#undef TARGET
#undef MADD

#ifdef WITH_X86
#define MADD(a, b, c) __builtin_fmaf((a), (b), (c))

#define NAME(f) rank_##f##_avx2
#define TARGET __attribute__((target("avx2,fma")))
#include "rank_rows.h"
#undef NAME
#undef TARGET

#define NAME(f) rank_##f##_avx512
#ifdef __clang__ /* which does not know the last one and would drop them all */
#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")))
#else
#define TARGET                                                                                    \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,prefer-vector-width=512")))
#endif
#include "rank_rows.h"
#undef NAME
#undef TARGET
#undef MADD
#endif

#ifdef WITH_NEON
#define NAME(f) rank_##f##_neon
#define TARGET
#define MADD(a, b, c) __builtin_fmaf((a), (b), (c))
#include "rank_rows.h"
#endif

static const rank_kernels kernels[] = {
    {"plain", rank_rows_plain},
#ifdef WITH_X86
    {"avx2", rank_rows_avx2},
    {"avx_vnni", rank_rows_avx2},
    {"avx512", rank_rows_avx512},
    {"avx512_vnni", rank_rows_avx512},
#endif
#ifdef WITH_NEON
    {"neon", rank_rows_neon},
    {"neon_dot", rank_rows_neon},
#endif
};

const rank_kernels *rank_find(const char *name)
{
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++)
        if (strcmp(kernels[i].name, name) == 0)
            return &kernels[i];
    return NULL;
}
