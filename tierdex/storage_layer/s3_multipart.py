"""A large object, sent in parts: begin, parts in order, complete; or abort.

None of these requests has a condition, since some servers ignore conditions here.

Depends on base, s3_client and retrying.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tierdex.errors import TierdexError
from tierdex.storage_layer.base import UploadSource, read_source
from tierdex.storage_layer.s3_client import member_of, translated

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_s3 import S3Client

    from tierdex.storage_layer.retrying import RetryPolicy

MAX_PARTS = 10_000


class MultipartUpload:
    """One upload. Only parts are repeated: a lost part must not restart the whole upload."""

    def __init__(
        self,
        client: S3Client,
        bucket: str,
        key: str,
        *,
        encryption: dict[str, Any],
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
            begun: Any = client.create_multipart_upload(Bucket=bucket, Key=key, **encryption)
        self._target["UploadId"] = member_of(begun, "UploadId", self._where)

    def send(self, source: UploadSource, length: int, part_bytes: int) -> None:
        """Send everything and complete; after any error abort and raise it."""
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
        # A server answers 200 before it joins the parts: only the body tells that it did.
        member_of(done, "ETag", self._where)

    def _abort(self, error: BaseException) -> None:
        """Drop the parts: the parts of an unfinished upload are stored, and paid for."""
        try:
            with translated(self._where):
                self._client.abort_multipart_upload(**self._target)  # type: ignore[arg-type]
        except TierdexError as abort_error:
            error.add_note(f"the upload could not be aborted either: {abort_error}")
