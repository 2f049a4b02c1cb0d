# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""repr, pickle and to_dict of options, losses, manifolds and summaries."""

import copy
import json
import pickle

import pytest
from conftest import OPTIONS, make_problem

import ceres_ext

LOSSES = [
    ceres_ext.TrivialLoss(),
    ceres_ext.HuberLoss(1.5),
    ceres_ext.SoftLOneLoss(0.1),
    ceres_ext.CauchyLoss(3.0),
    ceres_ext.ArctanLoss(2.0),
    ceres_ext.TukeyLoss(4.0),
    ceres_ext.TolerantLoss(1.0, 0.25),
    ceres_ext.ScaledLoss(None, 0.5),
    ceres_ext.ScaledLoss(ceres_ext.HuberLoss(0.3), 7.0),
    ceres_ext.ComposedLoss(ceres_ext.CauchyLoss(1.0), ceres_ext.HuberLoss(2.0)),
]
MANIFOLDS = [
    ceres_ext.EuclideanManifold(3),
    ceres_ext.SphereManifold(3),
    ceres_ext.LineManifold(3),
    ceres_ext.SubsetManifold(9, [0, 7]),
    ceres_ext.QuaternionManifold(),
    ceres_ext.EigenQuaternionManifold(),
    ceres_ext.BalCameraManifold(),
    ceres_ext.ProductManifold(
        ceres_ext.QuaternionManifold(), ceres_ext.SubsetManifold(6, [3])
    ),
    ceres_ext.ProductManifold(
        ceres_ext.QuaternionManifold(), ceres_ext.EuclideanManifold(6)
    ),
]
NAMES = {name: getattr(ceres_ext, name) for name in ceres_ext.__all__}


def copies(value):
    yield pickle.loads(pickle.dumps(value))
    yield copy.deepcopy(value)
    yield eval(repr(value), dict(NAMES))


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_copies_of_a_loss(loss):
    for again in copies(loss):
        assert type(again) is type(loss)
        assert repr(again) == repr(loss)
        for s in (0.0, 0.01, 1.0, 30.0):
            assert again.evaluate(s) == loss.evaluate(s)


@pytest.mark.parametrize("manifold", MANIFOLDS, ids=repr)
def test_copies_of_a_manifold(manifold):
    for again in copies(manifold):
        assert type(again) is type(manifold)
        assert repr(again) == repr(manifold)
        assert again.ambient_size == manifold.ambient_size
        assert again.tangent_size == manifold.tangent_size


def test_copies_of_options():
    assert repr(ceres_ext.SolverOptions()) == "SolverOptions()"
    options = ceres_ext.SolverOptions(
        max_num_iterations=7,
        preconditioner_type="jacobi",
        linear_solver="auto",
        device="host",
        eta=0.3,
    )
    # linear_solver is as given, although types were set before it.
    assert options.linear_solver == "AUTO"
    for again in copies(options):
        assert again.to_dict() == options.to_dict()
    assert "eta=0.3" in repr(options) and "max_num_iterations=7" in repr(options)
    values = options.to_dict()
    assert json.loads(json.dumps(values)) == values
    assert len(values) > 50


def test_a_summary_that_was_pickled(bal):
    summary = ceres_ext.solve(make_problem(bal), max_num_iterations=3, **OPTIONS)
    values = summary.to_dict()
    assert json.loads(json.dumps(values)) == values
    assert len(values["iterations"]) == 4
    for again in (pickle.loads(pickle.dumps(summary)), copy.deepcopy(summary)):
        assert isinstance(again, ceres_ext.SavedSummary)
        assert again.to_dict() == values
        assert again.final_cost == summary.final_cost
        assert again.iterations[2].cost == summary.iterations[2].cost
        assert again.full_report() == summary.full_report()
        assert again.is_solution_usable()
        assert (
            again.degenerate_other_blocks.count == summary.degenerate_other_blocks.count
        )
        with pytest.raises(AttributeError, match="final_kost"):
            again.final_kost
        # Pickled twice, it is the same.
        assert pickle.loads(pickle.dumps(again)).to_dict() == values
    iteration = summary.iterations[1]
    assert pickle.loads(pickle.dumps(iteration)).cost == iteration.cost


def test_progress(bal, capsys):
    ceres_ext.solve(
        make_problem(bal),
        max_num_iterations=2,
        callback=ceres_ext.print_progress,
        **OPTIONS,
    )
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[0].split()[:2] == ["iter", "cost"]
    assert [int(line.split()[0]) for line in lines[1:]] == [0, 1, 2]
    assert len({len(line) for line in lines}) == 1
