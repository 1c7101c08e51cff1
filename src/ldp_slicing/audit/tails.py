"""Binomial tails and Clopper-Pearson bounds, rounded outwards: floating-point errors never cause a false alarm.

Tests: tests/audit/test_tails.py, against exact rationals and SciPy.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

_TINY = 1e-300
_CONVERGED = 1e-13
_HALVINGS = 32  # of an interval about as long as the uncertainty of the bound


def tail_above(counts: ArrayLike, trials: ArrayLike, probability: ArrayLike) -> Floats:
    """P(X >= count) for X ~ Binomial(trials, probability), element by element, rounded up."""
    k, n, p = _broadcast(counts, trials, probability)
    return _tail(k, n, p, 1 - p)


def tail_below(counts: ArrayLike, trials: ArrayLike, probability: ArrayLike) -> Floats:
    """P(X <= count), rounded up."""
    k, n, p = _broadcast(counts, trials, probability)
    return _tail(n - k, n, 1 - p, p)


def two_sided(counts: ArrayLike, trials: ArrayLike, probability: ArrayLike) -> Floats:
    """A two-sided p-value: twice the tail beyond the count. If the counts are binomial, P(p-value <= x) <= x."""
    k, n, p = _broadcast(counts, trials, probability)
    high = k > n * p
    # The tail across the mean is larger and need not be computed. X <= k is the same as n - X >= n - k.
    return np.minimum(1.0, 2 * _tail(np.where(high, k, n - k), n, np.where(high, p, 1 - p), np.where(high, 1 - p, p)))


def upper_bound(counts: ArrayLike, trials: ArrayLike, error_rate: float) -> Floats:
    """Clopper-Pearson upper bound: below the true probability with probability at most ``error_rate``."""
    k, n, _ = _broadcast(counts, trials, 0.0)
    low = np.where(n > 0, k / np.maximum(n, 1), 1.0)
    nats = -math.log(error_rate) / np.maximum(n, 1)
    guess = np.minimum(1.0, low + np.sqrt(3 * low * nats) + 3 * nats)  # nearly always just above the bound
    high = np.where(tail_below(k, n, guess) <= error_rate, guess, 1.0)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        excluded = tail_below(k, n, middle) <= error_rate
        low, high = np.where(excluded, low, middle), np.where(excluded, middle, high)
    return high


def lower_bound(counts: ArrayLike, trials: ArrayLike, error_rate: float) -> Floats:
    """Clopper-Pearson lower bound: above the true probability with probability at most ``error_rate``."""
    k, n, _ = _broadcast(counts, trials, 0.0)
    bound: Floats = 1 - upper_bound(n - k, n, error_rate)
    return np.maximum(0.0, np.nextafter(bound, 0))


def _broadcast(counts: ArrayLike, trials: ArrayLike, probability: ArrayLike) -> tuple[Floats, Floats, Floats]:
    k, n, p = np.broadcast_arrays(
        *(np.atleast_1d(np.asarray(values, np.float64)) for values in (counts, trials, probability))
    )
    return k.copy(), n.copy(), p.copy()


def _tail(k: Floats, n: Floats, p: Floats, q: Floats) -> Floats:
    """P(X >= k), rounded up. ``q`` is 1 - p, passed separately so that neither loses digits."""
    inside = (k > 0) & (k <= n) & (p > 0) & (q > 0)
    out = np.where((k <= 0) | ((q <= 0) & (k <= n)), 1.0, 0.0)
    out[inside] = _incomplete_beta(p[inside], q[inside], k[inside], n[inside] - k[inside] + 1)
    return out


def _incomplete_beta(x: Floats, y: Floats, a: Floats, b: Floats) -> Floats:
    """I_x(a, b), rounded up; y = 1 - x.

    The continued fraction converges fast on one side of the mean. On the other side, the complement is computed.
    """
    swap = x > (a + 1) / (a + b + 2)
    x, y, a, b = np.where(swap, y, x), np.where(swap, x, y), np.where(swap, b, a), np.where(swap, a, b)
    log_gammas = np.array([[math.lgamma(value) for value in values] for values in (a + b, a, b)])
    powers = a * _log(x, y), b * _log(y, x)
    log_front = log_gammas[0] - log_gammas[1] - log_gammas[2] + powers[0] + powers[1] - np.log(a)
    value = np.exp(log_front) * _continued_fraction(x, a, b)
    # Each term of log_front is off by a few units in its last place. This bounds the sum of these errors.
    slack = 1e-12 + 64 * np.spacing(np.abs(log_gammas).max(axis=0) - powers[0] - powers[1])
    rounded: Floats = np.minimum(1.0, np.where(swap, 1 - value * (1 - slack) + 2.0**-52, value * (1 + slack) + _TINY))
    return rounded


def _log(x: Floats, complement: Floats) -> Floats:
    """ln(x), from whichever of x and 1 - x is more precise."""
    return np.where(x < 0.5, np.log(x), np.log1p(-np.minimum(complement, 0.75)))


def _continued_fraction(x: Floats, a: Floats, b: Floats) -> Floats:
    """Lentz's method for the continued fraction of the incomplete beta function."""
    result = np.empty_like(x)
    todo = np.arange(len(x))
    c, d = np.ones_like(x), 1 / _away_from_zero(1 - (a + b) * x / (a + 1))
    value, m = d.copy(), 0
    while todo.size:
        m += 1
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _away_from_zero(1 + term * d)
            c = _away_from_zero(1 + term / c)
            value *= c * d
        going = np.abs(c * d - 1) > _CONVERGED
        if np.count_nonzero(going) <= 0.9 * len(todo):
            result[todo] = value
            todo = todo[going]
            x, a, b, c, d, value = (each[going] for each in (x, a, b, c, d, value))
    return result


def _away_from_zero(values: Floats) -> Floats:
    return np.where(np.abs(values) < _TINY, _TINY, values)
