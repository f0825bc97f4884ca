/* What this processor can do; filled once when the module is imported. */
#ifndef ELMORE_CPU_H
#define ELMORE_CPU_H

typedef struct {
    int avx2;        /* AVX2 with FMA and F16C */
    int avx512;      /* AVX-512 F, BW, VL and DQ */
    int avx512_vnni; /* the above with VNNI */
} cpu_features;

cpu_features cpu_detect(void);

#endif
