#include "helper.h"

#include "chaos.h"
#include "lock.h"
#include "park.h"
#include "place.h"
#include "sys.h"

#include <string.h>

#define VT_HELPER_STACK ((size_t)64 << 10)
/* For each place, within bounds: what keeps a disk busy, and no crowd. */
#define VT_HELPERS_EACH 4
#define VT_HELPERS_LOW  16
#define VT_HELPERS_HIGH 64

/* On the stack of the thread that waits for it. */
struct job {
    long (*call)(void *);
    void *arg;
    long result;
    bool refused;
    struct vt_thread *client;
    struct job *next;
    _Atomic uint32_t done; /* the last access of others to the job */
};

static struct {
    struct vt_lock lock;
    struct job *first, **last;
    unsigned queued, idle, helpers;
    _Atomic uint32_t word; /* changes with each job; helpers sleep on it */
} pool = {.last = &pool.first};

static struct job *take(void)
{
    struct job *j = pool.first;
    if (j) {
        pool.first = j->next;
        if (!pool.first)
            pool.last = &pool.first;
        pool.queued--;
    }
    return j;
}

static void finish(struct job *j)
{
    struct vt_thread *client = j->client;
    vt_chaos();
    atomic_store_explicit(&j->done, 1, memory_order_release);
    vt_chaos();
    vt_unblock(client);
}

static void *helper_main(void *arg)
{
    vt_staff_joins("vt-helper");
    for (;;) {
        struct vt_thread *t = vt_enter();
        vt_lock(&pool.lock);
        struct job *j = take();
        uint32_t seen = atomic_load_explicit(&pool.word, memory_order_relaxed);
        if (!j)
            pool.idle++;
        vt_unlock(&pool.lock);
        vt_leave(t);
        if (j) {
            j->result = j->call(j->arg);
            finish(j);
            continue;
        }
        vt_chaos();
        vt_sys_futex_wait(&pool.word, seen, NULL);
        vt_enter();
        vt_lock(&pool.lock);
        pool.idle--;
        vt_unlock(&pool.lock);
        vt_leave(t);
    }
    return arg;
}

/* A helper could not be made. If there is none at all nobody will do what is queued. */
static void refuse(struct vt_thread *t)
{
    struct job *refused = NULL, *j;
    vt_enter();
    vt_lock(&pool.lock);
    if (--pool.helpers == 0)
        while ((j = take())) {
            j->next = refused;
            refused = j;
        }
    vt_unlock(&pool.lock);
    vt_leave(t);
    while ((j = refused)) {
        refused = j->next;
        j->refused = true;
        finish(j);
    }
}

bool vt_help(long (*call)(void *arg), void *arg, long *result)
{
    struct vt_thread *t = vt_enter();
    struct job j = {.call = call, .arg = arg, .client = t};
    unsigned most = VT_HELPERS_EACH * vt_sched.nplaces;
    most = most < VT_HELPERS_LOW ? VT_HELPERS_LOW : most > VT_HELPERS_HIGH ? VT_HELPERS_HIGH : most;
    t->wait_kind = VT_WAIT_OTHER;
    t->wait_on = NULL;
    vt_lock(&pool.lock);
    *pool.last = &j;
    pool.last = &j.next;
    atomic_fetch_add_explicit(&pool.word, 1, memory_order_relaxed);
    bool make = ++pool.queued > pool.idle && pool.helpers < most;
    if (make)
        pool.helpers++;
    bool wake = pool.idle != 0;
    vt_unlock(&pool.lock);
    vt_leave(t);
    vt_chaos();
    if (wake)
        vt_sys_futex_wake(&pool.word, 1);
    if (make && vt_kernel_thread(helper_main, NULL, VT_HELPER_STACK) != 0)
        refuse(t);
    uint32_t process = vt_process;
    while (!atomic_load_explicit(&j.done, memory_order_acquire)) {
        if (process != vt_process) /* a handler has forked, and this is the child */
            return false;
        vt_block(VT_NEVER);
    }
    *result = j.result;
    return !j.refused;
}

void vt_help_fork_child(void)
{
    memset(&pool, 0, sizeof pool);
    pool.last = &pool.first;
}
