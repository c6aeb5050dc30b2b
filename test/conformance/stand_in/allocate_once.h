/* Stands in for glibc's own header of this name: an object that is made at its first use, by one of those who want it. */
#pragma once
#include <stddef.h>
static inline void *allocate_once(void **place, void *(*make)(void *), void (*unmake)(void *, void *), void *with)
{
    void *there = __atomic_load_n(place, __ATOMIC_ACQUIRE);
    if (there)
        return there;
    void *mine = make(with);
    if (mine && !__atomic_compare_exchange_n(place, &there, mine, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        unmake(with, mine);
        return there;
    }
    return mine;
}
