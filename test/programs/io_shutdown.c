/* shutdown and the peer's close while another thread is blocked; a number that is used again at once. */
#include "check.h"
#include <netinet/in.h>
#include <sys/socket.h>

enum { ROUNDS = 100 };

static struct gate blocked = GATE;
static int fd_of[2], listener;

static void *receive_end(void *arg)
{
    char c;

    gate_add(&blocked, 1);
    EXPECT(recv(fd_of[0], &c, 1, 0), 0);
    return arg;
}

static void *send_to_end(void *arg)
{
    static char page[4096];
    ssize_t n;

    gate_add(&blocked, 1);
    while ((n = send(fd_of[0], page, sizeof page, MSG_NOSIGNAL)) > 0)
        ;
    EXPECT(n, -1);
    EXPECT(errno, EPIPE);
    return arg;
}

static void *accept_end(void *arg)
{
    gate_add(&blocked, 1);
    EXPECT_ERRNO(accept(listener, NULL, NULL), EINVAL);
    return arg;
}

static void rounds(const char *name, void *(*run)(void *), int how)
{
    for (int i = 0; i < ROUNDS; i++) {
        SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, fd_of));
        blocked.count = 0;
        pthread_t a = start(run, NULL), b = start(run, NULL);
        gate_wait(&blocked, 2);
        if (i % 2)
            sched_yield();
        if (i % 4 == 3)
            sleep_us(200);
        if (how < 0)
            SYS(close(fd_of[1]));
        else
            SYS(shutdown(fd_of[0], how));
        join(a);
        join(b);
        SYS(close(fd_of[0]));
        if (how >= 0)
            SYS(close(fd_of[1]));
    }
    puts(name);
}

static void *read_own(void *arg)
{
    char c;

    EXPECT(read((int)(intptr_t)arg, &c, 1), 1);
    EXPECT(c, 'n');
    return NULL;
}

/* The same number for a new pipe: nothing of the old one is seen through it. */
static void *use_again(void *arg)
{
    for (int i = 0; i < ROUNDS; i++) {
        int old[2], new[2];
        char c;
        SYS(pipe(old));
        write_all(old[1], "oo", 2);
        EXPECT(read(old[0], &c, 1), 1);
        EXPECT(c, 'o');
        SYS(pipe(new));
        SYS(dup2(new[0], old[0]));
        pthread_t t = start_number(read_own, old[0]);
        if (i % 2)
            sched_yield();
        EXPECT(write(new[1], "n", 1), 1);
        join(t);
        SYS(close(old[0])), SYS(close(old[1])), SYS(close(new[0])), SYS(close(new[1]));
    }
    return arg;
}

int main(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    begin(20);
    rounds("shutdown of reading", receive_end, SHUT_RD);
    rounds("shutdown of writing", send_to_end, SHUT_WR);
    rounds("the peer closes", receive_end, -1);
    for (int i = 0; i < ROUNDS; i++) {
        listener = SYS(socket(AF_INET, SOCK_STREAM, 0));
        SYS(bind(listener, (struct sockaddr *)&at, sizeof at));
        SYS(listen(listener, 5));
        blocked.count = 0;
        pthread_t a = start(accept_end, NULL), b = start(accept_end, NULL);
        gate_wait(&blocked, 2);
        if (i % 2)
            sleep_us(200);
        SYS(shutdown(listener, SHUT_RD));
        join(a);
        join(b);
        SYS(close(listener));
    }
    puts("shutdown of a listener");
    in_threads(4, use_again);
    puts("used again");
    return finish();
}
