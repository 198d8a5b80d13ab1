"""Single queries that memory does not answer alone: whether it may begin one, and how it goes on behind it.

Depends on answer_age, components, proof, query, requests and peers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tierdex.errors import InvalidRequestError
from tierdex.index_service.peers.peer_round import PeerRound
from tierdex.index_service.query.answers import answer_query
from tierdex.index_service.requests.id_time import OFF
from tierdex.index_service.requests.query import QueryValues, make_request

if TYPE_CHECKING:
    from tierdex.index_service.answer import Answer
    from tierdex.index_service.answer_age import AnswerAge
    from tierdex.index_service.opening.components import Components, QueryGuard
    from tierdex.index_service.query.memory_search import PartialLookup
    from tierdex.index_service.requests.id_time import Narrowed
    from tierdex.index_service.requests.query import QueryRequest


class QueryOptions(NamedTuple):
    """How a query is to be answered, as a caller gave it."""

    explain: bool = False
    on_error: object = "partial"
    fresh_within: object = None
    id_time: str | None = None
    proof: bool = False


class SingleQueries:
    """Answers the queries of one index that need more than memory. Safe to share between threads."""

    def __init__(self, components: Components, guard: QueryGuard, age: AnswerAge) -> None:
        settings = components.settings
        self._components = components
        self._guard = guard
        self._age = age
        self._has_id_time = settings.id_time != OFF or bool(settings.topic_id_time)

    def may_begin(self, values: QueryValues, options: QueryOptions) -> bool:
        """Return whether memory may begin a query; else the general path takes all of it."""
        if self._components.queries.peers is not None or options.proof:
            return False
        if values.message_id is not None and (options.id_time is not None or self._has_id_time):
            return False  # its times have to be narrowed first
        if options.on_error not in ("partial", "fail"):
            return False
        return self._age.is_within(self._age.limit(options.fresh_within))

    def go_on(
        self,
        values: QueryValues,
        begun: PartialLookup | None,
        options: QueryOptions,
        narrowed: Narrowed | None = None,
        *,
        of_table: bool = False,
    ) -> Answer:
        """Answer a query on the general path, from where memory stopped; see `LookupExecutor.run`."""
        fail = check_on_error(options.on_error)
        key_hash = None if begun is None else begun.key_hash
        request = make_request(self._components.settings, values, key_hash=key_hash)
        limit = self._age.limit(options.fresh_within)
        with self._guard:
            self._age.prepare(limit)
            peer_round = PeerRound()
            answer = answer_query(
                self._components.queries,
                request,
                begun,
                explain=options.explain,
                fail=fail,
                peer_round=peer_round,
                of_table=of_table,
            )
            self._age.tell((answer,), limit, peer_round, fail=fail)
            if answer.explain is not None:
                nodes = self._components.catalogue.nodes()
                answer.explain.nodes = [node._asdict() for node in nodes]
                answer.explain.id_time = None if narrowed is None else narrowed._asdict()
                if options.proof:
                    answer.explain.proof = self._prove(request, peer_round)
        if request.topic is not None:
            self._components.local_queries.learn(request.topic)
        return answer

    def _prove(self, request: QueryRequest, peer_round: PeerRound) -> dict[str, Any]:
        from tierdex.index_service.proof import Evidence, make_proof

        components = self._components
        ages = peer_round.ages or components.read_view.ages
        with components.table.snapshot() as snapshot:
            local = [h.file_id for h in snapshot.files if h.row is None and h.item_count]
        # After the files: what was published of them meanwhile is listed there.
        states, now_ms = components.read_view.states(), components.read_view.now_ms()
        evidence = Evidence(components.store, request, states, now_ms)
        names = [*local, *(f"node:{each.node}" for each in ages.unasked(peer_round.answered))]
        return make_proof(evidence, request.asked(), names)


def check_on_error(on_error: object) -> bool:
    """Return whether an answer that lacks something is an error. Raises InvalidRequestError."""
    if on_error not in ("partial", "fail"):
        raise InvalidRequestError("must be partial or fail", field="on_error")
    return on_error == "fail"
