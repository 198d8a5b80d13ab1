"""Intrinsics that numba lacks: memory by address, prefetch, the upper half of a product, CRC32C.

Kernels take integer addresses (`array.ctypes.data`) instead of arrays: dispatch costs a fraction,
and one compiled version serves every dtype and layout. The caller checks sizes and keeps the array
alive; inside a kernel nothing is checked.

`store_slot` is a release store: a reader of the slot finds the item it points to complete.
Depends on built and compile.
"""

from __future__ import annotations

from typing import Any

from tierdex.fileparts.kernels.built import lacking_for
from tierdex.fileparts.kernels.compile import intrinsic, ir, types

_I8, _I16, _I32, _I64 = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64)
_I128 = ir.IntType(128)
_NUMBERS: Any = types.CPointer(types.int64)
HAS_SSE42_CRC = not lacking_for("x86-64-v2")


def _pointer(builder: Any, address: Any, kind: Any) -> Any:
    return builder.inttoptr(address, kind.as_pointer())


def _make_load(kind: Any, result: Any) -> Any:
    @intrinsic
    def load(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value = builder.load(_pointer(builder, arguments[0], kind))
            value.align = 1
            return value

        return result(types.int64), generate

    return load


def _make_store(kind: Any, value_type: Any) -> Any:
    @intrinsic
    def store(typing_context: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            builder.store(arguments[1], _pointer(builder, arguments[0], kind), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, value_type), generate

    return store


load_u8 = _make_load(_I8, types.uint8)
load_u16 = _make_load(_I16, types.uint16)
load_u32 = _make_load(_I32, types.uint32)
load_u64 = _make_load(_I64, types.uint64)
load_i32 = _make_load(_I32, types.int32)
load_i64 = _make_load(_I64, types.int64)
store_u8 = _make_store(_I8, types.uint8)
store_u16 = _make_store(_I16, types.uint16)
store_u32 = _make_store(_I32, types.uint32)
store_u64 = _make_store(_I64, types.uint64)
store_i64 = _make_store(_I64, types.int64)


@intrinsic
def numbers_at(typing_context: Any, address: Any) -> Any:
    """Return the address as a pointer to i8, which `numba.carray` makes an array of."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _pointer(builder, arguments[0], _I64)

    return _NUMBERS(types.int64), generate


@intrinsic
def store_slot(typing_context: Any, address: Any, value: Any) -> Any:
    """Store an aligned u32 after everything that was stored before it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _pointer(builder, arguments[0], _I32)
        builder.store_atomic(arguments[1], place, ordering="release", align=4)
        return context.get_dummy_value()

    return types.void(types.int64, types.uint32), generate


@intrinsic
def publish_u64(typing_context: Any, address: Any, value: Any) -> Any:
    """Store an aligned u64 after everything that was stored before it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _pointer(builder, arguments[0], _I64)
        builder.store_atomic(arguments[1], place, ordering="release", align=8)
        return context.get_dummy_value()

    return types.void(types.int64, types.uint64), generate


@intrinsic
def copy_bytes(typing_context: Any, target: Any, source: Any, length: Any) -> Any:
    """Copy `length` bytes between places that do not overlap: C's memcpy."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer, bit = _I8.as_pointer(), ir.IntType(1)
        function = builder.module.declare_intrinsic(
            "llvm.memcpy", [pointer, pointer, _I64],
            ir.FunctionType(ir.VoidType(), [pointer, pointer, _I64, bit]),
        )  # fmt: skip
        places = [_pointer(builder, argument, _I8) for argument in arguments[:2]]
        builder.call(function, [*places, arguments[2], ir.Constant(bit, 0)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def prefetch(typing_context: Any, address: Any) -> Any:
    """Ask the cache for the line at `address`; any address is allowed."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _I8.as_pointer()
        function = builder.module.declare_intrinsic(
            "llvm.prefetch", [pointer], ir.FunctionType(ir.VoidType(), [pointer, _I32, _I32, _I32])
        )
        read, keep, data = ir.Constant(_I32, 0), ir.Constant(_I32, 3), ir.Constant(_I32, 1)
        builder.call(function, [_pointer(builder, arguments[0], _I8), read, keep, data])
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic
def mul_high(typing_context: Any, a: Any, b: Any) -> Any:
    """Return the upper 64 bits of the 128-bit product of two unsigned 64-bit numbers."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = [builder.zext(argument, _I128) for argument in arguments]
        product = builder.mul(wide[0], wide[1])
        return builder.trunc(builder.lshr(product, ir.Constant(_I128, 64)), _I64)

    return types.uint64(types.uint64, types.uint64), generate


@intrinsic
def join_u32(typing_context: Any, low: Any, high: Any) -> Any:
    """Return a u64 whose lower half is `low` and whose upper half is `high`, both u32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = [builder.zext(argument, _I64) for argument in arguments]
        return builder.or_(wide[0], builder.shl(wide[1], ir.Constant(_I64, 32)))

    return types.uint64(types.uint32, types.uint32), generate


@intrinsic
def unpredictable(typing_context: Any, value: Any) -> Any:
    """Return `value` (i8) as a number of which the compiler knows nothing.

    A loop that steps over one stays as it is written: where rows are read with multiplications of 64 bits,
    the compiler's vectors of gathered words take twice the time.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_I64, [_I64])
        return builder.asm(kind, "", "=r,0", arguments, side_effect=False)

    return types.int64(types.int64), generate


@intrinsic
def crc_step_u64(typing_context: Any, state: Any, value: Any) -> Any:
    """Feed 8 bytes to the CPU's CRC32C; only where HAS_SSE42_CRC."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function = _declare(builder.module, "llvm.x86.sse42.crc32.64.64", _I64, [_I64, _I64])
        return builder.call(function, arguments)

    return types.uint64(types.uint64, types.uint64), generate


def _declare(module: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    if name in module.globals:
        return module.globals[name]
    return ir.Function(module, ir.FunctionType(result, arguments), name)
