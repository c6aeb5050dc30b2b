/* Stands in for glibc's own header of this name: what its semaphores and barriers are made of. */
#pragma once
#include "atomic.h"
#include <stdint.h>
#define __HAVE_64B_ATOMICS 1
#define SEM_NWAITERS_SHIFT 32
struct new_sem {
    uint64_t data;
    int private, pad;
};
struct pthread_barrier {
    unsigned in, current_round, count;
    int shared;
    unsigned out;
};
#define BARRIER_IN_THRESHOLD (UINT32_MAX / 2)
