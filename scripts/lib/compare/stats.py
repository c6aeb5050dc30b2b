"""Medians, spreads, and whether two small samples differ.

The rule, for each figure:

  - From four runs a side: the exact two-sided Mann-Whitney test (every way to deal the ranks to the two sides is counted;
    from 13 a side the normal approximation with its correction for ties). p < 0.05 is a difference. It assumes no
    distribution, and an outlier counts by its rank only. With four runs that means that the ranges do not overlap.
  - Two or three runs a side cannot reach that level: there the ranges must be apart by more than the wider of the two.
  - One run a side tells nothing.
  - Besides, medians that differ by less than 1% are called the same.
"""
import math
from itertools import combinations

ALPHA = 0.05
SMALL = 0.01  # medians nearer than this are the same for all purposes
EXACT_UP_TO = 12  # 2.7 million ways at 12 a side


def median(values):
    ordered = sorted(values)
    n = len(ordered)
    if not n:
        raise ValueError("no values")
    middle = n // 2
    return ordered[middle] if n % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def deviation(values):
    """The median absolute deviation from the median."""
    centre = median(values)
    return median([abs(value - centre) for value in values])


def ranks(values):
    """Ranks from 1, equal values sharing their mean rank; doubled, so that they are whole numbers."""
    order = sorted(range(len(values)), key=values.__getitem__)
    result = [0] * len(values)
    i = 0
    while i < len(order):
        j = i
        while j + 1 < len(order) and values[order[j + 1]] == values[order[i]]:
            j += 1
        for k in range(i, j + 1):
            result[order[k]] = i + j + 2
        i = j + 1
    return result


def exact_p(doubled, n):
    """Of all choices of n of the ranks, the share whose sum lies as far from the middle as the first n's, or farther."""
    total = sum(doubled)
    m = len(doubled)

    def distance(rank_sum):  # times m, so that all stays whole
        return abs(m * rank_sum - n * total)

    seen = distance(sum(doubled[:n]))
    # how many choices of k ranks have which sum
    ways = [{} for _ in range(n + 1)]
    ways[0][0] = 1
    for rank in doubled:
        for k in range(n - 1, -1, -1):
            for rank_sum, count in ways[k].items():
                ways[k + 1][rank_sum + rank] = ways[k + 1].get(rank_sum + rank, 0) + count
    far = sum(count for rank_sum, count in ways[n].items() if distance(rank_sum) >= seen)
    return far / sum(ways[n].values())


def normal_p(doubled, n):
    m = len(doubled) - n
    u = sum(doubled[:n]) / 2 - n * (n + 1) / 2
    counts = {}
    for rank in doubled:
        counts[rank] = counts.get(rank, 0) + 1
    both = n + m
    ties = sum(c ** 3 - c for c in counts.values())
    variance = n * m / 12 * (both + 1 - ties / (both * (both - 1)))
    if variance <= 0:
        return 1.0
    z = max(0.0, abs(u - n * m / 2) - 0.5) / math.sqrt(variance)
    return math.erfc(z / math.sqrt(2))


def mann_whitney(a, b):
    """The two-sided p of samples a and b coming from the same distribution."""
    if not a or not b:
        raise ValueError("no values")
    doubled = ranks(list(a) + list(b))
    if max(len(a), len(b)) <= EXACT_UP_TO:
        return exact_p(doubled, len(a))
    return normal_p(doubled, len(a))


def brute_p(a, b):
    """exact_p by trying them all: the unit tests compare."""
    doubled = ranks(list(a) + list(b))
    n, m, total = len(a), len(doubled), sum(doubled)
    seen = abs(m * sum(doubled[:n]) - n * total)
    far = ways = 0
    for choice in combinations(doubled, n):
        ways += 1
        far += abs(m * sum(choice) - n * total) >= seen
    return far / ways


def differ(a, b):
    """True, False, or None when there are too few runs to tell; and p, None where the rule needs none."""
    if min(len(a), len(b)) < 2:
        return None, None
    x, y = median(a), median(b)
    near = abs(x - y) <= SMALL * max(abs(x), abs(y))
    if min(len(a), len(b)) >= 4:
        p = mann_whitney(a, b)
        return p < ALPHA and not near, p
    gap = max(min(a) - max(b), min(b) - max(a))
    widest = max(max(a) - min(a), max(b) - min(b))
    return gap > widest and not near, None


def summary(values):
    """What is reported of one side."""
    return {"median": median(values), "min": min(values), "max": max(values), "mad": deviation(values), "runs": len(values)}


def compare(native, preloaded, direction):
    """Both sides' summaries, the ratio preloaded / native with the range of the rounds' ratios, and a verdict in a word.

    direction: 1 where higher is better, -1 where lower is, 0 where neither. The lists go by rounds where they are of
    the same length."""
    result = {"native": summary(native), "preloaded": summary(preloaded)}
    x, y = result["native"]["median"], result["preloaded"]["median"]
    result["ratio"] = y / x if x else None
    if len(native) == len(preloaded) and all(native):
        pairs = [b / a for a, b in zip(native, preloaded)]
        result["ratio_min"], result["ratio_max"] = min(pairs), max(pairs)
    different, p = differ(native, preloaded)
    result["p"] = p
    if different is None:
        result["verdict"] = "one run"
    elif not different:
        result["verdict"] = "within noise" if x != y else "same"
    elif direction == 0:
        result["verdict"] = "higher" if y > x else "lower"
    else:
        result["verdict"] = "better" if (y > x) == (direction > 0) else "worse"
    return result
