/* Names of threads, by pthread and by prctl. */
#include "check.h"
#include <sys/prctl.h>

static struct gate named = GATE, leave = GATE;

static void *run(void *arg)
{
    char name[32], got[32];

    /* A new thread has its creator's name. */
    ZERO(pthread_getname_np(pthread_self(), got, sizeof got));
    EXPECT_STR(got, "creator");
    snprintf(name, sizeof name, "worker %d", (int)(intptr_t)arg);
    if ((intptr_t)arg % 2)
        ZERO(pthread_setname_np(pthread_self(), name));
    else
        SYS(prctl(PR_SET_NAME, name));
    gate_add(&named, 1);
    gate_wait(&leave, 1);
    SYS(prctl(PR_GET_NAME, got));
    EXPECT_STR(got, (intptr_t)arg == 3 ? "from outside" : name);
    return arg;
}

int main(void)
{
    pthread_t threads[20];
    char got[32], small[4];

    begin(20);
    ZERO(pthread_setname_np(pthread_self(), "creator"));
    for (int i = 0; i < 20; i++)
        threads[i] = start_number(run, i);
    gate_wait(&named, 20);
    for (int i = 0; i < 20; i++) {
        ZERO(pthread_getname_np(threads[i], got, sizeof got));
        puts(got);
    }
    ZERO(pthread_setname_np(threads[3], "from outside"));
    ZERO(pthread_getname_np(threads[3], got, sizeof got));
    EXPECT_STR(got, "from outside");
    EXPECT_ERROR(pthread_setname_np(threads[4], "longer than fifteen"), ERANGE);
    EXPECT_ERROR(pthread_getname_np(threads[4], small, sizeof small), ERANGE);
    gate_add(&leave, 1);
    for (int i = 0; i < 20; i++)
        join(threads[i]);
    ZERO(pthread_getname_np(pthread_self(), got, sizeof got));
    EXPECT_STR(got, "creator");
    return finish();
}
