/* Barriers and spin locks. */
#include "check.h"

enum { THREADS = 12, ROUNDS = 100 };

static pthread_barrier_t barrier;
static pthread_spinlock_t spin;
static int arrived, serial, inside, counter;

static void *meet(void *arg)
{
    for (int i = 1; i <= ROUNDS; i++) {
        __atomic_add_fetch(&arrived, 1, __ATOMIC_SEQ_CST);
        int r = pthread_barrier_wait(&barrier);
        if (r == PTHREAD_BARRIER_SERIAL_THREAD)
            __atomic_add_fetch(&serial, 1, __ATOMIC_SEQ_CST);
        else
            ZERO(r);
        EXPECT(__atomic_load_n(&arrived, __ATOMIC_SEQ_CST), i * THREADS);
        r = pthread_barrier_wait(&barrier);
        CHECK(r == 0 || r == PTHREAD_BARRIER_SERIAL_THREAD);
    }
    return arg;
}

/* The one that is told to may destroy the barrier at once. */
static pthread_barrier_t *shared;
static int destroyed;

static void *meet_and_destroy(void *arg)
{
    pthread_barrier_t *b = shared;

    if (pthread_barrier_wait(b) == PTHREAD_BARRIER_SERIAL_THREAD) {
        ZERO(pthread_barrier_destroy(b));
        memset(b, 0xff, sizeof *b);
        free(b);
        __atomic_add_fetch(&destroyed, 1, __ATOMIC_RELAXED);
    }
    return arg;
}

static void *spin_on(void *arg)
{
    for (int i = 0; i < 2000; i++) {
        if (i % 3) {
            ZERO(pthread_spin_lock(&spin));
        } else {
            int error;
            while ((error = pthread_spin_trylock(&spin)) != 0) {
                EXPECT_ERROR(error, EBUSY);
                sched_yield();
            }
        }
        EXPECT(inside++, 0);
        counter++;
        inside--;
        ZERO(pthread_spin_unlock(&spin));
    }
    return arg;
}

int main(void)
{
    pthread_barrierattr_t attr;

    begin(20);
    for (int p = 0; p < 2; p++) {
        ZERO(pthread_barrierattr_init(&attr));
        ZERO(pthread_barrierattr_setpshared(&attr, p));
        ZERO(pthread_barrier_init(&barrier, &attr, THREADS));
        ZERO(pthread_barrierattr_destroy(&attr));
        arrived = serial = 0;
        in_threads(THREADS, meet);
        EXPECT(serial, ROUNDS);
        ZERO(pthread_barrier_destroy(&barrier));
    }
    EXPECT_ERROR(pthread_barrier_init(&barrier, NULL, 0), EINVAL);
    ZERO(pthread_barrier_init(&barrier, NULL, 1));
    EXPECT(pthread_barrier_wait(&barrier), PTHREAD_BARRIER_SERIAL_THREAD);
    ZERO(pthread_barrier_destroy(&barrier));
    for (int i = 0; i < 200; i++) {
        shared = malloc(sizeof *shared);
        ZERO(pthread_barrier_init(shared, NULL, 6));
        in_threads(6, meet_and_destroy);
    }
    EXPECT(destroyed, 200);
    puts("barrier");
    ZERO(pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE));
    in_threads(THREADS, spin_on);
    EXPECT(counter, THREADS * 2000);
    ZERO(pthread_spin_destroy(&spin));
    puts("spin lock");
    return finish();
}
