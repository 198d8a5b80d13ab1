"""Arguments that a kernel takes from Python as they are, and checks while it takes them.

A call with a dozen values costs Python more in looking at them one by one (is it an int, a list of
one string?) than a kernel needs for its work. A kernel compiled for these types looks at them itself:

    INTEGER   an integer that fits i8, numpy's too, no bool    number(x), or not is_number(x)
    TEXT      a str, or None                                   text_bytes(x) at text_address(x)
    BYTES     bytes, bytearray, memoryview, or a str's UTF-8   the same; may be empty
    TEXTS     a str, a list or tuple of them, or None          text_at(x, i), for i below text_count(x)
    PAIRS     a list or tuple of pairs of str and bytes,       name_at(x, i), value_at(x, i)
              each a tuple or list, or None

`text_bytes` is 0 when there is no text, or an empty bytes, NOT_PLAIN for everything else: other types,
an empty text, more than one, lone surrogates; so is `text_count` for what is no list. Never an error: the
caller of the kernel then finds what is wrong and says it. Addresses hold while the kernel keeps the GIL.

Depends on compile only; `compile.direct_call` makes what is called.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

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

NOT_PLAIN: Final = -1
_I32, _I64 = ir.IntType(32), ir.IntType(64)
# A Py_buffer: its first word is where the bytes lie, its third how many.
_BUFFER_WORDS, _BUFFER_ADDRESS, _BUFFER_BYTES = 12, 0, 2


class _Taken(types.Type):
    """A value that is taken as a pair of i8: (address, bytes) or (number, 1)."""


class _Integer(_Taken):
    pass


class _Text(_Taken):
    pass


class _Bytes(_Taken):
    pass


class _Texts(types.Type):
    """Some texts: the object (a str, list or tuple), how many it has, and which of the three it is."""


class _Pairs(types.Type):
    """Some pairs of a text and bytes, as texts are taken."""


INTEGER: Final = _Integer("Integer")
TEXT: Final = _Text("Text")
BYTES: Final = _Bytes("Bytes")
TEXTS: Final = _Texts("Texts")
PAIRS: Final = _Pairs("Pairs")
_OF_STR, _OF_LIST, _OF_TUPLE = range(3)
_IS_STR: Final = 1 << 28  # Py_TPFLAGS_UNICODE_SUBCLASS


@register_model(_Integer)
@register_model(_Text)
@register_model(_Bytes)
class _PairModel(models.StructModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        members = [("value", types.int64), ("extent", types.int64)]
        models.StructModel.__init__(self, manager, kind, members)


@register_model(_Texts)
@register_model(_Pairs)
class _TextsModel(models.StructModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        members = [("object", types.voidptr), ("count", types.int64), ("kind", types.int64)]
        models.StructModel.__init__(self, manager, kind, members)


@unbox(_Integer)
def _unbox_integer(kind: Any, given: Any, c: Any) -> Any:
    return NativeValue(take_integer(given, c)._getvalue())


def take_integer(given: Any, c: Any) -> Any:
    """Return the pair of a Python object as an INTEGER; `c` has context, builder and pyapi."""
    pair = _new_pair(INTEGER, c, extent=0)
    with c.builder.if_else(is_a(given, "PyLong_Type", c), likely=True) as (then, otherwise):
        with then:
            _take_int(given, pair, c)
        with otherwise, c.builder.if_then(c.builder.not_(is_a(given, "PyBool_Type", c))):
            index = _index(given, c)
            is_none = cgutils.is_null(c.builder, index)
            with c.builder.if_else(is_none) as (failed, found):
                with failed:
                    c.pyapi.err_clear()  # a float, a text
                with found:
                    _take_int(index, pair, c)
                    c.pyapi.decref(index)
    return pair


def _index(given: Any, c: Any) -> Any:
    """Return the int that an integer of another type is, a new reference; null with an error for others."""
    function = cgutils.get_or_insert_function(
        c.builder.module, ir.FunctionType(c.pyapi.pyobj, [c.pyapi.pyobj]), "PyNumber_Index"
    )
    return c.builder.call(function, [given])


def _take_int(given: Any, pair: Any, c: Any) -> None:
    """Set `pair` to an int that fits i8; leave it unchanged for a larger one."""
    overflow = cgutils.alloca_once(c.builder, _I32)
    function = cgutils.get_or_insert_function(
        c.builder.module,
        ir.FunctionType(_I64, [c.pyapi.pyobj, _I32.as_pointer()]),
        "PyLong_AsLongLongAndOverflow",
    )
    pair.value = c.builder.call(function, [given, overflow])
    fits = c.builder.icmp_signed("==", c.builder.load(overflow), ir.Constant(_I32, 0))
    pair.extent = c.builder.zext(fits, _I64)


@unbox(_Text)
def _unbox_text(kind: Any, given: Any, c: Any) -> Any:
    return NativeValue(take_text(given, c)._getvalue())


def take_text(given: Any, c: Any) -> Any:
    """Return the pair of a Python object as a TEXT."""
    pair = _new_pair(TEXT, c, extent=NOT_PLAIN)
    is_none = c.builder.icmp_unsigned("==", given, c.pyapi.borrow_none())
    with c.builder.if_else(is_none) as (then, otherwise):
        with then:
            pair.extent = ir.Constant(_I64, 0)
        with otherwise:
            _take_str(given, pair, c)
    return pair


@unbox(_Bytes)
def _unbox_bytes(kind: Any, given: Any, c: Any) -> Any:
    """Take bytes or a text, or what another object lends until the call ends."""
    builder = c.builder
    pair = _take_bytes(given, c)
    lent = cgutils.alloca_once(builder, ir.ArrayType(_I64, _BUFFER_WORDS))
    is_lent = cgutils.alloca_once_value(builder, cgutils.false_bit)
    lends = builder.or_(is_a(given, "PyByteArray_Type", c), is_a(given, "PyMemoryView_Type", c))
    with builder.if_then(lends, likely=False):
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_I32, [c.pyapi.pyobj, lent.type, _I32]),
            "PyObject_GetBuffer",
        )  # fmt: skip
        failed = builder.call(function, [given, lent, ir.Constant(_I32, 0)])
        with builder.if_else(equals(builder, failed, 0), likely=True) as (taken, refused):
            with taken:
                builder.store(cgutils.true_bit, is_lent)
                pair.value, pair.extent = (
                    builder.load(cgutils.gep_inbounds(builder, lent, 0, word))
                    for word in (_BUFFER_ADDRESS, _BUFFER_BYTES)
                )
            with refused:
                c.pyapi.err_clear()  # not contiguous, or released

    def give_back() -> None:
        with builder.if_then(builder.load(is_lent), likely=False):
            function = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(ir.VoidType(), [lent.type]), "PyBuffer_Release"
            )
            builder.call(function, [lent])

    return NativeValue(pair._getvalue(), cleanup=give_back)


def _take_bytes(given: Any, c: Any) -> Any:
    """Return the pair of bytes, or of a text."""
    pair = _new_pair(BYTES, c, extent=NOT_PLAIN)
    with c.builder.if_else(is_a(given, "PyBytes_Type", c), likely=True) as (is_bytes, is_other):
        with is_bytes:
            for name, field, result in (
                ("PyBytes_AsString", "value", _I64), ("PyBytes_Size", "extent", _I64),
            ):  # fmt: skip
                function = cgutils.get_or_insert_function(
                    c.builder.module, ir.FunctionType(result, [c.pyapi.pyobj]), name
                )
                setattr(pair, field, c.builder.call(function, [given]))
        with is_other:
            _take_str(given, pair, c, least=0)
    return pair


def _new_pair(kind: Any, c: Any, *, extent: int) -> Any:
    pair = cgutils.create_struct_proxy(kind)(c.context, c.builder)
    pair.value = ir.Constant(_I64, 0)
    pair.extent = ir.Constant(_I64, extent)
    return pair


def is_a(given: Any, type_name: str, c: Any) -> Any:
    """Return whether `given` is of exactly that type."""
    found = c.pyapi.get_type(given)
    wanted = c.builder.bitcast(c.pyapi.get_c_object(type_name), found.type)
    return c.builder.icmp_unsigned("==", found, wanted)


def _take_str(given: Any, pair: Any, c: Any, *, least: int = 1) -> None:
    """Set `pair` to the UTF-8 of a str of `least` bytes or more; leave it unchanged for anything else."""
    with c.builder.if_then(is_text(given, c), likely=True):
        is_good, data, size = c.pyapi.string_as_string_and_size(given)
        with c.builder.if_else(is_good, likely=True) as (then, otherwise):
            with then:
                is_some = c.builder.icmp_signed(">=", size, ir.Constant(size.type, least))
                with c.builder.if_then(is_some, likely=True):
                    pair.value = c.builder.ptrtoint(data, _I64)
                    pair.extent = size
            with otherwise:
                c.pyapi.err_clear()  # a lone surrogate


def is_text(given: Any, c: Any) -> Any:
    """Return whether `given` is a str, or of a subclass."""
    kind = c.pyapi.get_type(given)
    function = cgutils.get_or_insert_function(
        c.builder.module, ir.FunctionType(_I64, [kind.type]), "PyType_GetFlags"
    )
    flags = c.builder.call(function, [kind])
    masked = c.builder.and_(flags, ir.Constant(_I64, _IS_STR))
    return c.builder.icmp_unsigned("!=", masked, ir.Constant(_I64, 0))


@unbox(_Texts)
def _unbox_texts(kind: Any, given: Any, c: Any) -> Any:
    taken = _take_list(kind, given, c)
    with c.builder.if_then(is_text(given, c)):
        taken.count = ir.Constant(_I64, 1)
    return NativeValue(taken._getvalue())


@unbox(_Pairs)
def _unbox_pairs(kind: Any, given: Any, c: Any) -> Any:
    return NativeValue(_take_list(kind, given, c)._getvalue())


def _take_list(kind: Any, given: Any, c: Any) -> Any:
    """Return what a list, a tuple or None is; anything else counts NOT_PLAIN."""
    builder = c.builder
    taken = cgutils.create_struct_proxy(kind)(c.context, builder)
    taken.object = builder.bitcast(given, cgutils.voidptr_t)
    taken.count, taken.kind = ir.Constant(_I64, NOT_PLAIN), ir.Constant(_I64, _OF_STR)
    with builder.if_else(is_a(given, "PyList_Type", c)) as (is_list, is_other):
        with is_list:
            taken.count = c.pyapi.list_size(given)
            taken.kind = ir.Constant(_I64, _OF_LIST)
        with is_other, builder.if_else(is_a(given, "PyTuple_Type", c)) as (is_tuple, is_single):
            with is_tuple:
                taken.count = c.pyapi.tuple_size(given)
                taken.kind = ir.Constant(_I64, _OF_TUPLE)
            with is_single:
                is_none = builder.icmp_unsigned("==", given, c.pyapi.borrow_none())
                with builder.if_then(is_none):
                    taken.count = ir.Constant(_I64, 0)
    return taken


@intrinsic
def text_count(typing_context: Any, taken: Any) -> Any:
    """Return how many texts or pairs there are; NOT_PLAIN where the value is of another type."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        proxy = cgutils.create_struct_proxy(signature.args[0])
        return proxy(context, builder, value=arguments[0]).count

    return (types.int64(taken), generate) if isinstance(taken, _Texts | _Pairs) else None


def _item_of(taken: Any, index: Any, c: Any) -> Any:
    """Return an item of what `_take_list` took, the object itself where it is no list; or null."""
    builder = c.builder
    given = builder.bitcast(taken.object, c.pyapi.pyobj)
    place = cgutils.alloca_once_value(builder, given)
    for kind, name in ((_OF_LIST, "PyList_GetItem"), (_OF_TUPLE, "PyTuple_GetItem")):
        with builder.if_then(equals(builder, taken.kind, kind)):
            function = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(given.type, [given.type, _I64]), name
            )
            builder.store(builder.call(function, [given, index]), place)
    found = builder.load(place)
    with builder.if_then(cgutils.is_null(builder, found), likely=False):
        c.pyapi.err_clear()  # an `__index__` of a later argument has cut the list
    return found


@intrinsic
def text_at(typing_context: Any, taken: Any, number: Any) -> Any:
    """Return the text of a number as a TEXT; its bytes are NOT_PLAIN for what is no text, or empty."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        c = _Context(context, builder, context.get_python_api(builder))
        texts = cgutils.create_struct_proxy(signature.args[0])(context, builder, value=arguments[0])
        pair = _new_pair(TEXT, c, extent=NOT_PLAIN)
        found = _item_of(texts, arguments[1], c)
        with builder.if_then(cgutils.is_not_null(builder, found)):
            _take_str(found, pair, c)
        return pair._getvalue()

    return (TEXT(taken, types.int64), generate) if isinstance(taken, _Texts) else None


def _make_pair_reader(place: int, kind: Any, doc: str) -> Any:
    def read(typing_context: Any, taken: Any, number: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            c = _Context(context, builder, context.get_python_api(builder))
            pairs = cgutils.create_struct_proxy(signature.args[0])(
                context, builder, value=arguments[0]
            )
            pair = _new_pair(kind, c, extent=NOT_PLAIN)
            found = _item_of(pairs, arguments[1], c)
            with builder.if_then(cgutils.is_not_null(builder, found)):
                inner = _take_list(PAIRS, found, c)
                with builder.if_then(equals(builder, inner.count, 2)):
                    value = _item_of(inner, ir.Constant(_I64, place), c)
                    if kind is TEXT:
                        _take_str(value, pair, c, least=0)
                    else:
                        taken_bytes = _take_bytes(value, c)
                        pair.value, pair.extent = taken_bytes.value, taken_bytes.extent
            return pair._getvalue()

        return (kind(taken, types.int64), generate) if isinstance(taken, _Pairs) else None

    read.__doc__ = doc
    return intrinsic(read)


name_at = _make_pair_reader(0, TEXT, "Return the name of a pair; its bytes are NOT_PLAIN for none.")
value_at = _make_pair_reader(1, BYTES, "Return the value of a pair, bytes or a text, likewise.")


class _Context(NamedTuple):
    """What the functions above want of an unboxing."""

    context: Any
    builder: Any
    pyapi: Any


def equals(builder: Any, value: Any, number: int) -> Any:
    """Return whether a value is a number."""
    return builder.icmp_signed("==", value, ir.Constant(value.type, number))


def _make_reader(field: str, *kinds: type) -> Any:
    @intrinsic
    def read(typing_context: Any, taken: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pair = cgutils.create_struct_proxy(signature.args[0])(
                context, builder, value=arguments[0]
            )
            return getattr(pair, field)

        result: Any = types.int64
        return (result(taken), generate) if isinstance(taken, kinds) else None

    return read


number = _make_reader("value", _Integer)
is_number = _make_reader("extent", _Integer)
text_address = _make_reader("value", _Text, _Bytes)
text_bytes = _make_reader("extent", _Text, _Bytes)
