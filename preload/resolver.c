/* Look-ups of names, addresses, users and services: libc makes connections, reads files and loads modules for them, out of
 * our sight. The place is handed over meanwhile. */
#include "call.h"

#include <aliases.h>
#include <grp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pwd.h>
#include <resolv.h>
#include <shadow.h>
#include <syslog.h>
#include <wordexp.h>

#define HANDED VT_HANDED_FUNCTION

HANDED(int, getaddrinfo,
       (const char *restrict node, const char *restrict service, const struct addrinfo *restrict hints,
        struct addrinfo **restrict result),
       (node, service, hints, result))
HANDED(int, getnameinfo,
       (const struct sockaddr *restrict addr, socklen_t length, char *restrict host, socklen_t host_length,
        char *restrict service, socklen_t service_length, int flags),
       (addr, length, host, host_length, service, service_length, flags))
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
HANDED(struct hostent *, gethostent, (void), ())

HANDED(struct netent *, getnetbyname, (const char *name), (name))
HANDED(struct netent *, getnetbyaddr, (uint32_t net, int type), (net, type))
HANDED(int, getnetbyname_r,
       (const char *restrict name, struct netent *restrict entry, char *restrict buf, size_t size,
        struct netent **restrict result, int *restrict error),
       (name, entry, buf, size, result, error))
HANDED(int, getnetbyaddr_r,
       (uint32_t net, int type, struct netent *restrict entry, char *restrict buf, size_t size,
        struct netent **restrict result, int *restrict error),
       (net, type, entry, buf, size, result, error))
HANDED(int, innetgr, (const char *group, const char *host, const char *user, const char *domain),
       (group, host, user, domain))
HANDED(struct servent *, getservbyname, (const char *name, const char *protocol), (name, protocol))
HANDED(struct servent *, getservbyport, (int port, const char *protocol), (port, protocol))
HANDED(int, getservbyname_r,
       (const char *restrict name, const char *restrict protocol, struct servent *restrict entry, char *restrict buf,
        size_t size, struct servent **restrict result),
       (name, protocol, entry, buf, size, result))
HANDED(int, getservbyport_r,
       (int port, const char *restrict protocol, struct servent *restrict entry, char *restrict buf, size_t size,
        struct servent **restrict result),
       (port, protocol, entry, buf, size, result))
HANDED(struct protoent *, getprotobyname, (const char *name), (name))
HANDED(struct protoent *, getprotobynumber, (int number), (number))
HANDED(int, getprotobyname_r,
       (const char *restrict name, struct protoent *restrict entry, char *restrict buf, size_t size,
        struct protoent **restrict result),
       (name, entry, buf, size, result))
HANDED(int, getprotobynumber_r,
       (int number, struct protoent *restrict entry, char *restrict buf, size_t size,
        struct protoent **restrict result),
       (number, entry, buf, size, result))

HANDED(struct passwd *, getpwnam, (const char *name), (name))
HANDED(struct passwd *, getpwuid, (uid_t id), (id))
HANDED(struct passwd *, getpwent, (void), ())
HANDED(int, getpwnam_r,
       (const char *restrict name, struct passwd *restrict entry, char *restrict buf, size_t size,
        struct passwd **restrict result),
       (name, entry, buf, size, result))
HANDED(int, getpwuid_r,
       (uid_t id, struct passwd *restrict entry, char *restrict buf, size_t size, struct passwd **restrict result),
       (id, entry, buf, size, result))
HANDED(int, getpwent_r,
       (struct passwd *restrict entry, char *restrict buf, size_t size, struct passwd **restrict result),
       (entry, buf, size, result))
HANDED(struct group *, getgrnam, (const char *name), (name))
HANDED(struct group *, getgrgid, (gid_t id), (id))
HANDED(struct group *, getgrent, (void), ())
HANDED(int, getgrnam_r,
       (const char *restrict name, struct group *restrict entry, char *restrict buf, size_t size,
        struct group **restrict result),
       (name, entry, buf, size, result))
HANDED(int, getgrgid_r,
       (gid_t id, struct group *restrict entry, char *restrict buf, size_t size, struct group **restrict result),
       (id, entry, buf, size, result))
HANDED(int, getgrent_r,
       (struct group *restrict entry, char *restrict buf, size_t size, struct group **restrict result),
       (entry, buf, size, result))
HANDED(int, getgrouplist, (const char *user, gid_t group, gid_t *groups, int *n), (user, group, groups, n))
HANDED(int, initgroups, (const char *user, gid_t group), (user, group))
HANDED(struct spwd *, getspnam, (const char *name), (name))
HANDED(int, getspnam_r,
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

#define RESOLVER(type, name, parameters, arguments)                                                               \
    type name parameters;                                                                                         \
    type __##name parameters;                                                                                     \
    HANDED(type, name, parameters, arguments)                                                                     \
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
RESOLVER(int, res_query, (const char *name, int class, int type, unsigned char *buf, int size),
         (name, class, type, buf, size))
RESOLVER(int, res_search, (const char *name, int class, int type, unsigned char *buf, int size),
         (name, class, type, buf, size))
RESOLVER(int, res_querydomain,
         (const char *name, const char *domain, int class, int type, unsigned char *buf, int size),
         (name, domain, class, type, buf, size))
RESOLVER(int, res_send, (const unsigned char *msg, int length, unsigned char *buf, int size),
         (msg, length, buf, size))

HANDED(int, wordexp, (const char *restrict words, wordexp_t *restrict result, int flags), (words, result, flags))
