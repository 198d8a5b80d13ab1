"""What kernels are written with: the decorators that make them, and the names of numba in their sources.

Kernels release the GIL, take stable argument types (integers for addresses and counts) and are compiled
once: when the wheel was built (`built`), else here (`numba_compiler`). Importing numba and llvmlite takes
0.4 s and 130 MB, so a process with built kernels imports neither: one object that takes any use, and that
nothing reads, stands for all of their names.

An array that one kernel passes to another costs 10 ns: numba counts references, also on the path that is not
taken. Functions that loops call take addresses, or are a `primitive`.

Depends on built, numba_compiler, numba and llvmlite.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tierdex.fileparts.kernels.built import BUILT

if TYPE_CHECKING:  # numba is typed in part, and its decorators not as kernels are called
    from collections.abc import Callable

    carray: Any
    cgutils: Any
    intrinsic: Any
    ir: Any
    models: Any
    NativeValue: Any
    register_model: Any
    types: Any
    unbox: Any


class _Nothing:
    """Any attribute, call, decorator and base class."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: object, **__: object) -> Any:
        return self

    def __getitem__(self, _: object) -> Any:
        return self

    def __mro_entries__(self, _: object) -> tuple[type, ...]:
        return (_Nothing,)


if BUILT is None:
    from tierdex.fileparts.kernels import numba_compiler

    if not TYPE_CHECKING:
        from llvmlite import ir
        from numba import types
        from numba.core import cgutils
        from numba.extending import NativeValue, intrinsic, models, register_model, unbox
        from numba.np.numpy_support import carray
elif not TYPE_CHECKING:
    carray = cgutils = intrinsic = ir = models = NativeValue = _Nothing()
    register_model = types = unbox = carray


def kernel(function: Callable[..., Any]) -> Any:
    """Compile `function`: no GIL, no bounds checks, cached on disk."""
    if BUILT is not None:
        return _built(function, BUILT)
    return numba_compiler.compiled(function, nogil=True)


def short_kernel(function: Callable[..., Any]) -> Any:
    """Compile `function`, which takes well under a microsecond and keeps the GIL.

    Giving the GIL back would cost as much; and so the call is one step for every Python thread.
    """
    if BUILT is not None:
        return _built(function, BUILT)
    return numba_compiler.compiled(function, nogil=False)


def primitive(function: Callable[..., Any]) -> Any:
    """Compile `function` into every kernel that calls it, so that it costs nothing there.

    Its arguments and results stay in registers, named tuples too. Python cannot call it.
    """
    if BUILT is not None:
        return _built(function, BUILT)
    return numba_compiler.compiled(function, nogil=True, no_cpython_wrapper=True, forceinline=True)


def direct_call(compiled: Any, *argument_types: Any) -> Any:
    """Return what calls a kernel with arguments of just these types, and does not look at them first.

    That look is half of what a call costs. A value of another type is not refused: the types decide
    what becomes of it (`arguments` has some that refuse).
    """
    if BUILT is not None:
        return compiled
    return numba_compiler.entry_point(compiled, argument_types)


class _OnlyInKernels:
    """A function that other kernels have in them, and that Python does not call."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *_: object) -> Any:
        raise TypeError(
            f"the kernel {self._name} is in no library of this wheel; install tierdex[compile] and set"
            " TIERDEX_KERNELS=compile, and report this"
        )


def _built(function: Callable[..., Any], kernels: dict[str, Any]) -> Any:
    name = f"{function.__module__}.{function.__qualname__}"
    return kernels.get(name) or _OnlyInKernels(name)
