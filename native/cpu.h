/* The instruction sets that kernels are compiled for, and which of them this processor has. */
#ifndef ELMORE_CPU_H
#define ELMORE_CPU_H

/* From plain C to the best of each processor. */
#define CPU_SETS 7
extern const char *const cpu_sets[CPU_SETS];

/* Whether a set was compiled and both the processor and the operating system support it. */
int cpu_has(const char *set);
/* The last of cpu_sets that is there. */
const char *cpu_best(void);

#endif
