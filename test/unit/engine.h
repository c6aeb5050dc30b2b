/* The engine itself, below the interposed functions, for tests that run it. */
#ifndef ENGINE_H
#define ENGINE_H

#include "config.h"
#include "handoff.h"
#include "io.h"
#include "life.h"
#include "park.h"
#include "place.h"
#include "ring.h"
#include "sys.h"

#include "real.h"

#include <check.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MS UINT64_C(1000000)
#define US UINT64_C(1000)

/* Holds in any thread: Check's own assertions are for the main one. */
#define HOLDS(x)                                                                                                               \
    do {                                                                                                                       \
        if (!(x)) {                                                                                                            \
            dprintf(2, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #x);                                                   \
            abort();                                                                                                           \
        }                                                                                                                      \
    } while (0)

#define EQUALS(x, y)                                                                                                           \
    do {                                                                                                                       \
        long long x_ = (long long)(x), y_ = (long long)(y);                                                                    \
        if (x_ != y_) {                                                                                                        \
            dprintf(2, "%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #x, x_, y_);                                       \
            abort();                                                                                                           \
        }                                                                                                                      \
    } while (0)

static inline void engine_start(unsigned carriers, unsigned max_carriers, enum vt_io_backend io)
{
    vt_config = (struct vt_config){.carriers = carriers, .max_carriers = max_carriers, .io = io};
    EQUALS(vt_life_start(), 0);
    EQUALS(vt_sched_start(), 0);
}

static inline struct vt_thread *spawn_with(void *(*start)(void *), void *arg, bool detached)
{
    struct vt_spec spec = {
        .start = start, .arg = arg, .stack_size = 64 << 10, .guard_size = 4096, .detached = detached, .name = "test"};
    uint64_t handle;
    EQUALS(vt_create(&spec, &handle), 0);
    return (struct vt_thread *)(uintptr_t)(handle & VT_HANDLE_ADDR);
}

static inline struct vt_thread *spawn(void *(*start)(void *), void *arg)
{
    return spawn_with(start, arg, false);
}

static inline void *join(struct vt_thread *t)
{
    void *result;
    EQUALS(vt_join(t, &result, VT_NEVER, 0), 0);
    return result;
}

static inline void sleep_until(uint64_t deadline)
{
    while (vt_now() < deadline)
        vt_block(deadline);
}

static inline void sleep_for(uint64_t ns)
{
    sleep_until(vt_now() + ns);
}

/* A number below n; each caller has its own state. */
static inline uint32_t any(uint32_t *state, uint32_t n)
{
    uint32_t x = *state ? *state : 1;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    *state = x;
    return (uint32_t)((uint64_t)x * n >> 32);
}

/* Waits, as a kernel or virtual thread, until *word is at least n; who changes it calls reached(). */
static inline void await_count(_Atomic uint32_t *word, uint32_t n)
{
    uint32_t now;
    while ((now = atomic_load(word)) < n)
        vt_park(word, now, VT_NEVER, VT_BITS_ALL, 0);
}

static inline void add_count(_Atomic uint32_t *word, uint32_t n)
{
    atomic_fetch_add(word, n);
    vt_unpark(word, UINT32_MAX, VT_BITS_ALL);
}

static inline int engine_main(Suite *s)
{
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
