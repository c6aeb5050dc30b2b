/* Tests of scheduler/eager.h. */
#include "eager.h"

#include <check.h>
#include <stdlib.h>

/* How often it looks out in so many rounds, of which each sleeps shortly unless what it looked out for came. */
static int looks(struct vt_eager *e, int rounds, bool comes)
{
    int n = 0;
    for (int i = 0; i < rounds; i++) {
        bool look = vt_eager(e);
        n += look;
        if (look)
            vt_eager_seen(e, comes);
        if (!look || !comes)
            vt_eager_slept(e);
    }
    return n;
}

START_TEST(sleeps_at_first)
{
    struct vt_eager e = {0};
    ck_assert(!vt_eager(&e));
    vt_eager_slept(&e);
    ck_assert(vt_eager(&e));
}
END_TEST

START_TEST(looks_as_long_as_it_pays)
{
    struct vt_eager e = {0};
    ck_assert_int_eq(looks(&e, 1000, true), 999);
    vt_eager_seen(&e, false); /* once in vain is nothing */
    ck_assert(vt_eager(&e));
}
END_TEST

START_TEST(gives_up_what_does_not_pay)
{
    struct vt_eager e = {0};
    looks(&e, 2000, false);
    ck_assert_int_le(looks(&e, 100000, false), 1000);
}
END_TEST

START_TEST(tries_again_in_time)
{
    struct vt_eager e = {0};
    looks(&e, 5000, false);
    looks(&e, 600, true); /* a rest at the most, and then always */
    ck_assert_int_eq(looks(&e, 100, true), 100);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("eager");
    TCase *tc = tcase_create("eager");
    tcase_add_test(tc, sleeps_at_first);
    tcase_add_test(tc, looks_as_long_as_it_pays);
    tcase_add_test(tc, gives_up_what_does_not_pay);
    tcase_add_test(tc, tries_again_in_time);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
