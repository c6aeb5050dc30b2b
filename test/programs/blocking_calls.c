/*
 * Calls that cannot be made to wait otherwise, each blocked in more threads than there are carriers: flock,
 * record locks, waitpid, sigwait, message queues, semop, opening a FIFO. The others go on, and each call
 * returns what it must.
 */
#include "lateness.h"
#include <fcntl.h>
#include <mqueue.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { EACH = 6, KINDS = 7 };

static char directory[] = "/tmp/blocking_calls-XXXXXX", locked[100], record[100], fifo[100];
static int lock_fd, record_fd, queue, sems, release[2];
static mqd_t posix_queue;
static pid_t children[EACH];
static struct gate waiting = GATE;
static sigset_t usr1;

static void *block(void *arg)
{
    int id = (int)(intptr_t)arg, kind = id % KINDS, fd, status, number;
    struct {
        long type;
        char text[8];
    } message;
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct sembuf take = {0, -1, 0};
    char text[8192];

    gate_add(&waiting, 1);
    switch (kind) {
    case 0:
        fd = SYS(open(locked, O_RDWR));
        ZERO(flock(fd, LOCK_EX));
        ZERO(flock(fd, LOCK_UN));
        SYS(close(fd));
        break;
    case 1:
        fd = SYS(open(record, O_RDWR));
        SYS(fcntl(fd, F_OFD_SETLKW, &whole));
        SYS(close(fd));
        break;
    case 2:
        EXPECT(waitpid(children[id / KINDS], &status, 0), children[id / KINDS]);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == id / KINDS);
        break;
    case 3:
        ZERO(sigwait(&usr1, &number));
        EXPECT(number, SIGUSR1);
        break;
    case 4:
        if (id / KINDS % 2) {
            EXPECT(msgrcv(queue, &message, sizeof message.text, 0, 0), 2);
            EXPECT(message.text[0], 'm');
        } else {
            EXPECT(mq_receive(posix_queue, text, sizeof text, NULL), 3);
        }
        break;
    case 5:
        /* EINTR without a handler: the machine, or the process, was stopped for a while (signal(7)). */
        while (semop(sems, &take, 1) != 0)
            EXPECT_ERROR(errno, EINTR);
        break;
    default:
        fd = SYS(open(fifo, O_RDONLY));
        EXPECT(read(fd, text, 1), 0);
        SYS(close(fd));
    }
    return NULL;
}

static void *sleeper(void *arg)
{
    *(int64_t *)arg = worst_of_sleeps(200000, 10);
    return NULL;
}

static int64_t measure(void)
{
    int64_t worst;

    join(start(sleeper, &worst));
    return worst;
}

static void make_all(void)
{
    char name[64];
    struct mq_attr small = {.mq_maxmsg = 5, .mq_msgsize = 100};
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    /* Children that end when the pipe does, before there is any thread. */
    SYS(pipe(release));
    for (int i = 0; i < EACH; i++) {
        if ((children[i] = SYS(fork())) == 0) {
            char c;
            close(release[1]);
            _exit(read(release[0], &c, 1) == 0 ? i : 99);
        }
    }
    CHECK(mkdtemp(directory) != NULL);
    snprintf(locked, sizeof locked, "%s/locked", directory);
    snprintf(record, sizeof record, "%s/record", directory);
    snprintf(fifo, sizeof fifo, "%s/fifo", directory);
    lock_fd = SYS(open(locked, O_RDWR | O_CREAT, 0600));
    ZERO(flock(lock_fd, LOCK_EX));
    record_fd = SYS(open(record, O_RDWR | O_CREAT, 0600));
    SYS(fcntl(record_fd, F_OFD_SETLK, &whole));
    SYS(mkfifo(fifo, 0600));
    queue = SYS(msgget(IPC_PRIVATE, 0600));
    sems = SYS(semget(IPC_PRIVATE, 1, 0600));
    snprintf(name, sizeof name, "/blocking_calls-%d", (int)getpid());
    posix_queue = SYS(mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &small));
    SYS(mq_unlink(name));
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    ZERO(pthread_sigmask(SIG_BLOCK, &usr1, NULL));
}

static void *let_all_go(void *arg)
{
    pthread_t *threads = arg;
    struct {
        long type;
        char text[2];
    } message = {1, "m"};
    struct sembuf give = {0, EACH, 0};

    SYS(close(lock_fd));
    SYS(close(record_fd));
    SYS(close(release[1]));
    for (int i = 0; i < EACH; i++) {
        ZERO(pthread_kill(threads[i * KINDS + 3], SIGUSR1));
        if (i % 2)
            SYS(msgsnd(queue, &message, 2, 0));
        else
            SYS(mq_send(posix_queue, "abc", 3, 0));
    }
    SYS(semop(sems, &give, 1));
    return NULL;
}

/* A time limit that is none is refused even where there is nothing to wait for. */
static void *invalid_limits(void *arg)
{
    const struct timespec invalid[2] = {{0, -1}, {-1, 0}};
    char text[100];

    SYS(mq_send(posix_queue, "abc", 3, 0));
    for (int i = 0; i < 2; i++) {
        EXPECT_ERRNO(mq_timedreceive(posix_queue, text, sizeof text, NULL, &invalid[i]), EINVAL);
        EXPECT_ERRNO(mq_timedsend(posix_queue, "abc", 3, 0, &invalid[i]), EINVAL);
        EXPECT_ERRNO(semtimedop(sems, &(struct sembuf){0, 1, 0}, 1, &invalid[i]), EINVAL);
    }
    EXPECT(mq_receive(posix_queue, text, sizeof text, NULL), 3);
    return arg;
}

int main(void)
{
    pthread_t threads[EACH * KINDS];

    begin(30);
    start_control();
    make_all();
    for (int i = 0; i < EACH * KINDS; i++)
        threads[i] = start_number(block, i);
    gate_wait(&waiting, EACH * KINDS);
    expect_punctual("while all block", measure);
    join(start(let_all_go, threads));
    for (int i = 0; i < EACH * KINDS; i++)
        if (i % KINDS != 6)
            join(threads[i]);
    /* A reader that opens the FIFO after a writer has gone waits for the next: open until all have read its
     * end. */
    for (int i = 6; i < EACH * KINDS; i += KINDS) {
        int fd, error;
        while ((error = pthread_tryjoin_np(threads[i], NULL)) == EBUSY) {
            if ((fd = open(fifo, O_WRONLY | O_NONBLOCK)) >= 0)
                SYS(close(fd));
            else
                EXPECT(errno, ENXIO);
            sched_yield();
        }
        ZERO(error);
    }
    join(start(invalid_limits, NULL));
    SYS(msgctl(queue, IPC_RMID, NULL));
    SYS(semctl(sems, 0, IPC_RMID));
    SYS(unlink(locked)), SYS(unlink(record)), SYS(unlink(fifo)), SYS(rmdir(directory));
    return finish();
}
