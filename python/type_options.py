# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""type_options.py NAMES OUTPUT

Types the options that functions take by name. NAMES is the stub that nanobind
makes, where they are **values or **values: object. In OUTPUT they are OptionValues, a
dictionary with the names and types of the attributes of SolverOptions, so that a
type checker finds a misspelt name or value.
"""

import ast
import re
import sys

names, output = sys.argv[1:]
with open(names) as file:
    text = file.read()
options = next(
    node
    for node in ast.parse(text).body
    if isinstance(node, ast.ClassDef) and node.name == "SolverOptions"
)
types = {
    member.name: ast.unparse(member.returns)
    for member in options.body
    if isinstance(member, ast.FunctionDef)
    and any(ast.unparse(mark) == "property" for mark in member.decorator_list)
}
untyped = re.compile(r"\*\*values(: object)?(?=[,)])")
if len(types) < 40 or not untyped.search(text):
    sys.exit(f"{names}: expected SolverOptions and functions with **values")
text = untyped.sub("**values: typing_extensions.Unpack[OptionValues]", text)
# For mypy --strict.
text = re.sub(r"(?<=[>:] )tuple(?=[:,)])", "tuple[typing.Any, ...]", text)
text = re.sub(r"(?<=[>:] )dict(?=[:,)])", "dict[str, typing.Any]", text)
# Before the other imports.
text = re.sub(
    r"^(?=from |import )",
    "import typing\nimport typing_extensions\n",
    text,
    count=1,
    flags=re.MULTILINE,
)
lines = [f"    {name}: {type}" for name, type in types.items()]
with open(output, "w") as file:
    file.write(
        f"{text}\n__version__: str\n\n\nclass OptionValues(typing.TypedDict, total=False):\n"
        + '    """Attributes of SolverOptions by name."""\n\n'
        + "\n".join(lines)
        + "\n"
    )
