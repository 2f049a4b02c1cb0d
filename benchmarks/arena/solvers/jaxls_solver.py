# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""jaxls on JAX, in double. The packages of PyPI named jaxls are another project;
almond-jaxls is a fork of it. The gradient test, with a tolerance that is always met,
ends a solve at any iteration without compiling it again."""
from adapter import main

ALWAYS, NEVER = 1e300, 0.0


def solve(job):
  import os
  os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')
  if job.setting['device'] == 'host':
    os.environ['JAX_PLATFORMS'] = 'cpu'
  import jax
  jax.config.update('jax_enable_x64', True)
  # Later runs find what the first one has compiled.
  jax.config.update('jax_compilation_cache_dir', os.path.join(job.work, 'compiled'))
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)
  import time
  import jaxlie
  import jaxls
  import numpy
  from jax import numpy as jnp

  class Camera(jaxls.Var[jax.Array], default_factory=lambda: jnp.zeros(9)):
    pass

  class Point(jaxls.Var[jax.Array], default_factory=lambda: jnp.zeros(3)):
    pass

  @jaxls.Cost.factory
  def reprojection(values, camera, point, observed):
    c = values[camera]
    p = jaxlie.SO3.exp(c[:3]) @ values[point] + c[3:6]
    xy = -p[:2] / p[2]
    square = xy @ xy
    # jaxls's cost is the sum of squares.
    return (c[6] * (1 + square * (c[7] + square * c[8])) * xy - observed) / 2 ** 0.5

  @jaxls.Cost.factory
  def relative_pose(values, a, b, z, weights):
    error = jaxlie.SE3(z).inverse() @ values[a].inverse() @ values[b]
    return weights * error.log() / 2 ** 0.5

  def poses():
    kind = jaxls.SE3Var
    variables = kind(jnp.arange(len(data['poses'])))
    edges, rotation_first = jnp.array(data['edges']), jnp.array(data['weights'])
    cost = relative_pose(
        kind(edges[:, 0]), kind(edges[:, 1]), jnp.array(data['measurements']),
        jnp.broadcast_to(jnp.repeat(rotation_first[::-1], 3), (len(edges), 6)))
    start = jaxls.VarValues.make(
        [variables.with_value(jaxlie.SE3(jnp.array(data['poses'])))])
    return cost, [variables], start, lambda values: (
        numpy.asarray(values.get_stacked_value(kind).wxyz_xyz),)

  def bundle():
    # Windows are one problem with one damping.
    cameras = Camera(jnp.arange(len(data['cameras'])))
    points = Point(jnp.arange(len(data['points'])))
    cost = reprojection(Camera(jnp.array(data['camera_index'])),
                        Point(jnp.array(data['point_index'])),
                        jnp.array(data['observations']))
    start = jaxls.VarValues.make([cameras.with_value(jnp.array(data['cameras'])),
                                  points.with_value(jnp.array(data['points']))])
    return cost, [cameras, points], start, lambda values: tuple(
        numpy.asarray(values.get_stacked_value(kind)) for kind in (Camera, Point))

  data = job.arrays()
  with job.column('start_of_cuda'):
    jnp.zeros(1).block_until_ready()
  with job.column('set_up'):
    cost, variables, start, state_of = (poses if job.kind == 'poses' else bundle)()
    problem = jaxls.LeastSquaresProblem([cost], variables).analyze()

  def run(iterations):
    begin = time.perf_counter()
    values, summary = problem.solve(
        start, linear_solver=job.setting['linear_solver'], verbose=False,
        termination=jaxls.TerminationConfig(
            max_iterations=job.iterations, parameter_tolerance=NEVER,
            cost_tolerance=job.setting['cost_tolerance'],
            gradient_tolerance=ALWAYS if iterations else NEVER,
            gradient_tolerance_start_step=iterations), return_summary=True)
    state = state_of(values)
    return state, summary, time.perf_counter() - begin

  with job.column('compile'):
    run(1)
  job.columns['compile'] -= run(1)[2]
  last, summary, seconds = run(0)
  job.initial_cost = float(summary.cost_history[0])
  steps = int(summary.iterations)
  job.begin()
  for k in filter(job.looks_at, range(1, steps)):
    state, _, at = run(k)
    job.stamp(state, None, at)
  job.stamp(last, float(summary.cost_history[max(steps - 1, 0)]) if steps < job.iterations
            else None, seconds)


main({'name': 'jaxls',
      'packages': ['almond-jaxls==0.1.0', 'jaxlie==1.5.0', 'jax-dataclasses==1.6.3',
                   'loguru==0.7.3', 'termcolor==3.3.0', 'tqdm==4.70.1', 'rich==15.0.0',
                   'typing-extensions==4.16.0', 'markdown-it-py==4.3.0',
                   'mdurl==0.1.2', 'pygments==2.21.0'],
      'packages_with_needs': ['jax[cuda13]==0.11.2'],
      'kinds': ['bal', 'windows', 'poses'],
      # A solve has no limit of time.
      'settings': {
          'default': {'device': 'cuda', 'linear_solver': 'conjugate_gradient',
                      'cost_tolerance': 1e-5, 'most_observations': 1500000},
          'best': {'device': 'cuda', 'linear_solver': 'conjugate_gradient',
                   'cost_tolerance': 1e-8, 'most_observations': 1500000},
          'host': {'device': 'host', 'linear_solver': 'conjugate_gradient',
                   'cost_tolerance': 1e-5, 'most_observations': 700000}}}, solve)
