/* Built with -D_FORTIFY_SOURCE=3: the checked forms of calls that block and of longjmp, on threads' stacks.
 */
#include "check.h"
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <setjmp.h>
#include <sys/select.h>
#include <sys/socket.h>

enum { THREADS = 16, ROUNDS = 40 };

static struct link {
    int pipe[2], socket[2];
} links[THREADS];

/* Sizes that the compiler does not know, of buffers that it does. */
static volatile size_t one = 1;
static volatile nfds_t one_fd = 1;

__attribute__((noinline, noreturn)) static void jump_from(jmp_buf *to, int depth)
{
    char frame[64];

    memset(frame, depth, sizeof frame);
    __asm__ volatile("" : : "r"(frame) : "memory");
    if (depth == 0) {
        sched_yield();
        longjmp(*to, 3);
    }
    jump_from(to, depth - 1);
}

static void *run(void *arg)
{
    int id = (int)(intptr_t)arg;
    struct link *mine = &links[id], *next = &links[(id + 1) % THREADS];
    char buffer[32], path[PATH_MAX];
    struct pollfd set[1] = {{mine->pipe[0], POLLIN, 0}};
    struct timespec long_time = {100, 0};
    fd_set fds;

    for (int i = 0; i < ROUNDS; i++) {
        write_all(next->pipe[1], "p", 1);
        if (i % 3 == 0)
            EXPECT(poll(set, one_fd, -1), 1);
        else if (i % 3 == 1)
            EXPECT(ppoll(set, one_fd, &long_time, NULL), 1);
        else {
            FD_ZERO(&fds);
            FD_SET(mine->pipe[0], &fds);
            EXPECT(select(mine->pipe[0] + 1, &fds, NULL, NULL, NULL), 1);
            CHECK(FD_ISSET(mine->pipe[0], &fds));
        }
        EXPECT(read(mine->pipe[0], buffer, one), 1);
        EXPECT(buffer[0], 'p');
        EXPECT(send(next->socket[1], "s", 1, 0), 1);
        if (i % 2)
            EXPECT(recv(mine->socket[0], buffer, one, 0), 1);
        else
            EXPECT(recvfrom(mine->socket[0], buffer, one, 0, NULL, NULL), 1);
        EXPECT(buffer[0], 's');
    }
    int file = SYS(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    EXPECT(pread(file, buffer, one + 3, 0), 4);
    EXPECT(memcmp(buffer, "\177ELF", 4), 0);
    SYS(close(file));
    CHECK(getcwd(path, one * PATH_MAX) != NULL);
    CHECK(readlink("/proc/self/exe", path, one * 100) > 0);
    snprintf(path, one * 100, "%d-%s", id, "x");

    jmp_buf here;
    volatile int jumps = 0;
    if (setjmp(here) != 3 || ++jumps < 20)
        jump_from(&here, 10);
    EXPECT(jumps, 20);
    return arg;
}

int main(void)
{
    FILE *f;
    char line[64];

    begin(20);
    for (int i = 0; i < THREADS; i++) {
        SYS(pipe(links[i].pipe));
        SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, links[i].socket));
    }
    in_threads(THREADS, run);
    f = fopen("/proc/self/status", "r");
    CHECK(f && fgets(line, (int)(one * 64), f) && fread(line, one, 4, f) == 4);
    fclose(f);
    return finish();
}
