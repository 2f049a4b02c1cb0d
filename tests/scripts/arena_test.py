#!/usr/bin/env python3
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""arena_test.py ARENA BINARIES

benchmarks/arena/arena with solvers that are right, wrong, void, failing and missing,
on a small BAL problem and a small COLMAP model; small problems of the other kinds, which
need numpy; and its page of a record by hand.
"""
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile

OTHERS = (['windows-3', 'sphere-64', 'grid-64', 'positions-30-near', 'covariance-8']
          if importlib.util.find_spec('numpy') else [])
FAKES = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'arena')
# Ending, what its sentence has, and why on the model.
EXPECTED = {
    'fake:honest': ('solved', ''),
    'fake:wrong_cost': ('solved', 'claims costs that are wrong by up to'),
    'fake:other_objective': ('void', 'Its objective differs'),
    'fake:no_parameters': ('void', 'no parameters'),
    'fake:fails': ('failed', 'RuntimeError: the solver stopped (exit code 1)'),
    'fake:other_bits': ('solved', ''),
    'fake:too_fast': ('void', 'exceed those of its process'),
    'fake:unreadable': ('failed', 'Its parameters are unusable'),
    'fake:fewer_points': ('solved', ''),
    'fake:too_large': ('missing', 'left out above 10 observations'),
    'missing:default': ('missing', 'no-such-package'),
    'needy:default': ('missing', 'requires no-such-program')}


def find(folder, name):
  return next(os.path.join(where, name) for where, _, files in os.walk(folder)
              if name in files)


def run_fakes(arena, binaries, folder):
  """The record's lines, and its text."""
  data, wheels = os.path.join(folder, 'data'), os.path.join(folder, 'wheels')
  os.makedirs(wheels)
  os.makedirs(data)
  generate = [find(binaries, 'bal_generate'), '--num_cameras=6', '--num_points=60',
              '--num_observations=240', '--drift_rotation=0.001',
              '--drift_translation=0.03']
  for flags in (['--output=' + os.path.join(data, 'tiny.txt.gz')],
                ['--output=' + os.path.join(data, 'model'), '--camera_model=RADIAL'],
                ['--output=' + os.path.join(data, 'other'), '--camera_model=RADIAL',
                 '--num_points=50']):
    subprocess.run(generate + flags, check=True, stdout=subprocess.DEVNULL)
  command = [arena, 'run', binaries, os.path.join(folder, 'out'), '--adapters=' + FAKES,
             '--data=' + data, '--problems=' + ','.join(['tiny', 'model', *OTHERS]),
             '--wheels=' + wheels, '--iterations=4', '--threads=1']
  path = os.path.join(folder, 'record', 'arena.jsonl')

  def run(*flags):
    """The runs in the record."""
    subprocess.run([*command, '--record=' + path, *flags], check=True,
                   stdout=subprocess.DEVNULL)
    with open(path, encoding='utf-8') as file:
      return [line for line in map(json.loads, file) if 'run' in line]

  assert not run('--seconds=0'), 'a run began after the end'
  # Each cell runs once before any is repeated, which none is that took long.
  once = run('--seconds=900', '--runs=2', '--repeat=0')
  lines = run('--seconds=900', '--runs=2')
  assert lines[:len(once)] == once, 'the record was changed'
  assert all(line['run'] == 0 or line['ending'] == 'missing' for line in once), once
  assert run('--seconds=900', '--runs=2') == lines, 'runs were repeated'
  return path, lines


def check_fakes(lines):
  runs = {(line['problem'], line['cell'], line['run']): line for line in lines}
  expected = {(problem, cell, run) for problem in ('tiny', 'model') for cell in EXPECTED
              for run in (0, 1) if problem == 'tiny' or cell.startswith('fake')}
  expected |= {(problem, cell, run) for problem in OTHERS for run in (0, 1)
               for cell in ('fake:honest', 'fake:wrong_cost')}
  assert set(runs) == expected, set(runs) ^ expected
  for (problem, cell, _), run in runs.items():
    if problem in OTHERS:
      continue
    ending, why = EXPECTED[cell]
    if (problem, cell) == ('model', 'fake:fewer_points'):
      ending, why = 'failed', 'its sizes are'
    assert run['ending'] == ending, run
    assert why in run['why'] and bool(why) == bool(run['why']), run
  for problem in ('tiny', 'model'):
    first, second = (runs[problem, 'fake:honest', n] for n in (0, 1))
    assert first['bits'] == second['bits']
    # The first run has audited states between, the last state of each is audited.
    assert sum(audited for _, _, audited in first['stamps']) >= 3, first
    assert [audited for _, _, audited in second['stamps']][-1] == 1
    assert first['error_of_claims'] < 1e-9 and first['host_bytes'] > 1e6
    assert first['stamps'][-1][1] < first['initial_cost']
    assert runs[problem, 'fake:other_bits', 1]['bits'] != first['bits']
    # The audit has the cost of the parameters, not the one that is claimed, and drops
    # what is between.
    wrong = runs[problem, 'fake:wrong_cost', 1]
    assert abs(wrong['stamps'][-1][1] / wrong['initial_cost'] - 1) < 1e-12, wrong
    assert all(audited for _, _, audited in wrong['stamps']), wrong


def check_others(lines):
  runs = {(line['problem'], line['cell'], line['run']): line for line in lines}
  for problem in OTHERS:
    is_covariance = problem.startswith('covariance')
    first, second = (runs[problem, 'fake:honest', n] for n in (0, 1))
    assert first['ending'] == 'solved' and not first['why'], first
    assert first['bits'] == second['bits'] and first['error_of_claims'] < 1e-9, first
    assert sum(audited for _, _, audited in first['stamps']) >= (
        1 if is_covariance else 3), first
    # Covariances are exact, and the others solved in the first steps.
    last = first['stamps'][-1][1]
    assert last - 1 < 1e-7 if is_covariance else last < 0.1 * first['initial_cost'], first
    assert ('windows' in first) == problem.startswith('windows'), first
    wrong = runs[problem, 'fake:wrong_cost', 0]
    assert is_covariance or 'claims costs' in wrong['why'], wrong
    assert wrong['stamps'][-1][1] == wrong['initial_cost'], wrong


def page_of(arena, folder, paths):
  page = os.path.join(folder, 'page.md')
  subprocess.run([arena, 'page', page, *paths, '--no-plots'], check=True,
                 stdout=subprocess.DEVNULL)
  with open(page, encoding='utf-8') as file:
    return file.read()


def check_fake_page(text):
  # A void, failed or missing cell has a sentence instead of seconds.
  assert '| `fake:honest` |' in text
  for cell, (ending, why) in EXPECTED.items():
    row = re.search(rf'^\| `{cell}` \| (void|failed|missing|audited costs only) \|.*$',
                    text, re.MULTILINE)
    if why:
      assert row and why in row.group(), (cell, row)
      assert row.group(1) == ('audited costs only' if ending == 'solved' else ending)
  assert re.search(r'^\| `fake:honest` \|.* yes \|$', text, re.MULTILINE)
  assert re.search(r'^\| `fake:other_bits` \|.* no \|$', text, re.MULTILINE)


def check_page_by_hand(arena, folder):
  """Three runs each; the best cost is 100, by the rival."""
  path = os.path.join(folder, 'hand.jsonl')
  facts = {'problem': 'hand', 'kind': 'bal', 'initial_cost': 900.0, 'cameras': 2,
           'points': 3, 'observations': 4567}
  stamps = {
      'ceres_ext:default': [[0.5, 900.0, 0], [2.0, 100.9, 0], [6.0, 100.05, 1]],
      'rival:fast': [[0.5, 900.0, 0], [1.0, 100.8, 1], [9.0, 100.0, 1]],
      # A run of it fails, so its times do not count.
      'rival:fragile': [[0.1, 100.0, 1]]}
  with open(path, 'w', encoding='utf-8') as file:
    file.write(json.dumps({'machine': {
        'gpu': 'a GPU', 'cpu': 'a processor', 'cores': 2, 'date': '2000-01-02', 'runs': 3,
        'threads': 2, 'iterations': 9, 'limit': 60, 'commit': 'abc', 'versions': {
            'rival': ['rival==1.0']}}}) + '\n')
    for cell, of in stamps.items():
      for run in range(3):
        line = dict(facts, cell=cell, run=run, ending='solved', why='', bits='x',
                    # The median counts.
                    stamps=[[s * (1, 1, 50)[run], c, a] for s, c, a in of],
                    columns={'set_up': 0.25}, device_bytes=2e9, host_bytes=1e9)
        if cell == 'rival:fragile' and run == 1:
          line.update(ending='failed', why='It crashed.', stamps=[])
        file.write(json.dumps(line) + '\n')
  text = page_of(arena, folder, [path])
  for line in (
      'a GPU, 2 cores (a processor), 2000-01-02, commit `abc`; 2 threads, up to 3 runs '
      'of at most 9 iterations and 60 s; rival==1.0.',
      # 2 s over 1 s; 6 s over 9 s; it never gets to 1e-5.
      '| hand | 2 | 4,567 | **2, rival:fast** | 0.667, rival:fast | '
      'never / 9 s, rival:fast |',
      '| `ceres_ext:default` | 2 | 6 | – | 0.05 | 0.25 | – | – | – | 2 | 1 | '
      '3 | yes |',
      '| `rival:fragile` | failed | It crashed. | hand |',
      'on 0 of 1 problems and slower on 1.', 'on 1 of 1 problems and slower on 0.'):
    assert line in text, (line, text)
  assert '| `rival:fragile` | 0' not in text


def check_kinds_by_hand(arena, folder):
  """An error of a covariance is the same on any scale of costs; windows have a rate."""
  path = os.path.join(folder, 'kinds.jsonl')
  facts = {'initial_cost': 2.0, 'cameras': 2, 'points': 3, 'observations': 4567}
  stamps = {'ceres_ext:default': [[2.0, 1.0000001, 1]], 'rival:fast': [[1.0, 1.004, 1]]}
  with open(path, 'w', encoding='utf-8') as file:
    for problem, kind, more in (('cov', 'covariance', {}),
                                ('win', 'windows', {'windows': 500})):
      for cell, of in stamps.items():
        file.write(json.dumps(dict(
            facts, **more, problem=problem, kind=kind, cell=cell, run=0, ending='solved',
            why='', bits='x', stamps=of, columns={})) + '\n')
  text = page_of(arena, folder, [path])
  for line in (
      '### Covariances of poses',
      '| cov | 2 | 4,567 | **2, rival:fast** | 2 s / never | 2 s / never |',
      '2 cameras, 3 points, 4,567 observations; the largest error is in standard '
      'deviations.',
      '| `rival:fast` | 1 | – | – | 0.4 | – |',
      '500 windows, 2 cameras, 3 points, 4,567 observations; cost 2 at the start',
      '| `ceres_ext:default` | 2 | 2 | 2 | 250 | 0 | – |'):
    assert line in text, (line, text)


def main():
  arena, binaries = sys.argv[1:]
  # Programs flush what they write, which takes long on a disk.
  memory = '/dev/shm' if os.path.isdir('/dev/shm') else None
  with tempfile.TemporaryDirectory(dir=memory) as folder:
    path, lines = run_fakes(arena, binaries, folder)
    check_fakes(lines)
    check_others(lines)
    check_fake_page(page_of(arena, folder, [path]))
    check_page_by_hand(arena, folder)
    check_kinds_by_hand(arena, folder)


if __name__ == '__main__':
  main()
