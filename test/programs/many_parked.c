/* As many parked threads as are asked for, in several ways, all woken and joined. */
#include "check.h"
#include <sys/resource.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, held = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static sem_t sem;
static struct gate waiting = GATE;
static int go;

static void *run(void *arg)
{
    long id = (intptr_t)arg;

    gate_add(&waiting, 1);
    switch (id % 4) {
    case 0:
        ZERO(pthread_mutex_lock(&lock));
        while (!go)
            ZERO(pthread_cond_wait(&changed, &lock));
        ZERO(pthread_mutex_unlock(&lock));
        break;
    case 1:
        ZERO(sem_wait(&sem));
        break;
    case 2:
        ZERO(pthread_mutex_lock(&held));
        ZERO(pthread_mutex_unlock(&held));
        break;
    default:
        ZERO(pthread_rwlock_rdlock(&rwlock));
        ZERO(pthread_rwlock_unlock(&rwlock));
    }
    return arg;
}

int main(int argc, char **argv)
{
    long count = argument(argc, argv, 1, 4000);
    pthread_t *threads = calloc((size_t)count, sizeof *threads);
    pthread_attr_t attr;

    begin(120);
    CHECK(threads != NULL);
    ZERO(pthread_attr_init(&attr));
    ZERO(pthread_attr_setstacksize(&attr, 64 * 1024));
    ZERO(sem_init(&sem, 0, 0));
    ZERO(pthread_mutex_lock(&held));
    ZERO(pthread_rwlock_wrlock(&rwlock));
    for (long i = 0; i < count; i++)
        ZERO(pthread_create(&threads[i], &attr, run, (void *)(intptr_t)i));
    gate_wait(&waiting, count);
    struct rusage usage;
    SYS(getrusage(RUSAGE_SELF, &usage));
    fprintf(stderr, "%ld KiB at most for %ld threads\n", usage.ru_maxrss, count);
    ZERO(pthread_mutex_lock(&lock));
    go = 1;
    ZERO(pthread_cond_broadcast(&changed));
    ZERO(pthread_mutex_unlock(&lock));
    ZERO(pthread_mutex_unlock(&held));
    ZERO(pthread_rwlock_unlock(&rwlock));
    for (long i = 1; i < count; i += 4)
        ZERO(sem_post(&sem));
    for (long i = 0; i < count; i++)
        EXPECT((intptr_t)join(threads[i]), i);
    return finish();
}
