# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Stock Ceres 2.2.0 by the same programs, with this library's analytic cost
functions. The function tolerance is as for all. arena_solve.cc has its linear solver
by the kind of problem; it solves windows side by side, one thread each."""
from adapter import main, solve_by_program

BUNDLES = ['bal', 'colmap']
OTHERS = ['windows', 'poses', 'positions']

main({'name': 'stock_ceres', 'packages': [],
      'kinds': [*BUNDLES, *OTHERS, 'covariance'],
      'settings': {
          # The linear solvers that Ceres's documentation recommends by size; S has
          # 81 doubles for each pair of cameras.
          'default': {'device': 'host', 'flags': ['--linear_solver=sparse_schur'],
                      'most_cameras': 5000, 'kinds': BUNDLES},
          'by_kind': {'device': 'host', 'flags': [], 'kinds': OTHERS},
          # As `best` of ceres_ext.
          'best': {'device': 'host', 'flags': [], 'kinds': ['poses'], 'radius': 1e8},
          # No limit ends it; 400 cameras take minutes (docs/measurements/covariance.md).
          'sparse_qr': {'device': 'host', 'flags': [], 'kinds': ['covariance'],
                        'most_cameras': 300},
          'dense_schur': {'device': 'host', 'flags': ['--linear_solver=dense_schur'],
                          'most_cameras': 1800, 'kinds': BUNDLES},
          'iterative_schur': {'device': 'host', 'kinds': BUNDLES,
                              'flags': ['--linear_solver=iterative_schur']},
          'dense_schur_cuda': {'device': 'cuda', 'most_cameras': 5000, 'kinds': BUNDLES,
                               'flags': ['--linear_solver=dense_schur',
                                         '--dense_linear_algebra_library=cuda']},
          'cgnr_cuda': {'device': 'cuda', 'kinds': BUNDLES,
                        'flags': ['--linear_solver=cgnr', '--preconditioner=jacobi',
                                  '--sparse_linear_algebra_library=cuda_sparse']}}},
     lambda job: solve_by_program(job, job.setting['flags'], is_stock=True))
