/* A thread that accepts hundreds of connections that are there already, on a socket of each kind, gets them in the order in
 * which they were made; then as many that come one at a time, and it always has to wait. Whoever accepts must not go behind all
 * that can run for each of what is there (test/counters counts). accept_queued queued: the first part alone. */
#include "check.h"
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { CONNECTIONS = 300 };

static struct sockaddr_storage address;
static socklen_t length;
static int listener;
static struct gate accepted = GATE;

static int connected(int32_t number)
{
    int fd = SYS(socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    SYS(connect(fd, (struct sockaddr *)&address, length));
    EXPECT(write(fd, &number, sizeof number), sizeof number);
    return fd;
}

static void *accept_all(void *arg)
{
    for (int32_t i = 0; i < CONNECTIONS; i++) {
        int32_t number = -1;
        int fd = SYS(accept(listener, NULL, NULL));
        EXPECT(recv(fd, &number, sizeof number, 0), sizeof number);
        EXPECT(number, i);
        SYS(close(fd));
        gate_add(&accepted, 1);
    }
    return arg;
}

static void make(int family)
{
    struct sockaddr_in *in = (void *)&address;
    struct sockaddr_un *un = (void *)&address;
    memset(&address, 0, sizeof address);
    address.ss_family = (sa_family_t)family;
    if (family == AF_INET)
        in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    else /* a name that is nobody else's, outside the file system */
        snprintf(un->sun_path + 1, sizeof un->sun_path - 1, "accept_queued-%d", (int)getpid());
    listener = SYS(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    SYS(bind(listener, (struct sockaddr *)&address, family == AF_INET ? sizeof *in : sizeof *un));
    SYS(listen(listener, CONNECTIONS));
    length = sizeof address;
    SYS(getsockname(listener, (struct sockaddr *)&address, &length));
}

static void queued(void)
{
    int fds[CONNECTIONS];
    for (int32_t i = 0; i < CONNECTIONS; i++)
        fds[i] = connected(i);
    join(start(accept_all, NULL));
    for (int i = 0; i < CONNECTIONS; i++)
        SYS(close(fds[i]));
    accepted.count = 0;
}

static void one_at_a_time(void)
{
    pthread_t thread = start(accept_all, NULL);
    for (int32_t i = 0; i < CONNECTIONS; i++) {
        int fd = connected(i);
        gate_wait(&accepted, i + 1);
        SYS(close(fd));
    }
    join(thread);
    accepted.count = 0;
}

int main(int argc, char **argv)
{
    (void)argv;
    begin(60);
    for (int i = 0; i < 2; i++) {
        make(i ? AF_UNIX : AF_INET);
        queued();
        if (argc == 1)
            one_at_a_time();
        SYS(close(listener));
    }
    return finish();
}
