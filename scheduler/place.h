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

#include "lock.h"
#include "runq.h"
#include "thread.h"
#include "wheel.h"

#include <pthread.h>
#include <stdalign.h>

struct vt_ring;

/* Counters of one place; owner only, read by anyone for statistics. */
struct vt_place_stats {
    uint64_t direct;      /* threads mounted straight from another one */
    uint64_t parks;       /* threads that blocked */
    uint64_t yields;
    uint64_t steals;      /* threads taken from other places */
    uint64_t timers;      /* timers that expired */
    uint64_t sleeps;      /* times the carrier slept for want of work */
    uint64_t submissions; /* system calls that submitted to the ring or waited for it */
    uint64_t requests;    /* requests given to the ring */
};

struct vt_place {
    struct vt_runq runq;

    /* The thread woken last, which runs next; thieves take it only if the owner leaves it lying. */
    alignas(64) struct vt_task *_Atomic next;
    uint32_t next_streak; /* owner: how many times in a row next came before the queue */
    uint32_t picks;       /* owner: counts picks, for the turn of the process's queue */
    uint32_t direct;      /* owner: switches since the carrier last looked round */
    uint32_t solo_skip;   /* owner: lone wake-ups still to come that call no other carrier */
    uint32_t solo_wait;   /* owner: how many such wake-ups to let pass next time */
    struct vt_ring *ring; /* owner */

    alignas(64) struct vt_carrier *_Atomic carrier; /* who attends it, or NULL */
    _Atomic uint64_t mounts;                        /* bumped by the owner at each mount: the monitor's pulse */
    _Atomic bool idle;                              /* on the list of idle places; changed under its lock */
    bool called;                                    /* taken off that list to look for work; under its lock */
    struct vt_place *idle_next;                     /* under its lock */
    unsigned index;

    alignas(64) struct vt_lock timer_lock; /* wheel */
    _Atomic uint64_t due;                  /* no timer of the wheel is earlier; read without the lock */
    struct vt_wheel wheel;

    struct vt_place_stats stats;
};

struct vt_carrier {
    struct vt_claim claim;                      /* first: see thread.h */
    struct vt_thread self;                      /* its own context's descriptor; a kernel thread */
    struct vt_context ctx;                      /* its own context, while it runs a virtual thread */
    void *tp;                                   /* its own thread pointer */
    struct vt_place *_Atomic place;             /* what it attends, or NULL */
    struct vt_thread *_Atomic mounted;          /* the virtual thread that it runs, or NULL */
    bool searching;                             /* counted in vt_sched.searching */
    uint32_t random;                            /* whom to steal from */
    uint32_t soon;                              /* how many times it spins before it sleeps */
    struct vt_place *lost;                      /* what it attended before its last hand-off */
    void (*after)(struct vt_carrier *, void *); /* what the context switched to does first */
    void *after_arg;
    uint64_t kernel_mask;                       /* the kernel thread's signal mask */
    void *alt_stack;                            /* the kernel thread's alternate stack */
    _Atomic uint32_t wake;                      /* futex word of a spare */
    struct vt_carrier *spare_next;
    pid_t tid;
    unsigned index;
};

struct vt_sched {
    struct vt_place *places;
    unsigned nplaces;
    struct vt_globq globq;

    alignas(64) _Atomic unsigned nidle;     /* places on the idle list */
    _Atomic unsigned searching;             /* carriers that were woken to look for work and have none yet: 0 or 1 */
    alignas(64) struct vt_lock idle_lock;   /* idle, nidle and every place's idle */
    struct vt_place *idle;

    alignas(64) struct vt_lock spare_lock;
    struct vt_carrier *spares;
    unsigned ncarriers, max_carriers;       /* under spare_lock */
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

/* Makes places, the keeper and the monitor; carriers come with the work. Once, any kernel thread. 0 or an errno. */
int vt_sched_start(void);

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

/* Sees to it that the kernel thread of c has the mask of t, which has just been mounted. In a section. */
void vt_mask_mounted(struct vt_carrier *c, struct vt_thread *t);

/* Runs what the context that was left asked for. In the first instructions of a context that was switched to. */
void vt_run_after(struct vt_carrier *c);

/* Gives the calling virtual thread, in a section, a carrier with a place; it may wait for one. */
struct vt_place *vt_need_place(struct vt_thread *t);

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

/* Runs t until it is left for c's own context. */
void vt_run(struct vt_carrier *c, struct vt_place *p, struct vt_thread *t);

/* --- hand-off, between place.c and carrier.c -------------------------------------------------------------------------- */

/* A spare carrier; NULL if there is none now. In a section. */
struct vt_carrier *vt_spare_take(void);

/* Lets c, from vt_spare_take, attend p. */
void vt_spare_give(struct vt_carrier *c, struct vt_place *p);

/* Puts c among the spares. */
void vt_spare_return(struct vt_carrier *c);

/* Gives spare carriers to idle places that need one and have none. In a section, and the monitor. */
void vt_adopt_orphans(void);

/* Takes p from c, whose thread t has been running since the mount numbered mounts, and gives it to a spare. False if t is
 * in a section or has been left meanwhile. The monitor. */
bool vt_handoff_by_monitor(struct vt_place *p, struct vt_carrier *c, struct vt_thread *t, uint64_t mounts);

/* Whether p needs a carrier now. Any thread, a hint unless p is unattended. */
bool vt_place_needs_carrier(const struct vt_place *p);

/* Puts the unattended p among the idle places. In a section. */
void vt_place_set_idle(struct vt_place *p);

/* Takes an idle place that nobody attends, preferring p; NULL if there is none. In a section. */
struct vt_place *vt_place_take_unattended(struct vt_place *p);

#endif
