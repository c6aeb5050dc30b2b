/* Cancellation of calls that wait although that could not be foreseen: of descriptors whose O_NONBLOCK was cleared by way of a
 * duplicate or in a child, and of calls for which others were faster. */
#include "check.h"
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define HERD 4

static int used;
static atomic_int at_work;
static char much[1 << 18];

static void *by_read(void *arg)
{
    char c;
    at_work++;
    read(used, &c, 1);
    return arg;
}

static void *by_readv(void *arg)
{
    char c;
    struct iovec iov = {&c, 1};
    at_work++;
    readv(used, &iov, 1);
    return arg;
}

static void *by_recv(void *arg)
{
    char c;
    at_work++;
    recv(used, &c, 1, 0);
    return arg;
}

static void *by_recvmsg(void *arg)
{
    char c;
    struct iovec iov = {&c, 1};
    struct mmsghdr msg = {.msg_hdr = {.msg_iov = &iov, .msg_iovlen = 1}};
    at_work++;
    if (arg)
        recvmmsg(used, &msg, 1, 0, NULL);
    else
        recvmsg(used, &msg.msg_hdr, 0);
    return arg;
}

static void *by_accept(void *arg)
{
    at_work++;
    accept(used, NULL, NULL);
    return arg;
}

static void *by_write(void *arg)
{
    at_work++;
    while (write(used, much, sizeof much) > 0)
        ;
    return arg;
}

static void *by_send(void *arg)
{
    struct iovec iov = {much, sizeof much};
    struct mmsghdr msg = {.msg_hdr = {.msg_iov = &iov, .msg_iovlen = 1}};
    at_work++;
    while ((arg ? sendmmsg(used, &msg, 1, 0) : sendmsg(used, &msg.msg_hdr, 0)) > 0)
        ;
    return arg;
}

/* One that waits, for sure or soon: either way it must end. */
static void cancel(void *(*call)(void *), void *arg)
{
    const struct timespec a_little = {0, 2000000};
    pthread_t thread;
    void *result;

    at_work = 0;
    ZERO(pthread_create(&thread, NULL, call, arg));
    while (!at_work)
        sched_yield();
    nanosleep(&a_little, NULL);
    ZERO(pthread_cancel(thread));
    ZERO(pthread_join(thread, &result));
    CHECK(result == PTHREAD_CANCELED);
}

/* What is noted of the descriptor is that it does not wait. */
static void use(int fd, int in_child)
{
    SYS(fcntl(fd, F_SETFL, O_NONBLOCK));
    if (in_child) {
        pid_t child = SYS(fork());
        int status;
        if (child == 0)
            _exit(fcntl(fd, F_SETFL, 0) != 0);
        EXPECT(waitpid(child, &status, 0), child);
        EXPECT(status, 0);
    } else {
        int copy = SYS(dup(fd));
        SYS(fcntl(copy, F_SETFL, 0));
        SYS(close(copy));
    }
    used = fd;
}

static int listener(struct sockaddr_in *at)
{
    int fd = SYS(socket(AF_INET, SOCK_STREAM, 0));
    socklen_t length = sizeof *at;

    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    SYS(bind(fd, (struct sockaddr *)at, length));
    SYS(listen(fd, 64));
    SYS(getsockname(fd, (struct sockaddr *)at, &length));
    return fd;
}

static void cancel_all(int in_child)
{
    struct sockaddr_in at;
    int p[2], fd;
    char c;

    SYS(pipe(p));
    use(p[0], in_child);
    cancel(by_read, NULL);
    cancel(by_readv, NULL);
    use(p[1], in_child);
    cancel(by_write, NULL);
    SYS(close(p[0]));
    SYS(close(p[1]));
    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, p));
    use(p[0], in_child);
    cancel(by_read, NULL);
    cancel(by_recv, NULL);
    cancel(by_recvmsg, NULL);
    cancel(by_recvmsg, p);
    cancel(by_send, NULL);
    cancel(by_send, p);
    EXPECT(write(p[1], "x", 1), 1);
    EXPECT(fcntl(p[0], F_SETFL, O_NONBLOCK), 0);
    EXPECT(recv(p[0], &c, 1, MSG_PEEK | MSG_WAITALL), 1);
    SYS(close(p[0]));
    SYS(close(p[1]));
    fd = listener(&at);
    use(fd, in_child);
    cancel(by_accept, NULL);
    SYS(close(fd));
}

/* A non-blocking socket of which that is not known does not wait. */
static void *not_known(void *arg)
{
    struct sockaddr_in at;
    char some[2] = "xy";
    uint64_t too_much = UINT64_MAX;
    int fd = listener(&at), p[2], ev = SYS(eventfd(0, EFD_NONBLOCK));

    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, p));
    for (int i = 0; i < 2; i++) {
        int copy = SYS(dup(p[i]));
        SYS(fcntl(copy, F_SETFL, O_NONBLOCK));
        SYS(close(copy));
    }
    EXPECT_ERRNO(read(p[0], some, 2), EAGAIN);
    EXPECT(send(p[1], some, 1, 0), 1);
    EXPECT(recv(p[0], some, 2, MSG_PEEK), 1);
    EXPECT(recv(p[0], some, 2, MSG_WAITALL), 1);
    EXPECT_ERRNO(recv(p[0], some, 2, MSG_WAITALL | MSG_PEEK), EAGAIN);
    while (write(p[1], much, sizeof much) > 0)
        ;
    EXPECT(errno, EAGAIN);
    SYS(close(SYS(dup(ev))));
    EXPECT_ERRNO(write(ev, &too_much, sizeof too_much), EINVAL);
    too_much--;
    EXPECT(write(ev, &too_much, sizeof too_much), sizeof too_much);
    EXPECT_ERRNO(write(ev, &too_much, sizeof too_much), EAGAIN);
    SYS(close(SYS(dup(fd))));
    SYS(fcntl(fd, F_SETFL, O_NONBLOCK));
    EXPECT_ERRNO(accept(fd, NULL, NULL), EAGAIN);
    SYS(close(p[0]));
    SYS(close(p[1]));
    SYS(close(ev));
    SYS(close(fd));
    return arg;
}

static void *all(void *arg)
{
    cancel_all(0);
    cancel_all(1);
    not_known(arg);
    return arg;
}

/* --- herds ------------------------------------------------------------------------------------------- */

static void *accept_ever(void *arg)
{
    at_work++;
    for (;;)
        SYS(close(SYS(accept(used, NULL, NULL))));
    return arg;
}

static void *read_ever(void *arg)
{
    char some[4096];
    at_work++;
    for (;;)
        CHECK(read(used, some, sizeof some) > 0);
    return arg;
}

static void *fill_ever(void *arg)
{
    uint64_t most = UINT64_MAX - 1;
    at_work++;
    for (;;)
        EXPECT(write(used, &most, sizeof most), sizeof most);
    return arg;
}

static pthread_t herd[HERD];

static void gather(void *(*call)(void *))
{
    at_work = 0;
    for (int i = 0; i < HERD; i++)
        ZERO(pthread_create(&herd[i], NULL, call, NULL));
    while (at_work < HERD)
        sched_yield();
}

static void scatter(void)
{
    for (int i = 0; i < HERD; i++)
        ZERO(pthread_cancel(herd[i]));
    for (int i = 0; i < HERD; i++)
        ZERO(pthread_join(herd[i], NULL));
}

static void herds(void)
{
    char dir[] = "/tmp/cancel_unseenXXXXXX", file[64];
    struct sockaddr_in at;
    uint64_t count;

    used = listener(&at);
    gather(accept_ever);
    for (int i = 0; i < 10; i++) {
        int fd = SYS(socket(AF_INET, SOCK_STREAM, 0));
        SYS(connect(fd, (struct sockaddr *)&at, sizeof at));
        SYS(close(fd));
    }
    scatter();
    SYS(close(used));

    CHECK(mkdtemp(dir));
    snprintf(file, sizeof file, "%s/x", dir);
    used = SYS(inotify_init());
    SYS(inotify_add_watch(used, dir, IN_CREATE));
    gather(read_ever);
    for (int i = 0; i < 10; i++) {
        SYS(close(SYS(open(file, O_CREAT | O_WRONLY, 0600))));
        SYS(unlink(file));
    }
    scatter();
    SYS(close(used));
    SYS(rmdir(dir));

    used = SYS(eventfd(0, 0));
    gather(fill_ever);
    for (int i = 0; i < 10; i++)
        EXPECT(read(used, &count, sizeof count), sizeof count);
    scatter();
    SYS(close(used));
}

int main(void)
{
    pthread_t thread;

    begin(30);
    ZERO(pthread_create(&thread, NULL, all, NULL));
    ZERO(pthread_join(thread, NULL));
    for (int i = 0; i < 10; i++)
        herds();
    return finish();
}
