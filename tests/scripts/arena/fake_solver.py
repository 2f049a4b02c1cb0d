# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Solvers that behave as their settings say; they solve by bundle_adjuster and
colmap_adjuster on the host."""
import os
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../..',
                                'benchmarks/arena/solvers'))
from adapter import main, solve_by_program  # pylint: disable=wrong-import-position

BEHAVIOURS = ('honest', 'wrong_cost', 'other_objective', 'no_parameters', 'fails',
              'other_bits', 'too_fast', 'unreadable', 'fewer_points', 'too_large')


def solve(job):
  what = job.setting['behaviour']
  if what == 'fails':
    raise RuntimeError('the solver stopped')
  solve_by_program(job, ['--device=host'])
  last = job.stamps[-1]
  if what == 'wrong_cost':
    # It claims to have reached half of the cost, with the start's parameters.
    last['state'] = job.problem
    last['cost'] = last['cost'] and 0.5 * last['cost']
  elif what == 'other_objective':
    job.initial_cost *= 1.001
  elif what == 'no_parameters':
    last['state'] = None
  elif what == 'other_bits' and not job.states:
    last.update(state=job.problem, cost=None)
  elif what == 'too_fast':
    last['seconds'] = 1e6
  elif what == 'unreadable':
    last['state'] = os.path.join(job.folder, 'nothing.npz')
  elif what == 'fewer_points' and job.kind == 'colmap':
    last['state'] = os.path.join(job.folder, 'fewer')
    shutil.copytree(os.path.join(os.path.dirname(os.path.dirname(job.folder)), 'data',
                                 'other'), last['state'])


BUNDLES = ['bal', 'colmap']

main({'name': 'fake', 'packages': [],
      'kinds': [*BUNDLES, 'windows', 'poses', 'positions', 'covariance'],
      'settings': {name: dict({'device': 'host', 'behaviour': name},
                              **({} if name in ('honest', 'wrong_cost') else
                                 {'kinds': BUNDLES}),
                              **({'most_observations': 10} if name == 'too_large'
                                 else {})) for name in BEHAVIOURS}}, solve)
