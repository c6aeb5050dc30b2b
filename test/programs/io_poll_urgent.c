/* What poll and select of one descriptor say of data that is not urgent, of urgent data, and of room: each side waits for
 * the other in turn, so that one of them has to wait each time. */
#include "check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/select.h>
#include <sys/socket.h>

#define ROUNDS 500

enum way { BY_POLL, BY_SELECT, WAYS };

static int ends[2];
static enum way way;

/* Waits until fd has data or urgent data; whether it is urgent. */
static bool urgent(int fd)
{
    if (way == BY_POLL) {
        struct pollfd p = {.fd = fd, .events = POLLIN | POLLPRI | POLLRDBAND};
        EXPECT(poll(&p, 1, 20000), 1);
        CHECK(!(p.revents & ~(POLLIN | POLLPRI)));
        CHECK(p.revents & (POLLIN | POLLPRI));
        return p.revents & POLLPRI;
    }
    fd_set in, except;
    struct timeval limit = {.tv_sec = 20};
    FD_ZERO(&in);
    FD_ZERO(&except);
    FD_SET(fd, &in);
    FD_SET(fd, &except);
    int n = select(fd + 1, &in, NULL, &except, &limit);
    EXPECT(n, FD_ISSET(fd, &in) + FD_ISSET(fd, &except));
    CHECK(n > 0);
    return FD_ISSET(fd, &except);
}

static void *answer(void *arg)
{
    char c;
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(!urgent(ends[1]));
        EXPECT(recv(ends[1], &c, 1, 0), 1);
        EXPECT(send(ends[1], &c, 1, 0), 1);
    }
    CHECK(urgent(ends[1]));
    EXPECT(recv(ends[1], &c, 1, MSG_OOB), 1);
    EXPECT(c, '!');
    EXPECT(send(ends[1], "", 1, 0), 1);
    return arg;
}

static void pair(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(listening >= 0);
    EXPECT(bind(listening, (struct sockaddr *)&address, size), 0);
    EXPECT(listen(listening, 1), 0);
    EXPECT(getsockname(listening, (struct sockaddr *)&address, &size), 0);
    CHECK((ends[0] = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
    EXPECT(connect(ends[0], (struct sockaddr *)&address, size), 0);
    CHECK((ends[1] = accept(listening, NULL, NULL)) >= 0);
    close(listening);
}

static void *ask(void *arg)
{
    char c;
    for (int i = 0; i < ROUNDS; i++) {
        c = (char)i;
        EXPECT(send(ends[0], &c, 1, 0), 1);
        CHECK(!urgent(ends[0]));
        EXPECT(recv(ends[0], &c, 1, 0), 1);
        EXPECT(c, (char)i);
    }
    EXPECT(send(ends[0], "!", 1, MSG_OOB), 1);
    CHECK(!urgent(ends[0]));
    EXPECT(recv(ends[0], &c, 1, 0), 1);
    return arg;
}

/* Room on a socket that was full. */
static void *fill(void *arg)
{
    static char data[1 << 16];
    for (int i = 0; i < 40; i++) {
        struct pollfd p = {.fd = ends[0], .events = POLLOUT | POLLWRBAND};
        EXPECT(poll(&p, 1, 20000), 1);
        EXPECT(p.revents, POLLOUT);
        while (send(ends[0], data, sizeof data, MSG_DONTWAIT) > 0)
            ;
        EXPECT(errno, EAGAIN);
    }
    EXPECT(shutdown(ends[0], SHUT_WR), 0);
    return arg;
}

static void *drain(void *arg)
{
    static char data[1 << 20];
    while (recv(ends[1], data, sizeof data, 0) > 0)
        ;
    return arg;
}

static void both(void *(*one)(void *), void *(*other)(void *))
{
    pair();
    pthread_t first = start(one, NULL), second = start(other, NULL);
    join(first);
    join(second);
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    begin(60);
    for (way = BY_POLL; way < WAYS; way++) {
        both(ask, answer);
        printf("%s: only what is urgent is\n", way == BY_POLL ? "poll" : "select");
    }
    both(fill, drain);
    puts("room is room");
    return finish();
}
