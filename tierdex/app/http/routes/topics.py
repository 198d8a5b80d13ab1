"""Routes of topics: which there are, the tables that they follow, and how far a queue is published.

Depends on app.http, app.rights and index_service.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotation
from starlette.responses import Response  # noqa: TC002 - FastAPI reads the annotation

from tierdex.app.http.openapi import operation_id, refusals
from tierdex.app.http.schemas.models import (
    PublishedWatermark,
    Tables,
    Topics,
    Watermark,
)
from tierdex.app.http.schemas.parameters import (
    TopicsQuery,
    WatermarkQuery,
)
from tierdex.app.http.security import require
from tierdex.app.http.service import json_response, record_of, service_of, tagged_response
from tierdex.app.rights import Scope
from tierdex.index_service.file_info import TopicInfo

if TYPE_CHECKING:
    from tierdex.app.http.service import Service


router = APIRouter(tags=["entries"], generate_unique_id_function=operation_id)


@router.get(
    "/v1/topics",
    summary="List topics",
    response_model=Topics,
    dependencies=[require(Scope.READ, TopicsQuery, in_route=True)],
    responses=refusals(304),
)
async def get_topics(request: Request, query: Annotated[TopicsQuery, Query()]) -> Response:
    """List the topics that have entries, those that the caller may read; with `details` counts and times."""
    service, record = service_of(request), record_of(request)
    index = service.index_to_query
    shown: dict[str, Any] = {"restricted": record.is_limited(Scope.READ)}
    if query.as_of:
        known = await service.in_thread(
            partial(index.known_topics, fresh_within=query.fresh_within)
        )
        names = known.names
        shown["as_of"] = known.as_of
        shown["unasked"] = [node._asdict() for node in known.unasked]
        shown["missing"] = [node.to_dict() for node in known.missing]
    else:
        names = await service.in_thread(index.topics)
    if query.details:
        infos = await service.in_thread(_described_topics, service, slow=True)
        shown["details"] = [info._asdict() for info in infos if record.may(Scope.READ, info.topic)]
    shown["topics"] = [topic for topic in names if record.may(Scope.READ, topic)]
    return tagged_response(request, shown)


@router.get(
    "/v1/tables",
    summary="List followed tables",
    response_model=Tables,
    dependencies=[require(Scope.READ, in_route=True)],
    responses=refusals(),
)
async def get_tables(request: Request) -> Response:
    """List the lake's tables that topics follow, those that the caller may read, with how old each is."""
    service, record = service_of(request), record_of(request)
    infos = await service.in_thread(service.index.tables)
    rows = [info.to_dict() for info in infos if record.may(Scope.READ, info.topic)]
    return json_response({"tables": rows})


def _described_topics(service: Service) -> list[TopicInfo]:
    infos = service.index_to_query.topic_infos()
    of_log = set() if service.log is None else set(service.log.topics())
    infos += map(TopicInfo, of_log.difference(info.topic for info in infos))
    return sorted(infos)


@router.get(
    "/v1/watermark",
    summary="Watermark of a queue",
    response_model=Watermark | PublishedWatermark,
    dependencies=[require(Scope.READ, WatermarkQuery)],
    responses=refusals(404),
)
async def get_watermark(request: Request, query: Annotated[WatermarkQuery, Query()]) -> Response:
    """Return the offset below which everything put is at each level, or (`node`) published by a node."""
    service = service_of(request)
    marks = await service.in_thread(
        lambda: service.index_to_query.watermark(query.topic, query.queue_id, node=query.node)
    )
    asked = query.model_dump(exclude_none=True)
    return json_response({**asked, **marks})
