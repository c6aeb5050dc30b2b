/* Creation, end and identity of threads. */
#include "call.h"
#include "cancel.h"
#include "clock.h"
#include "config.h"
#include "glibc.h"
#include "handoff.h"
#include "kernel.h"
#include "life.h"
#include "park.h"
#include "preload.h"
#include "real.h"
#include "slot.h"
#include "start.h"
#include "sys.h"
#include "tcb.h"
#include "undo.h"

#include <errno.h>
#include <execinfo.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <threads.h>
#include <unistd.h>

/* --- create --------------------------------------------------------------------------------------------------------- */

/* Whether attr asks for what only a kernel thread has: a real-time policy, a priority, processors. */
static bool wants_kernel_thread(const pthread_attr_t *attr)
{
    int inherit, policy;
    struct sched_param param;
    cpu_set_t any, set;
    if (pthread_attr_getinheritsched(attr, &inherit) == 0 && inherit == PTHREAD_EXPLICIT_SCHED &&
        pthread_attr_getschedpolicy(attr, &policy) == 0 && pthread_attr_getschedparam(attr, &param) == 0 &&
        (policy != SCHED_OTHER || param.sched_priority != 0)) {
        vt_park_realtime();
        return true;
    }
    /* Unset, the set is all ones. */
    memset(&any, 0xff, sizeof any);
    return vt_real(pthread_attr_getaffinity_np)(attr, sizeof set, &set) == 0 && !CPU_EQUAL(&set, &any);
}

static uint64_t current_mask(void)
{
    struct vt_thread *t = vt_current();
    if (t->kind != VT_KERNEL)
        return t->sigmask;
    uint64_t mask = 0;
    vt_sys4(SYS_rt_sigprocmask, 0, 0, (long)&mask, sizeof mask);
    return mask;
}

/* Since glibc 2.32. */
typedef int getsigmask_np(const pthread_attr_t *, sigset_t *);
extern getsigmask_np pthread_attr_getsigmask_np;

/* Fills spec from attr (NULL: the defaults). */
static void spec_from(struct vt_spec *spec, const pthread_attr_t *attr)
{
    pthread_attr_t defaults;
    int detached = PTHREAD_CREATE_JOINABLE;
    bool own = !attr;
    if (own) {
        if (vt_real(pthread_getattr_default_np)(&defaults) != 0)
            pthread_attr_init(&defaults);
        attr = &defaults;
    }
    void *addr = NULL;
    vt_real(pthread_attr_getstacksize)(attr, &spec->stack_size);
    vt_real(pthread_attr_getguardsize)(attr, &spec->guard_size);
    pthread_attr_getdetachstate(attr, &detached);
    spec->detached = detached == PTHREAD_CREATE_DETACHED;
    /* glibc leaves NULL or an address; getstack fails on neither. */
    size_t size;
    if (vt_real(pthread_attr_getstack)(attr, &addr, &size) == 0 && addr != NULL && (uintptr_t)addr + size != 0 &&
        (uintptr_t)addr < (uintptr_t) - (intptr_t)size) {
        spec->stack_addr = addr;
        spec->stack_size = size;
    }
    uint64_t mask;
    sigset_t set;
    spec->sigmask = current_mask();
    getsigmask_np *getsigmask = VT_OLD_GLIBC ? NULL : vt_real(pthread_attr_getsigmask_np);
    if (getsigmask && getsigmask(attr, &set) == 0) {
        memcpy(&mask, &set, sizeof mask);
        spec->sigmask = mask;
    }
    if (own) {
        pthread_attr_destroy(&defaults);
        if (vt_config.stack_size)
            spec->stack_size = vt_config.stack_size;
    }
}

/* A new thread has the name of the one that makes it. The kernel is asked once for a kernel thread's. */
static void own_name(char name[16])
{
    struct vt_thread *t = vt_current();
    if (t->kind == VT_KERNEL && !t->name[0])
        vt_sys2(SYS_prctl, PR_GET_NAME, (long)t->name);
    memcpy(name, t->name, sizeof t->name);
}

VT_EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *arg)
{
    if (!vt_on()) {
        vt_decided_off();
        return vt_real(pthread_create)(thread, attr, start, arg);
    }
    bool kernel = (attr && wants_kernel_thread(attr)) || vt_kernel_inherits();
    /* Who came by fork is virtual again as soon as there is anybody to wait for it. */
    if ((kernel && !(vt_self && vt_came_by_fork(vt_self))) || !vt_engine() || kernel)
        return vt_real(pthread_create)(thread, attr, start, arg);
    struct vt_spec spec = {.start = start, .arg = arg};
    spec_from(&spec, attr);
    own_name(spec.name);
    return vt_create(&spec, thread);
}

/* --- join ------------------------------------------------------------------------------------------------------------- */

static void testcancel(void)
{
    if (vt_self && (atomic_load_explicit(&vt_self->interrupt, memory_order_relaxed) & VT_CANCELLED))
        vt_cancel_now();
}

/* A virtual thread of ours: parks. */
static int join(pthread_t thread, void **result, uint64_t deadline, clockid_t clock)
{
    struct vt_thread *t = vt_of_handle(thread);
    int err;
    if (!t)
        return vt_handle_error(thread);
    testcancel();
    /* Only a cancellation ends a join: a signal does not (POSIX: shall not return EINTR). */
    while ((err = vt_join(t, result, deadline, VT_PARK_CANCELLABLE | vt_park_clock(clock))) == EINTR)
        testcancel();
    return err;
}

VT_EXPORT int pthread_join(pthread_t thread, void **result)
{
    if (vt_is_handle(thread))
        return join(thread, result, VT_NEVER, CLOCK_MONOTONIC);
    vt_handoff_begin("pthread_join");
    int err = vt_real(pthread_join)(thread, result);
    vt_handoff_end();
    return err;
}

VT_EXPORT int pthread_tryjoin_np(pthread_t thread, void **result)
{
    if (vt_is_handle(thread)) {
        struct vt_thread *t = vt_of_handle(thread);
        return t ? vt_join(t, result, 0, 0) : vt_handle_error(thread);
    }
    return vt_real(pthread_tryjoin_np)(thread, result);
}

VT_EXPORT int pthread_clockjoin_np(pthread_t thread, void **result, clockid_t clock, const struct timespec *abstime)
{
    if (!vt_is_handle(thread)) {
        vt_handoff_begin("pthread_clockjoin_np");
        int err = vt_real(pthread_clockjoin_np)(thread, result, clock, abstime);
        vt_handoff_end();
        return err;
    }
    uint64_t deadline = VT_NEVER;
    if (abstime) {
        if (abstime->tv_nsec < 0 || abstime->tv_nsec >= 1000000000)
            return EINVAL;
        if (clock != CLOCK_REALTIME && clock != CLOCK_MONOTONIC)
            return EINVAL;
        deadline = vt_deadline_at(abstime);
        if (deadline == 0)
            deadline = 1; /* 0 is a try, with another error */
    }
    return join(thread, result, deadline, clock);
}

VT_EXPORT int pthread_timedjoin_np(pthread_t thread, void **result, const struct timespec *abstime)
{
    if (vt_is_handle(thread))
        return pthread_clockjoin_np(thread, result, CLOCK_REALTIME, abstime);
    vt_handoff_begin("pthread_timedjoin_np");
    int err = vt_real(pthread_timedjoin_np)(thread, result, abstime);
    vt_handoff_end();
    return err;
}

VT_EXPORT int pthread_detach(pthread_t thread)
{
    if (!vt_is_handle(thread))
        return vt_real(pthread_detach)(thread);
    struct vt_thread *t = vt_of_handle(thread);
    return t ? vt_detach(t) : vt_handle_error(thread);
}

/* --- end --------------------------------------------------------------------------------------------------------------- */

VT_EXPORT void pthread_exit(void *result)
{
    struct vt_thread *t = vt_self;
    if (t && t->handle) {
        t->result = result;
        t->exited = true;
    }
    vt_undo_all();
    vt_real(pthread_exit)(result);
    __builtin_unreachable();
}

/* One of libc's. What it waits in may be ours, of which libc knows nothing. */
static int cancel_kernel(pthread_t thread)
{
    if (!vt_on())
        return vt_real(pthread_cancel)(thread);
    if (thread == pthread_self()) {
        vt_undo_all();
        vt_cancel_kernel((void *)thread); /* libc's call may not return */
    }
    int err = vt_real(pthread_cancel)(thread);
    if (err == 0 && thread != pthread_self())
        vt_cancel_kernel((void *)thread);
    vt_cancel_start();
    return err;
}

VT_EXPORT int pthread_cancel(pthread_t thread)
{
    if (!vt_is_handle(thread))
        return cancel_kernel(thread);
    struct vt_thread *t = vt_of_handle(thread);
    if (!t)
        return ESRCH;
    if (t == vt_self) {
        vt_undo_all();
        atomic_fetch_or_explicit(&t->interrupt, VT_CANCELLED, memory_order_relaxed); /* libc's call may not return */
        return vt_real(pthread_cancel)((pthread_t)t->tp);
    }
    /* Loads libgcc, as libc's pthread_cancel would do, which must not happen while t is held. */
    static _Atomic bool loaded;
    if (!atomic_load_explicit(&loaded, memory_order_relaxed)) {
        void *here[1];
        vt_real(backtrace)(here, 1);
        atomic_store_explicit(&loaded, true, memory_order_relaxed);
    }
    if (!vt_hold(t))
        return 0; /* its outcome is decided */
    /* libc does its part: it marks the TCB, and makes ready for the unwinding. Its signal goes nowhere: no kernel thread has
     * the id of a virtual one. */
    vt_real(pthread_cancel)((pthread_t)t->tp);
    vt_cancel_start();
    vt_cancel(t);
    vt_release();
    return 0;
}

/* --- C11 threads --------------------------------------------------------------------------------------------------- */

static int thrd_result(int err)
{
    return err == 0 ? thrd_success : err == ENOMEM || err == EAGAIN ? thrd_nomem : thrd_error;
}

VT_EXPORT int thrd_create(thrd_t *thread, thrd_start_t start, void *arg)
{
    if (!vt_on()) {
        vt_decided_off();
        return vt_real(thrd_create)(thread, start, arg);
    }
    /* What start returns is in the same register, and thrd_join takes the lower half. */
    return thrd_result(pthread_create(thread, NULL, (void *(*)(void *))(void *)start, arg));
}

VT_EXPORT int thrd_join(thrd_t thread, int *result)
{
    void *value = NULL;
    if (!vt_on())
        return vt_real(thrd_join)(thread, result);
    int err = pthread_join(thread, &value);
    if (err == 0 && result)
        *result = (int)(intptr_t)value;
    return thrd_result(err);
}

VT_EXPORT int thrd_detach(thrd_t thread)
{
    return vt_on() ? thrd_result(pthread_detach(thread)) : vt_real(thrd_detach)(thread);
}

VT_EXPORT thrd_t thrd_current(void)
{
    return pthread_self();
}

VT_EXPORT void thrd_exit(int result)
{
    if (!vt_on())
        vt_real(thrd_exit)(result);
    pthread_exit((void *)(intptr_t)result);
}

/* --- identity ------------------------------------------------------------------------------------------------------------ */

VT_EXPORT pthread_t pthread_self(void)
{
    struct vt_thread *t = vt_self;
    if (t && t->handle)
        return t->handle;
    return (pthread_t)vt_arch_tp(); /* libc's is the address of the TCB */
}

VT_EXPORT pid_t gettid(void)
{
    return vt_is_ours() ? (pid_t)vt_self->tid : (pid_t)vt_sys0(SYS_gettid);
}

VT_EXPORT int prctl(int option, ...)
{
    va_list ap;
    va_start(ap, option);
    unsigned long a = va_arg(ap, unsigned long), b = va_arg(ap, unsigned long), c = va_arg(ap, unsigned long),
                  d = va_arg(ap, unsigned long);
    va_end(ap);
    struct vt_thread *t = vt_self;
    if (option == PR_SET_NAME && t && t->kind == VT_KERNEL) {
        t->name[0] = '\0';
    } else if (option == PR_SET_NAME && t) {
        strncpy(t->name, (const char *)a, sizeof t->name - 1);
        return 0;
    } else if (option == PR_GET_NAME && t && t->kind != VT_KERNEL) {
        memcpy((char *)a, t->name, sizeof t->name);
        return 0;
    }
    const long all[6] = {option, (long)a, (long)b, (long)c, (long)d};
    long ret;
    if (vt_on() && vt_kernel_call(SYS_prctl, all, &ret))
        return (int)vt_result(ret);
    return vt_real(prctl)(option, a, b, c, d);
}

VT_EXPORT int pthread_setname_np(pthread_t thread, const char *name)
{
    if (!vt_is_handle(thread)) {
        int err = vt_real(pthread_setname_np)(thread, name);
        if (err == 0 && vt_self && thread == pthread_self())
            vt_self->name[0] = '\0'; /* ask again */
        return err;
    }
    struct vt_thread *t = vt_of_handle(thread);
    if (strlen(name) >= sizeof t->name)
        return ERANGE;
    if (!t)
        return ESRCH;
    memcpy(t->name, name, strlen(name) + 1);
    if (t == vt_self && t->kind == VT_KERNEL)
        vt_sys2(SYS_prctl, PR_SET_NAME, (long)t->name);
    return 0;
}

VT_EXPORT int pthread_getname_np(pthread_t thread, char *buf, size_t size)
{
    if (!vt_is_handle(thread))
        return vt_real(pthread_getname_np)(thread, buf, size);
    struct vt_thread *t = vt_of_handle(thread);
    if (size < sizeof t->name)
        return ERANGE;
    if (!t)
        return ESRCH;
    memcpy(buf, t->name, sizeof t->name);
    return 0;
}

VT_EXPORT int pthread_getattr_np(pthread_t thread, pthread_attr_t *attr)
{
    if (!vt_is_handle(thread))
        return vt_real(pthread_getattr_np)(thread, attr);
    struct vt_thread *t = vt_of_handle(thread);
    if (!t || !vt_hold(t))
        return ESRCH;
    char *lo = t->slot->stack_lo, *hi = t->slot->stack_hi;
    size_t guard = t->slot->guard_size;
    vt_release();
    int err = pthread_attr_init(attr);
    if (err)
        return err;
    vt_real(pthread_attr_setstack)(attr, lo, (size_t)(hi - lo));
    vt_real(pthread_attr_setguardsize)(attr, guard);
    pthread_attr_setdetachstate(attr, atomic_load_explicit(&t->life, memory_order_relaxed) & VT_DETACHED
                                          ? PTHREAD_CREATE_DETACHED
                                          : PTHREAD_CREATE_JOINABLE);
    return 0;
}
