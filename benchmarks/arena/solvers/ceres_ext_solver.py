# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""This library, by its programs."""
from adapter import main, solve_by_program

main({'name': 'ceres_ext', 'packages': [], 'kinds': ['bal', 'colmap'],
      'settings': {
          'default': {'device': 'auto', 'flags': []},
          'mixed': {'device': 'cuda', 'precision': 'float',
                    'flags': ['--device=cuda', '--precision=mixed']},
          'host': {'device': 'host', 'flags': ['--device=host']}}},
     lambda job: solve_by_program(job, job.setting['flags']))
