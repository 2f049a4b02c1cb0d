#!/usr/bin/env python3
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""gpu_preconditioners_test.py SCRIPT BINARIES

Runs scripts/gpu_preconditioners on the host with problems of a second: each
problem has a run by each method, which solved it, a row in a table, and the
seconds to its least cost behind that.
"""
import json
import os
import subprocess
import sys
import tempfile

METHODS = ['identity', 'jacobi', 'schur_jacobi', 'schur_power_series_expansion',
           'two_level', 'auto', 'default', 'exact',
           'stock cluster_jacobi', 'stock cluster_tridiagonal']
# No problem of the BAL data set has 53 cameras; they have two clusters or more.
CAMERAS, STRIPS = 53, 53


def main():
  script, binaries = sys.argv[1:]
  with tempfile.TemporaryDirectory() as output:
    done = subprocess.run(
        [script, binaries, output, f'--streets={CAMERAS}', f'--strips={STRIPS}',
         '--device=host', '--iterations=3', '--limit=60', '--seconds=900'],
        stdout=subprocess.PIPE, check=True)
    with open(os.path.join(output, 'preconditioners.json'),
              encoding='utf-8') as file:
      runs = json.load(file)['runs']
  table = done.stdout.decode().splitlines()
  names = [f'street {CAMERAS} near', f'street {CAMERAS} far',
           f'strips {STRIPS}', f'robust {CAMERAS}', f'shared {CAMERAS} near',
           f'shared {CAMERAS} far']
  times = [line for line in table if line.startswith('Seconds to 0.1 %')]
  assert len(times) == len(names), times
  for line in times:
    assert all(f' {method} ' in line for method in METHODS[:-2]), line
  expected = {(name, method) for name in names for method in METHODS}
  found = {(run['problem'], run['method']) for run in runs}
  assert found == expected, found ^ expected
  assert len(runs) == len(expected), runs
  for run in runs:
    what = run['problem'], run['method'], run['ending']
    rows = [row for row in table if row.startswith(f'| {run["method"]} |')]
    assert len(rows) == len(names), (what, rows)
    if run['method'].startswith('stock') and run['ending'] != 'solved':
      continue  # Without SuiteSparse, Ceres has none.
    assert run['ending'] == 'solved', what
    assert run['steps'] > 0, what
    if run['method'] == 'default':
      continue  # It may take either.
    assert (run['iterations'] > 0) == (run['method'] != 'exact'), what
    second = run['iterations_with_second_level']
    assert (second > 0) == (run['method'] == 'two_level') or (
        run['method'] == 'auto'), what


if __name__ == '__main__':
  main()
