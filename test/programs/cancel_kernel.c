/* Cancellation of threads that wait in calls which are the kernel's as they are: FIFOs that are opened, record locks,
 * message queues, local sockets, children. Cancelled at once, a moment later, and when they have been waiting for some
 * time, they end there. cancel_kernel POINT OPENS: that one alone, after so many files have been opened. */
#include "check.h"
#include <fcntl.h>
#include <mqueue.h>
#include <signal.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

static char directory[] = "/tmp/cancel_kernel-XXXXXX", fifo[100], file[100];
static int locked, queue, full_queue, datagrams[2], full, messages[2], release[2], pseudo;
static mqd_t posix_queue, full_posix_queue;
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static pid_t child;
static sem_t *shared;

static struct message {
    long type;
    char text[2000];
} message = {.type = 1};

static void at_open_read(void)
{
    SYS(open(fifo, O_RDONLY));
}

static void at_open_write(void)
{
    SYS(openat(AT_FDCWD, fifo, O_WRONLY));
}

static void at_creat(void)
{
    SYS(creat(fifo, 0600));
}

static void at_record(void)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = SYS(open(file, O_RDWR));
    SYS(fcntl(fd, F_OFD_SETLKW, &whole));
}

static void at_msgrcv(void)
{
    struct message m;
    SYS(msgrcv(queue, &m, sizeof m.text, 0, 0));
}

static void at_msgsnd(void)
{
    SYS(msgsnd(full_queue, &message, sizeof message.text, 0));
}

static void at_mq_receive(void)
{
    char text[100];
    SYS(mq_receive(posix_queue, text, sizeof text, NULL));
}

static void at_mq_send(void)
{
    SYS(mq_send(full_posix_queue, "abc", 3, 0));
}

static void at_connect(void)
{
    SYS(connect(SYS(socket(AF_UNIX, SOCK_STREAM, 0)), (struct sockaddr *)&address, sizeof address));
}

static void at_send_datagram(void)
{
    SYS(send(datagrams[0], "abc", 3, 0));
}

static void at_sendmsg_datagram(void)
{
    struct iovec iov = {(void *)"abc", 3};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    SYS(sendmsg(datagrams[0], &m, 0));
}

static void at_recvmsg(void)
{
    char text[10];
    struct iovec iov = {text, sizeof text};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    SYS(recvmsg(messages[0], &m, MSG_WAITALL));
}

static void at_waitpid(void)
{
    SYS(waitpid(child, NULL, 0));
}

static void at_waitid(void)
{
    siginfo_t info;
    SYS(waitid(P_PID, (id_t)child, &info, WEXITED));
}

static void at_wait_own(void)
{
    SYS(waitpid(-1, NULL, __WALL));
}

static void at_terminal(void)
{
    char byte;
    SYS(read(pseudo, &byte, 1));
}

static void at_shared_semaphore(void)
{
    SYS(sem_wait(shared));
}

static void at_sigtimedwait(void)
{
    struct timespec long_time = {1000, 0};
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    SYS(sigtimedwait(&set, NULL, &long_time));
}

static const struct point {
    const char *name;
    void (*block)(void);
} points[] = {
    {"open for reading", at_open_read},
    {"open for writing", at_open_write},
    {"creat", at_creat},
    {"fcntl", at_record},
    {"msgrcv", at_msgrcv},
    {"msgsnd", at_msgsnd},
    {"mq_receive", at_mq_receive},
    {"mq_send", at_mq_send},
    {"connect", at_connect},
    {"send", at_send_datagram},
    {"sendmsg", at_sendmsg_datagram},
    {"recvmsg", at_recvmsg},
    {"waitpid", at_waitpid},
    {"waitid", at_waitid},
    {"waitpid for any", at_wait_own},
    {"read of a terminal", at_terminal},
    {"sem_wait of a shared semaphore", at_shared_semaphore},
    {"sigtimedwait", at_sigtimedwait},
};

enum { POINTS = sizeof points / sizeof *points, TURNS = 12 };

static struct gate started = GATE;
static _Atomic int cleaned;

static void clean(void *arg)
{
    (void)arg;
    cleaned++;
}

static void *blocked(void *arg)
{
    const struct point *p = arg;
    pthread_cleanup_push(clean, NULL);
    gate_add(&started, 1);
    p->block();
    FAIL("%s returned in a thread that was cancelled", p->name);
    pthread_cleanup_pop(0);
    return NULL;
}

static void cancel_at(const struct point *p)
{
    static long count;
    cleaned = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        struct timespec enough;
        void *result;
        pthread_t thread = start(blocked, (void *)p);
        gate_wait(&started, ++count);
        if (turn % 4)
            sleep_us(turn % 4 == 1 ? 50 : turn % 4 == 2 ? 1000 : 5000);
        ZERO(pthread_cancel(thread));
        clock_gettime(CLOCK_REALTIME, &enough);
        enough.tv_sec += 30;
        int error = pthread_timedjoin_np(thread, &result, &enough);
        if (error)
            FAIL("%s, turn %d: the thread has not ended (%s)", p->name, turn, error_name(error));
        CHECK(result == PTHREAD_CANCELED);
    }
    EXPECT(cleaned, TURNS);
    puts(p->name);
}

static void make_all(void)
{
    struct mq_attr small = {.mq_maxmsg = 2, .mq_msgsize = 100};
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    sigset_t set;
    char name[64], byte = 0;

    CHECK(mkdtemp(directory) != NULL);
    snprintf(fifo, sizeof fifo, "%s/fifo", directory);
    snprintf(file, sizeof file, "%s/file", directory);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", directory);
    SYS(mkfifo(fifo, 0600));
    locked = SYS(open(file, O_RDWR | O_CREAT, 0600));
    SYS(fcntl(locked, F_OFD_SETLK, &whole));
    queue = SYS(msgget(IPC_PRIVATE, 0600));
    full_queue = SYS(msgget(IPC_PRIVATE, 0600));
    while (msgsnd(full_queue, &message, sizeof message.text, IPC_NOWAIT) == 0)
        ;
    snprintf(name, sizeof name, "/cancel_kernel-%d", (int)getpid());
    posix_queue = SYS(mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &small));
    SYS(mq_unlink(name));
    full_posix_queue = SYS(mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &small));
    SYS(mq_unlink(name));
    for (int i = 0; i < 2; i++)
        SYS(mq_send(full_posix_queue, "abc", 3, 0));
    full = SYS(socket(AF_UNIX, SOCK_STREAM, 0));
    SYS(bind(full, (struct sockaddr *)&address, sizeof address));
    SYS(listen(full, 0));
    int fd;
    do
        fd = SYS(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
    while (connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    EXPECT(errno, EAGAIN);
    SYS(socketpair(AF_UNIX, SOCK_DGRAM, 0, datagrams));
    while (send(datagrams[0], &byte, 1, MSG_DONTWAIT) == 1)
        ;
    SYS(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, messages));
    SYS(pipe(release));
    if ((child = SYS(fork())) == 0) {
        close(release[1]);
        _exit((int)read(release[0], &byte, 1));
    }
    pseudo = SYS(posix_openpt(O_RDWR | O_NOCTTY));
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    ZERO(sem_init(shared, 1, 0));
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    ZERO(pthread_sigmask(SIG_BLOCK, &set, NULL));
}

static void *open_files(void *arg)
{
    for (long i = 0; i < (long)(intptr_t)arg; i++)
        SYS(close(SYS(open(file, O_RDONLY))));
    return arg;
}

int main(int argc, char **argv)
{
    int status;

    begin(100);
    make_all();
    join(start_number(open_files, argument(argc, argv, 2, 0)));
    for (long i = 0; i < POINTS; i++)
        if (argument(argc, argv, 1, i) == i)
            cancel_at(&points[i]);
    SYS(close(release[1]));
    EXPECT(waitpid(child, &status, 0), child);
    EXPECT(status, 0);
    SYS(msgctl(queue, IPC_RMID, NULL));
    SYS(msgctl(full_queue, IPC_RMID, NULL));
    SYS(unlink(fifo)), SYS(unlink(file)), SYS(unlink(address.sun_path)), SYS(rmdir(directory));
    return finish();
}
