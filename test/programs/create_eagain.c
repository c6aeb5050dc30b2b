/* pthread_create without memory gives EAGAIN; the threads that there are go on, and later ones can be made
 * again. */
#include "check.h"
#include <sys/resource.h>

enum { MOST = 10000 };

static struct gate leave = GATE;
static pthread_t threads[MOST];

static void *run(void *arg)
{
    gate_wait(&leave, 1);
    return arg;
}

static void *at_once(void *arg)
{
    return arg;
}

static long address_space_kib(void)
{
    long pages;
    FILE *f = fopen("/proc/self/statm", "r");

    CHECK(f && fscanf(f, "%ld", &pages) == 1);
    fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

int main(void)
{
    struct rlimit old, limit;
    int made = 0, error = 0;
    pthread_attr_t attr;

    begin(30);
    ZERO(pthread_attr_init(&attr));
    ZERO(pthread_attr_setstacksize(&attr, 8 << 20));
    in_threads(20, at_once);
    SYS(getrlimit(RLIMIT_AS, &old));
    limit = old;
    limit.rlim_cur = (rlim_t)(address_space_kib() + 256 * 1024) * 1024;
    SYS(setrlimit(RLIMIT_AS, &limit));
    while (made < MOST && (error = pthread_create(&threads[made], &attr, run, NULL)) == 0)
        made++;
    for (int i = 0; i < 50; i++) {
        pthread_t t;
        int again = pthread_create(&t, &attr, at_once, NULL);
        if (again == 0)
            join(t);
        else
            EXPECT_ERROR(again, EAGAIN);
    }
    SYS(setrlimit(RLIMIT_AS, &old));
    fprintf(stderr, "%d threads made\n", made);
    EXPECT_ERROR(error, EAGAIN);
    CHECK(made > 4);
    gate_add(&leave, 1);
    for (int i = 0; i < made; i++)
        join(threads[i]);
    in_threads(100, at_once);
    return finish();
}
