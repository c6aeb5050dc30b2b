/* Waiting for child processes and for signals. */
#include "call.h"
#include "catcher.h"
#include "clock.h"
#include "io.h"
#include "life.h"
#include "putoff.h"
#include "sigqueue.h"
#include "start.h"
#include "sys.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- children --------------------------------------------------------------------------------------- */

/* Options of the kernel's with which the wait is the same from any kernel thread. With __WNOTHREAD only the children of this
 * one count; the others are those of tracers, for which the kernel thread matters too: it stays theirs. */
#define PARKED_OPTIONS (WNOHANG | WUNTRACED | WEXITED | WCONTINUED | WNOWAIT)

/* Parks until there is something to report of such a child, or no such child any more. It stays to be reported. 0, -EINTR,
 * or VT_RETRY when it has to be waited for otherwise. */
static long park_for_child(int type, id_t id, int options)
{
    if (!vt_io_can(VT_IO_WAITID) || (options & ~PARKED_OPTIONS))
        return VT_RETRY;
    struct vt_io_req req = {
        .opcode = VT_IO_WAITID, .fd = (int32_t)id, .len = (uint32_t)type, .index = (uint32_t)options | WNOWAIT};
    unsigned flags = VT_PARK_RESTARTABLE;
    for (;;) {
        int32_t ret = vt_io_do(&req, VT_NEVER, flags);
        if (ret == 0 || ret == -ECHILD)
            return 0;
        if (ret != -EINTR)
            return VT_RETRY;
        if (vt_io_interrupted(&flags))
            return ret;
    }
}

/* The kernel's wait4 as far as it can be had by parking; else VT_RETRY. */
static long wait4_parked(pid_t pid, int *status, int options, struct rusage *usage)
{
    for (;;) {
        long ret = vt_sys4(SYS_wait4, pid, (long)status, options | WNOHANG, (long)usage);
        if (ret != 0 || (options & WNOHANG))
            return ret;
        ret = park_for_child(pid == -1 ? P_ALL
                             : pid > 0 ? P_PID
                                       : P_PGID,
                             (id_t)(pid > 0     ? pid
                                    : pid == -1 ? 0
                                                : -pid),
                             options | WEXITED);
        if (ret != 0)
            return ret;
    }
}

static long waitid_parked(int type, id_t id, siginfo_t *info, int options, struct rusage *usage)
{
    for (;;) {
        siginfo_t unwanted, *now = info ? info : &unwanted;
        long ret = vt_sys6(SYS_waitid, type, id, (long)now, options | WNOHANG, (long)usage, 0);
        /* Nobody there gives 0 and a siginfo without a signal. */
        if (ret != 0 || now->si_signo != 0 || (options & WNOHANG))
            return ret;
        /* A descriptor may be non-blocking, which is not the ring's business. */
        ret = type == P_ALL || type == P_PID || type == P_PGID ? park_for_child(type, id, options) : VT_RETRY;
        if (ret != 0)
            return ret;
    }
}

long vt_call_wait4(pid_t pid, int *status, int options, struct rusage *usage)
{
    long ret = wait4_parked(pid, status, options, usage);
    if (ret == VT_RETRY)
        ret = VT_HANDED_POINT("wait", vt_sys4(SYS_wait4, pid, (long)status, options, (long)usage));
    return ret;
}

long vt_call_waitid(int type, id_t id, siginfo_t *info, int options, struct rusage *usage)
{
    long ret = waitid_parked(type, id, info, options, usage);
    if (ret == VT_RETRY)
        ret = VT_HANDED_POINT("wait", vt_sys6(SYS_waitid, type, id, (long)info, options, (long)usage, 0));
    return ret;
}

VT_EXPORT pid_t wait4(pid_t pid, int *status, int options, struct rusage *usage)
{
    if (!vt_on() || !vt_is_virtual())
        return vt_real(wait4)(pid, status, options, usage);
    vt_cancel_point();
    long ret = wait4_parked(pid, status, options, usage);
    if (ret == VT_RETRY) /* libc's: a cancellation ends it */
        return VT_HANDED("wait", vt_real(wait4)(pid, status, options, usage));
    return (pid_t)vt_result(ret);
}

VT_EXPORT pid_t waitpid(pid_t pid, int *status, int options)
{
    if (!vt_on() || !vt_is_virtual())
        return vt_real(waitpid)(pid, status, options);
    return wait4(pid, status, options, NULL);
}
VT_ALIAS(waitpid, __waitpid);

VT_EXPORT pid_t wait(int *status)
{
    if (!vt_on() || !vt_is_virtual())
        return vt_real(wait)(status);
    return wait4(-1, status, 0, NULL);
}
VT_ALIAS(wait, __wait);

VT_EXPORT pid_t wait3(int *status, int options, struct rusage *usage)
{
    if (!vt_on() || !vt_is_virtual())
        return vt_real(wait3)(status, options, usage);
    return wait4(-1, status, options, usage);
}

VT_EXPORT int waitid(idtype_t type, id_t id, siginfo_t *info, int options)
{
    if (!vt_on() || !vt_is_virtual())
        return vt_real(waitid)(type, id, info, options);
    vt_cancel_point();
    long ret = waitid_parked(type, id, info, options, NULL);
    if (ret == VT_RETRY)
        return VT_HANDED("wait", vt_real(waitid)(type, id, info, options));
    return (int)vt_result(ret);
}

VT_HANDED_FUNCTION(int, system, (const char *command), (command))
VT_HANDED_FUNCTION(FILE *, popen, (const char *command, const char *mode), (command, mode))
VT_HANDED_FUNCTION(int, pclose, (FILE * stream), (stream))

/* --- signals ---------------------------------------------------------------------------------------- */

/* A signal that was sent to the calling virtual thread alone, which is one of set: its number, or 0. */
static int take_pending(uint64_t set, siginfo_t *info)
{
    struct vt_thread *t = vt_self;
    uint64_t there;
    while ((there = atomic_load_explicit(&t->pending, memory_order_seq_cst) & set) != 0) {
        int sig = __builtin_ctzl(there) + 1;
        if (vt_sigqueue_take(t, sig, info))
            return sig;
    }
    return 0;
}

static long wait_signal(const sigset_t *set, siginfo_t *info, const struct timespec *timeout)
{
    struct vt_thread *t = vt_self;
    const struct timespec none = {0, 0};
    uint64_t bits;
    if (timeout && (timeout->tv_sec < 0 || !vt_nsec_valid(timeout)))
        return -EINVAL;
    memcpy(&bits, set, sizeof bits);
    uint64_t deadline = timeout ? vt_deadline_in(vt_timespec_ns(timeout)) : VT_NEVER;
    vt_wait_begins(t);
    for (;;) {
        long ret = take_pending(bits, info);
        if (ret == 0) /* what has been sent to the process */
            ret = vt_sys4(SYS_rt_sigtimedwait, (long)&bits, (long)info, (long)&none, sizeof bits);
        if (ret == -EAGAIN) {
            uint64_t now = vt_now();
            if (now >= deadline)
                return -EAGAIN;
            struct timespec left = {(time_t)((deadline - now) / 1000000000), (long)((deadline - now) % 1000000000)};
            vt_handoff_begin("sigwait");
            /* On this kernel thread until we know. Said before pending is looked at, see vt_signal_send. */
            atomic_store_explicit(&t->awaited, bits, memory_order_seq_cst);
            if ((atomic_load_explicit(&t->pending, memory_order_seq_cst) & bits) == 0) {
                /* libc's: a cancellation ends it, in whatever moment it comes. */
                int saved = errno;
                vt_wait_begins(t);
                ret = vt_real(sigtimedwait)(set, info, deadline == VT_NEVER ? NULL : &left);
                if (ret < 0) {
                    ret = -errno;
                    errno = saved;
                    if (ret == -EINTR && vt_handed_in_vain())
                        ret = -EAGAIN; /* again, for what is left of the time */
                }
            }
            atomic_store_explicit(&t->awaited, 0, memory_order_seq_cst);
            vt_handoff_end();
            if (ret == -EAGAIN)
                continue;
        }
        /* A kick that was meant for another thread has ended the call: no handler has run. */
        if (ret == -EINTR && !vt_interrupted(t, VT_PARK_INTERRUPTIBLE))
            continue;
        /* Of a kick the thread's own word knows. */
        if (ret < 0 || vt_signal_mine((int)ret, info))
            return ret;
    }
}

static void called_for(const sigset_t *set)
{
    uint64_t bits;
    memcpy(&bits, set, sizeof bits);
    vt_catch_called_for(bits);
}

VT_EXPORT int sigtimedwait(const sigset_t *restrict set, siginfo_t *restrict info, const struct timespec *restrict timeout)
{
    siginfo_t got;
    if (vt_on())
        called_for(set);
    if (!vt_on() || !vt_is_ours())
        return vt_real(sigtimedwait)(set, info, timeout);
    vt_cancel_point();
    long ret = wait_signal(set, &got, timeout);
    if (ret > 0 && info)
        *info = got;
    return (int)vt_result(ret);
}

VT_EXPORT int sigwaitinfo(const sigset_t *restrict set, siginfo_t *restrict info)
{
    return sigtimedwait(set, info, NULL);
}

VT_EXPORT int sigwait(const sigset_t *restrict set, int *restrict sig)
{
    siginfo_t got;
    long ret;
    if (vt_on())
        called_for(set);
    if (!vt_on() || !vt_is_ours())
        return vt_real(sigwait)(set, sig);
    vt_cancel_point();
    while ((ret = wait_signal(set, &got, NULL)) == -EINTR)
        ; /* which sigwait does not give (POSIX) */
    if (ret < 0)
        return (int)-ret;
    *sig = (int)ret;
    return 0;
}

/* The kernel's mask follows the thread's, so that libc's calls see the right one. Ends when a handler has run and not
 * before: what wakes this kernel thread may be a kick whose signal the thread has taken already, or one for another. */
VT_EXPORT int sigsuspend(const sigset_t *set)
{
    if (!vt_on() || !vt_is_ours()) {
        vt_signal_waits_with(set);
        return vt_real(sigsuspend)(set);
    }
    struct vt_thread *t = vt_self;
    uint64_t bits, old = t->sigmask;
    memcpy(&bits, set, sizeof bits);
    vt_handoff_begin("sigsuspend");
    vt_wait_begins(t);
    do {
        /* What comes from now on is sent to this kernel thread, which lets it in when it sleeps, not before. */
        t->sigmask = bits;
        atomic_thread_fence(memory_order_seq_cst);
        if (atomic_load_explicit(&t->pending, memory_order_seq_cst) & ~bits) {
            vt_sys_sigmask(bits);
            vt_signal_mask_is(bits); /* what is pending already runs here */
            vt_sys_sigmask(old);
        } else {
            vt_real(sigsuspend)(set);
        }
        vt_signal_mask_is(old);
    } while (vt_handed_in_vain());
    vt_handoff_end();
    errno = EINTR;
    return -1;
}
VT_ALIAS(sigsuspend, __sigsuspend);

VT_EXPORT int sigpending(sigset_t *set)
{
    int ret = vt_real(sigpending)(set);
    if (ret == 0 && vt_is_ours()) {
        uint64_t bits;
        memcpy(&bits, set, sizeof bits);
        bits |= atomic_load_explicit(&vt_self->pending, memory_order_relaxed);
        memcpy(set, &bits, sizeof bits);
    }
    return ret;
}

/* Signals as the kernel has them: sets of eight bytes. */
static sigset_t full_set(const void *bits)
{
    sigset_t set;
    memset(&set, 0, sizeof set);
    memcpy(&set, bits, sizeof(uint64_t));
    return set;
}

bool vt_signal_number(long number, const long a[6], long *ret)
{
    struct vt_thread *t;
    siginfo_t info;
    sigset_t set;
    uint64_t bits = 0;
    if (number == SYS_rt_tgsigqueueinfo) {
        if (a[0] != vt_sys0(SYS_getpid) || !(t = vt_by_tid((uint32_t)a[1])) || a[2] < 1 || a[2] > 64 || !a[3])
            return false;
        info = *(const siginfo_t *)a[3];
        info.si_signo = (int)a[2];
        *ret = info.si_code >= 0 || info.si_code == SI_TKILL ? (t == vt_self ? 0 : -EPERM) : 0;
        if (*ret == 0)
            *ret = -vt_signal_post(t, &info);
        return true;
    }
    if (number == SYS_rt_sigtimedwait && a[3] == sizeof bits && a[0])
        vt_catch_called_for(*(uint64_t *)a[0]);
    if (number == SYS_rt_sigprocmask) {
        *ret = vt_sys4(number, a[0], a[1], a[2], a[3]);
        if (*ret == 0 && a[1])
            vt_signal_mask_changed();
        return true;
    }
    if (!vt_is_ours())
        return false;
    switch (number) {
    case SYS_rt_sigpending:
        *ret = vt_sys2(number, a[0], a[1]);
        if (*ret == 0 && a[1] == sizeof bits)
            *(uint64_t *)a[0] |= atomic_load_explicit(&vt_self->pending, memory_order_relaxed);
        return true;
    case SYS_rt_sigtimedwait:
        if (a[3] != sizeof bits || !a[0])
            return false;
        set = full_set((void *)a[0]);
        *ret = wait_signal(&set, &info, (const struct timespec *)a[2]);
        if (*ret > 0 && a[1])
            *(siginfo_t *)a[1] = info;
        return true;
    case SYS_rt_sigsuspend:
        if (a[1] != sizeof bits || !a[0])
            return false;
        set = full_set((void *)a[0]);
        int saved = errno;
        sigsuspend(&set);
        errno = saved;
        *ret = -EINTR;
        return true;
    default:
        return false;
    }
}

VT_HANDED_FUNCTION(int, pause, (void), ())

/* The argument is a mask of the first 32 signals, or a signal that is let in. */
int __sigpause(int sig_or_mask, int is_sig);
int __xpg_sigpause(int sig);

VT_EXPORT int __sigpause(int sig_or_mask, int is_sig)
{
    if (!vt_on() || !vt_is_virtual()) {
        sigset_t others;
        sigfillset(&others);
        if (is_sig)
            sigdelset(&others, sig_or_mask);
        else
            memcpy(&others, &sig_or_mask, sizeof sig_or_mask);
        vt_signal_waits_with(&others);
        return vt_real(__sigpause)(sig_or_mask, is_sig);
    }
    uint64_t bits = (uint32_t)sig_or_mask;
    if (is_sig) {
        if (sig_or_mask < 1 || sig_or_mask > 64) {
            errno = EINVAL;
            return -1;
        }
        bits = vt_self->sigmask & ~(UINT64_C(1) << (sig_or_mask - 1));
    }
    sigset_t set;
    memset(&set, 0, sizeof set);
    memcpy(&set, &bits, sizeof bits);
    return sigsuspend(&set);
}

/* The header makes the name sigpause that of __xpg_sigpause. */
int bsd_sigpause(int mask) __asm__("sigpause");

VT_EXPORT int bsd_sigpause(int mask)
{
    return __sigpause(mask, 0);
}

VT_EXPORT int __xpg_sigpause(int sig)
{
    return __sigpause(sig, 1);
}
