/* Waits by a clock that is set while they last. The machine's clock stays as it is: the engine asks the clock_gettime below,
 * and vt_clock_was_set, which the watch calls when the kernel says that the clock has been set, is called by the test. What is
 * left, that the kernel wakes the watch, is looked at by how the watch has asked for it. (Time namespaces would be no help:
 * they have no CLOCK_REALTIME of their own.) */
#include "engine.h"

#include "clock.h"
#include "sync/cond.h"
#include "sync/mutex.h"
#include "sync/rwlock.h"
#include "sync/sem.h"

#include <dirent.h>

#define HOUR ((int64_t)3600 * 1000000000)

static _Atomic int64_t moved; /* by how much the clock has been set forward */

int clock_gettime(clockid_t clock, struct timespec *t)
{
    long ret = vt_sys2(SYS_clock_gettime, clock, (long)t);
    if (ret == 0 && clock == CLOCK_REALTIME) {
        int64_t ns = (int64_t)t->tv_sec * 1000000000 + t->tv_nsec + atomic_load(&moved);
        *t = (struct timespec){ns / 1000000000, ns % 1000000000};
    }
    return (int)ret;
}

static void set_clock(int64_t by)
{
    atomic_fetch_add(&moved, by);
    vt_clock_was_set();
}

static uint64_t in(int64_t ns)
{
    return vt_clock_now(CLOCK_REALTIME) + (uint64_t)ns;
}

static struct timespec as_timespec(uint64_t ns)
{
    return (struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
}

/* --- every kind of wait ------------------------------------------------------------------------------------------------- */

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER, lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static sem_t sem;
static _Atomic uint32_t word, over, leave;
static struct vt_thread *lasting;
static uint64_t until;

static void *last(void *arg)
{
    await_count(&leave, 1);
    return arg;
}

static int wait_as(int kind)
{
    struct timespec t = as_timespec(until);
    int err;
    switch (kind) {
    case 0:
        return vt_park(&word, 0, until, VT_BITS_ALL, vt_park_clock(CLOCK_REALTIME));
    case 1:
        return vt_sem_wait(&sem, CLOCK_REALTIME, &t);
    case 2:
        return vt_mutex_clocklock(&held, CLOCK_REALTIME, &t);
    case 3:
        return vt_rwlock_rdlock(&rwlock, CLOCK_REALTIME, &t);
    case 4:
        return vt_rwlock_wrlock(&rwlock, CLOCK_REALTIME, &t);
    case 5:
        return vt_join(lasting, NULL, until, vt_park_clock(CLOCK_REALTIME));
    default:
        EQUALS(vt_mutex_lock(&lock), 0);
        err = vt_cond_wait(&cond, &lock, CLOCK_REALTIME, &t);
        EQUALS(vt_mutex_unlock(&lock), 0);
        return err;
    }
}

enum { KINDS = 7 };

static void *wait_once(void *arg)
{
    int err = wait_as((int)(intptr_t)arg);
    add_count(&over, 1);
    return (void *)(intptr_t)err;
}

static void all_kinds(struct vt_thread **threads)
{
    atomic_store(&over, 0);
    for (int i = 0; i < KINDS; i++)
        threads[i] = spawn(wait_once, (void *)(intptr_t)i);
    for (int i = 0; i < KINDS; i++)
        while (!atomic_load(&threads[i]->clocked) && atomic_load(&over) == 0)
            usleep(1000);
}

static void begin(void)
{
    engine_start(2, 64, VT_IO_AUTO);
    EQUALS(sem_init(&sem, 0, 0), 0);
    EQUALS(vt_mutex_lock(&held), 0);
    EQUALS(vt_rwlock_wrlock(&rwlock, CLOCK_REALTIME, NULL), 0);
    lasting = spawn(last, NULL);
}

START_TEST(forward)
{
    struct vt_thread *threads[KINDS];
    begin();
    until = in(HOUR);
    all_kinds(threads);
    ck_assert_uint_eq(atomic_load(&over), 0);
    set_clock(2 * HOUR);
    for (int i = 0; i < KINDS; i++)
        ck_assert_int_eq((intptr_t)join(threads[i]), ETIMEDOUT);
    ck_assert_uint_eq(atomic_load(&over), KINDS);
}
END_TEST

/* By less than what is left: the rest is waited for. */
START_TEST(forward_a_part)
{
    struct vt_thread *threads[KINDS];
    begin();
    until = in(HOUR);
    all_kinds(threads);
    set_clock((int64_t)(until - in(0)) - 200 * (int64_t)MS);
    for (int i = 0; i < KINDS; i++)
        ck_assert_int_eq((intptr_t)join(threads[i]), ETIMEDOUT);
}
END_TEST

START_TEST(back)
{
    struct vt_thread *threads[KINDS];
    begin();
    until = in(2000 * (int64_t)MS);
    uint64_t end = vt_now() + 2000 * MS;
    all_kinds(threads);
    atomic_fetch_sub(&moved, HOUR);
    bool slow = vt_now() >= end;      /* then some may have been over before */
    while (vt_now() < end + 100 * MS) /* without the watch having seen it */
        usleep(10000);
    vt_clock_was_set(); /* and with */
    usleep(100000);
    if (!slow)
        ck_assert_uint_eq(atomic_load(&over), 0);
    set_clock(HOUR);
    for (int i = 0; i < KINDS; i++)
        ck_assert_int_eq((intptr_t)join(threads[i]), ETIMEDOUT);
}
END_TEST

/* A wake-up is one, whatever the clock does. */
START_TEST(woken)
{
    struct vt_thread *threads[KINDS];
    begin();
    until = in(HOUR);
    atomic_store(&over, 0);
    struct vt_thread *t = threads[0] = spawn(wait_once, (void *)(intptr_t)1);
    while (!atomic_load(&t->clocked))
        usleep(1000);
    set_clock(HOUR / 2);
    set_clock(-HOUR);
    until = 0;
    EQUALS(vt_sem_post(&sem), 0);
    ck_assert_int_eq((intptr_t)join(t), 0);
    ck_assert_uint_eq(atomic_load(&t->clocked), 0);
}
END_TEST

/* --- waits that begin while the clock is being set ----------------------------------------------------------------------- */

enum { ROUNDS = 300, THREADS = 8 };

static _Atomic uint32_t rounds, begun;

static void *wait_often(void *arg)
{
    _Atomic uint32_t mine = 0;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        await_count(&rounds, i + 1);
        uint64_t at = (uint64_t)i * 2 * HOUR + HOUR;
        add_count(&begun, 1);
        EQUALS(vt_park(&mine, 0, at, VT_BITS_ALL, vt_park_clock(CLOCK_REALTIME)), ETIMEDOUT);
    }
    return arg;
}

START_TEST(race)
{
    struct vt_thread *threads[THREADS];
    struct timespec now;
    begin();
    clock_gettime(CLOCK_REALTIME, &now);
    atomic_store(&moved, -(int64_t)vt_timespec_ns(&now)); /* it is 0 o'clock */
    for (int i = 0; i < THREADS; i++)
        threads[i] = spawn(wait_often, NULL);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        add_count(&rounds, 1);
        /* When the first has begun, or all have: the others are on their way. */
        await_count(&begun, i * THREADS + 1 + i % THREADS);
        set_clock(2 * HOUR);
    }
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
}
END_TEST

/* --- the watch -------------------------------------------------------------------------------------- */

/* The number of the kernel thread with this name, or 0. */
static long task(const char *wanted)
{
    DIR *tasks = opendir("/proc/self/task");
    long found = 0;
    for (struct dirent *d; (d = readdir(tasks));) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", d->d_name);
        FILE *f = d->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (!f)
            continue;
        if (fgets(name, sizeof name, f))
            name[strcspn(name, "\n")] = '\0';
        if (strcmp(name, wanted) == 0)
            found = atol(d->d_name);
        fclose(f);
    }
    closedir(tasks);
    return found;
}

static bool is_armed(long tid)
{
    char path[100], text[1000];
    snprintf(path, sizeof path, "/proc/self/task/%ld/fdinfo/0", tid);
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    text[n] = '\0';
    if (f)
        fclose(f);
    /* CLOCK_REALTIME; TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, in octal */
    return strstr(text, "clockid: 0\n") && strstr(text, "settime flags: 03\n") && !strstr(text, "it_value: (0, 0)");
}

START_TEST(watch)
{
    struct vt_thread *t;
    begin();
    word = 0;
    ck_assert_int_eq(vt_park(&word, 0, in((int64_t)MS), VT_BITS_ALL, vt_park_clock(CLOCK_REALTIME)), ETIMEDOUT);
    add_count(&leave, 1);
    join(lasting);
    ck_assert_int_eq(task("vt-clock"), 0); /* this thread is the kernel's, and no other has waited so */
    until = in((int64_t)MS);
    t = spawn(wait_once, (void *)(intptr_t)0);
    ck_assert_int_eq((intptr_t)join(t), ETIMEDOUT);
    long tid;
    while ((tid = task("vt-clock")) == 0 || !is_armed(tid))
        usleep(1000);
    ck_assert_uint_eq(atomic_load(&t->clocked), 0);
}
END_TEST

static void add(Suite *s, const char *name, const TTest *test)
{
    TCase *c = tcase_create(name); /* alone with CK_RUN_CASE */
    tcase_set_timeout(c, 60);
    tcase_add_test(c, test);
    suite_add_tcase(s, c);
}

int main(void)
{
    Suite *s = suite_create("clock");
    add(s, "forward", forward);
    add(s, "forward_a_part", forward_a_part);
    add(s, "back", back);
    add(s, "woken", woken);
    add(s, "race", race);
    add(s, "watch", watch);
    return engine_main(s);
}
