/* How late a thread comes that sleeps for a millisecond at a time, while T others hold their kernel threads:
 * `compute` in bursts of 20 ms, or `block` for 20 ms in a way that no library sees, by a system call of the
 * program's own instructions. */
#define _GNU_SOURCE
#include "bench.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_int leave;
static int blocks;

static void block(void)
{
    struct timespec ts = {.tv_nsec = 20000000};
#if defined __x86_64__
    long number = SYS_nanosleep;
    __asm__ volatile("syscall" : "+a"(number) : "D"(&ts), "S"(NULL) : "rcx", "r11", "memory");
#else
    syscall(SYS_nanosleep, &ts, NULL);
#endif
}

static void compute(void)
{
    for (double until = now() + 0.02; now() < until;)
        ;
}

static void *hold(void *arg)
{
    while (!atomic_load(&leave)) {
        if (blocks)
            block();
        else
            compute();
        usleep(1000);
    }
    return arg;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void *tick(void *arg)
{
    static double late[100000];
    long n = *(long *)arg * 1000;
    for (long i = 0; i < n; i++) {
        double t0 = now();
        usleep(1000);
        late[i] = (now() - t0 - 1e-3) * 1e6;
        if (late[i] > 1e6)
            n = i + 1; /* once a second: that is enough to know */
    }
    qsort(late, (size_t)n, sizeof *late, by_value);
    printf("ticker ticks=%ld p50_us=%.0f p95_us=%.0f p99_us=%.0f max_us=%.0f\n", n, late[n / 2], late[n * 95 / 100],
           late[n * 99 / 100], late[n - 1]);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 4 || atol(argv[3]) < 1 || atol(argv[3]) > 100)
        usage("ticker compute|block T KILOTICKS, of these at most 100");
    blocks = argv[1][0] == 'b';
    long n = atol(argv[2]), ticks = atol(argv[3]);
    pthread_t *threads = malloc((size_t)(n + 1) * sizeof *threads);
    if (!threads)
        check(errno, "malloc");
    for (long i = 1; i <= n; i++)
        check(pthread_create(&threads[i], NULL, hold, NULL), "pthread_create");
    check(pthread_create(&threads[0], NULL, tick, &ticks), "pthread_create");
    check(pthread_join(threads[0], NULL), "pthread_join");
    atomic_store(&leave, 1);
    for (long i = 1; i <= n; i++)
        check(pthread_join(threads[i], NULL), "pthread_join");
    return 0;
}
