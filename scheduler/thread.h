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
#include "runq.h"
#include "wheel.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct vt_carrier;
struct vt_place;
struct vt_slot;

enum vt_kind {
    VT_KERNEL = 0,  /* waits on a kernel futex */
    VT_VIRTUAL = 1, /* parks */
};

/* What a descriptor's life word says; see life.c. */
enum vt_life {
    VT_DETACHED = 1, /* nobody will join: the descriptor is freed at the end */
    VT_ENDED = 2,    /* the start routine is over and the stack has been left */
    VT_JOINING = 4,  /* a thread is waiting in a join; joiner says who */
    VT_JOINED = 8,   /* taken by a join: any further use is the caller's error */
};

/* Reasons to end a wait early, in vt_thread.interrupt. */
enum vt_interrupt {
    VT_SIGNALLED = 1, /* a handler has run on this thread since its wait began */
    VT_CANCELLED = 2, /* pthread_cancel; stays until it is acted upon */
    VT_NORESTART = 4, /* and one that was installed without SA_RESTART */
};

struct vt_thread {
    struct vt_task task;          /* run-queue link; first, so that a task is its thread */
    _Atomic uint32_t token;       /* vt_block/vt_unblock, see park.h */
    uint32_t kind;                /* enum vt_kind */
    _Atomic uint32_t crit;        /* depth of scheduler sections; written by the thread alone, read by the monitor and
                                     by signal handlers on the same thread */
    uint32_t tid;                 /* what gettid() says; above every kernel thread's if virtual */
    struct vt_carrier *carrier;   /* who runs it; virtual and mounted only. Stable while the thread runs */
    struct vt_context ctx;        /* while not mounted */
    void *tp;                     /* thread pointer: its TCB */
    struct vt_timer timer;        /* of the wait it is in */
    struct vt_place *_Atomic timer_place; /* whose wheel holds the timer, or NULL */
    _Atomic uint32_t interrupt;   /* enum vt_interrupt, set by others */
    _Atomic uint32_t life;        /* enum vt_life */
    struct vt_thread *_Atomic joiner; /* who waits under VT_JOINING, or NULL: it will look at VT_ENDED once more */
    struct vt_slot *slot;         /* stack and TLS */
    void *(*start)(void *);
    void *arg;
    void *result;
    uint64_t handle;              /* what the program knows it by (life.h); 0 when it is free, or never was virtual */
    bool exited;                  /* result is from pthread_exit */
    bool vforked;                 /* who runs as this thread is a child that vfork has made, in this memory */
    uint64_t sigmask;             /* the kernel's first 64 signals; what its carrier's kernel mask must be */
    _Atomic uint64_t deferred;    /* there is something to do on leaving a section: signals put off, or pending */
    _Atomic uint64_t pending;     /* signals sent to this thread by pthread_kill and not taken; bit n-1 for n */
    _Atomic uint64_t taken;       /* of those taken from pending, what is on its way through the kernel; the thread's own */
    _Atomic uint64_t awaited;     /* signals that it waits for in sigwait, on a carrier without a place */
    _Atomic uint64_t valued;      /* of the pending ones, those that came with a value (pthread_sigqueue) */
    _Atomic uint64_t value;       /* of the one that came last */
    void *alt_stack;              /* sigaltstack, NULL: none */
    size_t alt_size;
    const char *wait_what;        /* what it waits in, for dumps; static text */
    const void *wait_on;          /* the address or descriptor number */
    _Atomic uint32_t alive;       /* from its making until its stack has been left */
    uint32_t generation;          /* bumped at each reuse of the descriptor */
    uint32_t index;               /* of the descriptor */
    char name[16];                /* pthread_setname_np */
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

static inline bool vt_is_virtual(void)
{
    return vt_self && vt_self->kind == VT_VIRTUAL;
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
    if (t->carrier && __builtin_expect(atomic_load_explicit(&((struct vt_claim *)t->carrier)->claimed, memory_order_acquire), 0))
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
