/* Condition variables, mutexes and semaphores destroyed and overwritten the moment that POSIX allows it. */
#include "check.h"

enum { WAITERS = 6 };

struct object {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int go, waiting, users;
};

static void *wait_for_go(void *arg)
{
    struct object *o = arg;

    ZERO(pthread_mutex_lock(&o->lock));
    o->waiting++;
    while (!o->go)
        ZERO(pthread_cond_wait(&o->changed, &o->lock));
    /* The last to leave destroys, at once after it has released the mutex. */
    int last = --o->users == 0;
    ZERO(pthread_mutex_unlock(&o->lock));
    if (last) {
        ZERO(pthread_cond_destroy(&o->changed));
        ZERO(pthread_mutex_destroy(&o->lock));
        memset(o, 0xff, sizeof *o);
        free(o);
    }
    return NULL;
}

static struct object *make(int users)
{
    struct object *o = calloc(1, sizeof *o);

    ZERO(pthread_mutex_init(&o->lock, NULL));
    ZERO(pthread_cond_init(&o->changed, NULL));
    o->users = users;
    return o;
}

static void last_user_destroys(void)
{
    pthread_t threads[WAITERS];
    struct object *o = make(WAITERS + 1);

    for (int i = 0; i < WAITERS; i++)
        threads[i] = start(wait_for_go, o);
    ZERO(pthread_mutex_lock(&o->lock));
    o->go = 1;
    ZERO(pthread_cond_broadcast(&o->changed));
    ZERO(pthread_mutex_unlock(&o->lock));
    wait_for_go(o);
    for (int i = 0; i < WAITERS; i++)
        join(threads[i]);
}

static void *wait_on_static_lock(void *arg)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static int generation, arrived;
    static pthread_cond_t *cond;
    int creator = (intptr_t)arg == 0;

    ZERO(pthread_mutex_lock(&lock));
    if (!creator) {
        while (!cond) {
            ZERO(pthread_mutex_unlock(&lock));
            sched_yield();
            ZERO(pthread_mutex_lock(&lock));
        }
        int mine = generation;
        arrived++;
        while (generation == mine)
            ZERO(pthread_cond_wait(cond, &lock));
        ZERO(pthread_mutex_unlock(&lock));
        return NULL;
    }
    cond = malloc(sizeof *cond);
    ZERO(pthread_cond_init(cond, NULL));
    while (arrived < WAITERS) {
        ZERO(pthread_mutex_unlock(&lock));
        sched_yield();
        ZERO(pthread_mutex_lock(&lock));
    }
    arrived = 0;
    generation++;
    ZERO(pthread_cond_broadcast(cond));
    /* All are woken by now, although none of them has returned: destroying is allowed. */
    pthread_cond_t *old = cond;
    cond = NULL;
    ZERO(pthread_mutex_unlock(&lock));
    ZERO(pthread_cond_destroy(old));
    memset(old, 0xff, sizeof *old);
    free(old);
    return NULL;
}

struct message {
    sem_t done;
};

static void *answer(void *arg)
{
    struct message *m = arg;

    ZERO(sem_post(&m->done));
    return NULL;
}

int main(int argc, char **argv)
{
    long rounds = argument(argc, argv, 1, 300);

    begin(30);
    for (long i = 0; i < rounds; i++)
        last_user_destroys();
    puts("the last user destroys");
    for (long i = 0; i < rounds; i++)
        in_threads(WAITERS + 1, wait_on_static_lock);
    puts("the waker destroys");
    for (long i = 0; i < 5 * rounds; i++) {
        struct message *m = malloc(sizeof *m);
        ZERO(sem_init(&m->done, 0, 0));
        pthread_t t = start(answer, m);
        ZERO(sem_wait(&m->done));
        ZERO(sem_destroy(&m->done));
        memset(m, 0xff, sizeof *m);
        free(m);
        join(t);
    }
    puts("a semaphore on its own");
    return finish();
}
