/* Rounding mode, flush-to-zero and x87 precision belong to the thread that set them. */
#include "check.h"
#include <fenv.h>
#include <xmmintrin.h>

enum { THREADS = 8, ROUNDS = 300 };

static const int modes[] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
static sem_t turn[THREADS];

static unsigned short x87_control(void)
{
    unsigned short word;

    __asm__ volatile("fnstcw %0" : "=m"(word));
    return word;
}

static void *run(void *arg)
{
    int id = (int)(intptr_t)arg;
    int mode = modes[id % 4];

    EXPECT(fegetround(), FE_TONEAREST);
    EXPECT(_mm_getcsr() & 0xffc0, 0x1f80);
    ZERO(fesetround(mode));
    if (id >= 4)
        _mm_setcsr(_mm_getcsr() | 0x8040); /* flush to zero, denormals are zero */
    unsigned csr = _mm_getcsr() & 0xffc0;
    unsigned short x87 = x87_control();
    volatile double one = 1, three = 3;
    double third = one / three;
    for (int i = 0; i < ROUNDS; i++) {
        sem_post(&turn[(id + 1) % THREADS]);
        sem_wait(&turn[id]);
        if (i % 10 == 0)
            sched_yield();
        EXPECT(fegetround(), mode);
        EXPECT(_mm_getcsr() & 0xffc0, csr);
        EXPECT(x87_control(), x87);
        CHECK(one / three == third);
    }
    return NULL;
}

static void *inherit(void *arg)
{
    EXPECT(fegetround(), FE_UPWARD);
    return arg;
}

static void *set_and_create(void *arg)
{
    ZERO(fesetround(FE_UPWARD));
    join(start(inherit, NULL));
    EXPECT(fegetround(), FE_UPWARD);
    return arg;
}

int main(void)
{
    begin(20);
    for (int i = 0; i < THREADS; i++)
        sem_init(&turn[i], 0, 0);
    in_threads(THREADS, run);
    EXPECT(fegetround(), FE_TONEAREST);
    puts("kept");
    join(start(set_and_create, NULL));
    EXPECT(fegetround(), FE_TONEAREST);
    puts("inherited");
    return finish();
}
