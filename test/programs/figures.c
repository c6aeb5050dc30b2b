/* Addresses and ports as figures, made into text and back: nobody is asked, so a thread need not hand over
 * its kernel thread (test/counters counts). What comes of it is as natively. */
#include "check.h"
#include <arpa/inet.h>
#include <netdb.h>

enum { THREADS = 8, TURNS = 50 };

static void *turn(void *arg)
{
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(80)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(443)};
    char host[NI_MAXHOST], service[NI_MAXSERV], small[4];
    int both = NI_NUMERICHOST | NI_NUMERICSERV;

    inet_pton(AF_INET, "192.0.2.7", &four.sin_addr);
    inet_pton(AF_INET6, "2001:db8::7", &six.sin6_addr);
    for (int i = 0; i < TURNS; i++) {
        ZERO(getnameinfo((struct sockaddr *)&four, sizeof four, host, sizeof host, service, sizeof service, both));
        EXPECT_STR(host, "192.0.2.7");
        EXPECT_STR(service, "80");
        ZERO(getnameinfo((struct sockaddr *)&six, sizeof six, host, sizeof host, NULL, 0, NI_NUMERICHOST));
        EXPECT_STR(host, "2001:db8::7");
        ZERO(getnameinfo((struct sockaddr *)&six, sizeof six, NULL, 0, service, sizeof service, NI_NUMERICSERV));
        EXPECT_STR(service, "443");
        EXPECT(getnameinfo((struct sockaddr *)&four, sizeof four, small, sizeof small, NULL, 0, both), EAI_OVERFLOW);
        EXPECT(getnameinfo((struct sockaddr *)&four, 1, host, sizeof host, NULL, 0, both), EAI_FAMILY);

        struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;
        ZERO(getaddrinfo("192.0.2.7", "80", &hints, &list));
        CHECK(list->ai_next == NULL && memcmp(list->ai_addr, &four, sizeof four) == 0);
        freeaddrinfo(list);
        ZERO(getaddrinfo("2001:db8::7", "443", &hints, &list));
        EXPECT(list->ai_family, AF_INET6);
        CHECK(memcmp(&((struct sockaddr_in6 *)list->ai_addr)->sin6_addr, &six.sin6_addr, sizeof six.sin6_addr) == 0);
        freeaddrinfo(list);
        hints.ai_flags = AI_NUMERICHOST;
        EXPECT(getaddrinfo("not-figures.example", "80", &hints, &list), EAI_NONAME);
        hints = (struct addrinfo){.ai_family = AF_INET, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
        ZERO(getaddrinfo(NULL, "80", &hints, &list));
        EXPECT(((struct sockaddr_in *)list->ai_addr)->sin_addr.s_addr, htonl(INADDR_ANY));
        freeaddrinfo(list);
    }
    return arg;
}

int main(void)
{
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++)
        ZERO(pthread_create(&threads[i], NULL, turn, NULL));
    for (int i = 0; i < THREADS; i++)
        ZERO(pthread_join(threads[i], NULL));
    return finish();
}
