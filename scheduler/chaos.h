/* Random delays at the seams of the protocols, for tests: vt_chaos() is nothing unless VT_CHAOS is defined.
 *
 * With it the calling kernel thread goes on, pauses, gives the processor away or sleeps for some microseconds, by chance.
 * The environment variable VTHREAD_CHAOS seeds the chance (a number; without it 1). Any thread, also in a section and with
 * a spin lock held. Plain loads and stores only unless it delays: what the processor reorders at a seam stays reordered. */
#ifndef VT_CHAOS_H
#define VT_CHAOS_H

#ifdef VT_CHAOS

#include "arch.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>

static inline long vt_chaos_sys(long n, const void *a, const void *b)
{
    long ret;
    __asm__ volatile("syscall" : "=a"(ret) : "a"(n), "D"(a), "S"(b) : "rcx", "r11", "memory");
    return ret;
}

/* Of the kernel thread, or of the virtual thread, whose TLS it is: one as good as the other. Each source file has its own. */
static __thread uint32_t vt_chaos_state __attribute__((unused, tls_model("initial-exec")));

static __attribute__((noinline, unused)) uint32_t vt_chaos_seed(void)
{
    const char *text = getenv("VTHREAD_CHAOS");
    uint32_t seed = text ? (uint32_t)strtoul(text, NULL, 0) : 1;
    /* By the place in memory as well, so that no two threads delay alike. */
    seed = (seed + 1) * 0x9e3779b9u ^ (uint32_t)vt_chaos_sys(SYS_gettid, NULL, NULL) * 0x85ebca6bu ^
           (uint32_t)((uintptr_t)&vt_chaos_state >> 4);
    return seed ? seed : 1;
}

static __attribute__((noinline, unused)) void vt_chaos_delay(uint32_t x)
{
    if ((x & 127) == 0) {
        struct timespec t = {0, (long)(x >> 8 & 0xffff)};
        vt_chaos_sys(SYS_nanosleep, &t, NULL);
    } else if ((x & 15) == 0) {
        vt_chaos_sys(SYS_sched_yield, NULL, NULL);
    } else {
        for (unsigned i = x >> 8 & 127; i; i--)
            vt_cpu_relax();
    }
}

static inline __attribute__((unused)) uint32_t vt_chaos_next(void)
{
    uint32_t x = vt_chaos_state;
    if (!x)
        x = vt_chaos_seed();
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return vt_chaos_state = x;
}

static inline __attribute__((unused)) void vt_chaos(void)
{
    uint32_t x = vt_chaos_next();
    if ((x & 3) == 0)
        vt_chaos_delay(x >> 2);
}

#else

#define vt_chaos() ((void)0)

#endif

#endif
