# SPDX-License-Identifier: MIT
"""The examples of the docstrings, and the stubs beside the code they describe."""
import ast
import doctest
import importlib
import inspect
import pathlib
import sys

import clearhead

failed = 0
for name in ("clearhead", "clearhead.models", "clearhead.commands", "clearhead.results", "clearhead.bars"):
    module = importlib.import_module(name)
    result = doctest.testmod(module)
    print(f"{name}: {result.attempted} examples, {result.failed} failed")
    failed += result.failed
    if name == "clearhead":
        continue
    # Every public name has a stub with the same parameters, and no stub is about nothing.
    stub = ast.parse(pathlib.Path(module.__file__).with_suffix(".pyi").read_text())
    functions = {node.name: node for node in stub.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    for public, thing in vars(module).items():
        if public.startswith("_") or getattr(thing, "__module__", None) != name:
            continue
        if public not in functions:
            print(f"{name}.{public} has no stub")
            failed += 1
        elif inspect.isfunction(thing):
            a = functions[public].args
            stubbed = [x.arg for x in a.args + ([a.vararg] if a.vararg else []) + a.kwonlyargs + ([a.kwarg] if a.kwarg else [])]
            if stubbed != list(inspect.signature(thing).parameters):
                print(f"{name}.{public}: the stub has {stubbed}")
                failed += 1
    for stubbed in functions:
        if not hasattr(module, stubbed):
            print(f"{name}: the stub of {stubbed} is about nothing")
            failed += 1
for name in clearhead.__all__:
    if not getattr(clearhead, name).__doc__:
        print(f"clearhead.{name} has no docstring")
        failed += 1
native = ast.parse(pathlib.Path(clearhead.__file__).with_name("_clearhead.pyi").read_text())
for node in native.body:
    if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not hasattr(clearhead._clearhead, node.name):
        print(f"the stub of _clearhead.{node.name} is about nothing")
        failed += 1
    if isinstance(node, ast.ClassDef):
        for inner in node.body:
            if isinstance(inner, ast.FunctionDef) and not hasattr(getattr(clearhead._clearhead, node.name), inner.name):
                print(f"the stub of _clearhead.{node.name}.{inner.name} is about nothing")
                failed += 1
sys.exit(1 if failed else 0)
