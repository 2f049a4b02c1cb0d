#!/usr/bin/env python3
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""count_arithmetic_test.py SCRIPT

Counts with a made-up profiler and programs, whose kernels take what their flags say, and
makes a page of the record.
"""
import json
import os
import subprocess
import sys
import tempfile

# The profiler: PCG of 11 double and 7 float an iteration, steps of 100 and of 30 in an
# evaluation, on 1,000 observations; and a set-up of 5, which no difference has.
NCU = '''#!/usr/bin/env python3
import json, os, sys
arguments = sys.argv[1:]
path = arguments[arguments.index('--log-file') + 1]
metrics = arguments[arguments.index('--metrics') + 1].split(',')
program = os.path.basename(arguments[arguments.index('--log-file') + 2])
flags = dict(a[2:].split('=', 1) for a in arguments if a.startswith('--') and '=' in a)
rows = [('void ns::(anonymous namespace)::SetupKernel<int>(T1)', 5, 0)]
if program == 'bundle_adjuster':
  steps = int(flags['num_iterations'])
  pcg = steps * int(flags.get('max_linear_solver_iterations', 0))
  if flags['precision'] == 'mixed' and flags['jacobian'] == 'recomputed':
    if os.environ.get('BREAK_NCU'):
      sys.exit(3)
  one = 'void ns::ForEachKernel<tag<Status (*)(const ns::CopyParams&)>>(long)'
  rows += [(one, 11, 7)] * pcg
  rows += [('void ns::StepKernel<double, (int)2>(T1)', 100, 0),
           ('void ns::EvaluateRowsKernel(T1)', 30, 0)] * steps
  with open(flags['report_json'], 'w') as file:
    json.dump({'problem': {'num_observations': 1000},
               'ceres_ext': {'num_pcg_iterations': pcg}}, file)
elif program == 'batch_benchmark':
  counts = {'precision=double': (5120, 51200), 'precision=mixed': (5120, 0)}
  rows += [('SolveWindowsKernel(P)', *counts[flags['ext_options']])] * int(
      flags['repeats'])
else:
  rows += [('potrf_kernel', 3, 0)] * int(flags['repetitions'])
with open(path, 'w') as file:
  file.write('==PROF== a line of something else\\n')
  quoted = lambda cells: ','.join('"%s"' % cell for cell in cells) + '\\n'
  file.write(quoted(['ID', 'Kernel Name', *metrics]))
  units = ['ns' if m.startswith('gpu') else 'byte' if m.startswith('dram') else 'inst'
           for m in metrics]
  file.write(quoted(['', '', *units]))
  for k, (name, double, single) in enumerate(rows):
    of = {'gpu__time_duration.sum': '2,000', 'dram__bytes.sum': '64000',
          'smsp__sass_thread_inst_executed_op_dfma_pred_on.sum': 1000 * double,
          'smsp__sass_thread_inst_executed_op_ffma_pred_on.sum': 1000 * single,
          'smsp__sass_thread_inst_executed_op_integer_pred_on.sum': 500}
    file.write(quoted([k, name, *(of.get(m, 0) for m in metrics)]))
'''
GENERATE = '#!/bin/sh\nfor a; do case "$a" in --output=*) : >"${a#--output=}" ;; esac; done\n'


def write(path, text):
  with open(path, 'w', encoding='utf-8') as file:
    file.write(text)
  os.chmod(path, 0o755)


def near(found, expected):
  assert abs(found - expected) <= 1e-9 * abs(expected), (found, expected)


def run(command, env=None, status=0):
  done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True,
                        stderr=subprocess.PIPE, check=False)
  assert done.returncode == status, (command, done)
  return done


def main():
  script = sys.argv[1]
  with tempfile.TemporaryDirectory() as folder:
    binaries = os.path.join(folder, 'bin')
    os.mkdir(binaries)
    for name in ('bundle_adjuster', 'batch_benchmark', 'covariance_benchmark'):
      write(os.path.join(binaries, name), '#!/bin/sh\nexit 1\n')
    write(os.path.join(binaries, 'bal_generate'), GENERATE)
    tools = os.path.join(folder, 'tools')
    os.mkdir(tools)
    write(os.path.join(tools, 'ncu'), NCU)
    env = dict(os.environ, PATH=tools + ':' + os.environ['PATH'])
    output = os.path.join(folder, 'out')
    run([script, binaries, output], env)
    path = os.path.join(output, 'arithmetic.json')
    with open(path, encoding='utf-8') as file:
      record = json.load(file)
    runs = {(r['case'], r['precision'], r['jacobian']): r for r in record['runs']}
    assert len(runs) == len(record['runs']) == 4 + 4 + 2 + 2 + 1, runs.keys()
    for precision in ('double', 'mixed'):
      for jacobian in ('stored', 'recomputed'):
        pcg = runs['pcg', precision, jacobian]
        assert list(pcg['kernels']) == ['ForEachKernel Copy'], pcg
        kernel = pcg['kernels']['ForEachKernel Copy']
        near(kernel['launches'], 1.0)
        near(kernel['dfma'], 11000.0)
        near(kernel['ffma'], 7000.0)
        near(kernel['integer'], 500.0)
        near(kernel['bytes'], 64000.0)
        near(kernel['seconds'], 2e-6)
        step = runs['step', precision, jacobian]['kernels']
        assert sorted(step) == ['EvaluateRowsKernel', 'StepKernel'], step
        near(step['StepKernel']['dfma'], 100000.0)
        near(step['EvaluateRowsKernel']['dfma'], 30000.0)
    for precision, operation, expected in [('double', 'ffma', 51200),
                                           ('mixed', 'dfma', 5120)]:
      kernels = runs['windows', precision, 'recomputed']['kernels']
      near(kernels['SolveWindowsKernel'][operation], 1000.0 * expected / (512 * 10))
    near(runs['exact', 'double', 'stored']['kernels']['StepKernel']['dfma'], 100000.0)
    near(runs['covariance', 'double', 'stored']['kernels']['potrf_kernel']['dfma'],
         3000.0)

    # Mixed precision alone, which replaces that part of a record.
    other = os.path.join(folder, 'mixed')
    run([script, binaries, other, '--precision=mixed', 'pcg'], env)
    later = os.path.join(other, 'arithmetic.json')
    with open(later, encoding='utf-8') as file:
      again = json.load(file)
    assert [r['precision'] for r in again['runs']] == ['mixed', 'mixed'], again
    again['source_hash'] = 'later'
    again['runs'][0]['kernels']['ForEachKernel Copy']['dfma'] *= 2.0
    with open(later, 'w', encoding='utf-8') as file:
      json.dump(again, file)
    both = run([script, 'page', f'{path},{later}']).stdout
    assert 'later (pcg in mixed precision), by' in both, both
    assert '| PCG iteration | mixed | stored | 22.0 | 7.00 |' in both, both
    assert '| PCG iteration | mixed | recomputed | 11.0 | 7.00 |' in both, both
    assert '| PCG iteration | double | stored | 11.0 | 7.00 |' in both, both

    # A card of 1:50 whose double takes longest, and one whose memory does.
    page = run([script, 'page', path, '--card=narrow, 1:50,2000,10,50',
                '--card=slow,1,10,2', '--observations=1000000000', '--steps=2',
                '--iterations=3']).stdout
    # 11 x 50 / 1e13 s an observation; 64 B / 1e9.
    expected = '| PCG iteration | double | stored | 55.0 double | 64000 memory |'
    assert expected in page, page
    assert '| evaluations of a step | mixed | stored | 150 double | 64000 memory |' in page
    assert '| PCG iteration | double | stored | 11.0 | 7.00 | 0.50 | 64.0 | 2000 |' in page
    # 2 x 130 x 5e-12 + 6 x 55e-12 of a thousand million, and 2 x 128 + 6 x 64 B.
    assert '| double | recomputed | 1.63 | 640 |' in page, page
    assert 'This is a model' in page
    run([script, 'page', path, os.path.join(folder, 'page.md')])
    with open(os.path.join(folder, 'page.md'), encoding='utf-8') as file:
      assert '1:64, 1 TB/s' in file.read()
    for card in ('x', 'x,1,2', 'x,1,2,0', 'x,1,-2,3', ',1,2,3'):
      error = run([script, 'page', path, '--card=' + card], status=2).stderr
      assert 'expected NAME,GB/S,FLOAT,RATIO' in error, error
    write(os.path.join(folder, 'other.json'), '{"format": "other"}')
    run([script, 'page', os.path.join(folder, 'other.json')], status=1)

    # A failure and the end of the time leave the rest, and are said.
    done = run([script, binaries, output, 'pcg', '--seconds=60'],
               dict(env, BREAK_NCU='1'), status=1)
    assert 'pcg mixed recomputed: bundle_adjuster under ncu' in done.stderr, done
    with open(path, encoding='utf-8') as file:
      assert len(json.load(file)['runs']) == 3
    done = run([script, binaries, output, 'exact', '--seconds=1'], env, status=1)
    assert 'there is no time left' in done.stderr, done
    # Without a profiler.
    bare = {**os.environ, 'PATH': '/nothing'}
    done = run([sys.executable, script, binaries, output], bare, status=1)
    assert 'there is no ncu' in done.stderr, done


if __name__ == '__main__':
  main()
