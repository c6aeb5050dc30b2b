/* Threads that hold a lock for almost all of the time, sleeping, and take it again as soon as they have released it: the
 * others get their turns. */
#include "check.h"

#include <stdatomic.h>

#define THREADS 6
#define TURNS   5

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_rwlock_t writers_first = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static sem_t semaphore;
static atomic_int waiting;

enum how { MUTEX, SEMAPHORE, WRITERS, READERS, READERS_BEHIND, HOWS };
static enum how how;

static void acquire(int i)
{
    switch (how) {
    case MUTEX:
        ZERO(pthread_mutex_lock(&mutex));
        break;
    case SEMAPHORE:
        SYS(sem_wait(&semaphore));
        break;
    case WRITERS:
        ZERO(pthread_rwlock_wrlock(&rwlock));
        break;
    case READERS: /* behind one writer */
        ZERO(i ? pthread_rwlock_rdlock(&rwlock) : pthread_rwlock_wrlock(&rwlock));
        break;
    default:
        ZERO(i ? pthread_rwlock_rdlock(&writers_first) : pthread_rwlock_wrlock(&writers_first));
        break;
    }
}

static void release(void)
{
    if (how == MUTEX)
        ZERO(pthread_mutex_unlock(&mutex));
    else if (how == SEMAPHORE)
        SYS(sem_post(&semaphore));
    else
        ZERO(pthread_rwlock_unlock(how == READERS_BEHIND ? &writers_first : &rwlock));
}

/* Until all but the first have had their turns: with readers on the lock a writer may have none. */
static void *worker(void *arg)
{
    int i = (int)(intptr_t)arg;
    for (int turns = 1; waiting > 0; turns++) {
        acquire(i);
        usleep(1000);
        release();
        if (i && turns == TURNS)
            waiting--;
    }
    return NULL;
}

int main(void)
{
    for (how = 0; how < HOWS; how++) {
        pthread_t threads[THREADS];
        SYS(sem_init(&semaphore, 0, 1));
        waiting = THREADS - 1;
        for (int i = 0; i < THREADS; i++)
            ZERO(pthread_create(&threads[i], NULL, worker, (void *)(intptr_t)i));
        for (int i = 0; i < THREADS; i++)
            ZERO(pthread_join(threads[i], NULL));
        printf("%d: all had their turns\n", how);
    }
    puts("ok");
    return 0;
}
