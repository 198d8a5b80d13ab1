"""`Verb`: an operation of a service, described once, as both clients have it.

    calls.query(topic, key=...)            describes: the arguments, the request, the reading of its answer
    query = Verb(calls.query)              in the class of the verbs that both clients share
    client.query(topic, key=...)           Client: sends it, returns the answer
    await client.query(topic, key=...)     AsyncClient: the same, awaited

Signature, types and docstring are those of the description, for people, `help` and type checkers.

The embedded `Index` and `MessageLog` keep their own signatures; tests/client/test_signatures.py compares
both.

Depends on call.
"""

from __future__ import annotations

import inspect
from functools import wraps
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tierdex.client.call import Work

P = ParamSpec("P")
T = TypeVar("T")


class Synchronous:
    """A client that waits for the answers."""

    def _do(self, work: Work[T]) -> T:
        raise NotImplementedError


class Asynchronous:
    """A client whose answers are awaited."""

    async def _do(self, work: Work[T]) -> T:
        raise NotImplementedError


class Verb(Generic[P, T]):
    """A method of both clients, made of the function that describes its work."""

    def __init__(self, describe: Callable[P, Work[T]]) -> None:
        @wraps(describe)
        def wait_for(client: Synchronous, /, *args: P.args, **values: P.kwargs) -> T:
            return client._do(describe(*args, **values))

        @wraps(describe)
        async def await_(client: Asynchronous, /, *args: P.args, **values: P.kwargs) -> T:
            return await client._do(describe(*args, **values))

        self._wait_for: Any = wait_for
        self._await: Any = await_
        for method in (wait_for, await_):
            _describe(method, describe)

    def __set_name__(self, owner: type, name: str) -> None:
        for method in (self._wait_for, self._await):
            method.__name__, method.__qualname__ = name, f"{owner.__qualname__}.{name}"

    @overload
    def __get__(self, client: Synchronous, owner: Any) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: Asynchronous, owner: Any) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: None, owner: Any) -> Callable[..., Any]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        method = self._await if issubclass(owner, Asynchronous) else self._wait_for
        return method.__get__(client, owner)


def _describe(method: Any, describe: Callable[..., Any]) -> None:
    """Give a method the description's signature, with what its work comes to instead of the work."""
    given = inspect.signature(describe)
    returned = str(given.return_annotation).partition("[")[2].removesuffix("]")
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    parameters = [itself, *given.parameters.values()]
    method.__signature__ = given.replace(parameters=parameters, return_annotation=returned)
    method.__annotations__ = {**describe.__annotations__, "return": returned}
