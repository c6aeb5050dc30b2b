/* fork and its kin. A child has one thread, the caller, on its own stack and TLS, and nothing of the parent's
 * engine: it is a kernel thread until the child makes a thread. */
#include "call.h"
#include "fd.h"
#include "handoff.h"
#include "life.h"
#include "preload.h"
#include "putoff.h"
#include "real.h"
#include "start.h"
#include "sys.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <unistd.h>

/* The mask of the thread that forks: from before the fork until child and parent are what they shall be no
 * handler runs. In between a handler in the child would find a virtual thread without a scheduler. setuid in
 * another thread is let in. */
static __thread uint64_t mask __attribute__((tls_model("initial-exec")));

static void set_mask(uint64_t set)
{
    /* First: a handler that comes as soon as the kernel lets it in finds the thread's own mask. */
    if (vt_is_ours())
        vt_signal_mask_is(set);
    vt_sys_sigmask(set);
}

/* Whether a signal has been sent to the calling virtual thread that with this mask it takes: natively its handler would
 * have begun, and would go on in the child too. */
static bool has_not_taken(uint64_t with)
{
    return (atomic_load_explicit(&vt_self->pending, memory_order_seq_cst) & ~with) != 0 ||
           atomic_load_explicit(&vt_self->held, memory_order_relaxed) != 0;
}

/* No lock is held over the fork: libc waits for locks of its own after this. The child mends what was being changed. */
static void before(void)
{
    uint64_t blocked = VT_ALL_SIGNALS;
    vt_fd_share_all();
    vt_sys4(SYS_rt_sigprocmask, SIG_SETMASK, (long)&blocked, (long)&mask, sizeof mask);
    if (!vt_is_ours())
        return;
    for (;;) {
        mask = vt_self->sigmask;
        if (!has_not_taken(mask))
            break;
        set_mask(mask);
        vt_sys_sigmask(blocked);
    }
    vt_signal_mask_is(blocked);
}

static void in_parent(void)
{
    set_mask(mask);
}

static void in_child(void)
{
    bool had_engine = vt_engine_forget();
    vt_out_fork_child();
    vt_fd_fork_child();
    vt_life_fork_child(had_engine);
    if (!vt_self || !vt_self->handle)
        vt_main_is_me();
    set_mask(mask);
    vt_signal_mask_changed();
}

/* What pthread_atfork, which is linked into each program and library, calls. */
int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *dso);
extern char __dso_handle __attribute__((visibility("hidden")));

/* Child handlers run in the order in which they were registered. What another library's does with its locks must find
 * the child's engine and not what was the parent's, whose queues and spin locks other threads were using. So ours are
 * registered before any other, which may be before our constructor: the libraries that a program needs come first. */
static void register_first(void)
{
    static _Atomic bool done;
    if (!atomic_exchange_explicit(&done, true, memory_order_relaxed))
        vt_real(__register_atfork)(before, in_parent, in_child, &__dso_handle);
}

VT_EXPORT int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *dso)
{
    if (vt_on())
        register_first();
    return vt_real(__register_atfork)(prepare, parent, child, dso);
}

void vt_fork_start(void)
{
    register_first();
#if __GLIBC_PREREQ(2, 34)
    (void)vt_real(_Fork); /* found now: it may be called in a signal handler */
#endif
}

#if __GLIBC_PREREQ(2, 34)
/* fork without handlers of pthread_atfork. */
VT_EXPORT pid_t _Fork(void)
{
    if (!vt_on())
        return vt_real(_Fork)();
    before();
    pid_t pid = vt_real(_Fork)();
    int saved = errno;
    if (pid == 0)
        in_child();
    else
        in_parent();
    errno = saved;
    return pid;
}
#endif

long vt_call_fork(long number, const long a[6])
{
    before();
    long pid = vt_sys6(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (pid == 0)
        in_child();
    else
        in_parent();
    return pid;
}

/* --- vfork ------------------------------------------------------------------------------------------------
 */

/* A child of vfork runs in our memory as the thread that made it, while that one sleeps. It must not leave
 * for another thread, nor take notes of its own descriptors as if they were ours. So for its time the thread
 * is a kernel thread. */
void vt_vfork_begin(void);
long vt_vfork_end(long pid);

static __thread uint32_t vfork_kind __attribute__((tls_model("initial-exec")));

void vt_vfork_begin(void)
{
    if (!vt_on())
        return;
    struct vt_thread *t = vt_current();
    vfork_kind = t->kind;
    vt_handoff_begin("vfork");
    t->kind = VT_KERNEL;
    t->vforked = true;
}

/* In the parent: -1 and errno if there is no child. */
long vt_vfork_end(long pid)
{
    if (vt_on()) {
        struct vt_thread *t = vt_self;
        t->vforked = false;
        if (vfork_kind != VT_KERNEL) {
            /* Whatever the child was doing when it ended. A wake-up too many is nobody's harm. */
            atomic_store_explicit(&t->crit, 0, memory_order_relaxed);
            atomic_store_explicit(&t->token, 1, memory_order_seq_cst);
            t->kind = vfork_kind;
            vt_handoff_end();
        }
    }
    if (pid < 0) {
        errno = (int)-pid;
        return -1;
    }
    return pid;
}

/* --- clone ------------------------------------------------------------------------------------------------
 */

struct cloned {
    int (*main)(void *);
    void *arg;
};

static int cloned_main(void *arg)
{
    struct cloned c = *(struct cloned *)arg; /* a copy of the parent's stack */
    in_child();
    return c.main(c.arg);
}

VT_EXPORT int clone(int (*main)(void *), void *stack, int flags, void *arg, ...)
{
    va_list ap;
    va_start(ap, arg);
    pid_t *parent_tid = va_arg(ap, pid_t *);
    void *tls = va_arg(ap, void *);
    pid_t *child_tid = va_arg(ap, pid_t *);
    va_end(ap);
    struct cloned c = {main, arg};
    int pid;
    if (!vt_on() || !main || !stack)
        return vt_real(clone)(main, stack, flags, arg, parent_tid, tls, child_tid);
    if (!(flags & (CLONE_VM | CLONE_SETTLS))) {
        before();
        pid = vt_real(clone)(cloned_main, stack, flags, &c, parent_tid, tls, child_tid);
        int saved = errno;
        in_parent();
        errno = saved;
        return pid;
    }
    if ((flags & (CLONE_VM | CLONE_VFORK | CLONE_SETTLS)) == (CLONE_VM | CLONE_VFORK)) {
        vt_vfork_begin();
        pid = vt_real(clone)(main, stack, flags, arg, parent_tid, tls, child_tid);
        return (int)vt_vfork_end(pid < 0 ? -errno : pid);
    }
    return vt_real(clone)(main, stack, flags, arg, parent_tid, tls, child_tid);
}
