/* Virtual threads made, joined, detached and found, on the engine itself. The loop index is the number of carriers less one. */
#include "engine.h"

#include <semaphore.h>

#include "tcb.h"

static void *give(void *arg)
{
    return arg;
}

static _Atomic uint32_t gate, passed;

static void *wait_gate(void *arg)
{
    await_count(&gate, 1);
    return arg;
}

static void *errors(void *arg)
{
    void *result;
    struct vt_thread *me = vt_current(), *t;
    uint64_t at;
    gate = 0;
    if (me->kind == VT_VIRTUAL) {
        EQUALS(vt_join(me, &result, VT_NEVER, 0), EDEADLK);
        EQUALS(vt_join(me, &result, 0, 0), EBUSY);
    }
    t = spawn(wait_gate, &result);
    EQUALS(vt_join(t, &result, 0, 0), EBUSY);
    EQUALS(vt_join(t, &result, 1, 0), ETIMEDOUT);
    EQUALS(vt_join(t, &result, at = vt_now() + 5 * MS, 0), ETIMEDOUT);
    HOLDS(vt_now() >= at);
    /* A cancellation ends a wait that asks for it. */
    atomic_fetch_or(&me->interrupt, VT_CANCELLED);
    EQUALS(vt_join(t, &result, VT_NEVER, VT_PARK_CANCELLABLE), EINTR);
    EQUALS(vt_join(t, &result, vt_now() + MS, 0), ETIMEDOUT);
    atomic_fetch_and(&me->interrupt, ~(uint32_t)VT_CANCELLED);
    uint64_t handle = t->handle;
    HOLDS(vt_is_handle(handle) && vt_of_handle(handle) == t);
    add_count(&gate, 1);
    HOLDS(join(t) == &result);
    HOLDS(vt_of_handle(handle) == NULL);
    /* Ended and not joined: a try and a past deadline have it. */
    t = spawn(give, &result);
    while (!(atomic_load(&t->life) & VT_ENDED))
        vt_yield();
    EQUALS(vt_join(t, NULL, 0, 0), 0);
    t = spawn(give, &result);
    while (!(atomic_load(&t->life) & VT_ENDED))
        vt_yield();
    EQUALS(vt_join(t, NULL, 1, 0), 0);
    /* Detached. */
    gate = 0;
    t = spawn(wait_gate, NULL);
    handle = t->handle;
    EQUALS(vt_detach(t), 0);
    EQUALS(vt_detach(t), EINVAL);
    EQUALS(vt_join(t, NULL, VT_NEVER, 0), EINVAL);
    add_count(&gate, 1);
    while (vt_of_handle(handle))
        vt_yield();
    return arg;
}

START_TEST(join_errors)
{
    engine_start(_i + 1, 64, VT_IO_AUTO);
    errors(NULL);
    join(spawn(errors, NULL));
}
END_TEST

static void *join_gate(void *arg)
{
    return (void *)(uintptr_t)vt_join(arg, NULL, VT_NEVER, 0);
}

/* Of two that join one thread at once one has it, and neither waits for ever. */
START_TEST(two_joiners)
{
    engine_start(_i + 1, 64, VT_IO_AUTO);
    for (int i = 0; i < 400; i++) {
        struct vt_thread *joiners[2];
        gate = 0;
        struct vt_thread *t = spawn(wait_gate, NULL);
        for (int k = 0; k < 2; k++)
            joiners[k] = spawn(join_gate, t);
        if (i % 4 == 0)
            usleep(50);
        add_count(&gate, 1);
        uintptr_t a = (uintptr_t)join(joiners[0]), b = (uintptr_t)join(joiners[1]);
        ck_assert(a + b == EINVAL && (a == 0 || b == 0));
    }
}
END_TEST

/* Ends race with joins that time out and are interrupted, while descriptors are used again at once. */
static void *short_life(void *arg)
{
    uint32_t random = (uint32_t)(uintptr_t)arg;
    if (any(&random, 2))
        vt_block(vt_now() + any(&random, 100) * US);
    return arg;
}

static void *churn(void *arg)
{
    uint32_t random = (uint32_t)(uintptr_t)arg + 1;
    for (int i = 0; i < 500; i++) {
        void *in = (void *)(uintptr_t)any(&random, 1u << 30), *out;
        struct vt_thread *t = spawn(short_life, in);
        if (any(&random, 4) == 0) {
            EQUALS(vt_detach(t), 0);
            continue;
        }
        for (int err = 1; err;) {
            uint64_t deadline = vt_now() + any(&random, 50) * US;
            if (any(&random, 8) == 0)
                atomic_fetch_or(&vt_current()->interrupt, VT_SIGNALLED);
            err = vt_join(t, &out, any(&random, 4) ? deadline : 0, VT_PARK_INTERRUPTIBLE);
            HOLDS(err == 0 || err == ETIMEDOUT || err == EBUSY || err == EINTR);
            if (err == EBUSY)
                vt_yield();
        }
        HOLDS(in == out);
    }
    return NULL;
}

START_TEST(churns)
{
    enum { N = 6 };
    struct vt_thread *threads[N];
    pthread_t kernel;
    engine_start(_i + 1, 64, VT_IO_AUTO);
    for (uintptr_t i = 0; i < N; i++)
        threads[i] = spawn(churn, (void *)i);
    ck_assert_int_eq(pthread_create(&kernel, NULL, churn, (void *)N), 0);
    for (int i = 0; i < N; i++)
        join(threads[i]);
    pthread_join(kernel, NULL);
    /* Few have been alive together, so few descriptors have been made: those of the detached come back too. */
    struct vt_thread *t = spawn(give, NULL);
    ck_assert_uint_lt(t->index, 500);
    join(t);
}
END_TEST

/* Ids are unique among the living, and find their threads. */
enum { IDS = 3000 };
static _Atomic uint32_t claims[1 << 16]; /* by a hash without collisions for so few: index and generation are small */

static void *claim_id(void *arg)
{
    uint32_t tid = vt_tid();
    struct vt_thread *me = vt_current();
    HOLDS(tid >= VT_TCB_TID_MIN && tid < 1u << 30);
    HOLDS(vt_by_tid(tid) == me && me->tid == tid);
    /* One descriptor, one living thread. */
    EQUALS(atomic_fetch_add(&claims[me->index], 1), 0);
    add_count(&passed, 1);
    await_count(&gate, 1);
    EQUALS(atomic_fetch_sub(&claims[me->index], 1), 1);
    return arg;
}

static void count_tid(struct vt_thread *t, void *arg)
{
    uint32_t **at = arg;
    *(*at)++ = t->tid;
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

START_TEST(ids)
{
    static struct vt_thread *threads[IDS];
    static uint32_t tids[IDS + 1], old[IDS];
    engine_start(_i + 1, 64, VT_IO_AUTO);
    for (int round = 0; round < 2; round++) {
        gate = passed = 0;
        for (int i = 0; i < IDS; i++)
            threads[i] = spawn(claim_id, NULL);
        await_count(&passed, IDS);
        uint32_t *at = tids;
        vt_each(count_tid, &at);
        ck_assert_int_eq(at - tids, IDS);
        qsort(tids, IDS, sizeof *tids, by_value);
        for (int i = 1; i < IDS; i++)
            ck_assert_uint_ne(tids[i - 1], tids[i]);
        for (int i = 0; round && i < IDS; i++)
            ck_assert(!bsearch(&old[i], tids, IDS, sizeof *tids, by_value));
        memcpy(old, tids, sizeof old);
        add_count(&gate, 1);
        for (int i = 0; i < IDS; i++)
            join(threads[i]);
        for (int i = 0; i < IDS; i++)
            ck_assert(vt_by_tid(old[i]) == NULL);
    }
    ck_assert(vt_by_tid(0) == NULL && vt_by_tid(1u << 30) == NULL && vt_by_tid((1u << 30) - 1) == NULL);
}
END_TEST

/* A kernel thread that gets the descriptor of a virtual one that has ended inherits nothing. */
static struct vt_thread *adopted;
static sem_t has_adopted;

static void *adopt(void *arg)
{
    (void)arg;
    adopted = vt_current();
    EQUALS(adopted->kind, VT_KERNEL);
    EQUALS(atomic_load(&adopted->pending) | atomic_load(&adopted->deferred) | atomic_load(&adopted->awaited), 0);
    EQUALS(atomic_load(&adopted->interrupt), 0);
    HOLDS(adopted->wait_on == NULL);
    sem_post(&has_adopted);
    pause(); /* keeps its descriptor, so that the next one gets another */
    return NULL;
}

static void *leave_traces(void *arg)
{
    struct vt_thread *me = vt_current();
    atomic_store(&me->pending, 1u << 9);
    atomic_store(&me->interrupt, VT_CANCELLED);
    me->wait_on = arg;
    return me;
}

static void *make_one(void *arg)
{
    return join(spawn(leave_traces, &arg));
}

START_TEST(adoption)
{
    engine_start(1, 8, VT_IO_AUTO);
    vt_current();
    /* A kernel thread that makes and joins it, and gives its stock to the others when it ends. */
    pthread_t kernel;
    ck_assert_int_eq(pthread_create(&kernel, NULL, make_one, NULL), 0);
    struct vt_thread *t;
    pthread_join(kernel, (void **)&t);
    for (int i = 0; adopted != t; i++) {
        ck_assert_int_lt(i, 1000);
        ck_assert_int_eq(pthread_create(&kernel, NULL, adopt, NULL), 0);
        sem_wait(&has_adopted);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("life");
    TCase *c = tcase_create("life");
    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, join_errors, 0, 2);
    tcase_add_loop_test(c, two_joiners, 0, 4);
    tcase_add_loop_test(c, churns, 0, 4);
    tcase_add_loop_test(c, ids, 0, 2);
    tcase_add_test(c, adoption);
    suite_add_tcase(s, c);
    return engine_main(s);
}
