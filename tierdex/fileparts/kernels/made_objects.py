"""Python's objects inside a kernel that keeps the GIL: named tuples that it makes, texts that it compares.

::

    was_on = collector_off()    no finalizer may run between the first object and the last
    append_row(...)             (topic, four numbers, *tail), of a tuple type, at the end of a list
    append_bytes(...)           memory as bytes, likewise
    made = new_tuple(...)       of a tuple type, to be filled: put_text, put_bytes, put_number, put_object,
                                and put_made, which gives it another new one
    append_made(...)            at the end of a list, which has it then; or let_go(made)
    collector_on(was_on)

Objects are addresses (`id`); the caller keeps them alive. A 0 says that there was no memory, or no such
item; Python's error is taken back, and the caller of the kernel goes another way.

Depends on arguments and compile.
"""

from __future__ import annotations

from typing import Any, Final

from tierdex.fileparts.kernels.arguments import is_a
from tierdex.fileparts.kernels.compile import (
    NativeValue,
    cgutils,
    intrinsic,
    ir,
    models,
    register_model,
    types,
    unbox,
)  # fmt: skip

_I32, _I64 = ir.IntType(32), ir.IntType(64)
_OBJECT = ir.IntType(8).as_pointer()
_VOID = ir.VoidType()


class _List(types.Type):
    """A list: its address, 0 for anything else."""


LIST: Final = _List("List")


@register_model(_List)
class _ListModel(models.StructModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        models.StructModel.__init__(self, manager, kind, [("address", types.int64)])


@unbox(_List)
def _unbox_list(kind: Any, given: Any, c: Any) -> Any:
    taken = cgutils.create_struct_proxy(kind)(c.context, c.builder)
    place = c.builder.ptrtoint(given, _I64)
    is_list = is_a(given, "PyList_Type", c)
    taken.address = c.builder.select(is_list, place, ir.Constant(_I64, 0))
    return NativeValue(taken._getvalue())


@intrinsic
def list_address(typing_context: Any, taken: Any) -> Any:
    """Return the address of a LIST, 0 when the value is none."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        proxy = cgutils.create_struct_proxy(signature.args[0])
        return proxy(context, builder, value=arguments[0]).address

    return (types.int64(taken), generate) if isinstance(taken, _List) else None


class _Python:
    """Calls of Python's C API in one place of a kernel; objects are pointers."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def call(self, name: str, result: Any, *arguments: Any) -> Any:
        kind = ir.FunctionType(result, [each.type for each in arguments])
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(function, arguments)

    def object_at(self, address: Any) -> Any:
        return self.builder.inttoptr(address, _OBJECT)

    def forget_error(self) -> None:
        self.call("PyErr_Clear", _VOID)

    def add(self, listed: Any, made: Any) -> Any:
        """Append a new object, of which the list then has the only reference; return 1, or 0."""
        builder = self.builder
        is_added = cgutils.alloca_once_value(builder, ir.Constant(_I64, 0))
        with builder.if_else(cgutils.is_null(builder, made), likely=False) as (failed, found):
            with failed:
                self.forget_error()
            with found:
                told = self.call("PyList_Append", _I32, listed, made)
                self.call("Py_DecRef", _VOID, made)
                with builder.if_else(cgutils.is_null(builder, told)) as (good, bad):
                    with good:
                        builder.store(ir.Constant(_I64, 1), is_added)
                    with bad:
                        self.forget_error()
        return builder.load(is_added)


@intrinsic
def append_row(
    typing_context: Any, listed: Any, kind: Any, topic: Any, queue_id: Any, offset: Any, size: Any,
    time: Any, tail: Any,
) -> Any:  # fmt: skip
    """Append (topic, queue_id, offset, size, time, *tail), a `kind`, to a list; return 1, or 0.

    `kind` is a subclass of tuple, `topic` any object, `tail` a tuple; the rest are numbers (i8).
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        python = _Python(builder)
        listed, kind, topic, *numbers, tail = arguments
        rest = python.object_at(tail)
        count = python.call("PyTuple_Size", _I64, rest)
        length = builder.add(count, ir.Constant(_I64, 1 + len(numbers)))
        made = python.call("PyType_GenericAlloc", _OBJECT, python.object_at(kind), length)

        def put(place: Any, value: Any) -> None:  # the tuple owns `value` from now on
            python.call("PyTuple_SetItem", _I32, made, place, value)

        with builder.if_then(cgutils.is_not_null(builder, made), likely=True):
            name = python.object_at(topic)
            python.call("Py_IncRef", _VOID, name)
            put(ir.Constant(_I64, 0), name)
            for place, number in enumerate(numbers, 1):
                value = python.call("PyLong_FromLongLong", _OBJECT, number)
                put(ir.Constant(_I64, place), value)
            with cgutils.for_range(builder, count) as loop:
                value = python.call("PyTuple_GetItem", _OBJECT, rest, loop.index)
                python.call("Py_IncRef", _VOID, value)
                put(builder.add(loop.index, ir.Constant(_I64, 1 + len(numbers))), value)
        return python.add(python.object_at(listed), made)

    return types.int64(*(types.int64,) * 8), generate


@intrinsic
def append_bytes(typing_context: Any, listed: Any, address: Any, length: Any) -> Any:
    """Append `length` bytes of memory to a list, as bytes; return 1, or 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        python = _Python(builder)
        listed, begin, length = arguments
        made = python.call("PyBytes_FromStringAndSize", _OBJECT, python.object_at(begin), length)
        return python.add(python.object_at(listed), made)

    return types.int64(*(types.int64,) * 3), generate


@intrinsic
def new_tuple(typing_context: Any, kind: Any, length: Any) -> Any:
    """Return the address of a new tuple of the type at `kind`, 0: of `tuple` itself; 0 without memory."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        python = _Python(builder)
        kind, length = arguments
        made = cgutils.alloca_once(builder, _OBJECT)
        is_plain = builder.icmp_unsigned("==", kind, ir.Constant(_I64, 0))
        with builder.if_else(is_plain) as (plain, named):
            with plain:
                builder.store(python.call("PyTuple_New", _OBJECT, length), made)
            with named:
                place = python.object_at(kind)
                builder.store(python.call("PyType_GenericAlloc", _OBJECT, place, length), made)
        found = builder.load(made)
        with builder.if_then(cgutils.is_null(builder, found), likely=False):
            python.forget_error()
        return builder.ptrtoint(found, _I64)

    return types.int64(types.int64, types.int64), generate


def _make_put(doc: str, arity: int, make: Any) -> Any:
    """Return what puts the object that `make` returns into a new tuple: 1, or 0."""

    def put(typing_context: Any, made: Any, place: Any, *given: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            python = _Python(builder)
            value = make(python, *arguments[2:])
            is_there = cgutils.is_not_null(builder, value)
            with builder.if_else(is_there, likely=True) as (found, failed):
                with found:  # the tuple owns it from now on
                    owner = python.object_at(arguments[0])
                    python.call("PyTuple_SetItem", _I32, owner, arguments[1], value)
                with failed:
                    python.forget_error()
            return builder.zext(is_there, _I64)

        return types.int64(*(types.int64,) * (2 + arity)), generate

    put.__doc__ = doc
    return put


def _shared(python: _Python, address: Any) -> Any:
    value = python.object_at(address)
    python.call("Py_IncRef", _VOID, value)
    return value


def _text(python: _Python, address: Any, length: Any) -> Any:
    strict = ir.Constant(_OBJECT, None)
    return python.call("PyUnicode_DecodeUTF8", _OBJECT, python.object_at(address), length, strict)


def _bytes(python: _Python, address: Any, length: Any) -> Any:
    return python.call("PyBytes_FromStringAndSize", _OBJECT, python.object_at(address), length)


def _with_two(put: Any) -> Any:
    def two(typing_context: Any, made: Any, place: Any, begin: Any, length: Any) -> Any:
        return put(typing_context, made, place, begin, length)

    return two


def _with_one(put: Any) -> Any:
    def one(typing_context: Any, made: Any, place: Any, value: Any) -> Any:
        return put(typing_context, made, place, value)

    return one


put_text = intrinsic(
    _with_two(_make_put("Put the text whose UTF-8 lies there; 0: it is none.", 2, _text))
)
put_bytes = intrinsic(_with_two(_make_put("Put so many bytes of memory.", 2, _bytes)))
put_object = intrinsic(_with_one(_make_put("Put an object that others have, too.", 1, _shared)))
put_made = intrinsic(_with_one(_make_put("Put a new object.", 1, _Python.object_at)))
put_number = intrinsic(
    _with_one(
        _make_put(
            "Put an integer.", 1, lambda python, n: python.call("PyLong_FromLongLong", _OBJECT, n)
        )
    )
)


@intrinsic
def append_made(typing_context: Any, listed: Any, made: Any) -> Any:
    """Append a new object to a list; return 1, or 0: it is gone."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        python = _Python(builder)
        return python.add(*map(python.object_at, arguments))

    return types.int64(types.int64, types.int64), generate


@intrinsic
def let_go(typing_context: Any, made: Any) -> Any:
    """Let go of a new object that no other has."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        python = _Python(builder)
        python.call("Py_DecRef", _VOID, python.object_at(arguments[0]))
        return arguments[0]

    return types.int64(types.int64), generate


@intrinsic
def item_of(typing_context: Any, listed: Any, place: Any) -> Any:
    """Return the address of a list's item, 0 when it has no such item."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        python = _Python(builder)
        found = python.call("PyList_GetItem", _OBJECT, python.object_at(arguments[0]), arguments[1])
        with builder.if_then(cgutils.is_null(builder, found), likely=False):
            python.forget_error()
        return builder.ptrtoint(found, _I64)

    return types.int64(types.int64, types.int64), generate


@intrinsic
def is_same_text(typing_context: Any, one: Any, other: Any) -> Any:
    """Say whether two texts (addresses of str) are equal."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        python = _Python(builder)
        texts = [python.object_at(argument) for argument in arguments]
        order = python.call("PyUnicode_Compare", _I32, *texts)
        return cgutils.is_null(builder, order)

    return types.boolean(types.int64, types.int64), generate


def _make_switch(name: str) -> Any:
    @intrinsic
    def switch(typing_context: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.zext(_Python(builder).call(name, _I32), _I64)

        return types.int64(), generate

    return switch


collector_off = _make_switch("PyGC_Disable")  # returns 1 if it was on
collector_on = _make_switch("PyGC_Enable")
