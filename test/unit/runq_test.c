/* Tests of scheduler/runq.h and scheduler/lock.h. */
#include "lock.h"
#include "runq.h"

#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef __SANITIZE_THREAD__
#define STRESS 40000
#else
#define STRESS 1000000
#endif

/* For inner loops and for threads: Check's own assertions make a system call each. */
#define MUST(x)                                                                                                                \
    do {                                                                                                                       \
        if (!(x)) {                                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x);                                                            \
            abort();                                                                                                           \
        }                                                                                                                      \
    } while (0)

struct job {
    struct vt_task task;
    unsigned long number;
    unsigned long payload; /* not atomic: to be ordered by the queue alone */
    unsigned long taken;   /* likewise */
};

static struct job *jobs(size_t n)
{
    struct job *j = calloc(n, sizeof(*j));

    ck_assert_ptr_nonnull(j);
    for (size_t i = 0; i < n; i++)
        j[i].number = i;
    return j;
}

static struct vt_runq q, p;
static struct vt_globq g;

static void setup(void)
{
    vt_runq_init(&q);
    vt_runq_init(&p);
    vt_globq_init(&g);
}

START_TEST(fifo)
{
    struct job *j = jobs(VT_RUNQ_SIZE + 1);

    setup();
    ck_assert_ptr_null(vt_runq_pop(&q));
    /* Several times around the ring, with all lengths. */
    for (unsigned n = 0; n <= VT_RUNQ_SIZE; n++) {
        for (unsigned i = 0; i < n; i++) {
            ck_assert_uint_eq(vt_runq_len(&q), i);
            ck_assert(vt_runq_push(&q, &j[i].task));
        }
        if (n == VT_RUNQ_SIZE)
            ck_assert(!vt_runq_push(&q, &j[n].task));
        for (unsigned i = 0; i < n; i++) {
            ck_assert_uint_eq(vt_runq_len(&q), n - i);
            ck_assert_ptr_eq(vt_runq_pop(&q), &j[i].task);
        }
        ck_assert_ptr_null(vt_runq_pop(&q));
    }
    free(j);
}
END_TEST

START_TEST(zero_is_empty)
{
    memset(&q, 0, sizeof(q));
    memset(&g, 0, sizeof(g));
    struct vt_task t, *first;
    struct vt_task_list list = VT_TASK_LIST_INIT;

    ck_assert_ptr_null(vt_runq_pop(&q));
    ck_assert_uint_eq(vt_globq_pop(&g, 1, &list), 0);
    ck_assert(vt_runq_push(&q, &t));
    ck_assert_uint_eq(vt_runq_steal(&q, &p, &first), 1);
    vt_globq_push(&g, first);
    ck_assert_uint_eq(vt_globq_pop(&g, 1, &list), 1);
    ck_assert_ptr_eq(vt_task_list_pop(&list), &t);
}
END_TEST

START_TEST(steal_takes_the_older_half)
{
    struct job *j = jobs(VT_RUNQ_SIZE);
    struct vt_task *first = &j[0].task;

    setup();
    ck_assert_uint_eq(vt_runq_steal(&q, &p, &first), 0);
    ck_assert_ptr_null(first);
    for (unsigned n = 1; n <= VT_RUNQ_SIZE; n++) {
        unsigned half = (n + 1) / 2;

        for (unsigned i = 0; i < n; i++)
            vt_runq_push(&q, &j[i].task);
        ck_assert_uint_eq(vt_runq_steal(&q, &p, &first), half);
        ck_assert_ptr_eq(first, &j[0].task);
        ck_assert_uint_eq(vt_runq_len(&p), half - 1);
        ck_assert_uint_eq(vt_runq_len(&q), n - half);
        for (unsigned i = 1; i < half; i++)
            ck_assert_ptr_eq(vt_runq_pop(&p), &j[i].task);
        for (unsigned i = half; i < n; i++)
            ck_assert_ptr_eq(vt_runq_pop(&q), &j[i].task);
    }
    free(j);
}
END_TEST

START_TEST(steal_takes_what_fits)
{
    struct job *j = jobs(2 * VT_RUNQ_SIZE);
    struct vt_task *first;

    for (unsigned room = 0; room < 10; room++) {
        setup();
        for (unsigned i = 0; i < VT_RUNQ_SIZE; i++)
            ck_assert(vt_runq_push(&q, &j[i].task));
        for (unsigned i = VT_RUNQ_SIZE; i < 2 * VT_RUNQ_SIZE - room; i++)
            ck_assert(vt_runq_push(&p, &j[i].task));
        ck_assert_uint_eq(vt_runq_steal(&q, &p, &first), room + 1);
        ck_assert_ptr_eq(first, &j[0].task);
        ck_assert_uint_eq(vt_runq_len(&p), VT_RUNQ_SIZE);
        ck_assert_uint_eq(vt_runq_len(&q), VT_RUNQ_SIZE - room - 1);
        for (unsigned i = VT_RUNQ_SIZE; i < 2 * VT_RUNQ_SIZE - room; i++)
            ck_assert_ptr_eq(vt_runq_pop(&p), &j[i].task);
        for (unsigned i = 1; i <= room; i++)
            ck_assert_ptr_eq(vt_runq_pop(&p), &j[i].task);
    }
    free(j);
}
END_TEST

START_TEST(take_half)
{
    struct job *j = jobs(VT_RUNQ_SIZE);
    struct vt_task_list list = VT_TASK_LIST_INIT;

    setup();
    ck_assert_uint_eq(vt_runq_take_half(&q, &list), 0);
    for (unsigned i = 0; i < VT_RUNQ_SIZE; i++)
        vt_runq_push(&q, &j[i].task);
    ck_assert_uint_eq(vt_runq_take_half(&q, &list), VT_RUNQ_SIZE / 2);
    ck_assert_uint_eq(vt_runq_take_half(&q, &list), VT_RUNQ_SIZE / 4);
    ck_assert_uint_eq(list.count, VT_RUNQ_SIZE / 4 * 3);
    for (unsigned i = 0; i < VT_RUNQ_SIZE / 4 * 3; i++)
        ck_assert_ptr_eq(vt_task_list_pop(&list), &j[i].task);
    ck_assert_ptr_null(vt_task_list_pop(&list));
    ck_assert_uint_eq(list.count, 0);
    for (unsigned i = VT_RUNQ_SIZE / 4 * 3; i < VT_RUNQ_SIZE; i++)
        ck_assert_ptr_eq(vt_runq_pop(&q), &j[i].task);
    free(j);
}
END_TEST

START_TEST(global)
{
    struct job *j = jobs(100);
    struct vt_task_list list = VT_TASK_LIST_INIT, got = VT_TASK_LIST_INIT;

    setup();
    ck_assert_uint_eq(vt_globq_len(&g), 0);
    ck_assert_uint_eq(vt_globq_pop(&g, 10, &got), 0);
    vt_globq_push_list(&g, &list);
    ck_assert_uint_eq(vt_globq_len(&g), 0);
    for (unsigned i = 0; i < 50; i++)
        vt_globq_push(&g, &j[i].task);
    for (unsigned i = 50; i < 100; i++)
        vt_task_list_push(&list, &j[i].task);
    vt_globq_push_list(&g, &list);
    ck_assert_ptr_null(list.first);
    ck_assert_uint_eq(list.count, 0);
    ck_assert_uint_eq(vt_globq_len(&g), 100);
    ck_assert_uint_eq(vt_globq_pop(&g, 0, &got), 0);
    ck_assert_uint_eq(vt_globq_pop(&g, 1, &got), 1);
    ck_assert_uint_eq(vt_globq_pop(&g, 60, &got), 60);
    ck_assert_uint_eq(vt_globq_len(&g), 39);
    ck_assert_uint_eq(vt_globq_pop(&g, 1000, &got), 39);
    ck_assert_uint_eq(vt_globq_len(&g), 0);
    ck_assert_uint_eq(got.count, 100);
    for (unsigned i = 0; i < 100; i++)
        ck_assert_ptr_eq(vt_task_list_pop(&got), &j[i].task);
    free(j);
}
END_TEST

/* --- threads ---------------------------------------------------------------------------------------- */

#define WORKERS 4

static struct {
    struct vt_runq queue[WORKERS];
    pthread_mutex_t owner[WORKERS]; /* hands the queues from thread to thread */
    struct job *jobs;
    _Atomic unsigned long made, done;
    _Atomic unsigned long stolen, overflows;
} stress;

static uint64_t rng(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Usually nothing, at times long enough for the others to get in between, or a turn of the kernel's. */
static void pause_at_random(uint64_t *state)
{
    uint64_t r = rng(state) % 1024;

    if (r == 0)
        sched_yield();
    else if (r < 32)
        for (uint64_t i = 0; i < r * 8; i++)
            vt_cpu_relax();
}

static void finish(struct vt_task *t)
{
    struct job *j = (struct job *)t;

    MUST(j->payload == ~j->number);
    MUST(j->taken == 0);
    j->taken = 1;
    /* Relaxed: that jobs are complete is read after the threads have been joined. */
    atomic_fetch_add_explicit(&stress.done, 1, memory_order_relaxed);
}

static void enqueue(unsigned place, struct vt_task *t)
{
    struct vt_runq *mine = &stress.queue[place];

    if (vt_runq_push(mine, t))
        return;
    struct vt_task_list list = VT_TASK_LIST_INIT;
    unsigned n = vt_runq_take_half(mine, &list);
    MUST(n == list.count && n <= VT_RUNQ_SIZE / 2);
    vt_task_list_push(&list, t);
    vt_globq_push_list(&g, &list);
    atomic_fetch_add_explicit(&stress.overflows, 1, memory_order_relaxed);
}

/* Takes a place that is free, works there for a while, and goes to another: owner here, thief everywhere. */
static void *worker(void *arg)
{
    uint64_t state = 88172645463325252U + (uintptr_t)arg * 7919;

    while (atomic_load_explicit(&stress.done, memory_order_relaxed) < STRESS) {
        unsigned place = (unsigned)(rng(&state) % WORKERS);

        if (pthread_mutex_trylock(&stress.owner[place]))
            continue;
        struct vt_runq *mine = &stress.queue[place];
        /* Bursts of either kind fill the queue and empty it. */
        bool productive = rng(&state) % 2;
        for (uint64_t n = rng(&state) % 600; n; n--) {
            pause_at_random(&state);
            MUST(vt_runq_len(&stress.queue[rng(&state) % WORKERS]) <= VT_RUNQ_SIZE);
            if (productive && rng(&state) % 4) {
                unsigned long k = atomic_fetch_add_explicit(&stress.made, 1, memory_order_relaxed);
                if (k < STRESS) {
                    stress.jobs[k].payload = ~k;
                    enqueue(place, &stress.jobs[k].task);
                    continue;
                }
            }
            struct vt_task *t = NULL;
            uint64_t way = rng(&state) % 4;
            if (way < 2) {
                t = vt_runq_pop(mine);
            } else if (way == 2) {
                unsigned victim = (unsigned)(rng(&state) % WORKERS);
                if (victim != place) {
                    unsigned got = vt_runq_steal(&stress.queue[victim], mine, &t);
                    MUST((got == 0) == (t == NULL) && got <= VT_RUNQ_SIZE / 2);
                    atomic_fetch_add_explicit(&stress.stolen, got, memory_order_relaxed);
                }
            } else {
                struct vt_task_list list = VT_TASK_LIST_INIT;
                vt_globq_pop(&g, rng(&state) % 64, &list);
                while ((t = vt_task_list_pop(&list))) {
                    if (rng(&state) % 2)
                        enqueue(place, t);
                    else
                        finish(t);
                }
            }
            if (t)
                finish(t);
        }
        pthread_mutex_unlock(&stress.owner[place]);
    }
    return NULL;
}

START_TEST(each_job_once)
{
    pthread_t t[WORKERS];

    setup();
    stress.jobs = jobs(STRESS);
    for (unsigned i = 0; i < WORKERS; i++) {
        vt_runq_init(&stress.queue[i]);
        pthread_mutex_init(&stress.owner[i], NULL);
    }
    for (uintptr_t i = 0; i < WORKERS; i++)
        ck_assert_int_eq(pthread_create(&t[i], NULL, worker, (void *)i), 0);
    for (unsigned i = 0; i < WORKERS; i++)
        ck_assert_int_eq(pthread_join(t[i], NULL), 0);
    ck_assert_uint_eq(stress.done, STRESS);
    for (unsigned i = 0; i < STRESS; i++)
        MUST(stress.jobs[i].taken == 1);
    for (unsigned i = 0; i < WORKERS; i++) {
        ck_assert_uint_eq(vt_runq_len(&stress.queue[i]), 0);
        ck_assert_ptr_null(vt_runq_pop(&stress.queue[i]));
    }
    ck_assert_uint_eq(vt_globq_len(&g), 0);
    printf("%d jobs, %lu stolen, %lu overflows\n", STRESS, (unsigned long)stress.stolen, (unsigned long)stress.overflows);
    free(stress.jobs);
}
END_TEST

/* One owner who does nothing but push and pop the last one, against thieves: the tightest race for a task. */
static _Atomic bool race_over;
static _Atomic unsigned long race_taken;

static void *race_thief(void *arg)
{
    struct vt_runq *mine = arg;
    uint64_t state = (uintptr_t)arg | 1;

    while (!atomic_load(&race_over)) {
        struct vt_task *t;

        vt_runq_steal(&q, mine, &t);
        for (; t; t = vt_runq_pop(mine)) {
            ((struct job *)t)->taken++;
            atomic_fetch_add(&race_taken, 1);
        }
        pause_at_random(&state);
    }
    return NULL;
}

START_TEST(race_for_the_last)
{
    static struct vt_runq thief[2];
    struct job *j = jobs(STRESS);
    uint64_t state = 4711;
    pthread_t t[2];
    unsigned long popped = 0;

    setup();
    for (unsigned i = 0; i < 2; i++) {
        vt_runq_init(&thief[i]);
        ck_assert_int_eq(pthread_create(&t[i], NULL, race_thief, &thief[i]), 0);
    }
    for (unsigned i = 0; i < STRESS; i++) {
        struct vt_task *mine;

        MUST(vt_runq_push(&q, &j[i].task));
        pause_at_random(&state);
        mine = vt_runq_pop(&q);
        if (mine) {
            ((struct job *)mine)->taken++;
            popped++;
        }
    }
    MUST(!vt_runq_pop(&q));
    atomic_store(&race_over, true);
    for (unsigned i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    ck_assert_uint_eq(popped + race_taken, STRESS);
    for (unsigned i = 0; i < STRESS; i++)
        MUST(j[i].taken == 1);
    free(j);
}
END_TEST

/*
 * Jobs that are stolen twice on their way. The thread in the middle does nothing but steal, so that what the
 * first wrote gets to the last by the stealing alone.
 */
static struct vt_runq middle_q, last_q;

static void *middle(void *arg)
{
    struct vt_task *t;

    while (atomic_load_explicit(&race_taken, memory_order_relaxed) < STRESS) {
        /* Room for all that are stolen, so that they go on in the order in which they came. */
        if (!vt_runq_len(&middle_q) && vt_runq_steal(&q, &middle_q, &t)) {
            finish(t);
            atomic_fetch_add_explicit(&race_taken, 1, memory_order_relaxed);
        } else {
            sched_yield();
        }
    }
    return arg;
}

static void *last(void *arg)
{
    struct vt_task *t;

    while (atomic_load_explicit(&race_taken, memory_order_relaxed) < STRESS) {
        if (!vt_runq_steal(&middle_q, &last_q, &t))
            sched_yield();
        for (; t; t = vt_runq_pop(&last_q)) {
            finish(t);
            atomic_fetch_add_explicit(&race_taken, 1, memory_order_relaxed);
        }
    }
    return arg;
}

START_TEST(stolen_twice)
{
    struct job *j = jobs(STRESS);
    pthread_t a, b;

    setup();
    vt_runq_init(&middle_q);
    vt_runq_init(&last_q);
    atomic_store(&race_taken, 0);
    ck_assert_int_eq(pthread_create(&a, NULL, middle, NULL), 0);
    ck_assert_int_eq(pthread_create(&b, NULL, last, NULL), 0);
    for (unsigned long i = 0; i < STRESS; i++) {
        j[i].payload = ~i;
        while (!vt_runq_push(&q, &j[i].task))
            sched_yield();
    }
    pthread_join(a, NULL);
    pthread_join(b, NULL);
    for (unsigned i = 0; i < STRESS; i++)
        MUST(j[i].taken == 1);
    free(j);
}
END_TEST

static struct vt_lock lock = VT_LOCK_INIT;
static unsigned long locked_count;

static void *locker(void *arg)
{
    uint64_t state = 1 + (uintptr_t)arg;

    for (unsigned i = 0; i < STRESS / 4; i++) {
        if (i % 3) {
            vt_lock(&lock);
        } else {
            while (!vt_trylock(&lock))
                vt_cpu_relax();
        }
        locked_count++;
        if (i % 64 == 0)
            pause_at_random(&state);
        vt_unlock(&lock);
    }
    return NULL;
}

START_TEST(locking)
{
    pthread_t t[WORKERS];

    ck_assert(vt_trylock(&lock));
    ck_assert(!vt_trylock(&lock));
    vt_unlock(&lock);
    for (uintptr_t i = 0; i < WORKERS; i++)
        ck_assert_int_eq(pthread_create(&t[i], NULL, locker, (void *)i), 0);
    for (unsigned i = 0; i < WORKERS; i++)
        pthread_join(t[i], NULL);
    ck_assert_uint_eq(locked_count, (unsigned long)WORKERS * (STRESS / 4));
}
END_TEST

/* --- cost ------------------------------------------------------------------------------------------- */

static double now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Asserts nothing: numbers for the log. */
START_TEST(cost)
{
    enum { ROUNDS = 20000, BATCH = 128 };
    struct job *j = jobs(BATCH);
    struct vt_task *first;

    setup();
    double a = now_ns();
    for (unsigned r = 0; r < ROUNDS; r++) {
        for (unsigned i = 0; i < BATCH; i++)
            vt_runq_push(&q, &j[i].task);
        for (unsigned i = 0; i < BATCH; i++)
            vt_runq_pop(&q);
    }
    double b = now_ns();
    printf("push and pop: %.1f ns\n", (b - a) / ROUNDS / BATCH);

    double one = 0, half = 0;
    for (unsigned r = 0; r < ROUNDS; r++) {
        vt_runq_push(&q, &j[0].task);
        a = now_ns();
        vt_runq_steal(&q, &p, &first);
        one += now_ns() - a;
        for (unsigned i = 0; i < BATCH; i++)
            vt_runq_push(&q, &j[i].task);
        a = now_ns();
        vt_runq_steal(&q, &p, &first);
        half += now_ns() - a;
        while (vt_runq_pop(&q) || vt_runq_pop(&p))
            ;
    }
    a = now_ns();
    for (unsigned r = 0; r < ROUNDS; r++)
        now_ns();
    double clock = (now_ns() - a) / ROUNDS;
    printf("steal of 1: %.1f ns, of %d: %.1f ns\n", one / ROUNDS - clock, BATCH / 2, half / ROUNDS - clock);

    struct vt_task_list list = VT_TASK_LIST_INIT;
    a = now_ns();
    for (unsigned r = 0; r < ROUNDS; r++) {
        for (unsigned i = 0; i < BATCH; i++)
            vt_globq_push(&g, &j[i].task);
        while (vt_globq_pop(&g, 16, &list))
            list = (struct vt_task_list)VT_TASK_LIST_INIT;
    }
    b = now_ns();
    printf("global, push and pop of 16: %.1f ns\n", (b - a) / ROUNDS / BATCH);
    free(j);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("runq");
    TCase *c = tcase_create("runq");

    tcase_set_timeout(c, 120);
    tcase_add_test(c, fifo);
    tcase_add_test(c, zero_is_empty);
    tcase_add_test(c, steal_takes_the_older_half);
    tcase_add_test(c, steal_takes_what_fits);
    tcase_add_test(c, take_half);
    tcase_add_test(c, global);
    tcase_add_test(c, each_job_once);
    tcase_add_test(c, race_for_the_last);
    tcase_add_test(c, stolen_twice);
    tcase_add_test(c, locking);
    tcase_add_test(c, cost);
    suite_add_tcase(s, c);

    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
