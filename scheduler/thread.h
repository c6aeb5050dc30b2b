/* What the scheduler knows of a thread, virtual or kernel.
 *
 * Every thread that waits has one descriptor, struct vt_thread. A virtual thread's is made with it; a kernel thread
 * (main, a thread made inside libc, a carrier) is adopted at its first wait. Descriptors are type-stable: their memory
 * is never given back and never becomes anything else, so a late vt_unblock() of a thread that has gone is harmless:
 * its successor sees one wake-up too many, which every waiter must tolerate anyway. */
#ifndef VT_THREAD_H
#define VT_THREAD_H

#include "arch.h"
#include "chaos.h"
#include "eager.h"
#include "runq.h"
#include "wheel.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct vt_carrier;
struct vt_place;
struct vt_sigitem;
struct vt_slot;
struct vt_stock;

enum vt_kind {
    VT_KERNEL = 0,  /* waits on a kernel futex */
    VT_VIRTUAL = 1, /* parks */
    VT_BOUND = 2,   /* a virtual thread with a kernel thread of its own, which waits as kernel threads do (bound.h) */
};

/* What a descriptor's token says; see park.c. */
enum vt_token {
    VT_NO_PERMIT = 0,
    VT_PERMIT = 1,
    VT_BLOCKED = 2, /* without a permit, and off its stack: an unblock makes it runnable */
    VT_LODGED = 3,  /* the same, but its thread pointer is still its carrier's: only that carrier runs it (place.h) */
};

/* What a descriptor's life word says; see life.c. */
enum vt_life {
    VT_DETACHED = 1, /* nobody will join: the descriptor is freed at the end */
    VT_ENDED = 2,    /* the start routine is over and the stack has been left */
    VT_JOINING = 4,  /* a thread is waiting in a join; joiner says who */
    VT_JOINED = 8,   /* taken by a join: any further use is the caller's error */
};

/* What bind_asked says. */
enum vt_bind_asked {
    VT_NOT_ASKED = 0,
    VT_ASKED = 1,
    VT_REFUSED = 2, /* there was no kernel thread for it */
};

/* Reasons to end a wait early, in vt_thread.interrupt. */
enum vt_interrupt {
    VT_SIGNALLED = 1, /* a handler has run on this thread since its wait began */
    VT_CANCELLED = 2, /* pthread_cancel; stays until it is acted upon */
    VT_NORESTART = 4, /* and one that was installed without SA_RESTART */
};

/* What a parked thread waits for; what wait_on and wait_detail are then. */
enum vt_wait_kind {
    VT_WAIT_OTHER = 0,
    VT_WAIT_FUTEX, /* the word of a futex() call or of atomic::wait */
    VT_WAIT_SLEEP,
    VT_WAIT_MUTEX,
    VT_WAIT_COND,
    VT_WAIT_RDLOCK, /* the rwlock */
    VT_WAIT_WRLOCK,
    VT_WAIT_SEM,
    VT_WAIT_BARRIER,
    VT_WAIT_ONCE,
    VT_WAIT_JOIN,  /* the descriptor of the thread */
    VT_WAIT_RING,  /* a descriptor number; detail: the io_uring operation */
    VT_WAIT_READY, /* a descriptor number; detail: the poll events */
    VT_WAIT_POLL,  /* the array of struct pollfd; detail: its length */
    VT_WAIT_PROXY, /* the mutex that a proxy is to lock */
    VT_WAIT_KINDS,
};

/* What keeps a thread on its carrier out of the scheduler's sight. */
enum vt_stuck {
    VT_STUCK_COMPUTING,
    VT_STUCK_WAITING,   /* in a call that waits for somebody or something */
    VT_STUCK_IN_KERNEL, /* in a page fault, for a disk, for a lock inside libc: not of its own will */
};

struct vt_thread {
    /* What a switch and a wait touch comes first. */
    struct vt_task task;        /* run-queue link; first, so that a task is its thread */
    _Atomic uint32_t token;     /* vt_block/vt_unblock, see park.h */
    uint32_t kind;              /* enum vt_kind */
    _Atomic uint32_t crit;      /* depth of scheduler sections; written by the thread alone, read by the monitor and
                                   by signal handlers on the same thread */
    uint32_t tid;               /* what gettid() says; above every kernel thread's if virtual */
    struct vt_carrier *carrier; /* who runs it; virtual and mounted only. Stable while the thread runs */
    struct vt_context ctx;      /* while not mounted */
    void *tp;                   /* thread pointer: its TCB */
    uint64_t sigmask;           /* the kernel's first 64 signals; what its carrier's kernel mask must be */
    void *alt_stack;            /* sigaltstack, NULL: none */

    alignas(64) struct vt_timer timer;    /* of the wait it is in */
    struct vt_place *_Atomic timer_place; /* whose wheel holds the timer, or NULL */
    _Atomic uint64_t deferred;            /* there is something to do on leaving a section: signals put off, or pending */
    _Atomic uint32_t interrupt;           /* enum vt_interrupt, set by others */
    _Atomic uint32_t clocked;         /* waits that it is in whose clock may be set (clock.c); written by the thread alone */
    _Atomic uint32_t life;            /* enum vt_life */
    struct vt_thread *_Atomic joiner; /* who waits under VT_JOINING, or NULL: it will look at VT_ENDED once more */
    struct vt_slot *slot;             /* stack and TLS */

    /* For who looks from outside (debug.h), and what is seldom touched. */
    alignas(64) const char *wait_what; /* the call that it makes in a hand-off; static text */
    const void *wait_on;               /* what it waits for, by wait_kind: an address, a descriptor number */
    uint32_t wait_kind;                /* enum vt_wait_kind of its present or last wait */
    uint32_t wait_detail;              /* by wait_kind */
    uint64_t since;                    /* when it came into its present state, by its place's clock; 0: not known */
    uint64_t turns;                    /* how often it was mounted: its stack is unchanged while this and `generation` are */
    uint64_t handle;                   /* what the program knows it by (life.h); 0 when it is free, or never was virtual */
    uint64_t gone_detached;            /* the handle of the last one, if that was detached and is no more */
    _Atomic uint32_t alive;            /* from its making until its stack has been left */
    uint32_t generation;               /* bumped at each reuse of the descriptor */
    uint32_t index;                    /* of the descriptor */
    _Atomic uint8_t hidden;            /* how much it blocks out of sight, see bound.c */
    bool parked;                       /* it has parked in its life */
    bool shielded;                     /* is not cancelled at any moment, but looks when it no longer is (cond.c, life.c) */
    volatile bool in_call;             /* waits in a call of the kernel's that a cancellation ends (vt_call_begins) */
    bool settling;                     /* in a wait that handlers do not end: what is deferred stays so */
    bool lent;                         /* sigmask is that of a wait, and own_mask comes back (vt_mask_lend) */

    alignas(64) void *(*start)(void *);
    void *arg; /* in a free one, stock.c's */
    void *result;
    char *stack_lo, *stack_hi; /* virtual and alive only */
    _Atomic uint32_t adopted;  /* a kernel thread's, which lives */
    bool exited;               /* result is from pthread_exit */
    bool in_position;          /* it reads at the position of a file (preload/rw.c) */
    bool vforked;              /* who runs as this thread is a child that vfork has made, in this memory */
    _Atomic bool
        bound_for_good;    /* it, or another for it, has asked for what only a kernel thread has; also in kernel threads */
    struct vt_eager eager; /* a kernel thread's: whether it spins before it sleeps */
    bool differs;          /* a kernel thread's: its processors, policy or niceness are not the carriers' */
    _Atomic uint64_t cpu;  /* ns of processor time in mounts that are over (cputime.h) */
    _Atomic uint32_t bind_asked; /* enum vt_bind_asked: another waits for it to bind itself */
    uint64_t computed;           /* of a bound thread: processor time of its kernel thread at its last wait */
    char name[16];               /* pthread_setname_np */

    uint64_t own_mask;
    uint64_t handling;          /* what sigmask blocks only until the handler that runs returns */
    _Atomic uint64_t pending;   /* signals sent to this thread by pthread_kill and not taken; bit n-1 for n (sigqueue.h) */
    _Atomic uint64_t held;      /* signals that were put off, and that its kernel thread still blocks for it */
    struct vt_sigitem *signals; /* who sent them, in order; under a lock */
    _Atomic uint64_t awaited;   /* signals that it waits for in sigwait, on a carrier without a place */
    size_t alt_size;

    struct vt_undo *undo;   /* what its calls have left with others (undo.h) */
    struct vt_stock *stock; /* of a kernel thread that makes threads, or NULL (stock.h) */
};

/* The calling thread's descriptor; NULL in a kernel thread that has not been adopted. Initial-exec, and in a virtual
 * thread part of its own TLS, so it needs no change at a switch. */
extern __thread struct vt_thread *vt_self __attribute__((tls_model("initial-exec")));

/* The calling kernel thread's descriptor, made at its first call. Aborts with a line if there is no memory for it. */
struct vt_thread *vt_adopt(void);

/* The calling thread's descriptor. Any thread. */
static inline struct vt_thread *vt_current(void)
{
    struct vt_thread *t = vt_self;
    return __builtin_expect(t != NULL, 1) ? t : vt_adopt();
}

/* Counts the forks between the first process and this one: who waited when its handler forked finds that what it waits in
 * was its parent's. */
extern uint32_t vt_process;

/* Whether t was virtual in the process that forked this one, and is the only thread that came along: a kernel thread until
 * the engine runs here (life.h). */
static inline bool vt_came_by_fork(const struct vt_thread *t)
{
    return t->kind == VT_KERNEL && t->handle != 0 && !t->vforked;
}

/* Whether the calling thread parks. */
static inline bool vt_is_virtual(void)
{
    return vt_self && vt_self->kind == VT_VIRTUAL;
}

/* Whether the calling thread is one that we have made, bound or not. */
static inline bool vt_is_ours(void)
{
    return vt_self && vt_self->kind != VT_KERNEL;
}

/* The id that mutexes keep as owner: unique among living threads, what gettid() says. */
static inline uint32_t vt_tid(void)
{
    return vt_current()->tid;
}

/* --- scheduler sections ------------------------------------------------------------------------------------------
 * Between vt_enter and vt_leave a thread may hold the scheduler's locks and touch its carrier's place. The monitor
 * does not take the place away, and no handler of the program runs on this thread: a signal that arrives is put off
 * until vt_leave. Sections nest; they are short and never wait for anything but a spin lock. */

/* Waits until the monitor has made up its mind about the place of the calling thread's carrier. */
void vt_await_claim(struct vt_carrier *c);

void vt_put_off(struct vt_thread *t); /* takes the signals that were put off */

/* The first member of struct vt_carrier (place.h): the monitor is deciding. */
struct vt_claim {
    _Atomic bool claimed;
};

/* Enters a section and returns the calling thread. */
static inline struct vt_thread *vt_enter(void)
{
    struct vt_thread *t = vt_current();
    atomic_store_explicit(&t->crit, atomic_load_explicit(&t->crit, memory_order_relaxed) + 1, memory_order_relaxed);
    /* Pairs with the monitor's membarrier: either it sees crit, or we see its claim (monitor.c). */
    atomic_signal_fence(memory_order_seq_cst);
    vt_chaos();
    if (t->carrier &&
        __builtin_expect(atomic_load_explicit(&((struct vt_claim *)t->carrier)->claimed, memory_order_acquire), 0))
        vt_await_claim(t->carrier);
    return t;
}

static inline void vt_leave(struct vt_thread *t)
{
    atomic_signal_fence(memory_order_seq_cst);
    uint32_t depth = atomic_load_explicit(&t->crit, memory_order_relaxed) - 1;
    atomic_store_explicit(&t->crit, depth, memory_order_release);
    atomic_signal_fence(memory_order_seq_cst);
    if (__builtin_expect(depth == 0 && atomic_load_explicit(&t->deferred, memory_order_relaxed) != 0, 0))
        vt_put_off(t);
}

#endif
