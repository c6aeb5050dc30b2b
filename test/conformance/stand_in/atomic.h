/* Stands in for glibc's own header of this name: what its tests use of it, by the compiler's atomics. */
#pragma once
#define atomic_load_relaxed(p)         __atomic_load_n(p, __ATOMIC_RELAXED)
#define atomic_load_acquire(p)         __atomic_load_n(p, __ATOMIC_ACQUIRE)
#define atomic_store_relaxed(p, v)     __atomic_store_n(p, v, __ATOMIC_RELAXED)
#define atomic_store_release(p, v)     __atomic_store_n(p, v, __ATOMIC_RELEASE)
#define atomic_fetch_add_relaxed(p, v) __atomic_fetch_add(p, v, __ATOMIC_RELAXED)
#define atomic_fetch_add_acq_rel(p, v) __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL)
