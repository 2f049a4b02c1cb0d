# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Callbacks, exceptions, signals and other threads during a solve."""

import subprocess
import sys
import threading
import time

import numpy
import pytest
from conftest import OPTIONS, make_problem, repeated

import ceres_ext


def after(bal_path, iterations):
    bal = ceres_ext.read_bal(bal_path)
    ceres_ext.solve(make_problem(bal), max_num_iterations=iterations, **OPTIONS)
    return bal


def expect_state(bal, bal_path, iterations):
    expected = after(bal_path, iterations)
    assert numpy.array_equal(bal.cameras, expected.cameras)
    assert numpy.array_equal(bal.points, expected.points)


def test_is_called_with_each_iteration(bal, bal_path):
    seen = []
    summary = ceres_ext.solve(
        make_problem(bal), callback=seen.append, max_num_iterations=4, **OPTIONS
    )
    assert [i.iteration for i in seen] == [0, 1, 2, 3, 4]
    assert [i.cost for i in seen] == [i.cost for i in summary.iterations]
    expect_state(bal, bal_path, 4)


def test_state_in_each_call_where_it_is_asked_for(bal, bal_path):
    first = [bal.points.copy()]
    for update in [False, True]:
        states = []
        again = ceres_ext.read_bal(bal_path)
        ceres_ext.solve(
            make_problem(again),
            callback=lambda _: states.append(again.points.copy()),
            update_state_every_iteration=update,
            max_num_iterations=2,
            **OPTIONS,
        )
        expected = first * 3
        if update:
            expected = [after(bal_path, i).points for i in range(3)]
        for state, points in zip(states, expected, strict=True):
            assert numpy.array_equal(state, points)


@pytest.mark.parametrize("how", [False, StopIteration])
def test_ends_the_solve(bal, bal_path, how):
    def callback(iteration):
        if iteration.iteration == 2:
            if how is StopIteration:
                raise StopIteration
            return False
        return None

    summary = ceres_ext.solve(
        make_problem(bal), callback=callback, max_num_iterations=9, **OPTIONS
    )
    assert summary.termination_type == "USER_SUCCESS"
    assert len(summary.iterations) == 3
    expect_state(bal, bal_path, 2)


def test_exception_comes_after_the_best_state(bal, bal_path):
    calls = []

    def callback(iteration):
        calls.append(iteration.iteration)
        if iteration.iteration == 3:
            raise RuntimeError("of the callback")

    with pytest.raises(RuntimeError, match="^of the callback$"):
        ceres_ext.solve(
            make_problem(bal), callback=callback, max_num_iterations=9, **OPTIONS
        )
    assert calls == [0, 1, 2, 3]
    expect_state(bal, bal_path, 3)


def test_problem_can_not_change_in_its_solve(bal, bal_path):
    problem = make_problem(bal)
    refused = []

    def callback(_):
        for call in (
            lambda: problem.add_parameters(numpy.zeros((1, 3))),
            lambda: problem.add_residuals("BalReprojectionError", bal.observations, []),
            lambda: ceres_ext.solve(problem),
        ):
            with pytest.raises(ValueError, match="^ArrayProblem: it is being solved"):
                call()
            refused.append(call)

    ceres_ext.solve(problem, callback=callback, max_num_iterations=1, **OPTIONS)
    assert len(refused) == 6
    expect_state(bal, bal_path, 1)
    assert problem.add_parameters(numpy.zeros((1, 3))) == 2


def test_another_problem_is_solved_in_a_callback(bal, bal_path):
    inner = ceres_ext.read_bal(bal_path)

    def callback(iteration):
        if iteration.iteration == 1:
            ceres_ext.solve(make_problem(inner), max_num_iterations=2, **OPTIONS)

    ceres_ext.solve(
        make_problem(bal), callback=callback, max_num_iterations=3, **OPTIONS
    )
    expect_state(bal, bal_path, 3)
    expect_state(inner, bal_path, 2)


def test_other_threads_run_in_a_solve(bal):
    span = []

    def solve():
        problem = make_problem(repeated(bal, 10))
        span.append(time.monotonic())
        ceres_ext.solve(problem, max_num_iterations=30, **OPTIONS)
        span.append(time.monotonic())

    thread = threading.Thread(target=solve)
    thread.start()
    ticks = []
    while thread.is_alive():
        ticks.append(time.monotonic())
        time.sleep(1e-4)
    thread.join()
    # Not at its ends, where the thread may switch before and after the solve.
    begin, end = span
    assert [t for t in ticks if begin + (end - begin) / 3 < t < end - (end - begin) / 3]


# The first callback is a function of C, which leaves signals to the solve.
INTERRUPTED = """
import os, signal, sys, threading, time
import ceres_ext, numpy
from conftest import OPTIONS, make_problem, repeated

def read():
    return repeated(ceres_ext.read_bal(sys.argv[1]), 40)

seen = []
callback = seen.append if sys.argv[2] == "c" else lambda i: seen.append(i)

def interrupt():
    while len(seen) < 4:
        time.sleep(1e-3)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt).start()
bal = read()
try:
    ceres_ext.solve(make_problem(bal), callback=callback, max_num_iterations=10**6, **OPTIONS)
except KeyboardInterrupt:
    print("interrupted")

def is_state_after(iterations):
    again = read()
    ceres_ext.solve(make_problem(again), max_num_iterations=iterations, **OPTIONS)
    return numpy.array_equal(bal.points, again.points) and numpy.array_equal(
        bal.cameras, again.cameras
    )

# The iteration after which the signal was noticed, before its callback or in it.
last = seen[-1].iteration
assert is_state_after(last + 1) or is_state_after(last)
summary = ceres_ext.solve(make_problem(read()), max_num_iterations=10**6, **OPTIONS)
assert 4 <= len(seen) < len(summary.iterations), (len(seen), len(summary.iterations))
"""


@pytest.mark.parametrize("callback", ["c", "python"])
def test_interrupt_keeps_the_best_state(bal_path, callback, request):
    child = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(bal_path), callback],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=request.path.parent,
    )
    assert (child.stdout, child.returncode) == ("interrupted\n", 0), child.stderr
