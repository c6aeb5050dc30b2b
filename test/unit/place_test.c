/* Timers, hand-offs, the monitor, and the sleep of carriers, on the engine itself. */
#include "engine.h"

/* --- timers ------------------------------------------------------------------------------------------------------------ */

enum { SLEEPERS = 10000, SPAN_MS = 400 };
#ifdef VT_CHAOS
enum { SLOW = 20 };
#else
enum { SLOW = 1 };
#endif
static _Atomic uint64_t latest, late_sum;
static _Atomic uint32_t ready, timed, go;
static uint64_t base;

static void *sleep_at_random(void *arg)
{
    uint32_t random = (uint32_t)(uintptr_t)arg * 2654435761u + 1;
    add_count(&ready, 1);
    await_count(&go, 1);
    uint64_t deadline = base + any(&random, SPAN_MS * 1000) * US;
    /* What is left of the wake-ups of others. */
    vt_unblock(vt_current());
    vt_block(VT_NEVER);
    while (vt_now() < deadline) {
        vt_block(deadline);
        /* Nobody unblocks it: a return before the deadline would be a timer that is early. */
        HOLDS(vt_now() >= deadline);
    }
    uint64_t late = vt_now() - deadline, seen = atomic_load(&latest);
    while (late > seen && !atomic_compare_exchange_weak(&latest, &seen, late))
        ;
    atomic_fetch_add(&late_sum, late);
    add_count(&timed, 1);
    return NULL;
}

START_TEST(sleepers)
{
    engine_start(_i == 2 ? 1 : 2, 64, _i == 1 ? VT_IO_EPOLL : VT_IO_AUTO);
    for (uintptr_t i = 0; i < SLEEPERS; i++)
        spawn_with(sleep_at_random, (void *)i, true);
    await_count(&ready, SLEEPERS);
    base = vt_now() + 100 * MS;
    add_count(&go, 1);
    await_count(&timed, SLEEPERS);
    /* Generous: the machine may be busy with other things. */
    ck_assert_uint_lt(late_sum / SLEEPERS, SLOW * 1000 * MS);
    ck_assert_uint_lt(latest, SLOW * 5000 * MS);
}
END_TEST

/* Timers that are mostly disarmed by wake-ups, at the same time as they expire. */
static struct vt_thread *nervous[16];
static _Atomic uint32_t calm;

static void *nap(void *arg)
{
    uint32_t random = (uint32_t)(uintptr_t)arg + 1;
    for (int i = 0; i < 3000; i++) {
        vt_block(vt_now() + any(&random, 40) * US);
        vt_unblock(nervous[any(&random, 16)]);
    }
    add_count(&calm, 1);
    return NULL;
}

static void *wait_calm(void *arg)
{
    (void)arg;
    await_count(&calm, 16);
    return NULL;
}

START_TEST(nervous_sleepers)
{
    engine_start(_i + 1, 64, VT_IO_AUTO);
    for (uintptr_t i = 0; i < 16; i++)
        nervous[i] = vt_current();
    for (uintptr_t i = 0; i < 16; i++)
        nervous[i] = spawn(nap, (void *)i);
    join(spawn(wait_calm, NULL));
    for (int i = 0; i < 16; i++)
        join(nervous[i]);
}
END_TEST

/* --- hand-off ------------------------------------------------------------------------------------------------------------ */

static _Atomic uint32_t release, entered, stop;
static _Atomic uint64_t ticks;

static void *tick(void *arg)
{
    (void)arg;
    while (!atomic_load(&stop)) {
        sleep_for(MS);
        atomic_fetch_add(&ticks, 1);
    }
    return NULL;
}

/* Blocks in the kernel until released. */
static void *block_in_kernel(void *arg)
{
    if (arg)
        vt_handoff_begin("test");
    atomic_fetch_add(&entered, 1);
    while (!atomic_load(&release))
        vt_sys_futex_wait(&release, 0, NULL);
    if (arg)
        vt_handoff_end();
    return arg;
}

static void release_all(void)
{
    atomic_store(&release, 1);
    vt_sys_futex_wake(&release, 1000);
}

/* Waits, not by the engine. */
static bool until(_Atomic uint64_t *word, uint64_t n)
{
    for (int i = 0; i < 5000 && atomic_load(word) < n; i++)
        usleep(1000);
    return atomic_load(word) >= n;
}

/* _i: even ones say that they will block, odd ones leave it to the monitor; one or two carriers. */
START_TEST(blockers)
{
    enum { N = 10 };
    struct vt_thread *threads[N], *ticker;
    engine_start(1 + _i / 2, 64, VT_IO_AUTO);
    ticker = spawn(tick, NULL);
    ck_assert(until(&ticks, 5));
    for (int i = 0; i < N; i++)
        threads[i] = spawn(block_in_kernel, _i % 2 ? NULL : &release);
    while (atomic_load(&entered) < N)
        usleep(1000);
    ck_assert(until(&ticks, atomic_load(&ticks) + 20));
    release_all();
    for (int i = 0; i < N; i++)
        join(threads[i]);
    ck_assert(until(&ticks, atomic_load(&ticks) + 5));
    atomic_store(&stop, 1);
    join(ticker);
}
END_TEST

/* Very many short hand-offs, with threads that need their places meanwhile. */
static void *hand_off_often(void *arg)
{
    uint32_t random = (uint32_t)(uintptr_t)arg + 1;
    for (int i = 0; i < 300; i++) {
        vt_handoff_begin("test");
        if (any(&random, 2)) {
            struct timespec t = {0, any(&random, 100000)};
            vt_sys2(SYS_nanosleep, (long)&t, 0);
        }
        if (any(&random, 8))
            vt_handoff_end();
        /* Sometimes without a place. */
        switch (any(&random, 4)) {
        case 0:
            sleep_for(any(&random, 100) * US);
            break;
        case 1:
            vt_yield();
            break;
        case 2:
            join(spawn(wait_calm, NULL));
        }
    }
    return NULL;
}

START_TEST(busy_handoffs)
{
    enum { N = 8 };
    struct vt_thread *threads[N], *ticker;
    engine_start(1 + _i % 3, _i < 3 ? 64 : 4, _i % 2 ? VT_IO_EPOLL : VT_IO_AUTO);
    atomic_store(&calm, 16);
    ticker = spawn(tick, NULL);
    for (uintptr_t i = 0; i < N; i++)
        threads[i] = spawn(hand_off_often, (void *)i);
    for (int i = 0; i < N; i++)
        join(threads[i]);
    atomic_store(&stop, 1);
    join(ticker);
}
END_TEST

static void *count_up(void *arg)
{
    atomic_fetch_add((_Atomic uint64_t *)arg, 1);
    return NULL;
}

/* No carrier is left for the places of those that block; what is made runnable by a kernel thread finds the one that sleeps
 * at its place all the same. */
START_TEST(out_of_carriers)
{
    static _Atomic uint64_t ran;
    struct vt_thread *blocked[2];
    engine_start(2, 3, VT_IO_AUTO);
    for (int round = 0; round < 20; round++) {
        atomic_store(&release, 0);
        atomic_store(&entered, 0);
        for (int i = 0; i < 2; i++)
            blocked[i] = spawn(block_in_kernel, &release);
        while (atomic_load(&entered) < 2)
            usleep(1000);
        for (int i = 0; i < 10; i++) {
            usleep(i * 1000);
            uint64_t before = atomic_load(&ran);
            struct vt_thread *t = spawn(count_up, (void *)&ran);
            ck_assert(until(&ran, before + 1));
            join(t);
        }
        release_all();
        for (int i = 0; i < 2; i++)
            join(blocked[i]);
    }
}
END_TEST

/* --- the monitor ---------------------------------------------------------------------------------------------------------- */

static void *spin_until_stop(void *arg)
{
    while (!atomic_load_explicit(&stop, memory_order_relaxed))
        vt_cpu_relax();
    return arg;
}

static void *stop_them(void *arg)
{
    sleep_for(5 * MS);
    atomic_store(&stop, 1);
    return arg;
}

/* One carrier, and threads that compute until another has run. */
START_TEST(spinners)
{
    struct vt_thread *threads[3], *stopper;
    engine_start(1, 64, _i ? VT_IO_EPOLL : VT_IO_AUTO);
    for (int round = 0; round < 5; round++) {
        atomic_store(&stop, 0);
        for (int i = 0; i < 3; i++)
            threads[i] = spawn(spin_until_stop, NULL);
        stopper = spawn(stop_them, NULL);
        uint64_t before = vt_now();
        join(stopper);
        ck_assert_uint_lt(vt_now() - before, 3000 * MS);
        for (int i = 0; i < 3; i++)
            join(threads[i]);
    }
}
END_TEST

/* --- sleep ------------------------------------------------------------------------------------------ */

static _Atomic uint32_t calls, answers;

static void *answer(void *arg)
{
    for (uint32_t i = 1; i <= 4000; i++) {
        await_count(&calls, i);
        add_count(&answers, 1);
    }
    return arg;
}

/* Carriers that are about to sleep, and those who have work for them. */
START_TEST(calls_from_outside)
{
    uint32_t random = 5;
    engine_start(1 + _i / 2, 64, _i % 2 ? VT_IO_EPOLL : VT_IO_AUTO);
    struct vt_thread *t = spawn(answer, NULL);
    for (uint32_t i = 1; i <= 4000; i++) {
        for (uint32_t n = any(&random, 4) ? any(&random, 2000) : 0; n; n--)
            vt_cpu_relax();
        if (any(&random, 64) == 0)
            usleep(any(&random, 300));
        add_count(&calls, 1);
        await_count(&answers, i);
    }
    join(t);
}
END_TEST

static void *yield_turns(void *arg)
{
    _Atomic uint64_t *turns = arg;
    while (!atomic_load(&stop)) {
        atomic_fetch_add(turns, 1);
        vt_yield();
    }
    return NULL;
}

/* Those that yield all the time share, and do not keep others from running. */
START_TEST(yields)
{
    static _Atomic uint64_t turns[4];
    struct vt_thread *threads[4], *ticker;
    engine_start(1, 64, VT_IO_AUTO);
    for (int i = 0; i < 4; i++)
        threads[i] = spawn(yield_turns, (void *)&turns[i]);
    ticker = spawn(tick, NULL);
    ck_assert(until(&ticks, 50));
    atomic_store(&stop, 1);
    for (int i = 0; i < 4; i++) {
        join(threads[i]);
        ck_assert_uint_gt(turns[i], 50);
        ck_assert_uint_lt(turns[i], 4 * turns[(i + 1) % 4] + 100);
    }
    join(ticker);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("place");
    TCase *c = tcase_create("place");
    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, sleepers, 0, 3);
    tcase_add_loop_test(c, nervous_sleepers, 0, 3);
    tcase_add_loop_test(c, blockers, 0, 4);
    tcase_add_loop_test(c, busy_handoffs, 0, 6);
    tcase_add_test(c, out_of_carriers);
    tcase_add_loop_test(c, spinners, 0, 2);
    tcase_add_loop_test(c, calls_from_outside, 0, 6);
    tcase_add_test(c, yields);
    suite_add_tcase(s, c);
    return engine_main(s);
}
