# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""A solver that requires a program that no machine has."""
import json
import sys

assert sys.argv[1] == 'describe', 'must not start'
print(json.dumps({'name': 'needy', 'kinds': ['bal'], 'prepares': False,
                  'needs': ['no-such-program'], 'packages': ['no-such-package==1.0'],
                  'settings': {'default': {'device': 'host'}}}))
