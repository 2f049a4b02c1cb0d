# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Odometry of a camera and an inertial sensor in a sliding window, simulated.

python examples/inertial_odometry.py [PLOT.png, with the path and its error]
"""

import sys
import time

import numpy

import ceres_ext

GRAVITY = numpy.array([0.0, 0.0, -9.81])
NOISE = {  # of a good MEMS sensor
    "gyroscope_noise": 2e-4,
    "accelerometer_noise": 2e-3,
    "gyroscope_bias_noise": 2e-5,
    "accelerometer_bias_noise": 3e-4,
}
BIAS = numpy.array([0.01, -0.02, 0.015, 0.1, -0.2, 0.05])  # unknown to the odometry
INTERVAL, STEP = 0.2, 0.005  # s, between keyframes and between samples
LENGTH = 10  # keyframes of the window
TRACK = 6  # keyframes that see a point
POINTS = 15  # that are new in a keyframe
PIXEL = 1.0 / 460.0
RANDOM = numpy.random.default_rng(1)


def matrix(q):  # x, y, z, w
    x, y, z, w = q
    cross = numpy.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return numpy.eye(3) + 2 * w * cross + 2 * cross @ cross


def truth(t):
    """Pose and velocity, and what the sensor would measure: rate and force."""
    size, rate = numpy.array([6.0, 4.0, 0.5]), numpy.array([0.3, 0.5, 0.7])
    yaw, yaw_rate = 0.8 * numpy.sin(0.4 * t), 0.32 * numpy.cos(0.4 * t)
    q = numpy.array([0, 0, numpy.sin(yaw / 2), numpy.cos(yaw / 2)])
    force = matrix(q).T @ (-(rate**2) * size * numpy.sin(rate * t) - GRAVITY)
    pose = numpy.append(q, size * numpy.sin(rate * t))
    return pose, size * rate * numpy.cos(rate * t), numpy.array([0, 0, yaw_rate]), force


def measure(begin, bias):
    """The increment from a keyframe to the next one, with an estimate of the bias."""
    times = begin + STEP * numpy.arange(round(INTERVAL / STEP) + 1)
    rates, forces = (numpy.array([truth(t)[n] for t in times]) for n in (2, 3))
    noise = RANDOM.standard_normal((2, len(times), 3)) / STEP**0.5
    rates += BIAS[:3] + NOISE["gyroscope_noise"] * noise[0]
    forces += BIAS[3:] + NOISE["accelerometer_noise"] * noise[1]
    increment = ceres_ext.Preintegration(**NOISE, bias=bias)
    increment.add_samples(times, rates, forces, begin, times[-1])
    return increment


class Odometry:
    def __init__(self):
        self.seen = []  # of each keyframe: first images, and places in the world
        self.window = window = ceres_ext.SlidingWindow(
            linear_solver_type="DENSE_SCHUR", max_num_iterations=8
        )
        pose = ceres_ext.ProductManifold(
            ceres_ext.EigenQuaternionManifold(), ceres_ext.EuclideanManifold(3)
        )
        self.poses, self.speeds, self.depths, cameras, offsets = (
            window.add_block_kind(size, manifold)
            for size, manifold in [(7, pose), (9, None), (1, None), (7, pose), (1, None)]
        )
        self.inertial = window.add_residual_kind(
            "InertialError", [self.poses, self.speeds, self.poses, self.speeds]
        )
        self.rays = window.add_residual_kind(
            "InverseDepthError",
            [self.poses, self.poses, cameras, self.depths, offsets],
            loss=ceres_ext.HuberLoss(2.0),
        )
        # The camera is where the body is and looks along its z axis.
        window.add_block(cameras, 0, numpy.eye(7)[3], constant=True)
        window.add_block(offsets, 0, numpy.zeros(1), constant=True)

    def add_keyframe(self, k):
        true_pose, velocity, _, _ = truth(k * INTERVAL)
        if k == 0:  # The beginning is known, except for the bias.
            self.window.add_block(self.poses, 0, true_pose, constant=True)
            self.window.add_block(self.speeds, 0, numpy.append(velocity, numpy.zeros(6)))
        else:
            pose, speed = (self.window.values(n, k - 1) for n in (self.poses, self.speeds))
            increment = measure((k - 1) * INTERVAL, speed[3:])
            pose, speed = increment.predict(pose, speed)
            self.window.add_block(self.poses, k, pose)
            self.window.add_block(self.speeds, k, speed)
            numbers = numpy.array([[k - 1, k - 1, k, k]])
            self.window.add_residuals(self.inertial, increment.row()[None], numbers)
        for anchor in range(max(0, k - TRACK + 1), k):
            self.see(anchor, k, true_pose)
        image = RANDOM.uniform(-0.6, 0.6, (POINTS, 2))
        rays = numpy.column_stack([image, numpy.ones(POINTS)])
        places = RANDOM.uniform(4, 16, (POINTS, 1)) * rays @ matrix(true_pose[:4]).T
        self.seen.append((image, true_pose[4:] + places))

    def see(self, anchor, k, true_pose):
        first_image, places = self.seen[anchor]
        x = (places - true_pose[4:]) @ matrix(true_pose[:4])
        image = x[:, :2] / x[:, 2:] + PIXEL * RANDOM.standard_normal((POINTS, 2))
        for n in range(POINTS):
            if k == anchor + 1:  # A guess; the true depth is 4 to 16 m.
                self.window.add_block(self.depths, anchor * POINTS + n, numpy.full(1, 0.1))
        rows = numpy.zeros((POINTS, 9))  # image points and their velocities, weight
        rows[:, 0:2], rows[:, 4:6], rows[:, 8] = first_image, image, 1 / PIXEL
        numbers = [[anchor, k, 0, anchor * POINTS + n, 0] for n in range(POINTS)]
        self.window.add_residuals(self.rays, rows, numpy.array(numbers))

    def solve(self, k):
        oldest = k - LENGTH
        if oldest >= 0:
            self.window.drop(self.poses, oldest)
            self.window.drop(self.speeds, oldest)
            for n in range(POINTS):
                self.window.drop(self.depths, oldest * POINTS + n)
        if k > 0:
            self.window.solve()


def main():
    odometry, path, seconds = Odometry(), [], []
    for k in range(150):
        odometry.add_keyframe(k)
        begin = time.perf_counter()
        odometry.solve(k)
        seconds.append(time.perf_counter() - begin)
        path.append(odometry.window.values(odometry.poses, k)[4:])
    true = numpy.array([truth(k * INTERVAL)[0][4:] for k in range(len(path))])
    errors = numpy.linalg.norm(path - true, axis=1)
    print(f"{1e3 * numpy.median(seconds):.2f} ms a keyframe")
    print(f"error at the end {errors[-1]:.3f} m, largest {errors.max():.3f} m")
    if len(sys.argv) > 1:
        from matplotlib import pyplot

        _, (above, below) = pyplot.subplots(2, 1, figsize=(6, 8))
        above.plot(*true[:, :2].T, label="truth")
        above.plot(*numpy.array(path)[:, :2].T, "--", label="odometry")
        above.set(xlabel="x, m", ylabel="y, m", aspect="equal")
        above.legend()
        below.plot(INTERVAL * numpy.arange(len(path)), errors)
        below.set(xlabel="time, s", ylabel="error, m")
        pyplot.savefig(sys.argv[1])


main()
