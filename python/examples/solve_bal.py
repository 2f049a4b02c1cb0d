# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#
# solve_bal.py [PROBLEM [PLOT]]
#
# Refines a problem of Bundle Adjustment in the Large and plots the cost against
# time and the scene from above. The cells are those of a notebook, for editors
# that know "# %%".

# %% The problem: arrays of numpy.
import sys

import matplotlib.pyplot as plt
import numpy

import ceres_ext

path = sys.argv[1] if len(sys.argv) > 1 else "build/ceres/data/problem-16-22106-pre.txt"
bal = ceres_ext.read_bal(path)
start = bal.points.copy()

# %% What is minimised: the reprojection errors, in pixels, with Huber's loss.
problem = ceres_ext.ArrayProblem()
cameras = problem.add_parameters(bal.cameras)
points = problem.add_parameters(bal.points)
problem.add_residuals(
    "BalReprojectionError",
    bal.observations,
    [(cameras, bal.camera_index), (points, bal.point_index)],
    loss=ceres_ext.HuberLoss(1.0),
)

# %% The solve refines bal.cameras and bal.points where they are.
summary = ceres_ext.solve(
    problem,
    preconditioner_type="SCHUR_JACOBI",
    max_num_iterations=50,
    callback=lambda iteration: print(iteration),
)
print(summary.full_report())

# %% Cost against time.
figure, (left, right) = plt.subplots(1, 2, figsize=(12, 5), layout="constrained")
seconds = [iteration.cumulative_time_in_seconds for iteration in summary.iterations]
best = numpy.minimum.accumulate([iteration.cost for iteration in summary.iterations])
left.semilogy(seconds, best, marker=".")
left.set(xlabel="seconds", ylabel="cost", title=summary.method)


# %% The scene from above: the plane of the two directions in which the cameras
# lie furthest apart.
def camera_centers(cameras):
    """-R't of each camera, by Rodrigues' formula."""
    vectors, translations = cameras[:, :3], cameras[:, 3:6]
    angles = numpy.linalg.norm(vectors, axis=1, keepdims=True)
    axes = vectors / numpy.where(angles > 0, angles, 1)
    along = axes * (axes * translations).sum(axis=1, keepdims=True)
    across = numpy.cross(axes, translations)
    cos, sin = numpy.cos(angles), numpy.sin(angles)
    return -(cos * translations - sin * across + (1 - cos) * along)


centers = camera_centers(bal.cameras)
middle = centers.mean(axis=0)
plane = numpy.linalg.svd(centers - middle)[2][:2].T
for values, style in [
    (start, {"s": 1, "color": "lightgray", "label": "points at the start"}),
    (bal.points, {"s": 1, "color": "tab:blue", "label": "points"}),
    (centers, {"s": 12, "color": "tab:red", "label": "cameras"}),
]:
    right.scatter(*((values - middle) @ plane).T, **style)
# A few points may lie very far away.
low, high = numpy.percentile((bal.points - middle) @ plane, [2, 98], axis=0)
low = numpy.minimum(low, ((centers - middle) @ plane).min(axis=0))
high = numpy.maximum(high, ((centers - middle) @ plane).max(axis=0))
size = (high - low).max()
right.set(title="from above", aspect="equal")
right.set_xlim(low[0] - 0.1 * size, high[0] + 0.1 * size)
right.set_ylim(low[1] - 0.1 * size, high[1] + 0.1 * size)
right.legend(markerscale=2)

# %%
if len(sys.argv) > 2:
    figure.savefig(sys.argv[2])
else:
    plt.show()
