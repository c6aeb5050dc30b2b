/* To be looked at from outside by test/dump: threads in every kind of wait, many threads, a deadlock, a load
 * of switches. Prints "ready" when all threads have come to the function in whose wait they stay, and ends
 * when its standard input does, or by a deadlock never. */
#include "check.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

pthread_mutex_t held_lock = PTHREAD_MUTEX_INITIALIZER, cond_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t never = PTHREAD_COND_INITIALIZER;
pthread_rwlock_t written = PTHREAD_RWLOCK_INITIALIZER, read_by_one = PTHREAD_RWLOCK_INITIALIZER;
pthread_once_t once = PTHREAD_ONCE_INIT;
pthread_barrier_t barrier;
sem_t empty;
static int pipe_fds[2], poll_fds[2], listener, connection, locked_file;
static _Atomic unsigned arrived;
static pthread_t sleeper;

static void *wait_mutex(void *arg)
{
    arrived++;
    pthread_mutex_lock(&held_lock);
    pthread_mutex_unlock(&held_lock);
    return arg;
}

static void *wait_cond(void *arg)
{
    pthread_mutex_lock(&cond_lock);
    arrived++;
    for (;;)
        pthread_cond_wait(&never, &cond_lock);
    return arg;
}

static void *wait_read_lock(void *arg)
{
    arrived++;
    pthread_rwlock_rdlock(&written);
    return arg;
}

static void *wait_write_lock(void *arg)
{
    arrived++;
    pthread_rwlock_wrlock(&read_by_one);
    return arg;
}

static void *wait_semaphore(void *arg)
{
    arrived++;
    sem_wait(&empty);
    return arg;
}

static void *wait_barrier(void *arg)
{
    arrived++;
    pthread_barrier_wait(&barrier);
    return arg;
}

static void *wait_sleep(void *arg)
{
    arrived++;
    sleep(100000);
    return arg;
}

static void *wait_join(void *arg)
{
    arrived++;
    pthread_join(sleeper, NULL);
    return arg;
}

static void once_sleeps(void)
{
    sleep(100000);
}

static void *wait_once(void *arg)
{
    arrived++;
    pthread_once(&once, once_sleeps);
    return arg;
}

static void *wait_read(void *arg)
{
    char c;
    arrived++;
    CHECK(read(pipe_fds[0], &c, 1) == 0);
    return arg;
}

static void *wait_accept(void *arg)
{
    arrived++;
    accept(listener, NULL, NULL);
    return arg;
}

static void *wait_receive(void *arg)
{
    char c;
    arrived++;
    recv(connection, &c, 1, 0);
    return arg;
}

static void *wait_poll(void *arg)
{
    struct pollfd p[2] = {{.fd = poll_fds[0], .events = POLLIN}, {.fd = connection, .events = POLLPRI}};
    arrived++;
    poll(p, 2, -1);
    return arg;
}

static void *wait_flock(void *arg)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", locked_file);
    int fd = SYS(open(path, O_RDONLY)); /* another description of it */
    arrived++;
    flock(fd, LOCK_EX);
    return arg;
}

static void __attribute__((noinline)) deeper(int n, void *(*f)(void *), void *arg)
{
    if (n)
        deeper(n - 1, f, arg);
    else
        f(arg);
    __asm__ volatile("");
}

static void *wait_deep(void *arg)
{
    deeper(20, wait_semaphore, arg);
    return arg;
}

static pthread_t start_named(void *(*f)(void *), const char *name)
{
    pthread_t t;
    pthread_attr_t attr;
    ZERO(pthread_attr_init(&attr));
    ZERO(pthread_attr_setstacksize(&attr, 65536));
    ZERO(pthread_create(&t, &attr, f, NULL));
    if (name)
        ZERO(pthread_setname_np(t, name));
    return t;
}

static void ready(unsigned n)
{
    while (arrived < n)
        usleep(1000);
    puts("ready");
    fflush(stdout);
}

static void until_told(void)
{
    while (getchar() != EOF)
        ;
    _exit(0);
}

static void all_kinds(void)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof addr;
    ZERO(pthread_mutex_lock(&held_lock));
    ZERO(pthread_rwlock_wrlock(&written));
    ZERO(pthread_rwlock_rdlock(&read_by_one));
    ZERO(pthread_barrier_init(&barrier, NULL, 2));
    CHECK(sem_init(&empty, 0, 0) == 0);
    CHECK(pipe(pipe_fds) == 0);
    CHECK(pipe(poll_fds) == 0);
    listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(listener, (struct sockaddr *)&addr, sizeof addr) == 0 && listen(listener, 5) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&addr, &length) == 0);
    connection = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(connection, (struct sockaddr *)&addr, sizeof addr) == 0);
    CHECK(accept(listener, NULL, NULL) >= 0);
    locked_file = SYS(memfd_create("locked", 0)); /* nobody else's: several of these programs run at a time */
    CHECK(flock(locked_file, LOCK_EX) == 0);
    sleeper = start_named(wait_sleep, "sleeper");
    start_named(wait_mutex, "mutex");
    start_named(wait_cond, "cond");
    start_named(wait_read_lock, "rdlock");
    start_named(wait_write_lock, "wrlock");
    start_named(wait_semaphore, "sem");
    start_named(wait_barrier, "barrier");
    start_named(wait_join, "join");
    start_named(wait_once, "once");
    start_named(wait_read, "read");
    start_named(wait_accept, "accept");
    start_named(wait_receive, "recv");
    start_named(wait_poll, "poll");
    start_named(wait_flock, "flock");
    start_named(wait_deep, "deep");
    ready(15);
    until_told();
}

static void many(unsigned n)
{
    ZERO(pthread_mutex_lock(&held_lock));
    CHECK(sem_init(&empty, 0, 0) == 0);
    for (unsigned i = 0; i < n; i++)
        start_named(i % 3 == 0 ? wait_mutex : i % 3 == 1 ? wait_cond : wait_deep, NULL);
    ready(n);
    until_told();
}

static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER, second = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;

static void *first_then_second(void *arg)
{
    pthread_mutex_lock(&first);
    pthread_barrier_wait(&both);
    arrived++;
    pthread_mutex_lock(&second);
    return arg;
}

static void *second_then_first(void *arg)
{
    pthread_mutex_lock(&second);
    pthread_barrier_wait(&both);
    arrived++;
    pthread_mutex_lock(&first);
    return arg;
}

static void deadlock(void)
{
    ZERO(pthread_barrier_init(&both, NULL, 2));
    pthread_t a = start_named(first_then_second, "one");
    start_named(second_then_first, "other");
    ready(2);
    pthread_join(a, NULL);
}

/* Pairs that hand a token to and fro, deep in calls; and threads that come and go. */
struct pair {
    sem_t ping, pong;
};

static void *pinger(void *arg)
{
    struct pair *p = arg;
    for (;;) {
        sem_post(&p->ping);
        sem_wait(&p->pong);
    }
    return NULL;
}

static void *ponger(void *arg)
{
    struct pair *p = arg;
    for (;;) {
        sem_wait(&p->ping);
        sem_post(&p->pong);
    }
    return NULL;
}

static void *ponger_deep(void *arg)
{
    deeper(10, ponger, arg);
    return NULL;
}

static void *short_lived(void *arg)
{
    return arg;
}

static void *maker(void *arg)
{
    for (;;) {
        pthread_t t;
        ZERO(pthread_create(&t, NULL, short_lived, NULL));
        ZERO(pthread_join(t, NULL));
    }
    return arg;
}

/* Is inside the loader, or throws, nearly all the time. */
static void *loader(void *arg)
{
    char path[4096];
    for (;;) {
        void *module = dlopen(beside(path, sizeof path, "dlopen_throws_mod.so"), RTLD_NOW | RTLD_LOCAL);
        if (!module)
            FAIL("%s", dlerror());
        int (*throws)(int) = (int (*)(int))dlsym(module, "module_throw");
        EXPECT(throws(20), 21);
        dlclose(module);
        sched_yield();
    }
    return arg;
}

static void busy(unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        struct pair *p = calloc(1, sizeof *p);
        pthread_t t;
        CHECK(sem_init(&p->ping, 0, 0) == 0 && sem_init(&p->pong, 0, 0) == 0);
        ZERO(pthread_create(&t, NULL, pinger, p));
        ZERO(pthread_create(&t, NULL, ponger_deep, p));
    }
    start_named(maker, "maker");
    start_named(loader, "loader");
    ready(0);
    until_told();
}

/* Forks with threads, and the child has none. */
static void forked(void)
{
    CHECK(sem_init(&empty, 0, 0) == 0);
    for (int i = 0; i < 3; i++)
        start_named(wait_semaphore, NULL);
    while (arrived < 3)
        usleep(1000);
    if (fork() == 0) {
        printf("child %d\n", getpid());
        ready(0);
    }
    until_told();
}

int main(int argc, char **argv)
{
    begin(300);
    const char *what = argc > 1 ? argv[1] : "kinds";
    unsigned n = argc > 2 ? (unsigned)atoi(argv[2]) : 30;
    if (strcmp(what, "many") == 0)
        many(n);
    else if (strcmp(what, "deadlock") == 0)
        deadlock();
    else if (strcmp(what, "fork") == 0)
        forked();
    else if (strcmp(what, "busy") == 0)
        busy(n);
    else
        all_kinds();
    return 0;
}
