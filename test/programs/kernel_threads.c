/* What a thread has of its own in the kernel, whatever runs below it: processors, policy, niceness, timer
 * slack, a directory. Set for itself and for others that wait, block or compute; the rest of the process
 * keeps what it had, and threads inherit it. */
#include "check.h"
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

enum { THREADS = 8, WAYS = 5 };

static cpu_set_t all;
static int cpus[CPU_SETSIZE], ncpus;
static struct gate ready = GATE, go = GATE;
static atomic_int stop;
static int pipes[2];

static void one_cpu(cpu_set_t *set, int i)
{
    CPU_ZERO(set);
    CPU_SET(cpus[i % ncpus], set);
}

static void expect_set(const cpu_set_t *want)
{
    cpu_set_t set;
    ZERO(pthread_getaffinity_np(pthread_self(), sizeof set, &set));
    CHECK(CPU_EQUAL(&set, want));
    SYS(sched_getaffinity(0, sizeof set, &set));
    CHECK(CPU_EQUAL(&set, want));
    SYS(sched_getaffinity(gettid(), sizeof set, &set));
    CHECK(CPU_EQUAL(&set, want));
    CPU_ZERO(&set);
    CHECK(SYS(syscall(SYS_sched_getaffinity, gettid(), sizeof set, &set)) > 0);
    CHECK(CPU_EQUAL(&set, want));
}

/* Other threads run in between, and it is on another kernel thread afterwards if it can be. */
static void wander(void)
{
    for (int i = 0; i < 20; i++) {
        sched_yield();
        sleep_us(100);
    }
}

/* Each pins itself. */
static void *pins(void *arg)
{
    int id = (int)(intptr_t)arg;
    cpu_set_t set, none;
    pid_t tid = gettid();
    expect_set(&all);
    one_cpu(&set, id);
    CPU_ZERO(&none);
    EXPECT_ERROR(pthread_setaffinity_np(pthread_self(), sizeof none, &none), EINVAL);
    EXPECT_ERRNO(sched_setaffinity(tid, sizeof none, &none), EINVAL);
    expect_set(&all);
    switch (id % 4) {
    case 0:
        ZERO(pthread_setaffinity_np(pthread_self(), sizeof set, &set));
        break;
    case 1:
        SYS(sched_setaffinity(0, sizeof set, &set));
        break;
    case 2:
        SYS(sched_setaffinity(tid, sizeof set, &set));
        break;
    default:
        SYS(syscall(SYS_sched_setaffinity, tid, sizeof set, &set));
    }
    for (int i = 0; i < 5; i++) {
        expect_set(&set);
        EXPECT(sched_getcpu(), cpus[id % ncpus]);
        EXPECT(gettid(), tid);
        wander();
    }
    return arg;
}

static void *unpinned(void *arg)
{
    for (int i = 0; i < 5; i++) {
        expect_set(&all);
        wander();
    }
    return arg;
}

/* Another pins it while it waits, sleeps, blocks or computes. */
static void *is_pinned(void *arg)
{
    int id = (int)(intptr_t)arg;
    cpu_set_t set;
    char c;
    one_cpu(&set, id);
    gate_add(&ready, 1);
    switch (id % WAYS) {
    case 0:
        gate_wait(&go, 1);
        break;
    case 1:
        while (!stop)
            sleep_us(1000);
        break;
    case 2:
        EXPECT(read(pipes[0], &c, 1), 0);
        break;
    case 3:
        while (!stop)
            ;
        break;
    default:
        while (!stop)
            sched_yield();
    }
    expect_set(&set);
    EXPECT(sched_getcpu(), cpus[id % ncpus]);
    wander();
    EXPECT(sched_getcpu(), cpus[id % ncpus]);
    return arg;
}

static void *pins_others(void *arg)
{
    pthread_t *threads = arg;
    cpu_set_t set, got;
    CPU_ZERO(&set);
    EXPECT_ERROR(pthread_setaffinity_np(threads[0], sizeof set, &set), EINVAL);
    for (int i = 0; i < WAYS; i++) {
        ZERO(pthread_getaffinity_np(threads[i], sizeof got, &got));
        CHECK(CPU_EQUAL(&got, &all));
        one_cpu(&set, i);
        ZERO(pthread_setaffinity_np(threads[i], sizeof set, &set));
        ZERO(pthread_getaffinity_np(threads[i], sizeof got, &got));
        CHECK(CPU_EQUAL(&got, &set));
    }
    return NULL;
}

static void others(int by_thread)
{
    pthread_t threads[WAYS];
    ready.count = go.count = 0;
    stop = 0;
    SYS(pipe(pipes));
    for (int i = 0; i < WAYS; i++)
        threads[i] = start_number(is_pinned, i);
    gate_wait(&ready, WAYS);
    if (by_thread)
        join(start(pins_others, threads));
    else
        pins_others(threads);
    stop = 1;
    close(pipes[1]);
    gate_add(&go, 1);
    for (int i = 0; i < WAYS; i++)
        join(threads[i]);
    close(pipes[0]);
}

static void *inherits(void *arg)
{
    EXPECT(getpriority(PRIO_PROCESS, 0), (int)(intptr_t)arg);
    return NULL;
}

static void *nicer(void *arg)
{
    int id = (int)(intptr_t)arg, mine = id % 3 + 2;
    EXPECT(getpriority(PRIO_PROCESS, gettid()), 0);
    if (id == 0) {
        EXPECT(nice(1), 1);
        EXPECT(nice(1), 2);
    } else if (id == 1) {
        SYS(setpriority(PRIO_PROCESS, 0, mine));
    } else {
        SYS(setpriority(PRIO_PROCESS, (id_t)gettid(), mine));
    }
    wander();
    EXPECT(getpriority(PRIO_PROCESS, 0), mine);
    EXPECT(getpriority(PRIO_PROCESS, (id_t)gettid()), mine);
    EXPECT(20 - syscall(SYS_getpriority, PRIO_PROCESS, gettid()), mine);
    join(start_number(inherits, mine));
    return arg;
}

static pid_t first_tid;

static void *batch(void *arg)
{
    struct sched_param param = {0};
    int policy;
    first_tid = gettid();
    gate_add(&ready, 1);
    gate_wait(&go, 1);
    ZERO(pthread_getschedparam(pthread_self(), &policy, &param));
    EXPECT(policy, SCHED_BATCH);
    EXPECT(sched_getscheduler(0), SCHED_BATCH);
    EXPECT(getpriority(PRIO_PROCESS, 0), 4);
    param.sched_priority = 50;
    EXPECT_ERROR(pthread_setschedparam(pthread_self(), SCHED_BATCH, &param), EINVAL);
    EXPECT_ERROR(pthread_setschedprio(pthread_self(), 50), EINVAL);
    return arg;
}

static void policies(void)
{
    struct sched_param param = {0};
    struct timespec ts;
    int policy;
    ready.count = go.count = 0;
    pthread_t thread = start(batch, NULL);
    gate_wait(&ready, 1);
    ZERO(pthread_getschedparam(thread, &policy, &param));
    EXPECT(policy, SCHED_OTHER);
    ZERO(pthread_setschedparam(thread, SCHED_OTHER, &param));
    ZERO(pthread_setschedparam(thread, SCHED_BATCH, &param));
    ZERO(pthread_getschedparam(thread, &policy, &param));
    EXPECT(policy, SCHED_BATCH);
    EXPECT(sched_getscheduler(first_tid), SCHED_BATCH);
    SYS(sched_getparam(first_tid, &param));
    SYS(sched_rr_get_interval(first_tid, &ts));
    EXPECT(param.sched_priority, 0);
    EXPECT(sched_getscheduler(0), SCHED_OTHER);
    SYS(setpriority(PRIO_PROCESS, (id_t)first_tid, 4));
    EXPECT(getpriority(PRIO_PROCESS, (id_t)first_tid), 4);
    EXPECT(getpriority(PRIO_PROCESS, 0), 0);
    gate_add(&go, 1);
    join(thread);
}

static void *slack(void *arg)
{
    long mine = 1000 * ((long)(intptr_t)arg + 1);
    int was = prctl(PR_GET_TIMERSLACK);
    CHECK(was > 0 && was != mine);
    SYS(prctl(PR_SET_TIMERSLACK, mine));
    wander();
    EXPECT(prctl(PR_GET_TIMERSLACK), mine);
    return arg;
}

/* Not allowed everywhere. */
static void *elsewhere(void *arg)
{
    char path[PATH_MAX];
    if (unshare(CLONE_FS) == 0) {
        SYS(chdir("/proc"));
        wander();
        EXPECT_STR(getcwd(path, sizeof path), "/proc");
    }
    return arg;
}

/* One that takes descriptors of its own leaves everybody else theirs. */
static int common[2];

static void *own_table(void *arg)
{
    EXPECT(close_range((unsigned)common[1], (unsigned)common[1], CLOSE_RANGE_UNSHARE), 0);
    for (int i = 0; i < 3; i++) {
        EXPECT_ERRNO(fcntl(common[1], F_GETFD), EBADF);
        wander();
    }
    return arg;
}

static void *common_table(void *arg)
{
    char c;
    for (int i = 0; i < 5; i++) {
        SYS(fcntl(common[1], F_GETFD));
        wander();
    }
    EXPECT(write(common[1], "x", 1), 1);
    EXPECT(read(common[0], &c, 1), 1);
    return arg;
}

static void tables(void)
{
    pthread_t threads[8];
    SYS(pipe(common));
    for (int i = 0; i < 8; i++)
        threads[i] = start(i < 2 ? own_table : common_table, NULL);
    for (int i = 0; i < 8; i++)
        join(threads[i]);
    SYS(fcntl(common[1], F_GETFD));
}

/* The ids of one thread alone, as servers of files do it. Only root may. */
static void *as_nobody(void *arg)
{
    if (syscall(SYS_setresuid, -1, 65534, -1) == 0) {
        for (int i = 0; i < 5; i++) {
            EXPECT(syscall(SYS_geteuid), 65534);
            wander();
        }
        EXPECT(syscall(SYS_setresuid, -1, getuid(), -1), 0);
    }
    return arg;
}

static void *as_before(void *arg)
{
    uid_t id = *(uid_t *)arg;
    for (int i = 0; i < 10; i++) {
        EXPECT(syscall(SYS_geteuid), id);
        wander();
    }
    return arg;
}

static void ids(void)
{
    pthread_t threads[8];
    uid_t id = geteuid();
    for (int i = 0; i < 8; i++)
        threads[i] = start(i % 4 == 0 ? as_nobody : as_before, &id);
    for (int i = 0; i < 8; i++)
        join(threads[i]);
}

static void *nothing(void *arg)
{
    return arg;
}

int main(void)
{
    char before[PATH_MAX], after[PATH_MAX];
    begin(60);
    SYS(sched_getaffinity(0, sizeof all, &all));
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &all))
            cpus[ncpus++] = i;
    in_threads(THREADS, pins);
    in_threads(THREADS, unpinned);
    puts("pinned by themselves");
    others(0);
    others(1);
    in_threads(THREADS, unpinned);
    puts("pinned by others");
    if (getpriority(PRIO_PROCESS, 0) == 0) {
        in_threads(3, nicer);
        for (int i = 0; i < 3; i++)
            join(start_number(inherits, 0));
        policies();
    }
    puts("niceness and policy");
    in_threads(4, slack);
    CHECK(getcwd(before, sizeof before) != NULL);
    in_threads(2, elsewhere);
    CHECK(getcwd(after, sizeof after) != NULL);
    EXPECT_STR(after, before);
    puts("slack and directory");
    tables();
    puts("descriptors");
    ids();
    puts("ids");
    pthread_t ended = start(nothing, NULL);
    join(ended);
    EXPECT_ERRNO(sched_setaffinity(INT_MAX, sizeof all, &all), ESRCH);

    /* What main changes of itself its new threads inherit. */
    cpu_set_t set, got;
    one_cpu(&set, 1);
    SYS(sched_setaffinity(0, sizeof set, &set));
    expect_set(&set);
    pthread_t heir = start(nothing, NULL);
    ZERO(pthread_getaffinity_np(heir, sizeof got, &got));
    CHECK(CPU_EQUAL(&got, &set));
    join(heir);
    ZERO(pthread_setaffinity_np(pthread_self(), sizeof all, &all));
    in_threads(THREADS, unpinned);
    return finish();
}
