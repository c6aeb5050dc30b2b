/* A thread forks while a thousand others wait and some do I/O. Its child is the same thread: with its own
 * locals, keys and handle, and the process's id. It makes threads that sleep, lock, do I/O and wait for it,
 * forks again, and the parent's threads lose nothing meanwhile. */
#include "check.h"

#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { PARKED = 1000, PAIRS = 20, CHILDREN = 8, WORKERS = 300 };

static struct gate parked = GATE, leave = GATE;
static atomic_int_fast64_t exchanged;
static atomic_int stop;
static __thread int number = 4711;
static pthread_key_t key;

static void *parks(void *arg)
{
    gate_add(&parked, 1);
    gate_wait(&leave, 1);
    return arg;
}

static int sockets[PAIRS][2];

static void *asks(void *arg)
{
    int fd = sockets[(intptr_t)arg][0];

    for (uint32_t i = 0;; i++) {
        uint32_t answer, ask = stop ? UINT32_MAX : i;
        write_all(fd, &ask, sizeof ask);
        read_all(fd, &answer, sizeof answer);
        EXPECT(answer, ask + 1);
        if (ask == UINT32_MAX)
            return NULL;
        exchanged++;
        if (i % 16 == 0)
            sleep_us(100);
    }
}

static void *answers(void *arg)
{
    int fd = sockets[(intptr_t)arg][1];

    for (;;) {
        uint32_t got;
        read_all(fd, &got, sizeof got);
        got++;
        write_all(fd, &got, sizeof got);
        if (got == 0)
            return NULL;
    }
}

/* --- in the children --- */

struct work {
    struct gate here, go;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    long sum;
    int pipe[2];
};

static void *works(void *arg)
{
    struct work *w = arg;
    char byte;

    EXPECT(number, 4711);
    gate_add(&w->here, 1);
    gate_wait(&w->go, 1);
    sleep_us(1000);
    read_all(w->pipe[0], &byte, 1);
    ZERO(pthread_mutex_lock(&w->mutex));
    w->sum += byte;
    ZERO(pthread_mutex_unlock(&w->mutex));
    free(malloc(1000));
    return NULL;
}

static void make_threads(int count)
{
    struct work w = {GATE, GATE, PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, {-1, -1}};
    pthread_t threads[WORKERS];
    char bytes[WORKERS];

    SYS(pipe(w.pipe));
    for (int i = 0; i < count; i++)
        threads[i] = start(works, &w);
    gate_wait(&w.here, count);
    gate_add(&w.go, 1);
    memset(bytes, 1, sizeof bytes);
    write_all(w.pipe[1], bytes, (size_t)count);
    for (int i = 0; i < count; i++)
        join(threads[i]);
    EXPECT(w.sum, count);
    SYS(close(w.pipe[0]));
    SYS(close(w.pipe[1]));
}

struct joins {
    pthread_t whom;
    int status;
};

static void *joins_and_exits(void *arg)
{
    struct joins *j = arg;

    EXPECT((intptr_t)join(j->whom), 77);
    exit(j->status);
}

static void destroyed(void *value)
{
    /* Natively the thread that ends has its joiner wait until this is over. */
    *(int *)value = 2;
}

static int await_child(pid_t child)
{
    int status;

    EXPECT(waitpid(child, &status, 0), child);
    return status;
}

static void is_the_thread(pthread_t self, const int *local)
{
    CHECK(pthread_equal(self, pthread_self()));
    EXPECT(gettid(), getpid());
    EXPECT(syscall(SYS_gettid), getpid());
    EXPECT(number, 12);
    EXPECT(*local, 13);
    CHECK(pthread_getspecific(key) != NULL);
    EXPECT(errno, EDOM);
}

static void in_child(pthread_t self, const int *local, int turn)
{
    static struct joins j;
    char name[16];

    is_the_thread(self, local);
    ZERO(pthread_getname_np(self, name, sizeof name));
    EXPECT_STR(name, "forks");
    sleep_us(1000);
    if (turn % 4 == 1) { /* asks for what only a kernel thread has, before there are others */
        cpu_set_t set;
        SYS(sched_getaffinity(0, sizeof set, &set));
        SYS(sched_setaffinity(0, sizeof set, &set));
    }
    /* Each other child makes threads before it forks. */
    if (turn % 2)
        make_threads(WORKERS);
    errno = EDOM;
    pid_t child = SYS(fork());
    if (child == 0) {
        is_the_thread(self, local);
        make_threads(20);
        errno = EDOM;
        is_the_thread(self, local);
        _exit(21 + turn);
    }
    if (turn % 2 == 0)
        make_threads(WORKERS);
    errno = EDOM;
    is_the_thread(self, local);
    int status = await_child(child);
    CHECK(WIFEXITED(status));
    EXPECT(WEXITSTATUS(status), 21 + turn);
    j.whom = self;
    j.status = 40 + turn;
    start(joins_and_exits, &j);
    pthread_exit((void *)77);
}

static void *forks(void *arg)
{
    int turn = (int)(intptr_t)arg, local = 13, data = 1;
    pthread_t self = pthread_self();

    number = 12;
    ZERO(pthread_setname_np(self, "forks"));
    ZERO(pthread_setspecific(key, &data));
    gate_wait(&parked, PARKED);
    errno = EDOM;
    pid_t child = SYS(fork());
    if (child == 0)
        in_child(self, &local, turn);
    EXPECT(number, 12);
    CHECK(gettid() != getpid());
    int status = await_child(child);
    CHECK(WIFEXITED(status));
    EXPECT(WEXITSTATUS(status), 40 + turn);
    return NULL;
}

int main(void)
{
    static pthread_t threads[PARKED], asking[PAIRS], answering[PAIRS];
    pthread_attr_t small;

    begin(60);
    ZERO(pthread_key_create(&key, destroyed));
    ZERO(pthread_attr_init(&small));
    ZERO(pthread_attr_setstacksize(&small, 128 << 10));
    for (int i = 0; i < PARKED; i++)
        ZERO(pthread_create(&threads[i], &small, parks, NULL));
    for (int i = 0; i < PAIRS; i++) {
        SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets[i]));
        answering[i] = start_number(answers, i);
        asking[i] = start_number(asks, i);
    }
    in_threads(CHILDREN, forks); /* all at once */
    int_fast64_t before = exchanged;
    while (exchanged < before + 1000) /* they go on */
        sleep_us(1000);
    stop = 1;
    for (int i = 0; i < PAIRS; i++) {
        join(asking[i]);
        join(answering[i]);
    }
    gate_add(&leave, 1);
    for (int i = 0; i < PARKED; i++)
        join(threads[i]);
    return finish();
}
