#include "life.h"

#include "bound.h"
#include "cancel.h"
#include "catcher.h"
#include "chaos.h"
#include "clock.h"
#include "config.h"
#include "monitor.h"
#include "park.h"
#include "place.h"
#include "probe.h"
#include "real.h"
#include "sigqueue.h"
#include "slot.h"
#include "stats.h"
#include "stock.h"
#include "sync/proxy.h"
#include "sys.h"
#include "tcb.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

__thread struct vt_thread *vt_self __attribute__((tls_model("initial-exec")));

void (*vt_last_thread)(void);

uint32_t vt_process;
struct vt_thread *vt_sole;
static struct vt_thread nobody;  /* vt_sole where a kernel thread has forked */
static struct vt_thread *origin; /* in a forked child, the thread that has its process's id; it may have ended since */

static ptrdiff_t self_offset;  /* of vt_self from the thread pointer: the same in every thread, as it is initial-exec */
static _Atomic bool main_gone; /* the end of the last virtual thread is the end of the process */
static _Atomic bool over;      /* which has come */

/* --- ids ------------------------------------------------------------------------------------------------------------- */

/* 24 bits of index and 5 of generation above the base: below 2^30, where futex words have their flags. */
static uint32_t tid_of(const struct vt_thread *t)
{
    return VT_TCB_TID_MIN + (t->generation % 31 << 24 | t->index);
}

struct vt_thread *vt_by_tid(uint32_t tid)
{
    struct vt_thread *o = origin;
    if (o && tid == o->tid && o->kind != VT_KERNEL && atomic_load_explicit(&o->alive, memory_order_acquire))
        return o;
    if (tid < VT_TCB_TID_MIN || tid >= UINT32_C(1) << 30 || vt_sole)
        return NULL;
    unsigned index = (tid - VT_TCB_TID_MIN) & 0xffffff;
    struct vt_thread *t = vt_descriptor(index);
    return t && atomic_load_explicit(&t->alive, memory_order_acquire) && t->tid == tid ? t : NULL;
}

void vt_each(void (*f)(struct vt_thread *, void *), void *arg)
{
    for (unsigned i = 0; i < vt_descriptors(); i++) {
        struct vt_thread *t = vt_descriptor(i);
        if (atomic_load_explicit(&t->alive, memory_order_acquire))
            f(t, arg);
    }
}

bool vt_find_thread(bool (*f)(struct vt_thread *, void *), void *arg)
{
    for (unsigned i = 0; i < vt_descriptors(); i++) {
        struct vt_thread *t = vt_descriptor(i);
        if (atomic_load_explicit(&t->alive, memory_order_seq_cst) && f(t, arg))
            return true;
    }
    return false;
}

/* Walks under way that need the TCBs of living threads to stay. */
static _Atomic unsigned walking;

static void late_tls(struct vt_thread *t, void *arg)
{
    (void)arg;
    vt_tcb_late_tls(t->tp);
}

static void list_tcb(struct vt_thread *t, void *arg)
{
    (void)arg;
    vt_tcb_list(t->tp);
}

static void each_tcb(void (*f)(struct vt_thread *, void *))
{
    struct vt_thread *me = vt_enter(); /* the others' carriers spin meanwhile if their threads end */
    atomic_fetch_add_explicit(&walking, 1, memory_order_seq_cst);
    vt_each(f, NULL);
    atomic_fetch_sub_explicit(&walking, 1, memory_order_seq_cst);
    vt_leave(me);
}

bool vt_modules_begin(void)
{
    bool begun = vt_tcb_dl_begin();
    if (begun)
        each_tcb(list_tcb);
    return begun;
}

void vt_modules_end(bool begun)
{
    vt_tcb_dl_end(begun);
    each_tcb(late_tls);
    vt_tcb_module_came();
}

/* --- kernel threads -------------------------------------------------------------------------------------------------- */

static pthread_key_t adopted_key;
static _Atomic bool adopted_key_made;

static void disown(void *arg)
{
    struct vt_thread *t = arg;
    vt_stock_leave(t);
    vt_self = NULL;
    atomic_store_explicit(&t->adopted, 0, memory_order_relaxed);
    vt_descriptor_put(t);
}

static bool make_adopted_key(void)
{
    static struct vt_lock lock;
    vt_lock(&lock);
    if (!adopted_key_made)
        adopted_key_made = vt_real(pthread_key_create)(&adopted_key, disown) == 0;
    vt_unlock(&lock);
    return adopted_key_made;
}

struct vt_thread *vt_adopt(void)
{
    uint64_t all = UINT64_MAX, old = 0;
    vt_sys4(SYS_rt_sigprocmask, 0 /* SIG_BLOCK */, (long)&all, (long)&old, sizeof all);
    struct vt_thread *t = vt_self;
    if (!t) {
        if (!(t = vt_descriptor_get())) {
            vt_say("no memory for the descriptor of a thread");
            abort();
        }
        t->kind = VT_KERNEL;
        t->tid = (uint32_t)vt_sys0(SYS_gettid);
        t->carrier = NULL;
        t->stock = NULL;
        t->in_position = false;
        t->undo = NULL;
        t->shielded = t->in_call = false;
        t->sigmask = old;
        /* The descriptor may have been another's. */
        atomic_store_explicit(&t->crit, 0, memory_order_relaxed);
        atomic_store_explicit(&t->interrupt, 0, memory_order_relaxed);
        atomic_store_explicit(&t->deferred, 0, memory_order_relaxed);
        atomic_store_explicit(&t->awaited, 0, memory_order_relaxed);
        atomic_store_explicit(&t->bound_for_good, false, memory_order_relaxed);
        t->differs = false;
        t->wait_what = NULL;
        t->wait_on = NULL;
        atomic_store_explicit(&t->adopted, 1, memory_order_relaxed);
        vt_self = t;
        /* Whoever cancels it later finds the descriptor (vt_cancel_kernel). */
        atomic_thread_fence(memory_order_seq_cst);
        if (vt_tcb_cancelled(vt_arch_tp()))
            atomic_fetch_or_explicit(&t->interrupt, VT_CANCELLED, memory_order_relaxed);
        atomic_store_explicit(&t->held, 0, memory_order_relaxed);
        vt_sigqueue_clear(t);
        /* Freed at the end of the thread; a later destructor that waits makes another. */
        if (adopted_key_made || make_adopted_key())
            vt_real(pthread_setspecific)(adopted_key, t);
    }
    vt_sys4(SYS_rt_sigprocmask, SIG_SETMASK, (long)&old, 0, sizeof old);
    return t;
}

/* --- start and end of a virtual thread -------------------------------------------------------------------------------- */

/* When its stack has been left: gives back stack and TLS, then says so. */
static void reap(struct vt_carrier *c, void *arg)
{
    struct vt_thread *t = arg;
    /* Whoever walks the living threads' TCBs has seen this one alive, or we see that somebody walks. */
    atomic_thread_fence(memory_order_seq_cst);
    while (__builtin_expect(atomic_load_explicit(&walking, memory_order_relaxed) != 0, 0))
        vt_cpu_relax();
    /* It was to take them, and nobody sends more: who does that holds it. */
    if (__builtin_expect(atomic_load_explicit(&t->pending, memory_order_relaxed) != 0, 0))
        vt_catch_pass_on(t, UINT64_MAX);
    struct vt_stock *stock = vt_stock_begin(&c->self);
    vt_slot_put(&stock->slots, t->slot);
    t->slot = NULL;
    t->tp = NULL;
    /* seq_cst: either we see the joiner, or it sees that we have ended. After this t may be gone, and joiner be anybody's. */
    uint32_t old = atomic_fetch_or_explicit(&t->life, VT_ENDED, memory_order_seq_cst);
    vt_chaos();
    if (old & VT_DETACHED)
        vt_stock_put(stock, t);
    vt_stock_end(stock);
    if (!(old & VT_DETACHED) && (old & VT_JOINING)) {
        struct vt_thread *joiner = atomic_load_explicit(&t->joiner, memory_order_seq_cst);
        vt_chaos();
        if (joiner)
            vt_unblock(joiner);
    }
}

static void last_gone(void)
{
    if (vt_last_thread)
        vt_last_thread();
    _exit(0);
}

/* Main has gone: whether the last virtual thread has, too. True once. */
static bool all_gone(void)
{
    atomic_thread_fence(memory_order_seq_cst);
    return vt_threads_living() == 0 && !atomic_exchange_explicit(&over, true, memory_order_relaxed);
}

void vt_main_gone(void)
{
    atomic_store_explicit(&main_gone, true, memory_order_relaxed);
    vt_catch_main_blocks(UINT64_MAX);
    /* Whose end is not counted when we look sees that main has gone. */
    vt_barrier_all();
    if (all_gone())
        last_gone();
}

static bool only_kernel_thread(void)
{
    struct stat st;
    /* A directory for each, and two names more for the one that they are in. */
    return vt_sys4(SYS_newfstatat, AT_FDCWD, (long)"/proc/self/task", (long)&st, 0) != 0 || st.st_nlink <= 3;
}

static _Noreturn void finish(struct vt_thread *t)
{
    if (t->kind == VT_KERNEL) {
        /* It came by fork, and is to this process what main is to others. If the engine does not run, other threads here are
         * of libc's making. */
        if (vt_sched.nplaces)
            vt_main_gone();
        else if (only_kernel_thread())
            last_gone();
        struct vt_thread *joiner;
        if ((atomic_fetch_or_explicit(&t->life, VT_ENDED, memory_order_seq_cst) & VT_JOINING) &&
            (joiner = atomic_load_explicit(&t->joiner, memory_order_seq_cst)))
            vt_unblock(joiner);
        for (;;)
            vt_sys1(SYS_exit, 0);
    }
    vt_enter();
    if (t->bound_for_good)
        t->carrier->tainted = true;
    struct vt_stock *stock = vt_stock_begin(t);
    vt_stock_ended(stock);
    vt_stock_end(stock);
    atomic_signal_fence(memory_order_seq_cst);
    if (__builtin_expect(atomic_load_explicit(&main_gone, memory_order_relaxed), 0) && all_gone()) {
        vt_leave(t);
        last_gone();
    }
    atomic_store_explicit(&t->alive, 0, memory_order_release);
    vt_unmount(t, reap);
    __builtin_unreachable();
}

/* libc's, for pthread_cleanup_push in C; pthread.h hides them from code with exceptions. */
extern void __pthread_register_cancel(__pthread_unwind_buf_t *);
/* Saves no signal mask, so that the buffer is as short as libc has made it for this purpose. */
extern int set_unwind_jump(void *, int) __asm__("__sigsetjmp") __attribute__((returns_twice));

/* Runs the start routine. Forced unwinding, by pthread_exit or a cancellation, is started by libc from the buffer that is
 * registered last, and ends by a jump to this one, the outermost: so it is in libc's start_thread. */
static void __attribute__((noinline)) run(struct vt_thread *t)
{
    __pthread_unwind_buf_t buf;
    if (set_unwind_jump(buf.__cancel_jmp_buf, 0)) {
        if (!t->exited)
            t->result = PTHREAD_CANCELED;
        return;
    }
    vt_real(__pthread_register_cancel)(&buf);
    t->result = t->start(t->arg);
}

/* The first function on a virtual thread's stack, mounted and in a section. */
static void entry(void *arg)
{
    struct vt_thread *t = arg;
    vt_run_after(t->carrier);
    vt_mask_mounted(t->carrier, t);
    vt_bind_known(t);
    vt_leave(t);
    vt_tcb_enter();
    run(t);
    if (__builtin_expect(atomic_load_explicit(&t->deferred, memory_order_relaxed) != 0, 0)) {
        vt_enter(); /* what has come before its end is its own */
        vt_leave(t);
    }
    vt_bind_ends(t);
    vt_tcb_leave();
    vt_proxy_thread_ends();
    VT_PROBE1(exit, t->tid);
    finish(t);
}

/* Gives back what vt_create got. */
static void uncreate(struct vt_thread *t)
{
    struct vt_thread *me = vt_enter();
    struct vt_stock *stock = vt_stock_begin(me);
    if (t->slot)
        vt_slot_put(&stock->slots, t->slot);
    t->slot = NULL;
    vt_stock_put(stock, t);
    vt_stock_end(stock);
    vt_leave(me);
}

int vt_create(const struct vt_spec *spec, uint64_t *handle)
{
    struct vt_thread *me = vt_enter();
    struct vt_stock *stock = vt_stock_begin(me);
    struct vt_thread *t = vt_stock_get(stock);
    int err = EAGAIN;
    if (t) {
        t->slot = NULL;
        err = spec->stack_addr ? vt_slot_wrap(&stock->slots, spec->stack_addr, spec->stack_size, &t->slot)
                               : vt_slot_get(&stock->slots, spec->stack_size, spec->guard_size, &t->slot);
    }
    vt_stock_end(stock);
    vt_leave(me);
    if (!t)
        return EAGAIN;
    if (err) {
        uncreate(t);
        /* As glibc: what cannot be added up is wrong, what cannot be had is missing. */
        size_t sum;
        if (!spec->stack_addr && !__builtin_add_overflow(spec->stack_size + 4096, spec->guard_size + 4096, &sum))
            err = EAGAIN;
        return err;
    }
    struct vt_slot *slot = t->slot;
    t->tid = tid_of(t);
    uint64_t modules = vt_tcb_generation();
    err = vt_slot_tcb(slot, t->tid);
    if (err) {
        uncreate(t);
        return err;
    }
    t->tp = slot->tp;
    *(struct vt_thread **)((char *)t->tp + self_offset) = t;
    t->kind = VT_VIRTUAL;
    t->carrier = NULL;
    t->stock = NULL;
    atomic_store_explicit(&t->hidden, 0, memory_order_relaxed);
    t->parked = false;
    atomic_store_explicit(&t->bound_for_good, false, memory_order_relaxed);
    atomic_store_explicit(&t->bind_asked, 0, memory_order_relaxed);
    atomic_store_explicit(&t->cpu, 0, memory_order_relaxed);
    t->start = spec->start;
    t->arg = spec->arg;
    t->result = NULL;
    t->exited = t->in_position = false;
    t->undo = NULL;
    t->shielded = t->in_call = false;
    t->sigmask = spec->sigmask;
    t->handling = 0;
    memcpy(t->name, spec->name, sizeof t->name);
    t->wait_what = NULL;
    t->wait_on = NULL;
    t->since = 0;
    t->stack_lo = slot->stack_lo;
    t->stack_hi = slot->stack_hi;
    atomic_store_explicit(&t->joiner, NULL, memory_order_relaxed);
    t->timer = (struct vt_timer){0};
    atomic_store_explicit(&t->timer_place, NULL, memory_order_relaxed);
    atomic_store_explicit(&t->crit, 1, memory_order_relaxed); /* it is mounted inside a section; entry leaves it */
    atomic_store_explicit(&t->interrupt, 0, memory_order_relaxed);
    atomic_store_explicit(&t->clocked, 0, memory_order_relaxed);
    atomic_store_explicit(&t->deferred, 0, memory_order_relaxed);
    atomic_store_explicit(&t->held, 0, memory_order_relaxed);
    vt_sigqueue_clear(t);
    atomic_store_explicit(&t->awaited, 0, memory_order_relaxed);
    t->alt_stack = NULL;
    atomic_store_explicit(&t->token, 0, memory_order_relaxed);
    atomic_store_explicit(&t->life, spec->detached ? VT_DETACHED : 0, memory_order_relaxed);
    vt_context_make(&t->ctx, slot->stack_lo, slot->stack_hi, entry, t);
    t->handle = (uint64_t)(uintptr_t)t | 1 | (uint64_t)t->generation << VT_HANDLE_SHIFT;
    *handle = t->handle; /* before it runs: it may look at the variable that its creator keeps it in */
    atomic_store_explicit(&t->alive, 1, memory_order_seq_cst);
    vt_catch_let_in(t->sigmask);
    if (vt_tcb_generation() != modules) /* a walk may have missed it */
        vt_tcb_late_tls(t->tp);
    me = vt_enter();
    stock = vt_stock_begin(me);
    vt_stock_created(stock);
    vt_stock_end(stock);
    if (vt_config.stats)
        vt_count_peak();
    VT_PROBE2(create, t->tid, t->start);
    vt_ready_last(t);
    vt_leave(me);
    return 0;
}

/* --- join and detach -------------------------------------------------------------------------------------------------- */

static void give_back(struct vt_thread *t)
{
    struct vt_thread *me = vt_enter();
    struct vt_stock *stock = vt_stock_begin(me);
    vt_stock_put(stock, t);
    vt_stock_end(stock);
    vt_leave(me);
}

int vt_join(struct vt_thread *t, void **result, uint64_t deadline, unsigned flags)
{
    struct vt_thread *me = vt_current();
    vt_wait_begins(me);
    uint32_t life = atomic_load_explicit(&t->life, memory_order_acquire);
    /* In glibc's order: a try asks for nothing else while the thread runs. */
    if (deadline == 0 && !(life & VT_ENDED))
        return EBUSY;
    if (life & (VT_DETACHED | VT_JOINED))
        return EINVAL;
    if (t == me)
        return EDEADLK;
    if (!(life & VT_ENDED)) {
        do {
            if (life & (VT_DETACHED | VT_JOINED | VT_JOINING))
                return EINVAL;
        } while (!atomic_compare_exchange_weak_explicit(&t->life, &life, life | VT_JOINING, memory_order_acq_rel,
                                                        memory_order_acquire));
        vt_chaos();
        me->shielded = true; /* the other must not be left as one that somebody joins */
        atomic_store_explicit(&t->joiner, me, memory_order_seq_cst);
        vt_chaos();
        me->wait_kind = VT_WAIT_JOIN;
        me->wait_on = t;
        uint32_t process = vt_process;
        struct vt_until until;
        vt_until_begin(&until, me, deadline, flags);
        while (!(atomic_load_explicit(&t->life, memory_order_seq_cst) & VT_ENDED)) {
            if (__builtin_expect(process != vt_process, 0)) {
                /* A handler has forked; in the child t has come to its end. */
                if (result)
                    *result = NULL;
                me->shielded = false;
                return 0;
            }
            int err = vt_interrupted(me, flags) ? EINTR : vt_until_passed(&until) ? ETIMEDOUT : 0;
            if (err) {
                atomic_store_explicit(&t->joiner, NULL, memory_order_seq_cst);
                vt_chaos();
                if (!(atomic_fetch_and_explicit(&t->life, ~(uint32_t)VT_JOINING, memory_order_acq_rel) & VT_ENDED)) {
                    vt_until_end(&until, me);
                    me->shielded = false;
                    if (me->kind != VT_KERNEL)
                        vt_cancel_at_any_time(me);
                    return err;
                }
            }
            if (!err)
                vt_until_block(&until);
        }
        vt_until_end(&until, me);
    }
    /* The first who takes it has it. */
    life = atomic_fetch_or_explicit(&t->life, VT_JOINED, memory_order_acq_rel);
    int err = life & (VT_JOINED | VT_DETACHED) ? EINVAL : 0;
    if (!err) {
        if (result)
            *result = t->result;
        give_back(t);
    }
    me->shielded = false;
    if (me->kind != VT_KERNEL)
        vt_cancel_at_any_time(me);
    return err;
}

int vt_detach(struct vt_thread *t)
{
    uint32_t life = atomic_load_explicit(&t->life, memory_order_acquire);
    do {
        if (life & (VT_DETACHED | VT_JOINED | VT_JOINING))
            return EINVAL;
    } while (!atomic_compare_exchange_weak_explicit(&t->life, &life, life | VT_DETACHED, memory_order_acq_rel,
                                                    memory_order_acquire));
    if (life & VT_ENDED)
        give_back(t);
    return 0;
}

/* --- fork -------------------------------------------------------------------------------------------------- */

bool vt_hold(struct vt_thread *t)
{
    vt_enter();
    atomic_fetch_add_explicit(&walking, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&t->alive, memory_order_seq_cst))
        return true;
    vt_release();
    return false;
}

void vt_release(void)
{
    atomic_fetch_sub_explicit(&walking, 1, memory_order_seq_cst);
    vt_leave(vt_self);
}

void vt_life_fork_child(bool had_engine)
{
    struct vt_thread *me = vt_self;
    vt_process++;
    vt_sigqueue_fork_child(me);
    if (had_engine)
        vt_tcb_fork_child();
    if (me) {
        uint32_t tid = (uint32_t)vt_sys0(SYS_gettid);
        if (me->handle) {
            struct vt_carrier *c = me->kind != VT_KERNEL || me->vforked ? me->carrier : NULL;
            vt_tcb_forked(me->tp, tid_of(me), c ? c->tp : NULL);
            /* The process is called what its only thread is called. */
            if (c)
                vt_sys2(SYS_prctl, 15 /* PR_SET_NAME */, (long)me->name);
            /* Who has been waiting for its end does not here. */
            atomic_fetch_and_explicit(&me->life, ~(uint32_t)VT_JOINING, memory_order_relaxed);
            atomic_store_explicit(&me->joiner, NULL, memory_order_relaxed);
            atomic_store_explicit(&me->held, 0, memory_order_relaxed);
            atomic_store_explicit(&me->deferred, 0, memory_order_relaxed);
            me->timer = (struct vt_timer){0};
            atomic_store_explicit(&me->timer_place, NULL, memory_order_relaxed);
            atomic_store_explicit(&me->hidden, 0, memory_order_relaxed);
            me->carrier = NULL;
            me->vforked = false;
            origin = me;
        }
        /* The engine that this child may start takes over what it has. */
        atomic_store_explicit(&me->bound_for_good, false, memory_order_relaxed);
        atomic_store_explicit(&me->bind_asked, 0, memory_order_relaxed);
        me->differs = false;
        me->kind = VT_KERNEL;
        me->tid = tid;
        atomic_store_explicit(&me->token, 0, memory_order_relaxed);
        atomic_store_explicit(&me->crit, 0, memory_order_relaxed);
    }
    vt_bind_fork_child();
    vt_park_fork_child();
    vt_sync_fork_child();
    if (!had_engine)
        return;
    vt_slot_fork_child();
    vt_stock_fork_child(me);
    vt_sole = me && me->handle ? me : &nobody;
    atomic_store_explicit(&walking, 0, memory_order_relaxed);
    atomic_store_explicit(&main_gone, false, memory_order_relaxed);
    atomic_store_explicit(&over, false, memory_order_relaxed);
    vt_stats_reset();
    vt_sched_fork_child();
}

bool vt_life_rejoin(void)
{
    struct vt_thread *t = vt_self;
    vt_stock_leave(t);
    /* The carrier's own TLS must say who runs there. */
    if (!vt_carrier_become(t, self_offset))
        return false;
    vt_enter();
    struct vt_stock *stock = vt_stock_begin(t);
    vt_stock_created(stock);
    vt_stock_end(stock);
    vt_leave(t);
    /* There is no main thread here. */
    atomic_store_explicit(&main_gone, true, memory_order_seq_cst);
    vt_catch_let_in(t->sigmask);
    vt_catch_main_blocks(UINT64_MAX);
    return true;
}

int vt_life_start(void)
{
    int err = vt_tcb_init();
    if (err)
        return err;
    self_offset = (char *)&vt_self - (char *)vt_arch_tp();
    if (vt_sole)
        vt_stock_collect();
    vt_sole = NULL;
    return 0;
}
