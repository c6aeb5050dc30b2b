#include "proxy.h"

#include "handoff.h"
#include "lock.h"
#include "place.h"
#include "real.h"
#include "sys.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#define VT_PROXY_STACK (256 * 1024)

enum request {
    VT_IDLE = 0,
    VT_CALL = 1,
    VT_END = 2,
};

struct proxy {
    pthread_t thread;
    _Atomic uint32_t request; /* a futex word */
    struct vt_proxy_call *call;
    unsigned held; /* how many locks; the client's */
    struct proxy *next;
};

static struct vt_lock idle_lock;
static struct proxy *idle; /* without a client */

/* Of the thread that runs, as it is thread-local: a virtual thread keeps it while it holds such mutexes. */
static __thread struct proxy *mine;

static int do_it(const struct vt_proxy_call *c)
{
    switch (c->op) {
    case VT_PROXY_LOCK:
        return vt_real(pthread_mutex_lock)(c->mutex);
    case VT_PROXY_TRYLOCK:
        return vt_real(pthread_mutex_trylock)(c->mutex);
    case VT_PROXY_CLOCKLOCK:
        return c->clock == CLOCK_REALTIME ? vt_real(pthread_mutex_timedlock)(c->mutex, c->until)
                                          : vt_real(pthread_mutex_clocklock)(c->mutex, c->clock, c->until);
    case VT_PROXY_UNLOCK:
        return vt_real(pthread_mutex_unlock)(c->mutex);
    case VT_PROXY_CONSISTENT:
        return vt_real(pthread_mutex_consistent)(c->mutex);
    case VT_PROXY_SETPRIOCEILING:
        return vt_real(pthread_mutex_setprioceiling)(c->mutex, c->ceiling, c->old_ceiling);
    case VT_PROXY_COND_WAIT:
        if (!c->until)
            return vt_real(pthread_cond_wait)(c->cond, c->mutex);
        return vt_real(pthread_cond_clockwait)(c->cond, c->mutex, c->clock, c->until);
    }
    return EINVAL;
}

static void *proxy_main(void *arg)
{
    struct proxy *p = arg;
    for (;;) {
        uint32_t request;
        /* Acquire, for the call. */
        while ((request = atomic_load_explicit(&p->request, memory_order_acquire)) == VT_IDLE)
            vt_sys_futex_wait(&p->request, VT_IDLE, NULL);
        if (request == VT_END)
            return NULL;
        struct vt_proxy_call *c = p->call;
        struct vt_thread *client = c->client;
        atomic_store_explicit(&p->request, VT_IDLE, memory_order_relaxed);
        c->result = do_it(c);
        /* Our last access to the call; release, for the result. */
        atomic_store_explicit(&c->done, 1, memory_order_release);
        vt_unblock(client);
    }
}

static struct proxy *proxy_make(void)
{
    struct proxy *p = vt_sys_map(sizeof *p);
    pthread_attr_t attr;
    if (!p)
        return NULL;
    int err = pthread_attr_init(&attr);
    if (!err) {
        uint64_t all = VT_ALL_SIGNALS, old = 0;
        vt_real(pthread_attr_setstacksize)(&attr, VT_PROXY_STACK);
        /* The program's handlers are not for this thread. */
        vt_sys4(SYS_rt_sigprocmask, SIG_SETMASK, (long)&all, (long)&old, sizeof all);
        err = vt_host.thread_create(&p->thread, &attr, proxy_main, p);
        vt_sys4(SYS_rt_sigprocmask, SIG_SETMASK, (long)&old, 0, sizeof old);
        pthread_attr_destroy(&attr);
    }
    if (err) {
        vt_sys2(SYS_munmap, (long)p, sizeof *p);
        return NULL;
    }
    return p;
}

static struct proxy *proxy_take(void)
{
    struct vt_thread *t = vt_enter();
    vt_lock(&idle_lock);
    struct proxy *p = idle;
    if (p)
        idle = p->next;
    vt_unlock(&idle_lock);
    vt_leave(t);
    return p ? p : proxy_make();
}

static void proxy_return(struct proxy *p)
{
    struct vt_thread *t = vt_enter();
    vt_lock(&idle_lock);
    p->next = idle;
    idle = p;
    vt_unlock(&idle_lock);
    vt_leave(t);
}

static void ask(struct proxy *p, enum request request)
{
    atomic_store_explicit(&p->request, request, memory_order_release);
    vt_sys_futex_wake(&p->request, 1);
}

/* How many locks more, or fewer, the proxy holds for its client after the call. */
static int balance(const struct vt_proxy_call *c)
{
    switch (c->op) {
    case VT_PROXY_LOCK:
    case VT_PROXY_TRYLOCK:
    case VT_PROXY_CLOCKLOCK:
        return c->result == 0 || c->result == EOWNERDEAD;
    case VT_PROXY_UNLOCK:
        return -(c->result == 0);
    case VT_PROXY_COND_WAIT:
        return -(c->result == ENOTRECOVERABLE);
    default:
        return 0;
    }
}

int vt_proxy(struct vt_proxy_call *c)
{
    struct proxy *p = mine;
    if (!p && !(p = proxy_take()))
        return -1;
    mine = p;
    c->client = vt_current();
    atomic_init(&c->done, 0);
    p->call = c;
    c->client->wait_kind = VT_WAIT_PROXY;
    c->client->wait_on = c->mutex;
    ask(p, VT_CALL);
    while (!atomic_load_explicit(&c->done, memory_order_acquire))
        vt_block(VT_NEVER);
    p->held += (unsigned)balance(c);
    if ((int)p->held <= 0) {
        p->held = 0;
        mine = NULL;
        proxy_return(p);
    }
    return c->result;
}

void vt_proxy_thread_ends(void)
{
    struct proxy *p = mine;
    if (!p)
        return;
    mine = NULL;
    ask(p, VT_END);
    vt_handoff_begin("pthread_join");
    vt_real(pthread_join)(p->thread, NULL);
    vt_handoff_end();
    vt_sys2(SYS_munmap, (long)p, sizeof *p);
}

void vt_proxy_forked(void)
{
    /* The kernel threads are gone; what they had locked is the parent's. */
    idle = NULL;
    idle_lock = (struct vt_lock)VT_LOCK_INIT;
    mine = NULL;
}
