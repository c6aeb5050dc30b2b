/* T threads compute, M rounds altogether, and wait for nothing. */
#include "bench.h"
#include <pthread.h>
#include <stdint.h>

static long share;

static void *compute(void *arg)
{
    uint64_t x = (uint64_t)(uintptr_t)arg | 1;
    for (long i = 0; i < share; i++)
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    return (void *)(uintptr_t)x;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        usage("crunch T M");
    long n = atol(argv[1]);
    share = atol(argv[2]) / n;
    pthread_t *threads = malloc((size_t)n * sizeof *threads);
    if (!threads)
        check(errno, "malloc");
    double t0 = now();
    for (long i = 0; i < n; i++)
        check(pthread_create(&threads[i], NULL, compute, (void *)i), "pthread_create");
    uintptr_t sum = 0;
    for (long i = 0; i < n; i++) {
        void *result;
        check(pthread_join(threads[i], &result), "pthread_join");
        sum ^= (uintptr_t)result;
    }
    double t = now() - t0;
    printf("crunch threads=%ld m=%ld seconds=%.4f sum=%lx\n", n, share * n, t, (unsigned long)sum);
    return 0;
}
