/* Threads that keep their carrier, on the engine itself. The loop index is the number of carriers less one. */
#include "engine.h"

#include "bound.h"
#include "stock.h"

#include <limits.h>
#include <sys/syscall.h>

static pid_t kernel_tid(void)
{
    return (pid_t)vt_sys0(SYS_gettid);
}

/* Sleeps in the kernel, as code does that the library does not see, until *word is not expected. */
static void hidden_wait(_Atomic uint32_t *word, uint32_t expected)
{
    while (atomic_load(word) == expected)
        vt_sys_futex_wait(word, expected, NULL);
}

static void hidden_wake(_Atomic uint32_t *word, uint32_t value)
{
    atomic_store(word, value);
    vt_sys_futex_wake(word, INT_MAX);
}

static _Atomic uint32_t there, word, done;

static void *waits_every_way(void *arg)
{
    struct vt_thread *t = vt_current();
    uint32_t id = vt_tid();
    vt_bind();
    EQUALS(t->kind, VT_BOUND);
    HOLDS(!vt_is_virtual() && vt_is_ours());
    pid_t tid = kernel_tid();
    add_count(&there, 1);
    for (uint32_t i = 1; i <= 200; i++) {
        await_count(&word, i);
        add_count(&done, 1);
        vt_yield();
        if (i % 50 == 0)
            sleep_for(MS);
        EQUALS(kernel_tid(), tid);
        EQUALS(vt_tid(), id);
        HOLDS(vt_current() == t);
    }
    *(pid_t *)arg = tid;
    return t;
}

START_TEST(for_good)
{
    pid_t tid[3] = {0};
    struct vt_thread *t[3];
    engine_start(_i + 1, 8, VT_IO_AUTO);
    for (int k = 0; k < 3; k++)
        t[k] = spawn(waits_every_way, &tid[k]);
    await_count(&there, 3);
    for (uint32_t i = 1; i <= 200; i++) {
        add_count(&word, 1);
        await_count(&done, 3 * i);
    }
    for (int k = 0; k < 3; k++)
        ck_assert_ptr_eq(join(t[k]), t[k]);
    /* The kernel threads end with them. */
    for (int k = 0; k < 3; k++)
        for (int i = 0; syscall(SYS_tgkill, getpid(), tid[k], 0) == 0; i++) {
            ck_assert_int_lt(i, 10000);
            usleep(1000);
        }
    /* Others come in their place. */
    for (int i = 0; i < 50; i++) {
        pid_t unused;
        atomic_store(&word, 200);
        join(spawn(waits_every_way, &unused));
    }
    ck_assert_uint_eq(vt_threads_living(), 0);
}
END_TEST

static _Atomic uint32_t step;

/* Blocks out of sight until it is bound for it; then waits in sight until it is not. */
static void *changes(void *arg)
{
    struct vt_thread *t = vt_current();
    for (uint32_t i = 0; t->kind != VT_BOUND; i++) {
        HOLDS(i < 100);
        add_count(&step, 1);
        hidden_wait(&word, i);
        if (t->kind != VT_BOUND)
            sleep_for(100 * US); /* back to a place */
    }
    for (int i = 0; t->kind == VT_BOUND; i++) {
        HOLDS(i < 1000);
        sleep_for(100 * US);
    }
    HOLDS(vt_is_virtual());
    atomic_store(&done, 1);
    add_count(&step, 1000);
    return arg;
}

static uint64_t handoffs(void)
{
    return atomic_load(&vt_sched.nout);
}

START_TEST(by_habit)
{
    engine_start(_i + 1, 8, VT_IO_AUTO);
    struct vt_thread *t = spawn(changes, NULL);
    for (uint32_t i = 1; !atomic_load(&done); i++) {
        await_count(&step, i);
        if (atomic_load(&step) >= 1000)
            break;
        /* Until the monitor has seen it. */
        for (int k = 0; handoffs() == 0; k++) {
            ck_assert_int_lt(k, 20000);
            usleep(500);
        }
        hidden_wake(&word, i);
    }
    join(t);
}
END_TEST

static void *blocks_at_once(void *arg)
{
    (void)arg;
    add_count(&there, 1);
    hidden_wait(&word, 0);
    return vt_self->kind == VT_BOUND ? vt_self : NULL;
}

/* With one place, those that come after the first few of their kind do not wait for the monitor. */
START_TEST(by_kind)
{
    enum { ALL = 40 };
    struct vt_thread *t[ALL];
    unsigned bound = 0;
    engine_start(_i + 1, 64, VT_IO_AUTO);
    for (int k = 0; k < ALL; k++)
        t[k] = spawn(blocks_at_once, NULL);
    await_count(&there, ALL);
    hidden_wake(&word, 1);
    for (int k = 0; k < ALL; k++)
        bound += join(t[k]) != NULL;
    ck_assert_uint_gt(bound, ALL / 2);
    ck_assert_uint_lt(bound, ALL);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("bound");
    TCase *c = tcase_create("bound");
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, for_good, 0, 2);
    tcase_add_loop_test(c, by_habit, 0, 2);
    tcase_add_loop_test(c, by_kind, 0, 2);
    suite_add_tcase(s, c);
    return engine_main(s);
}
