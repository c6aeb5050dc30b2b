/* The engine's data at one instant: what each thread does, and its stack as bytes. See scheduler/debug.h. */
#ifndef DUMP_ENGINE_H
#define DUMP_ENGINE_H

#include "target.h"

enum state { STATE_RUNNING, STATE_RUNNABLE, STATE_PARKED, STATE_KERNEL };

enum wait { /* the engine's kinds, whatever numbers it has for them */
            WAIT_OTHER,
            WAIT_FUTEX,
            WAIT_SLEEP,
            WAIT_MUTEX,
            WAIT_COND,
            WAIT_RDLOCK,
            WAIT_WRLOCK,
            WAIT_SEM,
            WAIT_BARRIER,
            WAIT_ONCE,
            WAIT_JOIN,
            WAIT_RING,
            WAIT_READY,
            WAIT_POLL,
            WAIT_PROXY,
            WAIT_NOTHING, /* it does not wait */
            WAITS,
};

/* A piece of a stack. */
struct piece {
    uint64_t lo, hi;
    const uint8_t *data;
};

struct stack; /* unwind.h */

struct thread {
    uint64_t descriptor; /* 0: a kernel thread without one */
    uint32_t tid;        /* what gettid() says */
    char name[17];
    enum state state;
    pid_t lwp;         /* the kernel thread that it is on, or 0 */
    int carrier;       /* the number of its carrier, or -1 */
    uint64_t since;    /* when it came into this state, 0: not known */
    uint64_t deadline; /* of its wait; UINT64_MAX: none */
    enum wait wait;
    uint64_t on; /* the object, the descriptor number, the thread waited for */
    uint32_t detail;
    uint32_t owner; /* the tid of who holds the lock that it waits for; 0: nobody that is known */
    char call[32];  /* in a hand-off: the call */
    uint64_t start; /* start routine, 0 for kernel threads */
    bool virtual;
    bool started; /* has ever run */
    struct registers regs;
    uint64_t stack_lo, stack_hi;
    struct piece pieces[3];
    unsigned npieces;
    const char *trouble; /* why its stack cannot be told, or NULL */
    const struct stack *stack;
};

extern struct engine {
    bool found;             /* the library is in the target */
    uint64_t outermost;     /* the function at the bottom of every virtual thread's stack */
    struct thread *threads; /* virtual ones by descriptor, then kernel threads */
    size_t nthreads, nvirtual;
    size_t ncarriers, nspares, nplaces;
} engine;

/* Stops the target, copies, lets it go on. all: kernel threads of the library, too. */
void engine_copy(bool all);

/* Reads the table only. False if the library is not in the target. */
bool engine_table(void);

/* An entry of the table: 0 and false if it is not there. */
bool engine_entry(const char *name, uint64_t *value);

/* The living thread with this tid, or NULL. */
struct thread *engine_by_tid(uint32_t tid);
struct thread *engine_by_descriptor(uint64_t descriptor);

extern const char *const wait_names[WAITS];

#endif
