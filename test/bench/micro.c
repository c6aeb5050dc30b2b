/* What the small operations cost that do not wait: M of one of them, by a thread that main has made.
 * With -t instead of a clock the M operations stand between two breakpoints, for `steps` to count
 * instructions. */
#include "bench.h"
#include <pthread.h>
#include <semaphore.h>
#include <sys/socket.h>
#include <unistd.h>

static long rounds;
static int marked;
static double seconds;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_key_t key;
static sem_t sem;
static int pipes[2], sockets[2];

static void locks(long m)
{
    while (m-- > 0) {
        pthread_mutex_lock(&lock);
        pthread_mutex_unlock(&lock);
    }
}

static void sems(long m)
{
    while (m-- > 0) {
        sem_post(&sem);
        sem_wait(&sem);
    }
}

static void gets(long m)
{
    while (m-- > 0)
        if (pthread_getspecific(key) != &key)
            check(EINVAL, "pthread_getspecific");
}

static void fill(int fd, char *buf, long n)
{
    if (write(fd, buf, (size_t)n) != n)
        check(EIO, "write");
}

/* Reads of a byte, of which there are enough; every 4096 a write of as many. */
static void reads(int from, int to, long m)
{
    static char buf[4096];
    char byte;
    while (m > 0) {
        long n = m < (long)sizeof buf ? m : (long)sizeof buf;
        fill(to, buf, n);
        m -= n;
        while (n-- > 0)
            if (read(from, &byte, 1) != 1)
                check(EIO, "read");
    }
}

static void pipe_reads(long m)
{
    reads(pipes[0], pipes[1], m);
}

static void socket_reads(long m)
{
    reads(sockets[0], sockets[1], m);
}

static const struct op {
    const char *name;
    void (*body)(long m);
} ops[] = {{"lock", locks}, {"sem", sems}, {"getspecific", gets}, {"read-pipe", pipe_reads}, {"read-socket", socket_reads}};

static void breakpoint(void)
{
#if defined __x86_64__ || defined __i386__
    __asm__ volatile("int3" ::: "memory");
#elif defined __aarch64__
    __asm__ volatile("brk #0" ::: "memory");
#elif defined __riscv
    __asm__ volatile("ebreak" ::: "memory");
#endif
}

static void *run(void *arg)
{
    const struct op *op = arg;
    check(pthread_setspecific(key, &key), "pthread_setspecific");
    op->body(marked ? 20 : rounds / 10 + 1); /* bound names, warm caches */
    if (marked) {
        breakpoint();
        op->body(rounds);
        breakpoint();
        return NULL;
    }
    double t0 = now();
    op->body(rounds);
    seconds = now() - t0;
    return NULL;
}

int main(int argc, char **argv)
{
    const char *text = "micro [-t] lock|sem|getspecific|read-pipe|read-socket M";
    const struct op *op = NULL;
    int first = 1;
    if (argc > 1 && !strcmp(argv[1], "-t"))
        marked = 1, first = 2;
    if (argc - first != 2)
        usage(text);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (!strcmp(argv[first], ops[i].name))
            op = &ops[i];
    if (!op)
        usage(text);
    rounds = atol(argv[first + 1]);
    check(pthread_key_create(&key, NULL), "pthread_key_create");
    sys(sem_init(&sem, 0, 0), "sem_init");
    sys(pipe(pipes), "pipe");
    sys(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), "socketpair");
    pthread_t thread;
    check(pthread_create(&thread, NULL, run, (void *)op), "pthread_create");
    check(pthread_join(thread, NULL), "pthread_join");
    printf("micro op=%s m=%ld seconds=%.4f ns_op=%.2f\n", op->name, rounds, seconds,
           rounds ? seconds * 1e9 / (double)rounds : 0);
    return 0;
}
