"""Python's own lists, read by a kernel that keeps the GIL: no loop in Python takes them apart.

A list comes by its address (`id`), and the caller keeps it alive and unchanged. What is not exactly as
expected is reported, never an error: the caller takes the general path then, which says what is wrong.

Depends on arguments and compile.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

from tierdex.fileparts.kernels import arguments as a
from tierdex.fileparts.kernels.compile import cgutils, intrinsic, ir, types

_I64 = ir.IntType(64)
_FIELDS: Final = 3  # of a place: a text and two integers
_PLACE: Any = types.UniTuple(types.int64, 5)


@intrinsic
def take_place(typing_context: Any, items: Any, index: Any) -> Any:
    """Take item `index` of the list at `items`, a tuple of a str and two integers.

    Returns (address and bytes of the text, NOT_PLAIN for anything else; both integers; whether both are
    ints that fit i8). The address holds as long as the tuple does.
    """

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        c = SimpleNamespace(context=context, builder=builder, pyapi=context.get_python_api(builder))
        values = [cgutils.alloca_once_value(builder, ir.Constant(_I64, n)) for n in _NOTHING]
        item = c.pyapi.list_getitem(
            builder.inttoptr(given[0], c.pyapi.pyobj), builder.trunc(given[1], c.pyapi.py_ssize_t)
            if c.pyapi.py_ssize_t.width < _I64.width else given[1],
        )  # fmt: skip
        with builder.if_then(a.is_a(item, "PyTuple_Type", c), likely=True):
            size = c.pyapi.tuple_size(item)
            with builder.if_then(a.equals(builder, size, _FIELDS), likely=True):
                fields = [c.pyapi.tuple_getitem(item, place) for place in range(_FIELDS)]
                text = a.take_text(fields[0], c)
                numbers = [a.take_integer(field, c) for field in fields[1:]]
                builder.store(text.value, values[0])
                builder.store(text.extent, values[1])
                builder.store(numbers[0].value, values[2])
                builder.store(numbers[1].value, values[3])
                both = builder.and_(numbers[0].extent, numbers[1].extent)
                builder.store(both, values[4])
        return context.make_tuple(builder, signature.return_type, [builder.load(v) for v in values])

    return _PLACE(types.int64, types.int64), generate


_NOTHING: Final = (0, a.NOT_PLAIN, 0, 0, 0)


@intrinsic
def take_entry(typing_context: Any, items: Any, index: Any, kind: Any) -> Any:
    """Take item `index` of the list at `items`: a `kind` (address), a tuple that begins with a place.

    Returns (address of the text's object, 0: it is no such item; then as `take_place`).
    """

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        c = SimpleNamespace(context=context, builder=builder, pyapi=context.get_python_api(builder))
        values = [cgutils.alloca_once_value(builder, ir.Constant(_I64, n)) for n in _NO_ENTRY]
        item = c.pyapi.list_getitem(builder.inttoptr(given[0], c.pyapi.pyobj), given[1])
        found = builder.ptrtoint(c.pyapi.get_type(item), _I64)
        with builder.if_then(builder.icmp_unsigned("==", found, given[2]), likely=True):
            fields = [c.pyapi.tuple_getitem(item, place) for place in range(_FIELDS)]
            text = a.take_text(fields[0], c)
            numbers = [a.take_integer(field, c) for field in fields[1:]]
            both = builder.and_(numbers[0].extent, numbers[1].extent)
            taken = (
                builder.ptrtoint(fields[0], _I64), text.value, text.extent,
                numbers[0].value, numbers[1].value, both,
            )  # fmt: skip
            for value, place in zip(taken, values, strict=True):
                builder.store(value, place)
        return context.make_tuple(builder, signature.return_type, [builder.load(v) for v in values])

    return _ENTRY(types.int64, types.int64, types.int64), generate


_NO_ENTRY: Final = (0, *_NOTHING)
_ENTRY: Any = types.UniTuple(types.int64, 6)
