/* A web server of libmicrohttpd with a thread for each connection: files of a folder, and an echo of what is posted.
 *
 * microhttpd PORT FOLDER */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct posted {
    char *data;
    size_t size;
};

static const char *folder;

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned status, struct MHD_Response *response)
{
    if (!response)
        return MHD_NO;
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result handle(void *cls, struct MHD_Connection *connection, const char *url, const char *method,
                              const char *version, const char *data, size_t *size, void **state)
{
    (void)cls, (void)version;
    struct posted *posted = *state;
    if (!posted) {
        *state = calloc(1, sizeof *posted);
        return *state ? MHD_YES : MHD_NO;
    }
    if (!strcmp(method, "POST")) {
        if (*size) {
            char *more = realloc(posted->data, posted->size + *size);
            if (!more)
                return MHD_NO;
            memcpy(more + posted->size, data, *size);
            posted->data = more;
            posted->size += *size;
            *size = 0;
            return MHD_YES;
        }
        return answer(connection, MHD_HTTP_OK,
                      MHD_create_response_from_buffer(posted->size, posted->data, MHD_RESPMEM_MUST_COPY));
    }
    char path[4096];
    struct stat st;
    snprintf(path, sizeof path, "%s%s", folder, url);
    int fd = strstr(url, "..") ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        static char missing[] = "not here\n";
        if (fd >= 0)
            close(fd);
        return answer(connection, MHD_HTTP_NOT_FOUND,
                      MHD_create_response_from_buffer(strlen(missing), missing, MHD_RESPMEM_PERSISTENT));
    }
    return answer(connection, MHD_HTTP_OK, MHD_create_response_from_fd64((uint64_t)st.st_size, fd));
}

static void completed(void *cls, struct MHD_Connection *connection, void **state, enum MHD_RequestTerminationCode code)
{
    (void)cls, (void)connection, (void)code;
    struct posted *posted = *state;
    if (posted)
        free(posted->data);
    free(posted);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: %s PORT FOLDER\n", argv[0]);
        return 2;
    }
    folder = argv[2];
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    sigset_t end;
    int got;
    sigemptyset(&end);
    sigaddset(&end, SIGTERM);
    sigaddset(&end, SIGINT);
    pthread_sigmask(SIG_BLOCK, &end, NULL);
    signal(SIGPIPE, SIG_IGN);
    struct MHD_Daemon *daemon =
        MHD_start_daemon(MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_AUTO | MHD_USE_ERROR_LOG, 0,
                         NULL, NULL, handle, NULL, MHD_OPTION_SOCK_ADDR, &address, MHD_OPTION_NOTIFY_COMPLETED, completed, NULL,
                         MHD_OPTION_LISTENING_ADDRESS_REUSE, 1u, MHD_OPTION_CONNECTION_LIMIT, 2000u, MHD_OPTION_END);
    if (!daemon) {
        fprintf(stderr, "cannot start: %s\n", strerror(errno));
        return 1;
    }
    sigwait(&end, &got);
    MHD_stop_daemon(daemon);
    return 0;
}
