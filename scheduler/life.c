#include "life.h"

#include "chaos.h"
#include "config.h"
#include "park.h"
#include "place.h"
#include "slot.h"
#include "stats.h"
#include "sync/proxy.h"
#include "sys.h"
#include "tcb.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__thread struct vt_thread *vt_self __attribute__((tls_model("initial-exec")));

void (*vt_last_thread)(void);

/* --- descriptors ---------------------------------------------------------------------------------------------------- */

/* Descriptors come in chunks that stay for ever; the index finds one without a lock. */
#define VT_CHUNK      1024
#define VT_MAX_CHUNKS 16384

static struct {
    struct vt_lock lock;
    struct vt_thread *free;
    unsigned used; /* descriptors ever made */
    struct vt_thread *_Atomic chunk[VT_MAX_CHUNKS];
} pool;

static ptrdiff_t self_offset; /* of vt_self from the thread pointer: the same in every thread, as it is initial-exec */
static _Atomic uint64_t living; /* virtual threads, and main until it has gone */

static struct vt_thread *descriptor(unsigned index)
{
    struct vt_thread *chunk = atomic_load_explicit(&pool.chunk[index / VT_CHUNK], memory_order_acquire);
    return chunk ? &chunk[index % VT_CHUNK] : NULL;
}

static struct vt_thread *descriptor_get(void)
{
    struct vt_thread *t;
    vt_lock(&pool.lock);
    if ((t = pool.free)) {
        pool.free = (struct vt_thread *)t->task.next;
    } else if (pool.used < VT_CHUNK * VT_MAX_CHUNKS) {
        if (pool.used % VT_CHUNK == 0) {
            struct vt_thread *chunk = vt_sys_map(sizeof *chunk * VT_CHUNK);
            if (!chunk) {
                vt_unlock(&pool.lock);
                return NULL;
            }
            atomic_store_explicit(&pool.chunk[pool.used / VT_CHUNK], chunk, memory_order_release);
        }
        t = descriptor(pool.used);
        t->index = pool.used++;
    }
    vt_unlock(&pool.lock);
    if (t)
        t->task.next = NULL;
    return t;
}

static void descriptor_put(struct vt_thread *t)
{
    t->generation++;
    t->handle = 0;
    vt_lock(&pool.lock);
    t->task.next = (struct vt_task *)pool.free;
    pool.free = t;
    vt_unlock(&pool.lock);
}

/* 24 bits of index and 5 of generation above the base: below 2^30, where futex words have their flags. */
static uint32_t tid_of(const struct vt_thread *t)
{
    return VT_TCB_TID_MIN + (t->generation % 31 << 24 | t->index);
}

struct vt_thread *vt_by_tid(uint32_t tid)
{
    if (tid < VT_TCB_TID_MIN || tid >= UINT32_C(1) << 30)
        return NULL;
    unsigned index = (tid - VT_TCB_TID_MIN) & 0xffffff;
    struct vt_thread *t = index < VT_CHUNK * VT_MAX_CHUNKS ? descriptor(index) : NULL;
    return t && atomic_load_explicit(&t->alive, memory_order_acquire) && t->tid == tid ? t : NULL;
}

void vt_each(void (*f)(struct vt_thread *, void *), void *arg)
{
    for (unsigned i = 0; i < VT_CHUNK * VT_MAX_CHUNKS; i++) {
        struct vt_thread *t = descriptor(i);
        if (!t)
            return;
        if (atomic_load_explicit(&t->alive, memory_order_acquire))
            f(t, arg);
    }
}

/* libc's own signal, and the bit of its word that says "at any time" (nptl/descr.h). */
#define VT_SIGCANCEL           32
#define VT_CANCEL_ASYNCHRONOUS 0x02

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
}

/* --- kernel threads -------------------------------------------------------------------------------------------------- */

static pthread_key_t adopted_key;
static _Atomic bool adopted_key_made;

static void disown(void *arg)
{
    struct vt_thread *t = arg;
    vt_self = NULL;
    descriptor_put(t);
}

static bool make_adopted_key(void)
{
    static struct vt_lock lock;
    vt_lock(&lock);
    if (!adopted_key_made)
        adopted_key_made = pthread_key_create(&adopted_key, disown) == 0;
    vt_unlock(&lock);
    return adopted_key_made;
}

struct vt_thread *vt_adopt(void)
{
    uint64_t all = UINT64_MAX, old = 0;
    vt_sys4(SYS_rt_sigprocmask, 0 /* SIG_BLOCK */, (long)&all, (long)&old, sizeof all);
    struct vt_thread *t = vt_self;
    if (!t) {
        if (!(t = descriptor_get())) {
            vt_say("no memory for the descriptor of a thread");
            abort();
        }
        t->kind = VT_KERNEL;
        t->tid = (uint32_t)vt_sys0(SYS_gettid);
        t->carrier = NULL;
        t->sigmask = old;
        /* The descriptor may have been another's. */
        atomic_store_explicit(&t->crit, 0, memory_order_relaxed);
        atomic_store_explicit(&t->interrupt, 0, memory_order_relaxed);
        atomic_store_explicit(&t->deferred, 0, memory_order_relaxed);
        atomic_store_explicit(&t->pending, 0, memory_order_relaxed);
        atomic_store_explicit(&t->valued, 0, memory_order_relaxed);
        atomic_store_explicit(&t->taken, 0, memory_order_relaxed);
        atomic_store_explicit(&t->awaited, 0, memory_order_relaxed);
        t->wait_what = NULL;
        t->wait_on = NULL;
        vt_self = t;
        /* Freed at the end of the thread; a later destructor that waits makes another. */
        if (adopted_key_made || make_adopted_key())
            pthread_setspecific(adopted_key, t);
    }
    vt_sys4(SYS_rt_sigprocmask, SIG_SETMASK, (long)&old, 0, sizeof old);
    return t;
}

/* --- start and end of a virtual thread -------------------------------------------------------------------------------- */

/* When its stack has been left: gives back stack and TLS, then says so. */
static void reap(struct vt_carrier *c, void *arg)
{
    struct vt_thread *t = arg;
    (void)c;
    /* Whoever walks the living threads' TCBs has seen this one alive, or we see that somebody walks. */
    atomic_thread_fence(memory_order_seq_cst);
    while (__builtin_expect(atomic_load_explicit(&walking, memory_order_relaxed) != 0, 0))
        vt_cpu_relax();
    vt_slot_put(NULL, t->slot);
    t->slot = NULL;
    t->tp = NULL;
    vt_count_thread(-1);
    /* seq_cst: either we see the joiner, or it sees that we have ended. After this t may be gone, and joiner be anybody's. */
    uint32_t old = atomic_fetch_or_explicit(&t->life, VT_ENDED, memory_order_seq_cst);
    vt_chaos();
    if (old & VT_DETACHED) {
        descriptor_put(t);
    } else if (old & VT_JOINING) {
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

void vt_main_gone(void)
{
    if (atomic_fetch_sub_explicit(&living, 1, memory_order_acq_rel) == 1)
        last_gone();
}

static _Noreturn void finish(struct vt_thread *t)
{
    if (t->kind == VT_KERNEL) {
        /* It was virtual in the parent, and is the kernel thread that fork made in this child. */
        vt_main_gone();
        for (;;)
            vt_sys1(SYS_exit, 0);
    }
    if (atomic_fetch_sub_explicit(&living, 1, memory_order_acq_rel) == 1)
        last_gone();
    vt_enter();
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
    __pthread_register_cancel(&buf);
    t->result = t->start(t->arg);
}

/* The first function on a virtual thread's stack, mounted and in a section. */
static void entry(void *arg)
{
    struct vt_thread *t = arg;
    vt_run_after(t->carrier);
    vt_mask_mounted(t->carrier, t);
    vt_leave(t);
    vt_tcb_enter();
    run(t);
    vt_tcb_leave();
    vt_proxy_thread_ends();
    finish(t);
}

int vt_create(const struct vt_spec *spec, uint64_t *handle)
{
    struct vt_thread *t = descriptor_get();
    if (!t)
        return EAGAIN;
    int err = spec->stack_addr ? vt_slot_wrap(NULL, spec->stack_addr, spec->stack_size, &t->slot)
                               : vt_slot_get(NULL, spec->stack_size, spec->guard_size, &t->slot);
    if (err) {
        descriptor_put(t);
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
        vt_slot_put(NULL, slot);
        t->slot = NULL;
        descriptor_put(t);
        return err;
    }
    t->tp = slot->tp;
    *(struct vt_thread **)((char *)t->tp + self_offset) = t;
    t->kind = VT_VIRTUAL;
    t->carrier = NULL;
    t->start = spec->start;
    t->arg = spec->arg;
    t->result = NULL;
    t->exited = false;
    t->sigmask = spec->sigmask;
    memcpy(t->name, spec->name, sizeof t->name);
    t->wait_what = NULL;
    t->wait_on = NULL;
    atomic_store_explicit(&t->joiner, NULL, memory_order_relaxed);
    t->timer = (struct vt_timer){0};
    atomic_store_explicit(&t->timer_place, NULL, memory_order_relaxed);
    atomic_store_explicit(&t->crit, 1, memory_order_relaxed); /* it is mounted inside a section; entry leaves it */
    atomic_store_explicit(&t->interrupt, 0, memory_order_relaxed);
    atomic_store_explicit(&t->deferred, 0, memory_order_relaxed);
    atomic_store_explicit(&t->pending, 0, memory_order_relaxed);
    atomic_store_explicit(&t->awaited, 0, memory_order_relaxed);
    atomic_store_explicit(&t->valued, 0, memory_order_relaxed);
    t->alt_stack = NULL;
    atomic_store_explicit(&t->token, 0, memory_order_relaxed);
    atomic_store_explicit(&t->life, spec->detached ? VT_DETACHED : 0, memory_order_relaxed);
    vt_context_make(&t->ctx, slot->stack_lo, slot->stack_hi, entry, t);
    atomic_fetch_add_explicit(&living, 1, memory_order_relaxed);
    vt_count_thread(+1);
    t->handle = (uint64_t)(uintptr_t)t | 1 | (uint64_t)t->generation << VT_HANDLE_SHIFT;
    *handle = t->handle; /* before it runs: it may look at the variable that its creator keeps it in */
    atomic_store_explicit(&t->taken, 0, memory_order_relaxed);
    atomic_store_explicit(&t->alive, 1, memory_order_seq_cst);
    if (vt_tcb_generation() != modules) /* a walk may have missed it */
        vt_tcb_late_tls(t->tp);
    struct vt_thread *self = vt_enter();
    vt_ready_last(t);
    vt_leave(self);
    return 0;
}

/* --- join and detach -------------------------------------------------------------------------------------------------- */

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
        atomic_store_explicit(&t->joiner, me, memory_order_seq_cst);
        vt_chaos();
        while (!(atomic_load_explicit(&t->life, memory_order_seq_cst) & VT_ENDED)) {
            int err = vt_interrupted(me, flags) ? EINTR : deadline != VT_NEVER && vt_now() >= deadline ? ETIMEDOUT : 0;
            if (err) {
                atomic_store_explicit(&t->joiner, NULL, memory_order_seq_cst);
                vt_chaos();
                if (!(atomic_fetch_and_explicit(&t->life, ~(uint32_t)VT_JOINING, memory_order_acq_rel) & VT_ENDED))
                    return err;
            }
            if (!err)
                vt_block(deadline);
        }
    }
    /* The first who takes it has it. */
    life = atomic_fetch_or_explicit(&t->life, VT_JOINED, memory_order_acq_rel);
    if (life & (VT_JOINED | VT_DETACHED))
        return EINVAL;
    if (result)
        *result = t->result;
    descriptor_put(t);
    return 0;
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
        descriptor_put(t);
    return 0;
}

/* --- cancellation, fork -------------------------------------------------------------------------------------------------- */

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

void vt_cancel(struct vt_thread *t)
{
    atomic_fetch_or_explicit(&t->interrupt, VT_CANCELLED, memory_order_seq_cst);
    vt_unblock(t);
    /* In a call of libc's, on a carrier of its own: libc's signal ends it, and its handler finds t's state in t's TCB. */
    struct vt_carrier *c = t->carrier;
    if (t != vt_self && c && atomic_load_explicit(&c->mounted, memory_order_acquire) == t &&
        (t->wait_what || (atomic_load(vt_tcb_cancelhandling(t->tp)) & VT_CANCEL_ASYNCHRONOUS)))
        vt_sys3(SYS_tgkill, vt_sys0(SYS_getpid), c->tid, VT_SIGCANCEL);
}

void vt_life_fork_prepare(void)
{
    vt_slot_fork(0);
    vt_tcb_fork(0);
}

void vt_life_fork_parent(void)
{
    vt_tcb_fork(1);
    vt_slot_fork(1);
}

void vt_life_fork_child(void)
{
    struct vt_thread *me = vt_self;
    vt_tcb_fork(2);
    vt_slot_fork(2);
    /* The other threads do not exist here. Their slots stay unused: what is written there is the parent's business. */
    pool.lock = (struct vt_lock)VT_LOCK_INIT;
    pool.free = NULL;
    atomic_store_explicit(&walking, 0, memory_order_relaxed);
    for (unsigned i = 0; i < pool.used; i++) {
        struct vt_thread *t = descriptor(i);
        if (t != me) {
            atomic_store_explicit(&t->alive, 0, memory_order_relaxed);
            descriptor_put(t);
        }
    }
    atomic_store_explicit(&living, 1, memory_order_relaxed);
    if (me) {
        /* The one that forked goes on as what it is now, a kernel thread, on its own stack and TLS. */
        me->kind = VT_KERNEL;
        me->carrier = NULL;
        me->tid = (uint32_t)vt_sys0(SYS_gettid);
        me->timer = (struct vt_timer){0};
        atomic_store_explicit(&me->timer_place, NULL, memory_order_relaxed);
        atomic_store_explicit(&me->token, 0, memory_order_relaxed);
        atomic_store_explicit(&me->crit, 0, memory_order_relaxed);
    }
    vt_stats_reset();
    vt_park_fork_child();
    vt_sync_fork_child();
    vt_sched_fork_child();
}

int vt_life_start(void)
{
    int err = vt_tcb_init();
    if (err)
        return err;
    self_offset = (char *)&vt_self - (char *)vt_arch_tp();
    if (atomic_load_explicit(&living, memory_order_relaxed) == 0)
        atomic_store_explicit(&living, 1, memory_order_relaxed);
    return 0;
}
