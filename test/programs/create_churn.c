/* Many rounds of create, malloc, free and join: the memory goes back to where it was. */
#include "check.h"

static __thread char area[512];

static void *run(void *arg)
{
    size_t size = 64 + ((uintptr_t)arg * 37) % 5000;
    char *p = malloc(size);

    CHECK(p != NULL);
    memset(p, 1, size);
    for (size_t i = 0; i < sizeof area; i++)
        CHECK(area[i] == 0);
    memset(area, 2, sizeof area);
    char *old = realloc(p, 2 * size);
    CHECK(old != NULL && old[size - 1] == 1);
    free(old);
    return arg;
}

static long resident_kib(void)
{
    long size, resident;
    FILE *f = fopen("/proc/self/statm", "r");

    CHECK(f && fscanf(f, "%ld %ld", &size, &resident) == 2);
    fclose(f);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static void churn(long rounds)
{
    enum { AT_ONCE = 8 };
    pthread_t threads[AT_ONCE];

    for (long i = 0; i < rounds; i += AT_ONCE) {
        for (int j = 0; j < AT_ONCE; j++)
            threads[j] = start_number(run, i + j);
        for (int j = 0; j < AT_ONCE; j++)
            EXPECT((intptr_t)join(threads[j]), i + j);
    }
}

int main(int argc, char **argv)
{
    long rounds = argument(argc, argv, 1, 20000);

    begin(60);
    churn(2000);
    long before = resident_kib();
    churn(rounds);
    long after = resident_kib();
    fprintf(stderr, "resident %ld KiB, then %ld KiB\n", before, after);
    CHECK(after < before + 8192);
    return finish();
}
