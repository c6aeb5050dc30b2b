/*
 * Clean-up handlers, run by pop, by pthread_exit from any depth and by cancellation, innermost first. Built
 * both ways that C has for them: with -fexceptions and, by setjmp, without.
 */
#include "check.h"

enum { DEPTH = 30 };

struct log {
    char text[400];
    size_t used;
};

static __thread struct log *log_now;
static struct gate waiting = GATE;
static int pipes[2];

static void note(void *arg)
{
    /* Handlers may block. */
    sched_yield();
    log_now->used +=
        (size_t)snprintf(log_now->text + log_now->used, sizeof log_now->text - log_now->used, " %d", (int)(intptr_t)arg);
}

__attribute__((noinline)) static void descend(int depth, void (*at_bottom)(void))
{
    volatile char frame[100];

    frame[0] = (char)depth;
    pthread_cleanup_push(note, (void *)(intptr_t)depth);
    sched_yield();
    if (depth == DEPTH)
        at_bottom();
    else
        descend(depth + 1, at_bottom);
    pthread_cleanup_pop(0);
    CHECK(frame[0] == (char)depth);
}

static void leave(void)
{
    pthread_exit((void *)77);
}

static void come_back(void)
{
}

static void block(void)
{
    char byte;

    gate_add(&waiting, 1);
    SYS(read(pipes[0], &byte, 1));
    FAIL("read returned in a thread that was cancelled");
}

static void *by_exit(void *arg)
{
    log_now = arg;
    descend(1, leave);
    return NULL;
}

static void *by_return(void *arg)
{
    log_now = arg;
    descend(1, come_back);
    pthread_cleanup_push(note, (void *)100);
    pthread_cleanup_push(note, (void *)200);
    pthread_cleanup_pop(1);
    pthread_cleanup_pop(1);
    return (void *)77;
}

static void *by_cancel(void *arg)
{
    log_now = arg;
    descend(1, block);
    return NULL;
}

static void unlock(void *mutex)
{
    ZERO(pthread_mutex_unlock(mutex));
}

/* The mutex is held again when the handlers of a cancelled condition wait run. */
static void *cancelled_wait(void *arg)
{
    static pthread_mutex_t lock = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
    static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;

    log_now = arg;
    ZERO(pthread_mutex_lock(&lock));
    pthread_cleanup_push(unlock, &lock);
    gate_add(&waiting, 1);
    for (;;)
        ZERO(pthread_cond_wait(&cond, &lock));
    pthread_cleanup_pop(0);
    return NULL;
}

/* The deferring forms put the cancellation type back. */
static void *deferring(void *arg)
{
    int type;

    log_now = arg;
    ZERO(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type));
    pthread_cleanup_push_defer_np(note, (void *)5);
    ZERO(pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type));
    EXPECT(type, PTHREAD_CANCEL_DEFERRED);
    pthread_cleanup_pop_restore_np(1);
    ZERO(pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type));
    EXPECT(type, PTHREAD_CANCEL_ASYNCHRONOUS);
    return (void *)77;
}

static void try_way(const char *name, void *(*run)(void *), int cancel, void *want)
{
    struct log logs[10] = {{"", 0}};
    pthread_t threads[10];

    for (int i = 0; i < 10; i++)
        threads[i] = start(run, &logs[i]);
    if (cancel) {
        gate_wait(&waiting, 10);
        waiting.count = 0;
        for (int i = 0; i < 10; i++)
            ZERO(pthread_cancel(threads[i]));
    }
    for (int i = 0; i < 10; i++) {
        CHECK(join(threads[i]) == want);
        EXPECT_STR(logs[i].text, logs[0].text);
    }
    printf("%s:%s\n", name, logs[0].text);
}

int main(void)
{
    begin(20);
    SYS(pipe(pipes));
    try_way("return", by_return, 0, (void *)77);
    try_way("exit", by_exit, 0, (void *)77);
    try_way("cancel", by_cancel, 1, PTHREAD_CANCELED);
    try_way("condition wait", cancelled_wait, 1, PTHREAD_CANCELED);
    try_way("deferring", deferring, 0, (void *)77);
    return finish();
}
