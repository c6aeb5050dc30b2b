"""The statistics, against values known from elsewhere and against counting by force."""
import random
import unittest

from compare import stats


class Basics(unittest.TestCase):
    def test_median(self):
        self.assertEqual(stats.median([3]), 3)
        self.assertEqual(stats.median([4, 1, 3]), 3)
        self.assertEqual(stats.median([4, 1, 3, 2]), 2.5)
        with self.assertRaises(ValueError):
            stats.median([])

    def test_deviation(self):
        self.assertEqual(stats.deviation([1, 1, 2, 2, 4, 6, 9]), 1)

    def test_ranks(self):
        self.assertEqual(stats.ranks([10, 30, 20]), [2, 6, 4])
        self.assertEqual(stats.ranks([5, 5, 1]), [5, 5, 2])


class MannWhitney(unittest.TestCase):
    def test_separate(self):
        """Of C(2n, n) ways two are as far apart as can be."""
        for n, ways in ((3, 20), (4, 70), (5, 252), (6, 924)):
            self.assertAlmostEqual(stats.mann_whitney(range(n), range(100, 100 + n)), 2 / ways)

    def test_equal(self):
        self.assertAlmostEqual(stats.mann_whitney([7] * 5, [7] * 5), 1)
        self.assertAlmostEqual(stats.mann_whitney([1, 2, 3, 4], [1, 2, 3, 4]), 1)

    def test_by_force(self):
        random.seed(1)
        for _ in range(60):
            a = [random.randrange(6) for _ in range(random.randint(2, 5))]
            b = [random.randrange(8) for _ in range(random.randint(2, 5))]
            self.assertAlmostEqual(stats.mann_whitney(a, b), stats.brute_p(a, b), msg=(a, b))
            self.assertAlmostEqual(stats.mann_whitney(a, b), stats.mann_whitney(b, a))

    def test_normal_is_near_exact(self):
        random.seed(2)
        a, b = [random.gauss(0, 1) for _ in range(12)], [random.gauss(1, 1) for _ in range(12)]
        doubled = stats.ranks(a + b)
        self.assertAlmostEqual(stats.normal_p(doubled, 12), stats.exact_p(doubled, 12), delta=0.01)
        self.assertEqual(stats.normal_p(stats.ranks([1] * 30), 15), 1.0)

    def test_level(self):
        """Samples of one distribution are told apart no more often than the level says."""
        random.seed(3)
        wrong = sum(stats.mann_whitney([random.random() for _ in range(5)], [random.random() for _ in range(5)]) < stats.ALPHA
                    for _ in range(2000))
        self.assertLess(wrong / 2000, stats.ALPHA)


class Differ(unittest.TestCase):
    def test_few(self):
        self.assertEqual(stats.differ([1], [2]), (None, None))
        self.assertEqual(stats.differ([1, 1.1], [2, 2.1])[0], True)
        self.assertEqual(stats.differ([1, 1.1, 1.5], [1.6, 1.7, 2.1])[0], False)  # apart, but by less than they are wide

    def test_four(self):
        self.assertTrue(stats.differ([1, 2, 3, 4], [5, 6, 7, 8])[0])
        self.assertFalse(stats.differ([1, 2, 3, 5], [4, 6, 7, 8])[0])

    def test_small(self):
        """Sure, but too little to matter."""
        self.assertFalse(stats.differ([100, 100.1, 100.2, 100.3], [100.5, 100.6, 100.7, 100.8])[0])

    def test_outlier(self):
        """One run that went astray changes neither median nor verdict."""
        result = stats.compare([10, 11, 12, 11, 900], [20, 21, 20, 22, 21], -1)
        self.assertEqual(result["native"]["median"], 11)
        self.assertEqual(result["verdict"], "within noise")
        self.assertEqual(stats.compare([10, 11, 12, 11, 13], [20, 21, 20, 22, 900], -1)["verdict"], "worse")


class Compare(unittest.TestCase):
    def test_directions(self):
        low, high = [1, 2, 3, 4, 5], [11, 12, 13, 14, 15]
        self.assertEqual(stats.compare(low, high, 1)["verdict"], "better")
        self.assertEqual(stats.compare(low, high, -1)["verdict"], "worse")
        self.assertEqual(stats.compare(high, low, -1)["verdict"], "better")
        self.assertEqual(stats.compare(low, high, 0)["verdict"], "higher")
        self.assertEqual(stats.compare(high, low, 0)["verdict"], "lower")

    def test_ratio(self):
        result = stats.compare([1, 2, 4], [2, 6, 16], 1)
        self.assertEqual((result["ratio"], result["ratio_min"], result["ratio_max"]), (3, 2, 4))
        self.assertIsNone(stats.compare([0, 0], [1, 1], 1)["ratio"])

    def test_words(self):
        self.assertEqual(stats.compare([1], [2], 1)["verdict"], "one run")
        self.assertEqual(stats.compare([1, 1], [1, 1], 1)["verdict"], "same")


if __name__ == "__main__":
    unittest.main()
