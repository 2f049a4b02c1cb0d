#!/usr/bin/python3
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""openturns_fit.py NUM_OBSERVATIONS NUM_TERMS [LINEAR_SOLVER]

Fits a sum of decaying waves with OpenTURNS's solver "Ceres", and prints the seconds
of the solve, the number of iterations and the sum of squares.
"""

import math
import random
import sys
import time

import openturns as ot


def main(num_observations, num_terms, linear_solver="DENSE_QR"):
    draw = random.Random(1)
    truth = [v for k in range(num_terms)
             for v in (1 + draw.random(), 0.2 + draw.random(), 1 + 2 * k)]
    names = [f"{p}{k}" for k in range(num_terms) for p in ("a", "d", "w")]
    rows = []
    for i in range(num_observations):
        t = 10 * (i + 0.5) / num_observations
        value = draw.gauss(0, 0.01) + sum(
            a * math.exp(-d * t) * math.sin(w * t)
            for a, d, w in zip(*[iter(truth)] * 3, strict=True))
        rows.append("+".join(f"a{k}*exp(-d{k}*{t!r})*sin(w{k}*{t!r})"
                             for k in range(num_terms)) + f"-({value!r})")
    residual = ot.SymbolicFunction(names, rows)
    ot.ResourceMap.AddAsString("Ceres-linear_solver_type", linear_solver)
    algorithm = ot.Ceres(ot.LeastSquaresProblem(residual), "LEVENBERG_MARQUARDT")
    algorithm.setStartingPoint([v * (1 + 0.02 * draw.random()) for v in truth])
    begin = time.perf_counter()
    algorithm.run()
    seconds = time.perf_counter() - begin
    result = algorithm.getResult()
    error = residual(result.getOptimalPoint())
    print(f"{seconds:.3f} s, {result.getIterationNumber()} iterations, sum of "
          f"squares {sum(v * v for v in error):.12g}")


main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
