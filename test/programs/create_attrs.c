/* pthread_create with every attribute, and what pthread_getattr_np says of the thread. */
#include "check.h"
#include <limits.h>
#include <signal.h>
#include <sys/mman.h>

struct wanted {
    int detached;
    size_t stack, guard;
    void *address;
};

static void *run(void *arg)
{
    struct wanted *w = arg;
    pthread_attr_t attr;
    int value;
    size_t size;
    void *low;
    struct sched_param param;

    ZERO(pthread_getattr_np(pthread_self(), &attr));
    ZERO(pthread_attr_getdetachstate(&attr, &value));
    EXPECT(value, w->detached ? PTHREAD_CREATE_DETACHED : PTHREAD_CREATE_JOINABLE);
    ZERO(pthread_attr_getstack(&attr, &low, &size));
    CHECK((char *)&value >= (char *)low && (char *)&value < (char *)low + size);
    CHECK(size >= w->stack);
    if (w->address)
        CHECK(low == w->address && size == w->stack);
    ZERO(pthread_attr_getguardsize(&attr, &size));
    if (!w->address)
        EXPECT(size, (w->guard + 4095) / 4096 * 4096);
    ZERO(pthread_attr_getscope(&attr, &value));
    EXPECT(value, PTHREAD_SCOPE_SYSTEM);
    ZERO(pthread_attr_getinheritsched(&attr, &value));
    EXPECT(value, PTHREAD_INHERIT_SCHED);
    ZERO(pthread_attr_destroy(&attr));
    ZERO(pthread_getschedparam(pthread_self(), &value, &param));
    EXPECT(value, SCHED_OTHER);
    EXPECT(param.sched_priority, 0);
    return arg;
}

static struct gate detached_over = GATE;

static void *run_detached(void *arg)
{
    run(arg);
    gate_add(&detached_over, 1);
    return arg;
}

static void stacks_and_guards(void)
{
    static struct wanted w; /* outlives the detached */
    pthread_attr_t attr;
    pthread_t t;
    long detached = 0;

    for (int d = 0; d < 2; d++) {
        for (size_t stack = 64 * 1024; stack <= 8 << 20; stack *= 8) {
            for (size_t guard = 0; guard <= 65536; guard = guard ? guard * 4 : 4096) {
                w = (struct wanted){d, stack + guard, guard, NULL};
                ZERO(pthread_attr_init(&attr));
                ZERO(pthread_attr_setdetachstate(&attr, d ? PTHREAD_CREATE_DETACHED : PTHREAD_CREATE_JOINABLE));
                ZERO(pthread_attr_setstacksize(&attr, stack + guard));
                ZERO(pthread_attr_setguardsize(&attr, guard));
                ZERO(pthread_create(&t, &attr, d ? run_detached : run, &w));
                /* The attributes may go as soon as the thread is made. */
                ZERO(pthread_attr_destroy(&attr));
                if (d)
                    gate_wait(&detached_over, ++detached);
                else
                    CHECK(join(t) == &w);
            }
        }
    }
    puts("stacks and guards");
    w = (struct wanted){0, 256 * 1024, 0, NULL};
    w.address = mmap(NULL, w.stack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(w.address != MAP_FAILED);
    ZERO(pthread_attr_init(&attr));
    ZERO(pthread_attr_setstack(&attr, w.address, w.stack));
    for (int i = 0; i < 5; i++) {
        ZERO(pthread_create(&t, &attr, run, &w));
        CHECK(join(t) == &w);
    }
    SYS(munmap(w.address, w.stack));
    puts("own stack");
}

static void *look_at_mask(void *arg)
{
    sigset_t mask;

    ZERO(pthread_sigmask(SIG_BLOCK, NULL, &mask));
    EXPECT(sigismember(&mask, SIGUSR1), ((intptr_t)arg & 1) != 0);
    EXPECT(sigismember(&mask, SIGUSR2), ((intptr_t)arg & 2) != 0);
    return arg;
}

static void masks(void)
{
    sigset_t mask, none;
    pthread_attr_t attr;
    pthread_t t;

    join(start_number(look_at_mask, 0));
    sigemptyset(&none);
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    ZERO(pthread_sigmask(SIG_SETMASK, &mask, NULL));
    join(start_number(look_at_mask, 1)); /* the creator's, at the time of creation */
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR2);
    ZERO(pthread_attr_init(&attr));
#if __GLIBC_PREREQ(2, 32)
    ZERO(pthread_attr_setsigmask_np(&attr, &mask));
#else
    ZERO(pthread_sigmask(SIG_SETMASK, &mask, NULL));
#endif
    ZERO(pthread_create(&t, &attr, look_at_mask, (void *)2));
    join(t);
    ZERO(pthread_attr_destroy(&attr));
    ZERO(pthread_sigmask(SIG_SETMASK, &none, NULL));
    puts("signal masks");
}

static void *look_at_set(void *arg)
{
    cpu_set_t set, *wanted = arg;

    ZERO(pthread_getaffinity_np(pthread_self(), sizeof set, &set));
    CHECK(CPU_EQUAL(&set, wanted));
    return arg;
}

static void affinity(void)
{
    cpu_set_t all, one;
    pthread_attr_t attr;
    pthread_t t;

    ZERO(pthread_getaffinity_np(pthread_self(), sizeof all, &all));
    join(start(look_at_set, &all));
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &all))
            CPU_SET(i, &one);
    ZERO(pthread_attr_init(&attr));
    ZERO(pthread_attr_setaffinity_np(&attr, sizeof one, &one));
    ZERO(pthread_create(&t, &attr, look_at_set, &one));
    join(t);
    ZERO(pthread_attr_destroy(&attr));
    puts("affinity");
}

static void *look_at_policy(void *arg)
{
    int policy;
    struct sched_param param;

    ZERO(pthread_getschedparam(pthread_self(), &policy, &param));
    EXPECT(policy, (intptr_t)arg);
    EXPECT(sched_getscheduler(0), (intptr_t)arg);
    EXPECT(param.sched_priority, policy == SCHED_FIFO || policy == SCHED_RR ? 1 : 0);
    return arg;
}

static void policies(void)
{
    static const int all[] = {SCHED_OTHER, SCHED_BATCH, SCHED_FIFO, SCHED_RR};
    static const char *const names[] = {"other", "batch", "fifo", "round robin"};

    for (int i = 0; i < 4; i++) {
        struct sched_param param = {.sched_priority = i >= 2};
        pthread_attr_t attr;
        pthread_t t;

        ZERO(pthread_attr_init(&attr));
        int set = pthread_attr_setschedpolicy(&attr, all[i]);
        if (set == 0)
            set = pthread_attr_setschedparam(&attr, &param);
        ZERO(pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED));
        if (set == 0) {
            int error = pthread_create(&t, &attr, look_at_policy, (void *)(intptr_t)all[i]);
            printf("%s: %s\n", names[i], error_name(error));
            if (error == 0)
                join(t);
        } else {
            printf("%s: not an attribute: %s\n", names[i], error_name(set));
        }
        ZERO(pthread_attr_destroy(&attr));
    }
}

static void errors(void)
{
    pthread_attr_t attr;

    ZERO(pthread_attr_init(&attr));
    EXPECT_ERROR(pthread_attr_setdetachstate(&attr, 99), EINVAL);
    EXPECT_ERROR(pthread_attr_setstacksize(&attr, 100), EINVAL);
    EXPECT_ERROR(pthread_attr_setschedpolicy(&attr, 99), EINVAL);
    EXPECT_ERROR(pthread_attr_setinheritsched(&attr, 99), EINVAL);
    EXPECT_ERROR(pthread_attr_setscope(&attr, PTHREAD_SCOPE_PROCESS), ENOTSUP);
    /* A guard larger than memory, and one that overflows the size. */
    ZERO(pthread_attr_setstacksize(&attr, 64 * 1024));
    ZERO(pthread_attr_setguardsize(&attr, (size_t)1 << 62));
    pthread_t t;
    EXPECT_ERROR(pthread_create(&t, &attr, run, NULL), EAGAIN);
    ZERO(pthread_attr_setguardsize(&attr, (size_t)-8192));
    EXPECT_ERROR(pthread_create(&t, &attr, run, NULL), EINVAL);
    ZERO(pthread_attr_destroy(&attr));
    puts("errors");
}

static pthread_t made[100];

static void *self(void *arg)
{
    /* Written before the thread runs. */
    CHECK(pthread_equal(made[(intptr_t)arg], pthread_self()));
    return arg;
}

static void identities(void)
{
    for (int i = 0; i < 100; i++)
        ZERO(pthread_create(&made[i], NULL, self, (void *)(intptr_t)i));
    for (int i = 0; i < 100; i++)
        for (int j = 0; j < i; j++)
            CHECK(!pthread_equal(made[i], made[j]));
    for (int i = 0; i < 100; i++)
        join(made[i]);
    puts("identities");
}

int main(void)
{
    begin(20);
    stacks_and_guards();
    masks();
    affinity();
    policies();
    errors();
    identities();
    return finish();
}
