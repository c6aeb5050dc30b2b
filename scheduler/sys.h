/* Raw system calls: no errno, no cancellation, no interposition. The result is the kernel's: >= 0, or -errno.
 */
#ifndef VT_SYS_H
#define VT_SYS_H

#include <errno.h>
#include <linux/futex.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

/* Newer than the headers may be. They have the same number on every architecture. */
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441
#endif
#ifndef SYS_memfd_secret
#define SYS_memfd_secret 447
#endif
#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

static inline long vt_sys6(long n, long a, long b, long c, long d, long e, long f)
{
    long ret;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return ret;
}

static inline long vt_sys0(long n)
{
    return vt_sys6(n, 0, 0, 0, 0, 0, 0);
}

static inline long vt_sys1(long n, long a)
{
    return vt_sys6(n, a, 0, 0, 0, 0, 0);
}

static inline long vt_sys2(long n, long a, long b)
{
    return vt_sys6(n, a, b, 0, 0, 0, 0);
}

static inline long vt_sys3(long n, long a, long b, long c)
{
    return vt_sys6(n, a, b, c, 0, 0, 0);
}

static inline long vt_sys4(long n, long a, long b, long c, long d)
{
    return vt_sys6(n, a, b, c, d, 0, 0);
}

/* Anonymous private memory that is not counted against overcommit; NULL when there is none. */
static inline void *vt_sys_map(size_t size)
{
    long ret = vt_sys6(SYS_mmap, 0, (long)size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return ret < 0 && ret > -4096 ? NULL : (void *)ret;
}

/* libc's signal for setuid (nptl/descr.h), and a mask for kernel threads that run no handler of the program's; see
 * setid.h. */
#define VT_SIGSETXID   33
#define VT_SIGCANCEL   32 /* and that of cancellation */
#define VT_ALL_SIGNALS (~(UINT64_C(1) << (VT_SIGSETXID - 1)))

/* Sets the calling kernel thread's signal mask (signals 1 to 64). */
static inline void vt_sys_sigmask(uint64_t mask)
{
    vt_sys4(SYS_rt_sigprocmask, 2 /* SIG_SETMASK */, (long)&mask, 0, sizeof mask);
}

/* Sleeps while *word is expected; until is CLOCK_MONOTONIC, absolute, or NULL. 0 or -errno. The second is by
 * CLOCK_REALTIME, and follows it where it is set. */
static inline long vt_sys_futex_wait(const void *word, uint32_t expected, const struct timespec *until)
{
    return vt_sys6(SYS_futex, (long)word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, expected, (long)until, 0,
                   FUTEX_BITSET_MATCH_ANY);
}

static inline long vt_sys_futex_wait_real(const void *word, uint32_t expected, const struct timespec *until)
{
    return vt_sys6(SYS_futex, (long)word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME, expected, (long)until,
                   0, FUTEX_BITSET_MATCH_ANY);
}

/* Closes the descriptors from..to of the calling task's table. */
static inline void vt_sys_close_range(long from, long to)
{
    if (vt_sys3(SYS_close_range, from, to, 0) == -ENOSYS)
        for (long fd = from; fd <= to && fd < 65536; fd++) /* before Linux 5.9 */
            vt_sys1(SYS_close, fd);
}

static inline long vt_sys_futex_wake(const void *word, uint32_t n)
{
    return vt_sys3(SYS_futex, (long)word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, n);
}

#endif
