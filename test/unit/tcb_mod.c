/* A module with TLS of its own, for tcb_test: built with initial-exec and with dynamic TLS. */
#define SIZE 8

__thread int tls_word = 4711;
static __thread char tls_text[SIZE] = "initial";
static __thread long tls_zero;

int tls_seen_by_constructor;

__attribute__((constructor)) static void start(void)
{
    tls_seen_by_constructor = tls_word;
    /* What a constructor leaves in its thread's TLS must stay. */
    tls_zero = 1;
}

int tls_initial(void);
void tls_spoil(void);
long *tls_address(void);

int tls_initial(void)
{
    return tls_word == 4711 && tls_text[0] == 'i' && tls_text[SIZE - 2] == 'l' && tls_text[SIZE - 1] == 0 && tls_zero == 0;
}

void tls_spoil(void)
{
    tls_word++;
    tls_text[0] = 'x';
    tls_zero = 99;
}

long *tls_address(void)
{
    return &tls_zero;
}
