# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""A solver whose package does not exist."""
import json
import sys

assert sys.argv[1] == 'describe', 'must not start'
print(json.dumps({'name': 'missing', 'kinds': ['bal'], 'prepares': False,
                  'packages': ['no-such-package==1.0'],
                  'settings': {'default': {'device': 'host'}}}))
