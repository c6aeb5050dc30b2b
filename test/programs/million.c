/* As many threads as are asked for, with default attributes, all alive at the same time; then each sleeps for
 * a second and gives back the value that it was made with. Memory while all live on stderr. */
#include "check.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long here, asleep;
static int go;

static void *run(void *arg)
{
    ZERO(pthread_mutex_lock(&lock));
    here++;
    while (!go)
        ZERO(pthread_cond_wait(&changed, &lock));
    asleep++;
    ZERO(pthread_mutex_unlock(&lock));
    sleep_us(1000000);
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
    int64_t t0 = now_us();
    for (long i = 0; i < count; i++)
        ZERO(pthread_create(&threads[i], NULL, run, (void *)(intptr_t)i));
    for (long n = 0; n < count;) {
        ZERO(pthread_mutex_lock(&lock));
        n = here;
        ZERO(pthread_mutex_unlock(&lock));
        sleep_us(10000);
    }
    int64_t t1 = now_us();
    long rss = status_kb("VmRSS"), tables = status_kb("VmPTE");
    CHECK(count > 1000000 || rss + tables < 14L * 1024 * 1024);
    ZERO(pthread_mutex_lock(&lock));
    go = 1;
    ZERO(pthread_cond_broadcast(&changed));
    ZERO(pthread_mutex_unlock(&lock));
    for (long n = 0; n < count;) {
        ZERO(pthread_mutex_lock(&lock));
        n = asleep;
        ZERO(pthread_mutex_unlock(&lock));
        sleep_us(10000);
    }
    int64_t t2 = now_us();
    for (long i = 0; i < count; i++)
        CHECK(join(threads[i]) == (void *)(intptr_t)(i + 1));
    fprintf(stderr,
            "%ld threads: all parked after %.2f s, asleep %.2f s later, joined %.2f s later; "
            "%.2f GiB resident, %.2f GiB page tables\n",
            count, (double)(t1 - t0) * 1e-6, (double)(t2 - t1) * 1e-6, (double)(now_us() - t2) * 1e-6,
            (double)rss / 1048576, (double)tables / 1048576);
    return finish();
}
