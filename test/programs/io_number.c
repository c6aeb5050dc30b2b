/* System calls made by number wait like any: more threads than processors are blocked in each, and all go on.
 */
#include "check.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

enum { KINDS = 12, EACH = 4, N = KINDS * EACH };

static int sockets[N][2], listener;
static struct gate waiting = GATE;

static void *wait_by_number(void *arg)
{
    int id = (int)(intptr_t)arg, fd = sockets[id][0];
    char c[2];
    struct iovec v = {c, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    struct mmsghdr mm = {.msg_hdr = m};
    struct pollfd p = {fd, POLLIN, 0};
    struct timespec t = {50, 0};
    struct timeval tv = {50, 0};
    struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
    fd_set set;

    FD_ZERO(&set);
    FD_SET(fd, &set);
    gate_add(&waiting, 1);
    switch (id % KINDS) {
    case 0:
        EXPECT(syscall(SYS_read, fd, c, 1), 1);
        break;
    case 1:
        EXPECT(syscall(SYS_readv, fd, &v, 1), 1);
        break;
    case 2:
        EXPECT(syscall(SYS_recvfrom, fd, c, 1, 0, NULL, NULL), 1);
        break;
    case 3:
        EXPECT(syscall(SYS_recvmsg, fd, &m, 0), 1);
        break;
    case 4:
        EXPECT(syscall(SYS_recvmmsg, fd, &mm, 1, 0, NULL), 1);
        break;
    case 5:
        EXPECT(syscall(SYS_poll, &p, 1, -1), 1);
        break;
    case 6:
        EXPECT(syscall(SYS_ppoll, &p, 1, &t, NULL, 0), 1);
        CHECK(t.tv_sec < 50); /* the system call says what is left */
        break;
    case 7:
        EXPECT(syscall(SYS_select, fd + 1, &set, NULL, NULL, &tv), 1);
        CHECK(tv.tv_sec < 50);
        break;
    case 8:
        EXPECT(syscall(SYS_pselect6, fd + 1, &set, NULL, NULL, &t, NULL), 1);
        CHECK(t.tv_sec < 50);
        break;
    case 9: {
        int poller = SYS(epoll_create1(0));
        SYS(epoll_ctl(poller, EPOLL_CTL_ADD, fd, &e));
        EXPECT(syscall(SYS_epoll_wait, poller, &e, 1, -1), 1);
        SYS(close(poller));
        break;
    }
    case 10:
        EXPECT(syscall(SYS_preadv2, fd, &v, 1, -1L, -1L, 0), 1);
        break;
    default: {
        static char page[4096];
        struct iovec out = {page, sizeof page};
        struct msghdr mo = {.msg_iov = &out, .msg_iovlen = 1};
        struct mmsghdr mmo = {.msg_hdr = mo};
        for (int i = 0; i < 200; i++) { /* more than there is room for */
            switch (i % 4) {
            case 0:
                EXPECT(syscall(SYS_write, fd, page, sizeof page), (long)sizeof page);
                break;
            case 1:
                EXPECT(syscall(SYS_sendto, fd, page, sizeof page, 0, NULL, 0), (long)sizeof page);
                break;
            case 2:
                EXPECT(syscall(SYS_sendmsg, fd, &mo, 0), (long)sizeof page);
                break;
            default:
                EXPECT(syscall(SYS_sendmmsg, fd, &mmo, 1, 0), 1);
            }
        }
    }
    }
    return NULL;
}

static void *answer(void *arg)
{
    static char data[200 * 4096];

    sleep_us(20000);
    for (int i = 0; i < N; i++) {
        if (i % KINDS == KINDS - 1)
            read_all(sockets[i][1], data, sizeof data);
        else
            write_all(sockets[i][1], "x", 1);
    }
    return arg;
}

int main(void)
{
    pthread_t threads[N];

    begin(20);
    for (int i = 0; i < N; i++) {
        SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets[i]));
        threads[i] = start_number(wait_by_number, i);
    }
    gate_wait(&waiting, N);
    join(start(answer, NULL));
    for (int i = 0; i < N; i++)
        join(threads[i]);
    puts("all");
    EXPECT_ERRNO(syscall(SYS_read, -1, &listener, 1), EBADF);
    return finish();
}
