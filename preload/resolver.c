/* Look-ups of names, addresses, users and services: libc makes connections, reads files and loads modules for
 * them, out of our sight. The place is handed over meanwhile, at once where the network is asked as a rule.
 */
#include "call.h"

#include <aliases.h>
#include <arpa/inet.h>
#include <grp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pwd.h>
#include <resolv.h>
#include <rpc/netdb.h>
#include <shadow.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>
#include <wordexp.h>

#define HANDED VT_HANDED_FUNCTION

/* Where a small file is read as a rule, the place is kept, unless another such call is under way or the last
 * one has taken long (a directory service, a remote file). */
struct vt_lookup {
    _Atomic int running;
    _Atomic bool slow;
};

#define LONG_NS UINT64_C(500000)

static bool lookup_begin(struct vt_lookup *l)
{
    return atomic_fetch_add_explicit(&l->running, 1, memory_order_relaxed) > 0 ||
           atomic_load_explicit(&l->slow, memory_order_relaxed);
}

static void lookup_end(struct vt_lookup *l, uint64_t start)
{
    atomic_fetch_sub_explicit(&l->running, 1, memory_order_relaxed);
    atomic_store_explicit(&l->slow, vt_now() - start > LONG_NS, memory_order_relaxed);
}

#define HANDED_IF_SLOW(type, name, parameters, arguments)                                                                      \
    VT_EXPORT type name parameters                                                                                             \
    {                                                                                                                          \
        static struct vt_lookup lookup;                                                                                        \
        if (!vt_on() || !vt_is_virtual())                                                                                      \
            return vt_real(name) arguments;                                                                                    \
        vt_cancel_point();                                                                                                     \
        uint64_t start = vt_now();                                                                                             \
        type ret = lookup_begin(&lookup) ? VT_HANDED(#name, vt_real(name) arguments) : vt_real(name) arguments;                \
        lookup_end(&lookup, start);                                                                                            \
        return ret;                                                                                                            \
    }

/* An address in figures, or none: nobody is asked. What else libc takes for one is handed over. */
static bool in_figures(const char *node)
{
    unsigned char address[sizeof(struct in6_addr)];
    return !node || inet_pton(AF_INET, node, address) == 1 || inet_pton(AF_INET6, node, address) == 1;
}

/* A service in figures, or none: it is not looked up. */
static bool is_number(const char *service)
{
    return !service || service[strspn(service, "0123456789")] == 0;
}

VT_EXPORT int getaddrinfo(const char *restrict node, const char *restrict service, const struct addrinfo *restrict hints,
                          struct addrinfo **restrict result)
{
    int flags = hints ? hints->ai_flags : 0;
    if (!vt_on() || !vt_is_virtual())
        return vt_real(getaddrinfo)(node, service, hints, result);
    vt_cancel_point();
    /* For names in other alphabets libc loads a library, for the canonical name it may ask. */
    if (!(flags & (AI_IDN | AI_CANONIDN | AI_CANONNAME)) && is_number(service) &&
        ((flags & AI_NUMERICHOST) || in_figures(node)))
        return vt_real(getaddrinfo)(node, service, hints, result);
    return VT_HANDED("getaddrinfo", vt_real(getaddrinfo)(node, service, hints, result));
}

VT_EXPORT int getnameinfo(const struct sockaddr *restrict addr, socklen_t length, char *restrict host, socklen_t host_length,
                          char *restrict service, socklen_t service_length, int flags)
{
    if (!vt_on() || !vt_is_virtual())
        return vt_real(getnameinfo)(addr, length, host, host_length, service, service_length, flags);
    vt_cancel_point();
    bool ask_host = host && host_length && !(flags & NI_NUMERICHOST);
    bool ask_service = service && service_length && !(flags & NI_NUMERICSERV);
    /* Figures made into text: a server does so for each connection. */
    if (!ask_host && !ask_service)
        return vt_real(getnameinfo)(addr, length, host, host_length, service, service_length, flags);
    return VT_HANDED("getnameinfo", vt_real(getnameinfo)(addr, length, host, host_length, service, service_length, flags));
}

HANDED(int, getaddrinfo_a, (int mode, struct gaicb *list[restrict], int n, struct sigevent *restrict event),
       (mode, list, n, event))
HANDED(int, gai_suspend, (const struct gaicb *const list[], int n, const struct timespec *timeout), (list, n, timeout))

HANDED(struct hostent *, gethostbyname, (const char *name), (name))
HANDED(struct hostent *, gethostbyname2, (const char *name, int family), (name, family))
HANDED(struct hostent *, gethostbyaddr, (const void *addr, socklen_t length, int family), (addr, length, family))
HANDED(int, gethostbyname_r,
       (const char *restrict name, struct hostent *restrict entry, char *restrict buf, size_t size,
        struct hostent **restrict result, int *restrict error),
       (name, entry, buf, size, result, error))
HANDED(int, gethostbyname2_r,
       (const char *restrict name, int family, struct hostent *restrict entry, char *restrict buf, size_t size,
        struct hostent **restrict result, int *restrict error),
       (name, family, entry, buf, size, result, error))
HANDED(int, gethostbyaddr_r,
       (const void *restrict addr, socklen_t length, int family, struct hostent *restrict entry, char *restrict buf,
        size_t size, struct hostent **restrict result, int *restrict error),
       (addr, length, family, entry, buf, size, result, error))
HANDED_IF_SLOW(struct hostent *, gethostent, (void), ())
HANDED_IF_SLOW(int, gethostent_r,
               (struct hostent *restrict entry, char *restrict buf, size_t size, struct hostent **restrict result,
                int *restrict error),
               (entry, buf, size, result, error))
HANDED_IF_SLOW(struct netent *, getnetent, (void), ())
HANDED_IF_SLOW(int, getnetent_r,
               (struct netent *restrict entry, char *restrict buf, size_t size, struct netent **restrict result,
                int *restrict error),
               (entry, buf, size, result, error))
HANDED_IF_SLOW(struct servent *, getservent, (void), ())
HANDED_IF_SLOW(int, getservent_r,
               (struct servent *restrict entry, char *restrict buf, size_t size, struct servent **restrict result),
               (entry, buf, size, result))
HANDED_IF_SLOW(struct protoent *, getprotoent, (void), ())
HANDED_IF_SLOW(int, getprotoent_r,
               (struct protoent *restrict entry, char *restrict buf, size_t size, struct protoent **restrict result),
               (entry, buf, size, result))
HANDED_IF_SLOW(struct rpcent *, getrpcbyname, (const char *name), (name))
HANDED_IF_SLOW(struct rpcent *, getrpcbynumber, (int number), (number))
HANDED_IF_SLOW(int, getrpcbyname_r, (const char *name, struct rpcent *entry, char *buf, size_t size, struct rpcent **result),
               (name, entry, buf, size, result))
HANDED_IF_SLOW(int, getrpcbynumber_r, (int number, struct rpcent *entry, char *buf, size_t size, struct rpcent **result),
               (number, entry, buf, size, result))
HANDED_IF_SLOW(struct spwd *, getspent, (void), ())
HANDED_IF_SLOW(int, getspent_r, (struct spwd * entry, char *buf, size_t size, struct spwd **result), (entry, buf, size, result))
HANDED_IF_SLOW(int, setnetgrent, (const char *group), (group))
HANDED_IF_SLOW(int, getnetgrent, (char **restrict host, char **restrict user, char **restrict domain), (host, user, domain))
HANDED_IF_SLOW(int, getnetgrent_r,
               (char **restrict host, char **restrict user, char **restrict domain, char *restrict buf, size_t size),
               (host, user, domain, buf, size))
HANDED_IF_SLOW(struct aliasent *, getaliasbyname, (const char *name), (name))
HANDED_IF_SLOW(int, getaliasbyname_r,
               (const char *restrict name, struct aliasent *restrict entry, char *restrict buf, size_t size,
                struct aliasent **restrict result),
               (name, entry, buf, size, result))

/* Asks a person, and waits for others who change the passwords. */
HANDED(char *, getpass, (const char *prompt), (prompt))
HANDED(int, lckpwdf, (void), ())

HANDED_IF_SLOW(struct netent *, getnetbyname, (const char *name), (name))
HANDED_IF_SLOW(struct netent *, getnetbyaddr, (uint32_t net, int type), (net, type))
HANDED_IF_SLOW(int, getnetbyname_r,
               (const char *restrict name, struct netent *restrict entry, char *restrict buf, size_t size,
                struct netent **restrict result, int *restrict error),
               (name, entry, buf, size, result, error))
HANDED_IF_SLOW(int, getnetbyaddr_r,
               (uint32_t net, int type, struct netent *restrict entry, char *restrict buf, size_t size,
                struct netent **restrict result, int *restrict error),
               (net, type, entry, buf, size, result, error))
HANDED_IF_SLOW(int, innetgr, (const char *group, const char *host, const char *user, const char *domain),
               (group, host, user, domain))
HANDED_IF_SLOW(struct servent *, getservbyname, (const char *name, const char *protocol), (name, protocol))
HANDED_IF_SLOW(struct servent *, getservbyport, (int port, const char *protocol), (port, protocol))
HANDED_IF_SLOW(int, getservbyname_r,
               (const char *restrict name, const char *restrict protocol, struct servent *restrict entry, char *restrict buf,
                size_t size, struct servent **restrict result),
               (name, protocol, entry, buf, size, result))
HANDED_IF_SLOW(int, getservbyport_r,
               (int port, const char *restrict protocol, struct servent *restrict entry, char *restrict buf, size_t size,
                struct servent **restrict result),
               (port, protocol, entry, buf, size, result))
HANDED_IF_SLOW(struct protoent *, getprotobyname, (const char *name), (name))
HANDED_IF_SLOW(struct protoent *, getprotobynumber, (int number), (number))
HANDED_IF_SLOW(int, getprotobyname_r,
               (const char *restrict name, struct protoent *restrict entry, char *restrict buf, size_t size,
                struct protoent **restrict result),
               (name, entry, buf, size, result))
HANDED_IF_SLOW(int, getprotobynumber_r,
               (int number, struct protoent *restrict entry, char *restrict buf, size_t size,
                struct protoent **restrict result),
               (number, entry, buf, size, result))

HANDED_IF_SLOW(struct passwd *, getpwnam, (const char *name), (name))
HANDED_IF_SLOW(struct passwd *, getpwuid, (uid_t id), (id))
HANDED_IF_SLOW(struct passwd *, getpwent, (void), ())
HANDED_IF_SLOW(int, getpwnam_r,
               (const char *restrict name, struct passwd *restrict entry, char *restrict buf, size_t size,
                struct passwd **restrict result),
               (name, entry, buf, size, result))
HANDED_IF_SLOW(int, getpwuid_r,
               (uid_t id, struct passwd *restrict entry, char *restrict buf, size_t size, struct passwd **restrict result),
               (id, entry, buf, size, result))
HANDED_IF_SLOW(int, getpwent_r,
               (struct passwd *restrict entry, char *restrict buf, size_t size, struct passwd **restrict result),
               (entry, buf, size, result))
HANDED_IF_SLOW(struct group *, getgrnam, (const char *name), (name))
HANDED_IF_SLOW(struct group *, getgrgid, (gid_t id), (id))
HANDED_IF_SLOW(struct group *, getgrent, (void), ())
HANDED_IF_SLOW(int, getgrnam_r,
               (const char *restrict name, struct group *restrict entry, char *restrict buf, size_t size,
                struct group **restrict result),
               (name, entry, buf, size, result))
HANDED_IF_SLOW(int, getgrgid_r,
               (gid_t id, struct group *restrict entry, char *restrict buf, size_t size, struct group **restrict result),
               (id, entry, buf, size, result))
HANDED_IF_SLOW(int, getgrent_r, (struct group *restrict entry, char *restrict buf, size_t size, struct group **restrict result),
               (entry, buf, size, result))
HANDED_IF_SLOW(int, getgrouplist, (const char *user, gid_t group, gid_t *groups, int *n), (user, group, groups, n))
HANDED_IF_SLOW(int, initgroups, (const char *user, gid_t group), (user, group))
HANDED_IF_SLOW(struct spwd *, getspnam, (const char *name), (name))
HANDED_IF_SLOW(int, getspnam_r,
               (const char *restrict name, struct spwd *restrict entry, char *restrict buf, size_t size,
                struct spwd **restrict result),
               (name, entry, buf, size, result))

/* <resolv.h> renames these to their names with underscores; both are exported. */
#undef res_nquery
#undef res_nsearch
#undef res_nquerydomain
#undef res_nsend
#undef res_query
#undef res_search
#undef res_querydomain
#undef res_send
#undef res_init
#undef res_ninit

#define RESOLVER(type, name, parameters, arguments)                                                                            \
    type name parameters;                                                                                                      \
    type __##name parameters;                                                                                                  \
    HANDED(type, name, parameters, arguments)                                                                                  \
    HANDED(type, __##name, parameters, arguments)

RESOLVER(int, res_nquery, (res_state state, const char *name, int class, int type, unsigned char *buf, int size),
         (state, name, class, type, buf, size))
RESOLVER(int, res_nsearch, (res_state state, const char *name, int class, int type, unsigned char *buf, int size),
         (state, name, class, type, buf, size))
RESOLVER(int, res_nquerydomain,
         (res_state state, const char *name, const char *domain, int class, int type, unsigned char *buf, int size),
         (state, name, domain, class, type, buf, size))
RESOLVER(int, res_nsend, (res_state state, const unsigned char *msg, int length, unsigned char *buf, int size),
         (state, msg, length, buf, size))
RESOLVER(int, res_query, (const char *name, int class, int type, unsigned char *buf, int size), (name, class, type, buf, size))
RESOLVER(int, res_search, (const char *name, int class, int type, unsigned char *buf, int size), (name, class, type, buf, size))
RESOLVER(int, res_querydomain, (const char *name, const char *domain, int class, int type, unsigned char *buf, int size),
         (name, domain, class, type, buf, size))
RESOLVER(int, res_send, (const unsigned char *msg, int length, unsigned char *buf, int size), (msg, length, buf, size))

HANDED(int, wordexp, (const char *restrict words, wordexp_t *restrict result, int flags), (words, result, flags))
