/* Waiting for child processes and for signals. */
#include "call.h"
#include "clock.h"
#include "putoff.h"
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

VT_EXPORT pid_t wait4(pid_t pid, int *status, int options, struct rusage *usage)
{
    if (!vt_on() || !vt_is_virtual())
        return vt_real(wait4)(pid, status, options, usage);
    vt_cancel_point();
    long ret = vt_sys4(SYS_wait4, pid, (long)status, options | WNOHANG, (long)usage);
    if (ret != 0 || (options & WNOHANG))
        return (pid_t)vt_result(ret);
    return VT_HANDED("wait", vt_real(wait4)(pid, status, options, usage));
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
    /* Nobody there gives 0 and a siginfo without a process. */
    siginfo_t now;
    now.si_pid = 0;
    now.si_signo = 0;
    long ret = vt_sys6(SYS_waitid, type, id, (long)&now, options | WNOHANG, 0, 0);
    if (ret != 0 || now.si_signo != 0 || (options & WNOHANG)) {
        if (ret == 0 && info)
            *info = now;
        return (int)vt_result(ret);
    }
    return VT_HANDED("waitid", vt_real(waitid)(type, id, info, options));
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
        uint64_t bit = UINT64_C(1) << (sig - 1);
        if (!(atomic_fetch_and_explicit(&t->pending, ~bit, memory_order_acq_rel) & bit))
            continue;
        vt_signal_describe(t, sig, info);
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
            struct timespec left = {(time_t)((deadline - now) / 1000000000),
                                    (long)((deadline - now) % 1000000000)};
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

VT_EXPORT int sigtimedwait(const sigset_t *restrict set, siginfo_t *restrict info,
                           const struct timespec *restrict timeout)
{
    siginfo_t got;
    if (!vt_on() || !vt_is_virtual())
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
    if (!vt_on() || !vt_is_virtual())
        return vt_real(sigwait)(set, sig);
    vt_cancel_point();
    while ((ret = wait_signal(set, &got, NULL)) == -EINTR)
        ; /* which sigwait does not give (POSIX) */
    if (ret < 0)
        return (int)-ret;
    *sig = (int)ret;
    return 0;
}

/* The kernel's mask follows the thread's, so that libc's calls see the right one. */
VT_EXPORT int sigsuspend(const sigset_t *set)
{
    if (!vt_on() || !vt_is_virtual())
        return vt_real(sigsuspend)(set);
    struct vt_thread *t = vt_self;
    uint64_t bits, old = t->sigmask;
    memcpy(&bits, set, sizeof bits);
    vt_handoff_begin("sigsuspend");
    /* What comes from now on is sent to this kernel thread, which lets it in when it sleeps, not before. */
    t->sigmask = bits;
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&t->pending, memory_order_seq_cst) & ~bits) {
        vt_sys_sigmask(bits);
        vt_signal_mask_is(bits); /* what is pending already runs here */
        vt_sys_sigmask(old);
        errno = EINTR;
    } else {
        vt_real(sigsuspend)(set);
    }
    vt_signal_mask_is(old);
    vt_handoff_end();
    return -1;
}
VT_ALIAS(sigsuspend, __sigsuspend);

VT_EXPORT int sigpending(sigset_t *set)
{
    int ret = vt_real(sigpending)(set);
    if (ret == 0 && vt_is_virtual()) {
        uint64_t bits;
        memcpy(&bits, set, sizeof bits);
        bits |= atomic_load_explicit(&vt_self->pending, memory_order_relaxed);
        memcpy(set, &bits, sizeof bits);
    }
    return ret;
}

VT_HANDED_FUNCTION(int, pause, (void), ())
