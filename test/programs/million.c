/* As many threads as are asked for, with default attributes, all alive at the same time and waiting at a barrier; then each
 * sleeps for a second and gives back the value that it was made with. Memory while all live, and how many slept in the same
 * moment, on stderr. */
#include "check.h"
#include <stdatomic.h>

static pthread_barrier_t barrier;
static atomic_long here, asleep, most;

static void *run(void *arg)
{
    atomic_fetch_add(&here, 1);
    pthread_barrier_wait(&barrier);
    long now = atomic_fetch_add(&asleep, 1) + 1, old = atomic_load(&most);
    while (now > old && !atomic_compare_exchange_weak(&most, &old, now))
        ;
    sleep_us(1000000);
    atomic_fetch_sub(&asleep, 1);
    return (char *)arg + 1;
}

/* The kB value of a line of /proc/self/status. */
static long status_kb(const char *key)
{
    char line[200];
    long kb = -1;
    FILE *f = fopen("/proc/self/status", "r");

    CHECK(f != NULL);
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, key, strlen(key)))
            kb = atol(line + strlen(key) + 1);
    fclose(f);
    return kb;
}

int main(int argc, char **argv)
{
    long count = argument(argc, argv, 1, 1000);
    pthread_t *threads = calloc((size_t)count, sizeof *threads);

    begin(280);
    CHECK(threads != NULL);
    ZERO(pthread_barrier_init(&barrier, NULL, (unsigned)count + 1));
    int64_t t0 = now_us();
    for (long i = 0; i < count; i++)
        ZERO(pthread_create(&threads[i], NULL, run, (void *)(intptr_t)i));
    while (atomic_load(&here) < count)
        sleep_us(10000);
    int64_t t1 = now_us();
    long rss = status_kb("VmRSS"), tables = status_kb("VmPTE");
    CHECK(count > 1000000 || rss + tables < 14L * 1024 * 1024);
    pthread_barrier_wait(&barrier);
    for (long i = 0; i < count; i++)
        CHECK(join(threads[i]) == (void *)(intptr_t)(i + 1));
    fprintf(
        stderr,
        "%ld threads: all waiting after %.2f s, slept for a second, at most %ld in the same moment, and joined %.2f s later; "
        "%.2f GiB resident, %.2f GiB page tables\n",
        count, (double)(t1 - t0) * 1e-6, atomic_load(&most), (double)(now_us() - t1) * 1e-6, (double)rss / 1048576,
        (double)tables / 1048576);
    ZERO(pthread_barrier_destroy(&barrier));
    return finish();
}
