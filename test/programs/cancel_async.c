/* Cancellation at any time of threads that wait: in calls that are cancellation points, in ones that are not,
 * and between. */
#include "check.h"
#include <signal.h>

#define EACH 8

static int empty[2];
static sem_t never;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static struct gate started, go;
static pthread_t waiting;

static void at_sleep(void)
{
    sleep(86400);
}

static void at_read(void)
{
    char c;
    SYS(read(empty[0], &c, 1));
}

static void at_sem(void)
{
    SYS(sem_wait(&never));
}

static void unlock(void *arg)
{
    EXPECT_ERROR(pthread_mutex_trylock(arg), EBUSY);
    ZERO(pthread_mutex_unlock(arg));
}

static void at_cond(void)
{
    /* What is called while cancellable at any time is a matter of taste; the mutex is held when the handler
     * runs. */
    ZERO(pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, NULL));
    ZERO(pthread_mutex_lock(&lock));
    pthread_cleanup_push(unlock, &lock);
    ZERO(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL));
    for (;;)
        ZERO(pthread_cond_wait(&cond, &lock));
    pthread_cleanup_pop(0);
}

static void at_lock(void)
{
    pthread_mutex_lock(&held);
}

static void at_join(void)
{
    pthread_join(waiting, NULL);
}

static void at_yield(void)
{
    for (;;)
        sched_yield();
}

static void at_loop(void)
{
    for (volatile long i = 0;; i++)
        ;
}

static const struct point {
    const char *name;
    void (*wait)(void);
} points[] = {{"sleep", at_sleep}, {"read", at_read}, {"sem_wait", at_sem}, {"cond_wait", at_cond},
              {"lock", at_lock},   {"join", at_join}, {"yield", at_yield},  {"loop", at_loop}};

static void *run(void *arg)
{
    const struct point *p = arg;
    ZERO(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL));
    gate_add(&started, 1);
    p->wait();
    FAIL("%s returned in a thread that was cancelled", p->name);
}

/* Must see nothing of what happens to the others. */
static void *bystander(void *arg)
{
    volatile int *stop = arg;
    ZERO(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL));
    while (!*stop) {
        sched_yield();
        usleep(100);
    }
    return arg;
}

/* With cancellation disabled a call inside libc is not cut short. */
static void *disabled(void *arg)
{
    sigset_t none;
    sigemptyset(&none);
    ZERO(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL));
    gate_add(&started, 1);
    CHECK(sigtimedwait(&none, NULL, &(struct timespec){.tv_nsec = 300000000}) == -1);
    EXPECT(errno, EAGAIN);
    return arg;
}

/* By itself: it ends where it next looks. */
static void *itself(void *arg)
{
    ZERO(pthread_cancel(pthread_self()));
    sleep(86400);
    FAIL("slept");
    return arg;
}

static void *wait_for_go(void *arg)
{
    gate_wait(&go, 1);
    return arg;
}

int main(void)
{
    static volatile int stop;
    pthread_t bystanders[2], threads[EACH];

    begin(60);
    SYS(pipe(empty));
    ZERO(sem_init(&never, 0, 0));
    ZERO(pthread_mutex_lock(&held));
    waiting = start(wait_for_go, NULL);
    for (int i = 0; i < 2; i++)
        bystanders[i] = start(bystander, (void *)&stop);
    for (size_t p = 0; p < sizeof points / sizeof points[0]; p++) {
        /* Only one at a time may join. */
        int n = points[p].wait == at_join ? 1 : EACH;
        started.count = 0;
        for (int i = 0; i < n; i++)
            threads[i] = start(run, (void *)&points[p]);
        gate_wait(&started, (unsigned)n);
        for (int i = 0; i < n; i++) {
            if (i == n / 2) /* some have begun to wait by now, perhaps all */
                usleep(20000);
            ZERO(pthread_cancel(threads[i]));
        }
        for (int i = 0; i < n; i++)
            CHECK(join(threads[i]) == PTHREAD_CANCELED);
        puts(points[p].name);
    }
    started.count = 0;
    threads[0] = start(disabled, (void *)&stop);
    gate_wait(&started, 1);
    usleep(100000);
    ZERO(pthread_cancel(threads[0]));
    CHECK(join(threads[0]) == (void *)&stop);
    puts("disabled");
    CHECK(join(start(itself, NULL)) == PTHREAD_CANCELED);
    puts("itself");
    stop = 1;
    for (int i = 0; i < 2; i++)
        CHECK(join(bystanders[i]) == (void *)&stop);
    gate_add(&go, 1);
    join(waiting);
    return finish();
}
