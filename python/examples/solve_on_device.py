# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#
# solve_on_device.py PROBLEM
#
# Refines a problem of Bundle Adjustment in the Large whose arrays torch has on a
# GPU. They stay there: the solver reads and writes torch's memory.
import sys

import torch

import ceres_ext

bal = ceres_ext.read_bal(sys.argv[1])
arrays = [bal.cameras, bal.points, bal.observations, bal.camera_index, bal.point_index]
cameras, points, observations, camera_index, point_index = (
    torch.from_numpy(array).cuda() for array in arrays
)

problem = ceres_ext.ArrayProblem()
of_cameras = problem.add_parameters(cameras)
of_points = problem.add_parameters(points)
problem.add_residuals(
    "BalReprojectionError",
    observations,
    [(of_cameras, camera_index), (of_points, point_index)],
)
summary = ceres_ext.solve(
    problem, device="CUDA", preconditioner_type="SCHUR_JACOBI", max_num_iterations=10
)
print(summary.full_report())
print(summary.path_reason)
print("mean position of the points:", points.mean(0).cpu().numpy())
