/* SO_RCVTIMEO and SO_SNDTIMEO: EAGAIN, never early, for every call that they apply to; over dup and accept.
 */
#include "check.h"
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>

enum { MS = 20 };

static void set_time(int fd, int option, int ms)
{
    struct timeval t = {ms / 1000, ms % 1000 * 1000}, got;
    socklen_t size = sizeof got;

    SYS(setsockopt(fd, SOL_SOCKET, option, &t, sizeof t));
    SYS(getsockopt(fd, SOL_SOCKET, option, &got, &size));
    EXPECT(got.tv_sec * 1000 + got.tv_usec / 1000, ms);
}

#define EXPECT_TIME_OUT(call)                                                                                                  \
    do {                                                                                                                       \
        int64_t before_ = now_us();                                                                                            \
        EXPECT_ERRNO(call, EAGAIN);                                                                                            \
        /* The kernel counts in its own ticks. */                                                                              \
        if (now_us() - before_ < (MS - 5) * 1000)                                                                              \
            FAIL("%s came back after %lld us", #call, (long long)(now_us() - before_));                                        \
    } while (0)

static void *receive(void *arg)
{
    int s[2];
    char c;
    struct iovec v = {&c, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    struct mmsghdr mm = {.msg_hdr = m};

    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    int before = SYS(dup(s[0]));
    set_time(s[0], SO_RCVTIMEO, MS);
    int after = SYS(dup(s[0]));
    EXPECT_TIME_OUT(read(s[0], &c, 1));
    EXPECT_TIME_OUT(readv(s[0], &v, 1));
    EXPECT_TIME_OUT(recv(before, &c, 1, 0));
    EXPECT_TIME_OUT(recvfrom(after, &c, 1, 0, NULL, NULL));
    EXPECT_TIME_OUT(recvmsg(s[0], &m, 0));
    EXPECT_TIME_OUT(recvmmsg(s[0], &mm, 1, 0, NULL));
    /* What has come is given, when the time is over. */
    char data[10];
    write_all(s[1], "abc", 3);
    EXPECT(recv(s[0], data, sizeof data, MSG_WAITALL), 3);
    write_all(s[1], "d", 1);
    EXPECT(read(s[0], data, sizeof data), 1);
    SYS(close(s[0])), SYS(close(s[1])), SYS(close(before)), SYS(close(after));
    return arg;
}

static void *send_full(void *arg)
{
    static char page[4096];
    int s[2];
    struct iovec v = {page, sizeof page};
    ssize_t n;

    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    set_time(s[1], SO_SNDTIMEO, MS);
    while ((n = send(s[1], page, sizeof page, 0)) > 0)
        ;
    EXPECT(n, -1);
    EXPECT(errno, EAGAIN);
    EXPECT_TIME_OUT(send(s[1], page, sizeof page, 0));
    EXPECT_TIME_OUT(write(s[1], page, sizeof page));
    EXPECT_TIME_OUT(writev(s[1], &v, 1));
    SYS(close(s[0])), SYS(close(s[1]));
    return arg;
}

static void *accepted(void *arg)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    char c;
    int l = SYS(socket(AF_INET, SOCK_STREAM, 0));

    SYS(bind(l, (struct sockaddr *)&at, sizeof at));
    SYS(listen(l, 5));
    SYS(getsockname(l, (struct sockaddr *)&at, &size));
    set_time(l, SO_RCVTIMEO, MS);
    EXPECT_TIME_OUT(accept(l, NULL, NULL));
    EXPECT_TIME_OUT(accept4(l, NULL, NULL, SOCK_CLOEXEC));
    int c1 = SYS(socket(AF_INET, SOCK_STREAM, 0));
    SYS(connect(c1, (struct sockaddr *)&at, sizeof at));
    int a = SYS(accept(l, NULL, NULL));
    EXPECT_TIME_OUT(recv(a, &c, 1, 0)); /* an accepted socket has the listener's */
    set_time(a, SO_RCVTIMEO, 0);        /* and none any more */
    EXPECT(send(c1, "x", 1, 0), 1);
    EXPECT(recv(a, &c, 1, 0), 1);
    SYS(close(a)), SYS(close(c1)), SYS(close(l));
    return arg;
}

int main(void)
{
    begin(20);
    in_threads(16, receive);
    puts("receive");
    in_threads(8, send_full);
    puts("send");
    in_threads(8, accepted);
    puts("accept");
    return finish();
}
