/*
 * More threads that block where nothing but a kernel thread can wait than a limit on carriers would allow: in flock, in
 * semop, in the kernel's futex called by the program's own instructions. What lets them go comes from threads
 * of the same program, which must therefore run. Arguments: how many of the first and second kind, of the third.
 */
#include "check.h"
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/syscall.h>

static char path[] = "/tmp/many_blocked-XXXXXX";
static int holder, sems, go;
static struct gate coming = GATE, gone = GATE;

/* Not through libc, so that nobody can see it. */
static long futex(int *word, int operation, int value)
{
    long ret;
#ifdef __x86_64__
    register long timeout __asm__("r10") = 0;
    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "a"((long)SYS_futex), "D"(word), "S"((long)operation), "d"((long)value), "r"(timeout)
                     : "rcx", "r11", "memory");
#else
    ret = syscall(SYS_futex, word, operation, value, NULL, NULL, 0);
#endif
    return ret;
}

static void *in_flock(void *arg)
{
    int fd = SYS(open(path, O_RDWR));

    gate_add(&coming, 1);
    ZERO(flock(fd, LOCK_SH));
    SYS(close(fd));
    gate_add(&gone, 1);
    return arg;
}

static void *in_semop(void *arg)
{
    struct sembuf take = {0, -1, 0};

    gate_add(&coming, 1);
    while (semop(sems, &take, 1) != 0)
        EXPECT_ERROR(errno, EINTR); /* the process was stopped for a while (signal(7)) */
    gate_add(&gone, 1);
    return arg;
}

static void *in_futex(void *arg)
{
    gate_add(&coming, 1);
    while (!__atomic_load_n(&go, __ATOMIC_ACQUIRE))
        futex(&go, FUTEX_WAIT_PRIVATE, 0);
    gate_add(&gone, 1);
    return arg;
}

static void *let_go(void *arg)
{
    struct sembuf give = {0, 1, 0};
    int each = (int)(intptr_t)arg;

    gate_wait(&coming, 2 * each);
    sleep_us(1000);
    SYS(flock(holder, LOCK_UN));
    gate_wait(&gone, each);
    puts("flock");
    for (int i = 0; i < each; i++) {
        SYS(semop(sems, &give, 1));
        sleep_us(10);
    }
    gate_wait(&gone, 2 * each);
    puts("semop");
    return arg;
}

static void *let_futex_go(void *arg)
{
    gate_wait(&coming, (long)(intptr_t)arg);
    sleep_us(1000);
    __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
    futex(&go, FUTEX_WAKE_PRIVATE, 1 << 30);
    return arg;
}

int main(int argc, char **argv)
{
    int each = (int)argument(argc, argv, 1, 150), futexes = (int)argument(argc, argv, 2, 30);
    pthread_t *threads = calloc((size_t)(2 * each + futexes), sizeof *threads);

    begin(60);
    CHECK(threads != NULL);
    holder = SYS(mkstemp(path));
    ZERO(flock(holder, LOCK_EX));
    sems = SYS(semget(IPC_PRIVATE, 1, 0600));
    for (int i = 0; i < 2 * each; i++)
        threads[i] = start(i % 2 ? in_semop : in_flock, NULL);
    join(start_number(let_go, each));
    for (int i = 0; i < 2 * each; i++)
        join(threads[i]);
    coming.count = 0;
    for (int i = 0; i < futexes; i++)
        threads[i] = start(in_futex, NULL);
    join(start_number(let_futex_go, futexes));
    for (int i = 0; i < futexes; i++)
        join(threads[i]);
    puts("futex");
    SYS(semctl(sems, 0, IPC_RMID));
    SYS(unlink(path));
    SYS(close(holder));
    free(threads);
    return finish();
}
