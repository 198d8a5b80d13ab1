"""A large object, sent in parts: begin, parts in order, complete; or abort.

Conditions are used on none of these requests: servers that are otherwise sound ignore them there.
Depends on base, s3_client, retrying.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tierdex.errors import TierdexError
from tierdex.storage_layer.base import Source, read_source
from tierdex.storage_layer.s3_client import member_of, translated

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_s3 import S3Client

    from tierdex.storage_layer.retrying import RetryPolicy

MAX_PARTS = 10_000


class MultipartUpload:
    """One upload under way. Only parts are repeated: to begin again for one lost part costs too much."""

    def __init__(
        self,
        client: S3Client,
        bucket: str,
        key: str,
        *,
        digest: Callable[[bytes], dict[str, Any]],
        retry: RetryPolicy,
    ) -> None:
        """Begin. `digest` returns the arguments that let the server check a part."""
        self._client = client
        self._target = {"Bucket": bucket, "Key": key}
        self._where = f"s3://{bucket}/{key}"
        self._digest = digest
        self._retry = retry
        self._tags: list[str] = []  # of the parts that arrived
        with translated(self._where):
            begun: Any = client.create_multipart_upload(Bucket=bucket, Key=key)
        self._target["UploadId"] = member_of(begun, "UploadId", self._where)

    def send(self, source: Source, length: int, part_bytes: int) -> None:
        """Send everything and complete; whatever goes wrong, abort and raise it."""
        try:
            part_bytes = max(part_bytes, -(-length // MAX_PARTS))
            for position in range(0, length, part_bytes):
                data = read_source(source, position, min(part_bytes, length - position))
                self._tags.append(self._retry.call(self._send_part, data))
            self._complete()
        except BaseException as error:
            self._abort(error)
            raise

    def _send_part(self, data: bytes) -> str:
        with translated(self._where):
            done: Any = self._client.upload_part(
                **self._target,  # type: ignore[arg-type]
                PartNumber=len(self._tags) + 1,
                Body=data,
                **self._digest(data),
            )
        tag: str = member_of(done, "ETag", self._where)
        return tag

    def _complete(self) -> None:
        parts = [{"PartNumber": n, "ETag": tag} for n, tag in enumerate(self._tags, 1)]
        with translated(self._where):
            done: Any = self._client.complete_multipart_upload(
                **self._target,  # type: ignore[arg-type]
                MultipartUpload={"Parts": parts},  # type: ignore[typeddict-item]
            )
        # A server says 200 before it has put the parts together: only the body says that it did.
        member_of(done, "ETag", self._where)

    def _abort(self, error: BaseException) -> None:
        """Drop the parts: of an upload that nobody ends they are stored, and paid for."""
        try:
            with translated(self._where):
                self._client.abort_multipart_upload(**self._target)  # type: ignore[arg-type]
        except TierdexError as abort_error:
            error.add_note(f"the upload could not be aborted either: {abort_error}")
