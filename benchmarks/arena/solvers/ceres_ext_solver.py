# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""This library, by its programs."""
from adapter import main, solve_by_program

SMALL = ['windows', 'poses', 'positions', 'covariance']

main({'name': 'ceres_ext', 'packages': [], 'kinds': ['bal', 'colmap', *SMALL],
      'settings': {
          'default': {'device': 'auto', 'flags': []},
          'mixed': {'device': 'cuda', 'precision': 'float', 'kinds': ['bal', 'colmap'],
                    'flags': ['--device=cuda', '--precision=mixed']},
          'cuda': {'device': 'cuda', 'flags': ['--device=cuda'], 'kinds': SMALL},
          'host': {'device': 'host', 'flags': ['--device=host']},
          # Almost Gauss-Newton: a graph of poses starts close to a minimum.
          'best': {'device': 'cuda', 'kinds': ['poses'], 'radius': 1e8,
                   'flags': ['--device=cuda', '--linear_solver=iterative_schur',
                             '--preconditioner=schur_jacobi']}}},
     lambda job: solve_by_program(job, job.setting['flags']))
