/* Echo server on one io_uring: a receive and a send in turn for each connection. */
#include "server.h"
#include <liburing.h>

enum { BUF = 4096, FDS = 20000, ACCEPT = 0, RECV = 1, SEND = 2 };

static struct io_uring ring;
static char *bufs[FDS];

static struct io_uring_sqe *next_sqe(void)
{
    struct io_uring_sqe *sqe;
    while (!(sqe = io_uring_get_sqe(&ring)))
        io_uring_submit(&ring);
    return sqe;
}

static void tag(struct io_uring_sqe *sqe, int fd, unsigned op)
{
    io_uring_sqe_set_data64(sqe, (unsigned long)fd << 2 | op);
}

static void accept_more(int listener)
{
    struct io_uring_sqe *sqe = next_sqe();
    io_uring_prep_multishot_accept(sqe, listener, NULL, NULL, 0);
    tag(sqe, listener, ACCEPT);
}

static void receive(int fd)
{
    struct io_uring_sqe *sqe = next_sqe();
    io_uring_prep_recv(sqe, fd, bufs[fd], BUF, 0);
    tag(sqe, fd, RECV);
}

static void reply(int fd, int len)
{
    struct io_uring_sqe *sqe = next_sqe();
    io_uring_prep_send(sqe, fd, bufs[fd], (size_t)len, MSG_WAITALL | MSG_NOSIGNAL);
    tag(sqe, fd, SEND);
}

static void handle(struct io_uring_cqe *cqe)
{
    int fd = (int)(cqe->user_data >> 2), op = cqe->user_data & 3, res = cqe->res;
    if (op == ACCEPT) {
        if (!(cqe->flags & IORING_CQE_F_MORE))
            accept_more(fd);
        if (res >= FDS)
            close(res);
        else if (res >= 0) {
            if (!bufs[res] && !(bufs[res] = malloc(BUF)))
                check(ENOMEM, "malloc");
            no_delay(res);
            receive(res);
        }
    } else if (res <= 0) {
        close(fd);
    } else if (op == RECV) {
        reply(fd, res);
    } else {
        receive(fd);
    }
}

int main(int argc, char **argv)
{
    if (argc != 2)
        usage("echo_uring PORT");
    struct io_uring_params params = {.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CQSIZE,
                                     .cq_entries = 32768};
    check(-io_uring_queue_init_params(1024, &ring, &params), "io_uring_queue_init");
    accept_more(listen_on(argv[1]));
    for (;;) {
        struct io_uring_cqe *cqe;
        unsigned head, seen = 0;
        io_uring_submit_and_wait(&ring, 1);
        io_uring_for_each_cqe(&ring, head, cqe)
        {
            handle(cqe);
            seen++;
        }
        io_uring_cq_advance(&ring, seen);
    }
}
