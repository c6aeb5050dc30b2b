/* What only a kernel thread has. A virtual thread that asks for it is bound to its kernel thread (bound.h),
 * and one for which another asks too; then the kernel does what it does for any thread. */
#include "kernel.h"

#include "bound.h"
#include "call.h"
#include "cputime.h"
#include "life.h"
#include "park.h"
#include "place.h"
#include "preload.h"
#include "real.h"
#include "start.h"
#include "sys.h"
#include "tcb.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_sched_setattr
#define SYS_sched_setattr 314
#define SYS_sched_getattr 315
#endif
#define VT_IOPRIO_WHO_PROCESS 1
#define VT_PIDFD_THREAD       O_EXCL

/* --- threads by their ids --------------------------------------------------------------------------- */

static int named(pid_t id, struct vt_named *named, bool change)
{
    *named = (struct vt_named){.id = id};
    if (id == 0 || (vt_self && (pid_t)vt_self->tid == id)) {
        named->id = 0;
        return 0;
    }
    if (id < 0 || (uint32_t)id < VT_TCB_TID_MIN)
        return 0; /* a kernel thread's, or nobody's */
    struct vt_thread *t = vt_by_tid((uint32_t)id);
    if (!t)
        return -ESRCH;
    if (change) {
        pid_t kernel = vt_bind_other(t, (uint32_t)id);
        if (kernel <= 0)
            return kernel ? kernel : -ESRCH;
        *named = (struct vt_named){kernel, t};
        return 0;
    }
    if (!vt_hold(t))
        return -ESRCH;
    bool same = t->tid == (uint32_t)id;
    if (same && atomic_load_explicit(&t->bound_for_good, memory_order_acquire)) {
        named->id = t->carrier->tid;
        named->held = t;
        return 0;
    }
    vt_release();
    /* All carriers are made by the keeper. */
    named->id = vt_keeper();
    return same ? 0 : -ESRCH;
}

int vt_named_to_change(pid_t id, struct vt_named *n)
{
    return named(id, n, true);
}

int vt_named_to_ask(pid_t id, struct vt_named *n)
{
    return named(id, n, false);
}

void vt_named_done(struct vt_named *n)
{
    if (n->held)
        vt_release();
}

/* --- what is inherited ------------------------------------------------------------------------------ */

bool vt_kernel_inherits(void)
{
    struct vt_thread *t = vt_self;
    return t && (t->differs || atomic_load_explicit(&t->bound_for_good, memory_order_relaxed));
}

static bool same_answer(long number, pid_t keeper, long second, size_t size)
{
    char mine[1024] = {0}, theirs[1024] = {0};
    long a = number == SYS_getpriority ? vt_sys2(number, PRIO_PROCESS, 0)
                                       : vt_sys3(number, 0, second ? second : (long)mine, (long)mine),
         b = number == SYS_getpriority ? vt_sys2(number, PRIO_PROCESS, keeper)
                                       : vt_sys3(number, keeper, second ? second : (long)theirs, (long)theirs);
    return a == b && memcmp(mine, theirs, size) == 0;
}

/* The calling kernel thread has changed itself by the call number. */
static void changed(long number)
{
    struct vt_thread *t = vt_self;
    pid_t keeper = vt_keeper();
    /* Before there are carriers they inherit it, a child of vfork is another process, and these are not
     * inherited. */
    if (!keeper || (t && t->vforked) || number == SYS_perf_event_open)
        return;
    t = vt_current();
    if (number == SYS_sched_setaffinity || number == SYS_sched_setscheduler || number == SYS_sched_setparam ||
        number == SYS_sched_setattr || number == SYS_setpriority)
        t->differs = !same_answer(SYS_sched_getaffinity, keeper, 1024, 1024) ||
                     !same_answer(SYS_sched_getscheduler, keeper, 0, 0) ||
                     !same_answer(SYS_sched_getparam, keeper, 0, sizeof(struct sched_param)) ||
                     !same_answer(SYS_getpriority, keeper, 0, 0);
    else
        atomic_store_explicit(&t->bound_for_good, true, memory_order_relaxed);
}

/* --- calls ------------------------------------------------------------------------------------------ */

static long call(long number, const long a[6])
{
    return vt_sys6(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

struct number {
    long number;
    const long *a;
};

static long call_number(void *arg)
{
    struct number *n = arg;
    return call(n->number, n->a);
}

/* By which the calling thread alone is changed. */
static long change_self(long number, const long a[6])
{
    struct number n = {number, a};
    if (vt_is_ours())
        return vt_bind_for(call_number, &n);
    long ret = call(number, a);
    if (ret >= 0)
        changed(number);
    return ret;
}

/* Whether the call would leave the thread as it is: programs set again what is there, and the threads need
 * not be bound for that. */
static bool is_so_already(long number, const long a[6], pid_t id)
{
    struct sched_param param = {0};
    switch (number) {
    case SYS_sched_setaffinity: {
        char now[1024] = {0};
        size_t size = (size_t)a[1], n = size < sizeof now ? size : sizeof now;
        long got = vt_sys3(SYS_sched_getaffinity, id, sizeof now, (long)now);
        return got > 0 && size >= (size_t)got && a[2] && memcmp(now, (void *)a[2], n) == 0;
    }
    case SYS_sched_setscheduler:
    case SYS_sched_setparam:
        return a[number == SYS_sched_setparam ? 1 : 2] && vt_sys2(SYS_sched_getparam, id, (long)&param) == 0 &&
               param.sched_priority == ((struct sched_param *)a[number == SYS_sched_setparam ? 1 : 2])->sched_priority &&
               (number == SYS_sched_setparam || vt_sys1(SYS_sched_getscheduler, id) == (int)a[1]);
    case SYS_setpriority:
        return vt_sys2(SYS_getpriority, PRIO_PROCESS, id) == 20 - (int)a[2];
    default:
        return false;
    }
}

/* Changes the thread that argument at names. */
static long change(long number, const long a[6], int at)
{
    struct vt_named n;
    long b[6];
    memcpy(b, a, sizeof b);
    long ret = vt_named_to_ask((pid_t)a[at], &n);
    if (ret < 0)
        return ret;
    bool unbound = n.id == 0 ? vt_is_ours() && !vt_self->bound_for_good : !n.held && n.id != (pid_t)a[at];
    bool so = unbound && is_so_already(number, a, n.id);
    vt_named_done(&n);
    if (so)
        return 0;
    if ((ret = vt_named_to_change((pid_t)a[at], &n)) < 0)
        return ret;
    b[at] = n.id;
    ret = n.id ? call(number, b) : change_self(number, b);
    vt_named_done(&n);
    return ret;
}

static long ask(long number, const long a[6], int at)
{
    struct vt_named n;
    long b[6];
    memcpy(b, a, sizeof b);
    long ret = vt_named_to_ask((pid_t)a[at], &n);
    if (ret < 0)
        return ret;
    b[at] = n.id;
    ret = call(number, b);
    vt_named_done(&n);
    return ret;
}

/* Options that change the kernel thread alone. */
static bool option_of_thread(long option, long arg)
{
    switch (option) {
    case PR_SET_PDEATHSIG:
    case PR_SET_KEEPCAPS:
    case PR_SET_SECCOMP:
    case PR_CAPBSET_DROP:
    case PR_SET_TSC:
    case PR_SET_SECUREBITS:
    case PR_SET_TIMERSLACK:
    case PR_TASK_PERF_EVENTS_DISABLE:
    case PR_TASK_PERF_EVENTS_ENABLE:
    case PR_MCE_KILL:
    case PR_SET_NO_NEW_PRIVS:
    case PR_SET_SPECULATION_CTRL:
    case 57: /* PR_SET_IO_FLUSHER */
    case 59: /* PR_SET_SYSCALL_USER_DISPATCH */
    case 62: /* PR_SCHED_CORE */
        return true;
    case PR_CAP_AMBIENT:
        return arg != PR_CAP_AMBIENT_IS_SET;
    default:
        return false;
    }
}

static long prctl_call(const long a[6])
{
    /* What main asks for before it becomes another user, or of its timers, does not matter to those that it
     * makes. */
    if (!vt_is_ours() && (a[0] == PR_SET_KEEPCAPS || a[0] == PR_SET_TIMERSLACK || a[0] == PR_SET_PDEATHSIG))
        return call(SYS_prctl, a);
    return change_self(SYS_prctl, a);
}

/* The header of capget and capset names a thread. */
static long capabilities(long number, const long a[6])
{
    struct __user_cap_header_struct *given = (void *)a[0], header = *given;
    struct vt_named n;
    long ret = vt_named_to_ask(header.pid, &n);
    if (ret < 0)
        return ret;
    bool self = n.id == 0;
    header.pid = n.id;
    long b[6] = {(long)&header, a[1]};
    ret = number == SYS_capset && self ? change_self(number, b) : call(number, b);
    vt_named_done(&n);
    given->version = header.version;
    return ret;
}

/* A clock of a virtual thread's processor time: as the kernel numbers those of its threads, with an id above
 * all of theirs. */
#define VT_CLOCK_TURNS 15

static clockid_t clock_of(const struct vt_thread *t)
{
    int32_t id = (int32_t)(VT_TCB_TID_MIN + (t->generation % VT_CLOCK_TURNS << 24 | t->index));
    return (clockid_t)((uint32_t)~id << 3 | 6);
}

/* The thread whose clock it is; NULL if it is none of these, or that one's thread has ended. */
static struct vt_thread *of_clock(clockid_t clock, bool *ours)
{
    uint32_t id = (uint32_t) ~(clock >> 3);
    *ours = clock < 0 && (clock & 7) == 6 && id >= VT_TCB_TID_MIN && id < UINT32_C(1) << 28;
    if (!*ours)
        return NULL;
    struct vt_thread *t = vt_descriptor((id - VT_TCB_TID_MIN) & 0xffffff);
    return t && atomic_load_explicit(&t->alive, memory_order_acquire) && clock_of(t) == clock ? t : NULL;
}

/* True if the clock is one of a virtual thread: *ret is the result. */
static bool clock_call(clockid_t clock, struct timespec *ts, long *ret)
{
    bool ours = false;
    struct vt_thread *t = clock == CLOCK_THREAD_CPUTIME_ID && vt_is_ours() ? vt_self : of_clock(clock, &ours);
    if (!t && !ours)
        return false;
    *ret = -EINVAL;
    if (t && (t == vt_self || vt_hold(t))) {
        uint64_t ns = vt_cpu_time(t);
        if (t != vt_self)
            vt_release();
        *ts = (struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
        *ret = 0;
    }
    return true;
}

/* A timer on the clock of a thread, or whose signal goes to one: makes clock and event those that the kernel
 * knows, the event by a copy in *space. 0 or -errno; then *n is to be given back after the call. */
static long timer_prepare(clockid_t *clock, const struct sigevent **event, struct sigevent *space, struct vt_named *n)
{
    bool ours = false;
    struct vt_thread *t = of_clock(*clock, &ours);
    *n = (struct vt_named){0};
    if (ours) {
        long err = t ? vt_named_to_change((pid_t)t->tid, n) : -EINVAL;
        if (err < 0)
            return err == -ESRCH ? -EINVAL : err;
        *clock = n->id ? (clockid_t)((uint32_t)~n->id << 3 | 6) : CLOCK_THREAD_CPUTIME_ID;
        vt_named_done(n);
        *n = (struct vt_named){0};
    }
    if (*clock == CLOCK_THREAD_CPUTIME_ID && !vt_bind())
        return -EAGAIN;
    if (*event && (*event)->sigev_notify == SIGEV_THREAD_ID && (uint32_t)(*event)->_sigev_un._tid >= VT_TCB_TID_MIN) {
        long err = vt_named_to_change((*event)->_sigev_un._tid, n);
        if (err < 0)
            return err == -ESRCH ? -EINVAL : err;
        if (n->id == 0 && !vt_bind())
            return -EAGAIN;
        *space = **event;
        space->_sigev_un._tid = n->id ? n->id : vt_self->carrier->tid;
        *event = space;
    }
    return 0;
}

static long timer_call(const long a[6])
{
    clockid_t clock = (clockid_t)a[0];
    const struct sigevent *event = (const struct sigevent *)a[1];
    struct sigevent space;
    struct vt_named n;
    long ret = timer_prepare(&clock, &event, &space, &n);
    if (ret == 0) {
        ret = vt_sys3(SYS_timer_create, clock, (long)event, a[2]);
        vt_named_done(&n);
    }
    return ret;
}

static long usage_of_thread(struct rusage *usage)
{
    long ret = vt_sys2(SYS_getrusage, RUSAGE_THREAD, (long)usage);
    if (ret != 0)
        return ret;
    /* The time is the thread's own, split as the kernel thread's is; the kernel's own numbers are as coarse.
     */
    uint64_t ns = vt_cpu_time(vt_self);
    uint64_t user = (uint64_t)usage->ru_utime.tv_sec * 1000000 + (uint64_t)usage->ru_utime.tv_usec,
             system = (uint64_t)usage->ru_stime.tv_sec * 1000000 + (uint64_t)usage->ru_stime.tv_usec;
    uint64_t us = ns / 1000, in_system = user + system ? (uint64_t)((double)us * (double)system / (double)(user + system)) : 0;
    usage->ru_stime = (struct timeval){(time_t)(in_system / 1000000), (suseconds_t)(in_system % 1000000)};
    us -= in_system;
    usage->ru_utime = (struct timeval){(time_t)(us / 1000000), (suseconds_t)(us % 1000000)};
    return 0;
}

/* Signals of a descriptor go to a thread. */
static bool set_owner(const long a[6], long *ret)
{
    struct f_owner_ex owner = *(struct f_owner_ex *)a[2];
    struct vt_named n;
    if (owner.type != F_OWNER_TID || (uint32_t)owner.pid < VT_TCB_TID_MIN)
        return false;
    *ret = vt_named_to_change(owner.pid, &n);
    if (*ret == 0 && n.id == 0 && !vt_bind())
        *ret = -EAGAIN;
    if (*ret == 0) {
        owner.pid = n.id ? n.id : vt_self->carrier->tid;
        long b[6] = {a[0], a[1], (long)&owner};
        *ret = call(SYS_fcntl, b);
        vt_named_done(&n);
    }
    return true;
}

static void name_if_owner(struct vt_thread *t, void *arg)
{
    struct f_owner_ex *owner = arg;
    if (atomic_load_explicit(&t->bound_for_good, memory_order_acquire) && t->carrier->tid == owner->pid)
        owner->pid = (pid_t)t->tid;
}

static void name_owner(struct f_owner_ex *owner)
{
    if (owner->type == F_OWNER_TID && owner->pid > 0)
        vt_each(name_if_owner, owner);
}

/* A thread is to get a policy, before it has it. */
static void policy_comes(int policy)
{
    policy &= ~SCHED_RESET_ON_FORK;
    if (policy != SCHED_OTHER && policy != SCHED_BATCH && policy != SCHED_IDLE)
        vt_park_realtime();
}

bool vt_kernel_call(long number, const long a[6], long *ret)
{
    long b[6];
    struct vt_named n;
    if (number == SYS_sched_setscheduler)
        policy_comes((int)a[1]);
    else if (number == SYS_sched_setattr)
        vt_park_realtime(); /* it may be; what the address says is for the kernel to find out */
    if (!vt_sched.nplaces)  /* there are no virtual threads */
        return false;
    memcpy(b, a, sizeof b);
    switch (number) {
    case SYS_sched_setaffinity:
    case SYS_sched_setscheduler:
    case SYS_sched_setparam:
    case SYS_sched_setattr:
        *ret = change(number, a, 0);
        return true;
    case SYS_sched_getaffinity:
    case SYS_sched_getscheduler:
    case SYS_sched_getparam:
    case SYS_sched_getattr:
    case SYS_sched_rr_get_interval:
        *ret = ask(number, a, 0);
        return true;
    case SYS_setpriority:
    case SYS_ioprio_set:
        if (a[0] != (number == SYS_setpriority ? PRIO_PROCESS : VT_IOPRIO_WHO_PROCESS))
            return false;
        *ret = change(number, a, 1);
        return true;
    case SYS_getpriority:
    case SYS_ioprio_get:
        if (a[0] != (number == SYS_getpriority ? PRIO_PROCESS : VT_IOPRIO_WHO_PROCESS))
            return false;
        *ret = ask(number, a, 1);
        return true;
    case SYS_setns:
    case SYS_unshare:
        *ret = change_self(number, a);
        return true;
    /* By number they change the thread alone, behind libc's back: who does so wants that. */
    case SYS_setuid:
    case SYS_setgid:
    case SYS_setreuid:
    case SYS_setregid:
    case SYS_setresuid:
    case SYS_setresgid:
    case SYS_setgroups:
        *ret = change_self(number, a);
        return true;
    case SYS_setfsuid:
    case SYS_setfsgid:
        if ((uint32_t)a[0] == UINT32_MAX) /* which asks */
            return false;
        *ret = change_self(number, a);
        return true;
    case SYS_personality:
        if ((uint32_t)a[0] == UINT32_MAX)
            return false;
        *ret = change_self(number, a);
        return true;
    case SYS_seccomp:
        if (a[0] > SECCOMP_SET_MODE_FILTER || (a[0] == SECCOMP_SET_MODE_FILTER && (a[1] & SECCOMP_FILTER_FLAG_TSYNC)))
            return false;
        *ret = change_self(number, a);
        return true;
    case SYS_prctl:
        if (!option_of_thread(a[0], a[1]))
            return false;
        *ret = prctl_call(a);
        return true;
    case SYS_capget:
    case SYS_capset:
        if (!a[0])
            return false;
        *ret = capabilities(number, a);
        return true;
    case SYS_perf_event_open:
        *ret = (int)a[1] < 0 ? call(number, a) : change(number, a, 1);
        return true;
    case SYS_timer_create:
        if (a[1] || (clockid_t)a[0] < 0 || a[0] == CLOCK_THREAD_CPUTIME_ID) {
            *ret = timer_call(a);
            return true;
        }
        return false;
    case SYS_clock_gettime:
        return a[1] && clock_call((clockid_t)a[0], (struct timespec *)a[1], ret);
    case SYS_getrusage:
        if ((int)a[0] != RUSAGE_THREAD || !a[1] || !vt_is_ours())
            return false;
        *ret = usage_of_thread((struct rusage *)a[1]);
        return true;
    case SYS_pidfd_open:
        if (!(a[1] & VT_PIDFD_THREAD) || (uint32_t)a[0] < VT_TCB_TID_MIN)
            return false;
        /* The end of the kernel thread is that of a thread that is bound to it. */
        *ret = vt_named_to_change((pid_t)a[0], &n);
        if (*ret == 0 && n.id == 0 && !vt_bind())
            *ret = -EAGAIN;
        if (*ret == 0) {
            b[0] = n.id ? n.id : vt_self->carrier->tid;
            *ret = call(number, b);
            vt_named_done(&n);
        }
        return true;
    case SYS_fcntl:
        if (a[1] == F_SETOWN_EX && a[2])
            return set_owner(a, ret);
        if (a[1] == F_GETOWN_EX && (*ret = call(number, a)) == 0)
            name_owner((struct f_owner_ex *)a[2]);
        return a[1] == F_GETOWN_EX;
    default:
        return false;
    }
}

/* --- libc's names ----------------------------------------------------------------------------------- */

static long by_number(long number, long a, long b, long c)
{
    const long all[6] = {a, b, c};
    long ret;
    return vt_kernel_call(number, all, &ret) ? ret : vt_sys3(number, a, b, c);
}

/* Defines name as the system call of that name. */
#define CALL(type, name, parameters, arguments, a, b, c)                                                                       \
    VT_EXPORT type name parameters                                                                                             \
    {                                                                                                                          \
        if (!vt_on())                                                                                                          \
            return vt_real(name) arguments;                                                                                    \
        return (type)vt_result(by_number(SYS_##name, (long)(a), (long)(b), (long)(c)));                                        \
    }

CALL(int, sched_setaffinity, (pid_t id, size_t size, const cpu_set_t *set), (id, size, set), id, size, set)
CALL(int, sched_setscheduler, (pid_t id, int policy, const struct sched_param *param), (id, policy, param), id, policy, param)
CALL(int, sched_getscheduler, (pid_t id), (id), id, 0, 0)
CALL(int, sched_setparam, (pid_t id, const struct sched_param *param), (id, param), id, param, 0)
CALL(int, sched_getparam, (pid_t id, struct sched_param *param), (id, param), id, param, 0)
CALL(int, sched_rr_get_interval, (pid_t id, struct timespec *ts), (id, ts), id, ts, 0)
CALL(int, setpriority, (__priority_which_t which, id_t id, int priority), (which, id, priority), which, id, priority)
CALL(int, setns, (int fd, int kind), (fd, kind), fd, kind, 0)
CALL(int, unshare, (int what), (what), what, 0, 0)
CALL(int, setfsuid, (uid_t id), (id), id, 0, 0)
CALL(int, setfsgid, (gid_t id), (id), id, 0, 0)
CALL(int, personality, (unsigned long persona), (persona), persona, 0, 0)

/* libc declares them in no header. */
int capset(struct __user_cap_header_struct *header, const struct __user_cap_data_struct *data);
int capget(struct __user_cap_header_struct *header, struct __user_cap_data_struct *data);
CALL(int, capset, (struct __user_cap_header_struct * header, const struct __user_cap_data_struct *data), (header, data), header,
     data, 0)
CALL(int, capget, (struct __user_cap_header_struct * header, struct __user_cap_data_struct *data), (header, data), header, data,
     0)

/* glibc's since 2.41. */
int sched_setattr(pid_t id, void *attr, unsigned flags);
int sched_getattr(pid_t id, void *attr, unsigned size, unsigned flags);

VT_EXPORT int sched_setattr(pid_t id, void *attr, unsigned flags)
{
    const long a[6] = {id, (long)attr, flags};
    long ret;
    return (int)vt_result(vt_on() && vt_kernel_call(SYS_sched_setattr, a, &ret) ? ret : call(SYS_sched_setattr, a));
}

VT_EXPORT int sched_getattr(pid_t id, void *attr, unsigned size, unsigned flags)
{
    const long a[6] = {id, (long)attr, size, flags};
    long ret;
    return (int)vt_result(vt_on() && vt_kernel_call(SYS_sched_getattr, a, &ret) ? ret : call(SYS_sched_getattr, a));
}

/* The system call says how many bytes it has written. */
static long get_affinity(pid_t id, size_t size, cpu_set_t *set)
{
    long n = by_number(SYS_sched_getaffinity, id, (long)size, (long)set);
    if (n < 0)
        return n;
    memset((char *)set + n, 0, size - (size_t)n);
    return 0;
}

VT_EXPORT int sched_getaffinity(pid_t id, size_t size, cpu_set_t *set)
{
    return vt_on() ? (int)vt_result(get_affinity(id, size, set)) : vt_real(sched_getaffinity)(id, size, set);
}

/* The system call gives 20 less the niceness. */
VT_EXPORT int getpriority(__priority_which_t which, id_t id)
{
    if (!vt_on())
        return vt_real(getpriority)(which, id);
    long ret = by_number(SYS_getpriority, which, (long)id, 0);
    return ret < 0 ? (int)vt_result(ret) : 20 - (int)ret;
}

VT_EXPORT int nice(int increment)
{
    if (!vt_on())
        return vt_real(nice)(increment);
    long now = 20 - by_number(SYS_getpriority, PRIO_PROCESS, 0, 0);
    long ret = by_number(SYS_setpriority, PRIO_PROCESS, 0, now + increment);
    if (ret < 0)
        return (int)vt_result(ret == -EACCES ? -EPERM : ret);
    return 20 - (int)by_number(SYS_getpriority, PRIO_PROCESS, 0, 0);
}

VT_EXPORT int timer_create(clockid_t clock, struct sigevent *event, timer_t *id)
{
    const struct sigevent *changed_event = event;
    struct sigevent space;
    struct vt_named n;
    if (!vt_on() || !vt_sched.nplaces)
        return vt_real(timer_create)(clock, event, id);
    long ret = timer_prepare(&clock, &changed_event, &space, &n);
    if (ret < 0)
        return (int)vt_result(ret);
    int made = vt_real(timer_create)(clock, (struct sigevent *)changed_event, id);
    vt_named_done(&n);
    return made;
}

VT_EXPORT int clock_gettime(clockid_t clock, struct timespec *ts)
{
    long ret;
    if (__builtin_expect(clock >= 0 && clock != CLOCK_THREAD_CPUTIME_ID, 1) || !clock_call(clock, ts, &ret))
        return vt_real(clock_gettime)(clock, ts);
    return (int)vt_result(ret);
}

VT_EXPORT int clock_getres(clockid_t clock, struct timespec *ts)
{
    bool ours;
    struct vt_thread *t = of_clock(clock, &ours);
    return vt_real(clock_getres)(t ? CLOCK_THREAD_CPUTIME_ID : clock, ts);
}

VT_EXPORT int getrusage(__rusage_who_t who, struct rusage *usage)
{
    if ((int)who != RUSAGE_THREAD || !vt_on() || !vt_is_ours())
        return vt_real(getrusage)(who, usage);
    return (int)vt_result(usage_of_thread(usage));
}

/* --- by handle -------------------------------------------------------------------------------------- */

/* The id of the virtual thread of this handle, or 0. */
static pid_t id_of(pthread_t thread)
{
    struct vt_thread *t = vt_of_handle(thread);
    return t && atomic_load_explicit(&t->alive, memory_order_acquire) ? (pid_t)t->tid : 0;
}

/* libc's call err on a kernel thread of libc's. */
static int done(pthread_t thread, long number, int err)
{
    if (err == 0 && vt_on() && thread == pthread_self())
        changed(number);
    return err;
}

/* For a virtual thread; 0 or an errno. */
static int by_handle(pthread_t thread, long number, long b, long c)
{
    pid_t id = id_of(thread);
    long ret = id ? by_number(number, id, b, c) : -ESRCH;
    return ret < 0 ? (int)-ret : 0;
}

VT_EXPORT int pthread_getschedparam(pthread_t thread, int *policy, struct sched_param *param)
{
    if (!vt_is_handle(thread))
        return vt_real(pthread_getschedparam)(thread, policy, param);
    pid_t id = id_of(thread);
    long ret = id ? by_number(SYS_sched_getscheduler, id, 0, 0) : -ESRCH;
    if (ret < 0)
        return (int)-ret;
    *policy = (int)ret;
    return by_handle(thread, SYS_sched_getparam, (long)param, 0);
}

VT_EXPORT int pthread_setschedparam(pthread_t thread, int policy, const struct sched_param *param)
{
    policy_comes(policy);
    if (!vt_is_handle(thread))
        return done(thread, SYS_sched_setscheduler, vt_real(pthread_setschedparam)(thread, policy, param));
    return by_handle(thread, SYS_sched_setscheduler, policy, (long)param);
}

VT_EXPORT int pthread_setschedprio(pthread_t thread, int priority)
{
    struct sched_param param = {.sched_priority = priority};
    if (!vt_is_handle(thread))
        return done(thread, SYS_sched_setparam, vt_real(pthread_setschedprio)(thread, priority));
    return by_handle(thread, SYS_sched_setparam, (long)&param, 0);
}

VT_EXPORT int pthread_setaffinity_np(pthread_t thread, size_t size, const cpu_set_t *set)
{
    if (!vt_is_handle(thread))
        return done(thread, SYS_sched_setaffinity, vt_real(pthread_setaffinity_np)(thread, size, set));
    return by_handle(thread, SYS_sched_setaffinity, (long)size, (long)set);
}

VT_EXPORT int pthread_getaffinity_np(pthread_t thread, size_t size, cpu_set_t *set)
{
    if (!vt_is_handle(thread))
        return vt_real(pthread_getaffinity_np)(thread, size, set);
    pid_t id = id_of(thread);
    return id ? (int)-get_affinity(id, size, set) : ESRCH;
}

VT_EXPORT int pthread_getcpuclockid(pthread_t thread, clockid_t *clock)
{
    if (!vt_is_handle(thread))
        return vt_real(pthread_getcpuclockid)(thread, clock);
    if (!id_of(thread))
        return ESRCH;
    *clock = clock_of(vt_of_handle(thread));
    return 0;
}
