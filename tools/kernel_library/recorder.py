"""Which kernels Python calls, with which types, and the code that numba made of them.

A kernel is noted when its dispatcher first meets the types of a call. `letters` says them as library.c does.
"""

from __future__ import annotations

import importlib
import json
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any, NamedTuple

import llvmlite.binding as llvm
import numpy as np
from numba import types
from numba.core import dispatcher as _dispatcher

from tierdex.fileparts.kernels import numba_compiler

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class BuildError(Exception):
    """The library cannot be built; says why."""


class CalledKernel(NamedTuple):
    """A kernel with the types that Python calls it with."""

    name: str
    dispatcher: Any
    signature: tuple[Any, ...]

    def code(self) -> KernelCode:
        """Return what numba made of it."""
        compiled = self.dispatcher.overloads[self.signature]
        if compiled.environment.consts:
            raise BuildError(f"{self.name} reads constants of numba's environment")
        described = compiled.fndesc
        wrapper = described.llvm_cpython_wrapper_name
        module = llvm.parse_bitcode(compiled.library._get_module_for_linking().as_bitcode())
        module.get_function(
            wrapper
        ).linkage = "external"  # what nothing refers to is left out otherwise
        return KernelCode(
            self.name, wrapper, described.env_name, letters(self.signature), module.as_bitcode()
        )


class KernelCode(NamedTuple):
    """An optimized module of LLVM, and the names in it of what Python calls and of numba's environment."""

    name: str
    wrapper: str
    environment: str
    arguments: str
    bitcode: bytes


class Recorder:
    """Notes which kernels Python calls while it is entered, and with which types."""

    def __init__(self) -> None:
        self.found: dict[str, CalledKernel] = {}

    def __enter__(self) -> Recorder:
        self._before = _dispatcher._DispatcherBase._compile_for_args, numba_compiler.entry_point
        compile_for_args, entry_point = self._before

        def record_call(dispatcher: Any, *given: Any, **named: Any) -> Any:
            made = compile_for_args(dispatcher, *given, **named)
            self.add(dispatcher, tuple(dispatcher.typeof_pyval(value) for value in given))
            return made

        def record_direct_call(dispatcher: Any, argument_types: tuple[Any, ...]) -> Any:
            made = entry_point(dispatcher, argument_types)
            self.add(dispatcher, argument_types)
            return made

        _dispatcher._DispatcherBase._compile_for_args = record_call
        numba_compiler.entry_point = record_direct_call
        return self

    def __exit__(self, *_: object) -> None:
        _dispatcher._DispatcherBase._compile_for_args, numba_compiler.entry_point = self._before

    def add(self, dispatcher: Any, signature: tuple[Any, ...]) -> None:
        """Note a call of one of our kernels; another's is none of ours."""
        function = dispatcher.py_func
        if not function.__module__.startswith("tierdex."):
            return
        name = f"{function.__module__}.{function.__qualname__}"
        known = self.found.setdefault(name, CalledKernel(name, dispatcher, signature))
        if letters(known.signature) != letters(signature):
            raise BuildError(f"Python calls {name} with {known.signature} and with {signature}")

    def add_compiled(self, names: Iterable[str]) -> None:
        """Note the kernels of these names that other kernels have compiled before Python called them.

        numba's dispatcher finds their code then, and asks for nothing that could be noted.
        """
        for name in names:
            module, _, function = name.rpartition(".")
            dispatcher = getattr(importlib.import_module(module), function)
            for signature in dispatcher.overloads:
                if not any(isinstance(kind, types.Literal) for kind in signature):
                    self.add(dispatcher, signature)


def letters(signature: tuple[Any, ...]) -> str:
    """Return what library.c checks a call's arguments against."""
    return "".join(_letter(kind) for kind in signature)


def _letter(kind: Any) -> str:
    if isinstance(kind, types.Boolean):
        return "b"
    if isinstance(kind, types.Integer):
        return "i"
    if isinstance(kind, types.Float):
        return "f"
    if isinstance(kind, types.Array):
        dtype = np.dtype(str(kind.dtype))
        if kind.layout != "C":
            raise BuildError(f"a kernel takes an array that is not contiguous: {kind}")
        return f"a{dtype.kind}{dtype.itemsize}{kind.ndim}"
    if isinstance(kind, types.BaseTuple):
        return f"({letters(tuple(kind))})"
    if type(kind).__module__.startswith("tierdex."):
        return "o"
    raise BuildError(f"library.c has no letter for an argument of type {kind}")


def write_codes(codes: Iterable[KernelCode], path: Path) -> None:
    """Write the code of kernels for the process that links it."""
    rows = [(*code[:-1], b64encode(code.bitcode).decode()) for code in codes]
    path.write_text(json.dumps(rows))


def read_codes(path: Path) -> list[KernelCode]:
    """Return what `write_codes` wrote."""
    return [KernelCode(*row[:-1], b64decode(row[-1])) for row in json.loads(path.read_text())]
