/* How much threads that compute get done, for test/throughput, which compares: more of them than carriers, beside one that
 * sleeps 10 ms at a time. */
#include "check.h"
#include <sys/resource.h>

enum { MOST = 64 };

static int64_t end;
static long done[MOST][16]; /* a cache line or two each: they are to compute, not to share */

static void *burn(void *arg)
{
    volatile uint64_t x = 1;
    long *n = arg;

    while (now_us() < end) {
        for (int i = 0; i < 10000; i++)
            x = x * 6364136223846793005u + 1;
        __atomic_store_n(n, *n + 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static void *sleeper(void *arg)
{
    while (now_us() < end)
        sleep_us(10000);
    return arg;
}

static int64_t cpu_us(void)
{
    struct rusage u;

    SYS(getrusage(RUSAGE_SELF, &u));
    return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * INT64_C(1000000) + u.ru_utime.tv_usec + u.ru_stime.tv_usec;
}

int main(int argc, char **argv)
{
    long ms = argument(argc, argv, 1, 400), burners = argument(argc, argv, 2, 4), total = 0;
    pthread_t threads[MOST];

    begin(60);
    CHECK(burners <= MOST);
    /* The first thread starts the library, which on a busy machine may take longer than all of this. */
    join(start(sleeper, NULL));
    int64_t cpu = cpu_us(), wall = now_us();
    end = wall + ms * 1000;
    for (long i = 0; i < burners; i++)
        threads[i] = start(burn, done[i]);
    join(start(sleeper, NULL));
    for (long i = 0; i < burners; i++)
        join(threads[i]);
    cpu = cpu_us() - cpu, wall = now_us() - wall;
    for (long i = 0; i < burners; i++)
        total += done[i][0];
    CHECK(total > 0);
    fprintf(stderr, "rounds %ld cpu_us %lld wall_us %lld\n", total, (long long)cpu, (long long)wall);
    return finish();
}
