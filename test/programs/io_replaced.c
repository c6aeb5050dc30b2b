/* Threads receive with a time limit by a number that is closed and given to another socket all the time: each call finds one
 * of the two or none, and ends within its limit. */
#include "check.h"

#include <sys/socket.h>

enum { READERS = 8, CALLS = 300 };

static int first[2], second[2], number;
static _Atomic int running = READERS;

static void *receives(void *arg)
{
    struct iovec iov;
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    char byte;

    iov.iov_base = &byte;
    iov.iov_len = 1;
    for (int i = 0; i < CALLS; i++) {
        ssize_t n = -1;
        switch ((i + (intptr_t)arg) % 3) {
        case 0:
            n = read(number, &byte, 1);
            break;
        case 1:
            n = recv(number, &byte, 1, 0);
            break;
        case 2:
            n = recvmsg(number, &message, 0);
            break;
        }
        int error = errno;
        EXPECT(n, -1);
        if (error != EAGAIN && error != EBADF)
            FAIL("%s", error_name(error));
    }
    running--;
    return arg;
}

int main(void)
{
    struct timeval limit = {0, 1000};
    pthread_t threads[READERS];

    begin(40);
    ZERO(socketpair(AF_UNIX, SOCK_STREAM, 0, first));
    ZERO(socketpair(AF_UNIX, SOCK_STREAM, 0, second));
    ZERO(setsockopt(first[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    ZERO(setsockopt(second[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    number = SYS(dup(first[0]));
    for (long i = 0; i < READERS; i++)
        threads[i] = start_number(receives, i);
    for (unsigned i = 0; running; i++) {
        close(number);
        if (i % 3 == 0)
            sched_yield();
        EXPECT(dup2(i % 2 ? first[0] : second[0], number), number);
        if (i % 64 == 0)
            sleep_us(100);
    }
    for (int i = 0; i < READERS; i++)
        join(threads[i]);
    return finish();
}
