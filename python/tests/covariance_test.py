# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Covariances, against numpy's inverse of J'J."""

import numpy
import pytest
from conftest import OPTIONS, make_problem

import ceres_ext


def jacobian(problem, arrays):
    """By central differences of the residuals."""
    columns = []
    for array in arrays:
        flat = array.reshape(-1)
        for i in range(flat.size):
            value = flat[i]
            step = 1e-6 * max(1.0, abs(value))
            sides = []
            for sign in (1.0, -1.0):
                flat[i] = value + sign * step
                found = ceres_ext.evaluate(problem, **OPTIONS)
                sides.append(numpy.concatenate([r.ravel() for r in found.residuals]))
            flat[i] = value
            columns.append((sides[0] - sides[1]) / (2 * step))
    return numpy.array(columns).T


def test_pseudo_inverse(bal):
    problem = make_problem(bal)
    found = ceres_ext.covariance(
        problem,
        [0, 1],
        [((0, 1), (1, 2)), ((1, 2), (0, 1))],
        gauge="inner",
        scale="a_posteriori",
        **OPTIONS,
    )
    j = jacobian(problem, [bal.cameras, bal.points])
    _, values, directions = numpy.linalg.svd(j, full_matrices=False)
    rank = j.shape[1] - found.num_free_directions
    assert found.num_free_directions == 7
    assert found.memory_bytes == found.memory_forecast_bytes == 0
    assert found.redundancy == j.shape[0] - rank
    scaled = directions[:rank] / values[:rank, None]
    expected = found.variance_factor * scaled.T @ scaled
    sigma = numpy.sqrt(numpy.diag(expected))
    begin = bal.cameras.size
    for i in range(len(bal.cameras)):
        at = slice(9 * i, 9 * i + 9)
        error = found.diagonals[0][i] - expected[at, at]
        assert numpy.abs(error / numpy.outer(sigma[at], sigma[at])).max() < 1e-3
    block = expected[9:18, begin + 6 : begin + 9]
    error = (found.pairs[0] - block) / numpy.outer(
        sigma[9:18], sigma[begin + 6 : begin + 9]
    )
    assert numpy.abs(error).max() < 1e-3
    assert (found.pairs[1] == found.pairs[0].T).all()


def test_pcg(bal):
    problem = make_problem(bal)
    damping = numpy.full(bal.cameras.size + bal.points.size, 1e3)
    pairs = [((0, 2), (0, 2)), ((0, 2), (1, 5))]
    values = {"gauge": "damped", "damping": damping, **OPTIONS}
    factor = ceres_ext.covariance(problem, [], pairs, method="factorization", **values)
    pcg = ceres_ext.covariance(
        problem, [], pairs, method="pcg", pcg_tolerance=1e-10, **values
    )
    assert factor.num_pcg_iterations == 0
    assert pcg.num_pcg_iterations > 0
    for a, b in zip(pcg.pairs, factor.pairs, strict=True):
        assert numpy.linalg.norm(a - b) < 1e-5 * numpy.linalg.norm(b)


def test_refusals(bal):
    problem = make_problem(bal)
    with pytest.raises(ArithmeticError, match="7 directions free"):
        ceres_ext.covariance(problem, [0], **OPTIONS)
    with pytest.raises(ValueError, match="gauge"):
        ceres_ext.covariance(problem, [0], gauge="outer", **OPTIONS)
    with pytest.raises(ValueError, match="expected a block"):
        ceres_ext.covariance(problem, [], [((0, -1), (0, 0))], **OPTIONS)
