/* Computes in more threads than there are carriers: a sleeper still wakes on time, and all the computing goes
 * on. */
#include "lateness.h"

enum { BURNERS = 8 };

static int stop;
static long done[BURNERS];
static int64_t duration;

static void *burn(void *arg)
{
    volatile uint64_t x = 1;
    long *n = arg;

    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        for (int i = 0; i < 10000; i++)
            x = x * 6364136223846793005u + 1;
        __atomic_store_n(n, *n + 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static void *sleeper(void *arg)
{
    *(int64_t *)arg = worst_of_sleeps(duration, 10);
    return NULL;
}

static int64_t measure(void)
{
    pthread_t threads[BURNERS];
    int64_t worst;

    stop = 0;
    memset(done, 0, sizeof done);
    for (int i = 0; i < BURNERS; i++)
        threads[i] = start(burn, &done[i]);
    join(start(sleeper, &worst));
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    long total = 0, least = done[0];
    for (int i = 0; i < BURNERS; i++) {
        join(threads[i]);
        total += done[i];
        if (done[i] < least)
            least = done[i];
    }
    fprintf(stderr, "%ld rounds, the least of %d threads %ld\n", total, BURNERS, least);
    if (least == 0)
        FAIL("a thread that computes never ran");
    return worst;
}

int main(int argc, char **argv)
{
    begin(60);
    start_control();
    duration = 1000 * argument(argc, argv, 1, 2000);
    expect_punctual("sleeper", measure);
    return finish();
}
