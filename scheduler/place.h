/* Places and carriers: who runs virtual threads, and where the runnable ones wait.
 *
 * A place is what is needed to run virtual threads: a run queue, a timer wheel and a ring. There are as many as
 * VTHREAD_CARRIERS. A carrier is a kernel thread that runs virtual threads; it attends at most one place, and a place is
 * attended by at most one carrier. A carrier whose thread computes for long or blocks in the kernel loses its place to a
 * spare carrier (hand-off) and goes on as an ordinary kernel thread; its thread is back among the others when it next
 * parks.
 *
 * Invariant: a place that has runnable threads, armed timers or requests under way is attended, or is being handed to a
 * carrier that has been told. Only the carrier that attends a place, inside a scheduler section, touches what is marked
 * "owner" below. */
#ifndef VT_PLACE_H
#define VT_PLACE_H

#include "eager.h"
#include "lock.h"
#include "runq.h"
#include "stock.h"
#include "thread.h"
#include "wheel.h"

#include <assert.h>
#include <pthread.h>
#include <stdalign.h>
#include <stddef.h>

struct vt_ring;

/* Counters of one place; owner only, read by anyone for statistics. */
#define VT_DELAYS 40 /* bucket n: below 2^n ns, and not below half of that */
struct vt_place_stats {
    uint64_t direct;    /* threads mounted straight from another one */
    uint64_t lodged;    /* threads mounted again whose thread pointer was still set */
    uint64_t parks[16]; /* threads that blocked, by enum vt_wait_kind */
    uint64_t yields;
    uint64_t steals;      /* threads taken from other places */
    uint64_t timers;      /* timers that expired */
    uint64_t sleeps;      /* times the carrier slept for want of work */
    uint64_t submissions; /* system calls that submitted to the ring or waited for it */
    uint64_t requests;    /* requests given to the ring */
    uint64_t batches;     /* of the submissions, those that brought requests */
    uint64_t batch_most;  /* requests in one of them at most */
    uint64_t wakes;       /* threads made runnable */
    /* How long threads waited from runnable to mounted, of those that are looked at: counts, and the longest in ns. */
    uint64_t delay[VT_DELAYS];
    uint64_t delay_most;
};
static_assert(VT_WAIT_KINDS <= 16, "vt_place_stats.parks");

struct vt_place {
    struct vt_runq runq;

    /* The thread woken last, which runs next; thieves take it only if the owner leaves it lying. */
    alignas(64) struct vt_task *_Atomic next;
    uint32_t next_streak; /* owner: how many times in a row next came before the queue */
    uint32_t picks;       /* owner: counts picks, for the turn of the process's queue */
    uint32_t lone_yields; /* owner: yields with nobody waiting here */
    uint32_t direct;      /* owner: switches since the carrier last looked round */
    uint32_t solo_skip;   /* owner: lone wake-ups still to come that call no other carrier */
    uint32_t solo_wait;   /* owner: how many such wake-ups to let pass next time */
    struct vt_ring *ring; /* owner */

    alignas(64) struct vt_carrier *_Atomic carrier; /* who attends it, or NULL */
    _Atomic uint64_t mounts;                        /* bumped by the owner at each mount: the monitor's pulse */
    _Atomic bool idle;                              /* on the list of idle places; changed under its lock */
    bool called;                                    /* taken off that list to look for work; under its lock */
    struct vt_place *idle_next, *idle_prev;         /* under its lock */
    unsigned index;

    alignas(64) struct vt_lock timer_lock; /* wheel */
    _Atomic uint64_t due;                  /* no timer of the wheel is earlier; read without the lock */
    struct vt_wheel wheel;

    uint64_t clock; /* CLOCK_MONOTONIC, a few milliseconds old while the place is attended: the owner and the monitor
                       write it whenever they have read the clock */
    alignas(64) struct vt_stock stock; /* owner */
    struct vt_place_stats stats;
};

/* In vt_thread.since of a runnable thread: it is one of those whose delay is measured, and the time is exact. Times by a
 * place's clock have the bit clear. */
#define VT_MEASURED UINT64_C(1)

static inline uint64_t vt_place_clock(const struct vt_place *p)
{
    return p->clock & ~VT_MEASURED;
}

/* A carrier's own stack: the loop, ring and timers, and a frame for a signal of libc's own (setuid). */
#define VT_CARRIER_STACK ((size_t)128 << 10)

/* A hand-off, for VTHREAD_TRACE_PINNED. */
struct vt_pin {
    const char *_Atomic what; /* its cause, a static text; NULL: there is none */
    uint64_t since;
    unsigned serial, said; /* which it is; which was last told of */
};

/* In a carrier's kernel_mask, which has no room for it otherwise: that signal (libc's for setuid) is never blocked. The next
 * mount looks at what has been put off. */
#define VT_PUT_OFF (UINT64_C(1) << (VT_SIGSETXID - 1))

struct vt_carrier {
    struct vt_claim claim;                      /* first: see thread.h */
    struct vt_thread self;                      /* its own context's descriptor; a kernel thread */
    struct vt_context ctx;                      /* its own context, while it runs a virtual thread */
    void *tp;                                   /* its own thread pointer */
    struct vt_thread *lodger;                   /* whose thread pointer its own context uses instead, or NULL */
    struct vt_place *_Atomic place;             /* what it attends, or NULL */
    struct vt_thread *_Atomic mounted;          /* the virtual thread that it runs, or NULL */
    bool searching;                             /* counted in vt_sched.searching */
    uint32_t random;                            /* whom to steal from */
    struct vt_eager eager;                      /* whether it spins before it sleeps */
    struct vt_place *lost;                      /* what it attended before its last hand-off */
    _Atomic bool out;                           /* its thread blocks, or did when it lost the place; counted in nout */
    void (*after)(struct vt_carrier *, void *); /* what the context switched to does first */
    void *after_arg;
    _Atomic uint64_t cpu_mark;    /* its processor time at the mount, 0: not known (cputime.h) */
    _Atomic uint32_t cpu_changes; /* odd while cpu_mark and the thread's account change */
    uint64_t kernel_mask;         /* the kernel thread's signal mask, and VT_PUT_OFF */
    _Atomic unsigned again;       /* how many of them are the program's, not kicks; at the most */
    uint64_t put_off;             /* signals that may be pending for the kernel thread since they were put off */
    void *alt_stack;              /* the kernel thread's alternate stack */
    _Atomic uint32_t wake;        /* futex word of a spare */
    struct vt_carrier *spare_next;
    bool tainted;                /* its kernel thread is not as others any more: it ends with its thread */
    bool clean;                  /* it has never had a place, so the kernel has no requests in its name */
    struct vt_thread *bound;     /* what it is to run without a place, given to it as a place is */
    struct vt_carrier *all_next; /* in vt_sched.carriers */
    struct vt_pin pin;           /* pinned.c's */
    pid_t tid;
    unsigned index;
};

#define VT_STAFF 64

struct vt_sched {
    struct vt_place *places;
    unsigned nplaces;
    struct vt_globq globq;

    alignas(64) _Atomic unsigned nidle;   /* places on the idle list */
    _Atomic unsigned searching;           /* carriers that were woken to look for work and have none yet: 0 or 1 */
    alignas(64) struct vt_lock idle_lock; /* idle, nidle and every place's idle */
    struct vt_place *idle;

    alignas(64) struct vt_lock spare_lock;
    struct vt_carrier *spares, *clean; /* those that are clean apart, for bound threads */
    struct vt_carrier *retired;        /* without a kernel thread, to be used again */
    struct vt_carrier *fresh;          /* never used yet, in one piece of memory */
    unsigned nfresh;
    struct vt_task_list binding; /* threads that wait for a clean carrier */
    struct vt_carrier *carriers; /* all; under spare_lock */
    /* Ids of kernel threads of the library that are no carriers, of the first so many. They never end. */
    _Atomic pid_t staff[VT_STAFF];
    _Atomic unsigned nstaff;
    unsigned ncarriers;    /* under spare_lock */
    unsigned max_carriers; /* how many may be in use besides those that are out */
    _Atomic unsigned nout; /* carriers whose thread blocks: as many kernel threads as there were natively */
};

extern struct vt_sched vt_sched;

/* Functions of the environment that the scheduler needs. The default is libc's by name; who interposes these names sets
 * them to the real ones before vt_sched_start. */
struct vt_host {
    int (*thread_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
};
extern struct vt_host vt_host;

/* Starts a detached kernel thread with all signals blocked. 0 or an errno. Kernel threads only, not in a section. */
int vt_kernel_thread(void *(*main)(void *), void *arg, size_t stack);

/* The id of the keeper, which has made all carriers (but the first, as it was made itself); 0 if it does not run. Any thread.
 */
pid_t vt_keeper(void);

/* Lets the keeper look at what is wanted of it. Any thread, also in a section. */
void vt_keeper_call(void);

/* The calling kernel thread is the library's, and no carrier: names it, and notes that. At its start. */
void vt_staff_joins(const char *name);

/* Makes places, the keeper and the monitor; carriers come with the work. Once, any kernel thread. 0 or an errno. */
int vt_sched_start(void);

/* Makes the calling kernel thread, which t has had to itself since a fork, a carrier without a place with t mounted, as after
 * a hand-off: its own context gets a stack and a TCB of its own, in which self_offset is where vt_self lies. Then t is
 * virtual. False without memory. Not in a section. */
bool vt_carrier_become(struct vt_thread *t, ptrdiff_t self_offset);

/* In a forked child: as if never started. Closes the descriptors of the parent's rings. */
void vt_sched_fork_child(void);

/* Makes t runnable: next on the place of the calling carrier, or in the process's queue. In a section, any thread. t must
 * not be runnable or running. */
void vt_ready(struct vt_thread *t);

/* The same, but behind those that are runnable already. */
void vt_ready_last(struct vt_thread *t);

/* Leaves the calling virtual thread, which is in a section; after(carrier, t) runs in the context that comes next, when
 * the stack has been left. Returns when t is mounted again. */
void vt_unmount(struct vt_thread *t, void (*after)(struct vt_carrier *, void *));

/* The same where mostly the calling carrier finds out itself that t can go on, from its ring or its timers: t, blocked, may
 * become the carrier's lodger. The carrier's own context then runs with the thread pointer of t, which it need not set when t
 * comes next, and sets once when another thread does: each time a system call where the processor has no instruction for it.
 * Until then nobody else runs t: after sets VT_LODGED in place of VT_BLOCKED when the lodger of its carrier is t, and who
 * unblocks it calls the carrier. */
void vt_unmount_lodging(struct vt_thread *t, void (*after)(struct vt_carrier *, void *));

/* Whether the calling thread or carrier, me, is in a carrier's own context. */
static inline bool vt_in_loop(const struct vt_thread *me)
{
    return me->carrier && !atomic_load_explicit(&me->carrier->mounted, memory_order_relaxed);
}

/* Sees to it that the kernel thread of c has the mask of t, which has just been mounted. In a section. */
void vt_mask_mounted(struct vt_carrier *c, struct vt_thread *t);

/* Runs what the context that was left asked for. In the first instructions of a context that was switched to. */
void vt_run_after(struct vt_carrier *c);

/* Gives the calling virtual thread, in a section, a carrier with a place; it may wait for one. */
struct vt_place *vt_need_place(struct vt_thread *t);

/* To be run after the calling thread, arg, has been left: gives it a clean carrier, which runs it as a bound thread; or, if
 * there is no kernel thread to be had, makes it runnable as it is. */
void vt_give_carrier(struct vt_carrier *c, void *arg);

/* c, the calling carrier, which runs a thread in a section, goes on without its place: another will attend that. */
void vt_give_up_place(struct vt_carrier *c);

/* Wakes a carrier for an idle place, if there is one and nobody is searching already. In a section, any thread. */
void vt_wake_idle(void);

/* Wakes the carrier of p, or gives p one, if p is idle. In a section, any thread. */
void vt_wake_place(struct vt_place *p);

/* Arms t's timer on p's wheel or, if p is NULL, on another's. In a section. */
void vt_timer_arm(struct vt_place *p, struct vt_thread *t, uint64_t deadline);

/* Disarms it if it is armed. In a section. */
void vt_timer_disarm(struct vt_thread *t);

/* --- between place.c and carrier.c -------------------------------------------------------------------------------- */

/* Makes n places, unattended; vt_places_open, when they have rings, puts them among the idle ones. */
int vt_places_make(unsigned n);
void vt_places_open(void);

/* The next thread for c, which attends p, to run; waits for one. */
struct vt_thread *vt_find(struct vt_carrier *c, struct vt_place *p);

/* Runs t until it is left for c's own context. Without a place (p is NULL) it is a bound thread. */
void vt_run(struct vt_carrier *c, struct vt_place *p, struct vt_thread *t);

/* --- hand-off, between place.c and carrier.c -------------------------------------------------------------------------- */

/* A spare carrier; NULL if there is none now. In a section. */
struct vt_carrier *vt_spare_take(void);

/* Lets c, from vt_spare_take, attend p. */
void vt_spare_give(struct vt_carrier *c, struct vt_place *p);

/* Puts c among the spares. */
void vt_spare_return(struct vt_carrier *c);

/* Gives spare carriers to idle places that need one and have none. Whether some still need one. In a section, and the
 * monitor. */
bool vt_adopt_orphans(void);

/* Says once that the limit is reached, if it is. The monitor, when places have lacked carriers for long. */
void vt_say_limit(void);

/* Takes p from c, whose thread t has been running since the mount numbered mounts, and gives it to a spare. False if t is
 * in a section or has been left meanwhile. how: what t does meanwhile. The monitor. */
bool vt_handoff_by_monitor(struct vt_place *p, struct vt_carrier *c, struct vt_thread *t, uint64_t mounts, enum vt_stuck how);

/* Whether p needs a carrier now. Any thread, a hint unless p is unattended. */
bool vt_place_needs_carrier(const struct vt_place *p);

/* Puts the unattended p among the idle places. In a section. */
void vt_place_set_idle(struct vt_place *p);

/* Takes an idle place that nobody attends, preferring p; NULL if there is none. In a section. */
struct vt_place *vt_place_take_unattended(struct vt_place *p);

#endif
