#include "sockets.h"

#include "target.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- sockets by inode ----------------------------------------------------------------------------------- */

static struct socket {
    unsigned long inode;
    char *text;
} * sockets;
static size_t nsockets, capacity;

static void add(unsigned long inode, const char *text)
{
    if (!inode)
        return;
    sockets = xgrow(sockets, &capacity, nsockets + 1, sizeof *sockets);
    sockets[nsockets++] = (struct socket){inode, strdup(text)};
}

/* An address as /proc/net has it: words in the machine's byte order, in hexadecimal, and the port. */
static void address(const char *hex, char *to, size_t size)
{
    uint32_t words[4];
    unsigned port = 0, n = 0;
    char text[INET6_ADDRSTRLEN] = "?";
    while (n < 4 && sscanf(hex, "%8x", &words[n]) == 1) {
        hex += 8;
        n++;
        if (*hex == ':')
            break;
    }
    sscanf(hex, ":%x", &port);
    inet_ntop(n == 4 ? AF_INET6 : AF_INET, words, text, sizeof text);
    snprintf(to, size, n == 4 ? "[%s]:%u" : "%s:%u", text, port);
}

static void read_internet(const char *kind)
{
    char path[64], line[512], text[256], local[80], remote[80];
    snprintf(path, sizeof path, "/proc/%d/task/%d/net/%s", target.pid, target.reader, kind);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        char from[64], to[64];
        unsigned state;
        unsigned long inode;
        if (sscanf(line, " %*[^:]: %63s %63s %x %*s %*s %*s %*s %*s %lu", from, to, &state, &inode) != 4)
            continue;
        address(from, local, sizeof local);
        address(to, remote, sizeof remote);
        if (state == 10) /* TCP_LISTEN, include/net/tcp_states.h */
            snprintf(text, sizeof text, "%s listening at %s", kind, local);
        else if (strspn(to, "0") == strcspn(to, ":"))
            snprintf(text, sizeof text, "%s at %s", kind, local);
        else
            snprintf(text, sizeof text, "%s at %s, peer %s", kind, local, remote);
        add(inode, text);
    }
    if (f)
        fclose(f);
}

static void read_local(void)
{
    char path[64], line[512], text[256];
    snprintf(path, sizeof path, "/proc/%d/task/%d/net/unix", target.pid, target.reader);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        unsigned long inode;
        int at = 0;
        if (sscanf(line, "%*s %*s %*s %*s %*s %*s %lu %n", &inode, &at) != 1)
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(text, sizeof text, at && line[at] ? "unix socket %s" : "unix socket", line + at);
        add(inode, text);
    }
    if (f)
        fclose(f);
}

static int by_inode(const void *a, const void *b)
{
    unsigned long x = ((const struct socket *)a)->inode, y = ((const struct socket *)b)->inode;
    return x < y ? -1 : x > y;
}

static const char *socket_text(unsigned long inode)
{
    static bool read;
    if (!read) {
        read = true;
        read_internet("tcp");
        read_internet("tcp6");
        read_internet("udp");
        read_internet("udp6");
        read_local();
        qsort(sockets, nsockets, sizeof *sockets, by_inode);
    }
    struct socket key = {inode, NULL};
    const struct socket *s = nsockets ? bsearch(&key, sockets, nsockets, sizeof *sockets, by_inode) : NULL;
    return s ? s->text : "socket";
}

/* --- descriptors ---------------------------------------------------------------------------------------- */

const char *descriptor_text(int fd)
{
    static const char **known;
    static size_t nknown;
    char path[64], link[1024];
    unsigned long inode;
    if (!target.live || fd < 0)
        return NULL;
    if ((size_t)fd >= nknown) {
        size_t n = (size_t)fd + 1024;
        known = realloc(known, n * sizeof *known);
        if (!known)
            die(1, "no memory");
        memset(known + nknown, 0, (n - nknown) * sizeof *known);
        nknown = n;
    }
    if (!known[fd]) {
        snprintf(path, sizeof path, "/proc/%d/task/%d/fd/%d", target.pid, target.reader, fd);
        ssize_t n = readlink(path, link, sizeof link - 1);
        link[n > 0 ? n : 0] = '\0';
        if (n <= 0)
            known[fd] = "";
        else
            known[fd] = sscanf(link, "socket:[%lu]", &inode) == 1 ? socket_text(inode) : strdup(link);
    }
    return *known[fd] ? known[fd] : NULL;
}
