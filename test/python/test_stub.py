# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The stub of the extension module names what the module has."""

import ast
import pathlib

import commsched
from commsched import _commsched


def _public(names):
    return {n for n in names if not n.startswith("_")}


def test_the_stub_has_the_names_of_the_module():
    stub = ast.parse((pathlib.Path(commsched.__file__).parent / "_commsched.pyi").read_text())
    declared = {n.name: n for n in stub.body if isinstance(n, (ast.ClassDef, ast.FunctionDef))}
    assert declared.keys() == _public(vars(_commsched))
    methods = {n.name for n in declared["Program"].body if isinstance(n, ast.FunctionDef)}
    assert _public(methods) == _public(vars(_commsched.Program))
