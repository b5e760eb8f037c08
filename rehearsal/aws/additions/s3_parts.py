# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""Uploads in parts, refused as S3 does: too small a part, wrong order, missing checksum."""

from __future__ import annotations

from ministack.services import s3

MIN_PART_BYTES = 5 * 1024 * 1024  # bytes; docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html
_CHECKSUM_PREFIX = "x-amz-checksum-"
_ALGORITHMS = ("crc32", "crc32c", "crc64nvme", "sha1", "sha256")
_COMPOSITE = "COMPOSITE"


def install(_handlers: dict) -> None:
    """Put the refusals before MiniStack's own calls, and add missing fields to its answers."""
    create = s3._create_multipart_upload
    upload = s3._upload_part
    complete = s3._complete_multipart_upload
    listing = s3._list_parts

    def create_with_type(bucket, key, headers):
        answer = create(bucket, key, headers)
        if answer[0] == 200:  # noqa: PLR2004 - HTTP
            upload_id = s3.fromstring(answer[2]).findtext(f"{{{s3.S3_NS}}}UploadId")
            s3._multipart_uploads[upload_id]["checksum_type"] = headers.get(
                f"{_CHECKSUM_PREFIX}type", _COMPOSITE
            ).upper()
        return answer

    def upload_with_check(bucket, key, body, query, headers):
        return _find_checksum_fault(_find_upload(query), headers) or upload(
            bucket, key, body, query, headers
        )

    def complete_with_check(bucket, key, body, query, headers=None):
        open_upload = (
            None
            if s3._qp(query, "uploadId") in s3._completed_multipart_uploads
            else _find_upload(query)
        )
        return _find_completion_fault(open_upload, body) or complete(
            bucket, key, body, query, headers
        )

    def list_with_type(bucket, key, query):
        status, headers, body = listing(bucket, key, query)
        return status, headers, _insert_checksum_type(body, _find_upload(query))

    s3._create_multipart_upload = create_with_type
    s3._upload_part = upload_with_check
    s3._complete_multipart_upload = complete_with_check
    s3._list_parts = list_with_type
    _install_put_checksums()


def _find_upload(query):
    return s3._multipart_uploads.get(s3._qp(query, "uploadId"))


def _find_checksum_fault(upload, headers):
    """Refuse a part without the checksum algorithm of its upload."""
    expected_algorithm = ((upload or {}).get("checksum_algorithm") or "").lower()
    algorithms = [name for name in _ALGORITHMS if headers.get(_CHECKSUM_PREFIX + name)]
    if not expected_algorithm or algorithms == [expected_algorithm]:
        return None
    actual_algorithm = algorithms[0] if algorithms else "null"
    return _error_response(
        "InvalidRequest",
        f"Checksum Type mismatch occurred, expected checksum Type: {expected_algorithm}, actual"
        f" checksum Type: {actual_algorithm}",
    )


def _find_completion_fault(upload, body):
    """Return why the listed parts make no object; None if MiniStack should say so itself."""
    if upload is None:
        return None
    try:
        parts = [
            _element_fields(part)
            for part in s3.fromstring(body)
            if part.tag.rpartition("}")[2] == "Part"
        ]
    except s3.ParseError:
        return None
    if not parts:
        return _error_response(
            "MalformedXML",
            "The XML you provided was not well-formed or did not validate against our published"
            " schema",
        )
    numbers = [int(part["PartNumber"]) for part in parts]
    if numbers != sorted(set(numbers)):
        return _error_response(
            "InvalidPartOrder",
            "The list of parts was not in ascending order. The parts list must be specified in"
            " order by part number.",
        )
    if not set(numbers) <= upload["parts"].keys():
        return None
    return _find_absent_checksum(upload, parts) or _find_small_part(upload, parts)


def _element_fields(part):
    return {child.tag.rpartition("}")[2]: child.text for child in part}


def _find_absent_checksum(upload, parts):
    algorithm = upload.get("checksum_algorithm")
    if not algorithm or upload.get("checksum_type") != _COMPOSITE:
        return None
    for part in parts:
        if not part.get(f"Checksum{algorithm}"):
            return _error_response(
                "InvalidRequest",
                f"The upload was created using a {algorithm.lower()} checksum. The complete request"
                " must include the checksum for each part. It was missing for part"
                f" {part['PartNumber']} in the request.",
            )
    return None


def _find_small_part(upload, parts):
    for part in parts[:-1]:
        size = upload["parts"][int(part["PartNumber"])]["size"]
        if size < MIN_PART_BYTES:
            return _error_response(
                "EntityTooSmall",
                "Your proposed upload is smaller than the minimum allowed size",
                {
                    "ProposedSize": str(size),
                    "MinSizeAllowed": str(MIN_PART_BYTES),
                    "PartNumber": part["PartNumber"],
                    "ETag": (part.get("ETag") or "").strip('"'),
                },
            )
    return None


def _insert_checksum_type(body, upload):
    if upload is None or not upload.get("checksum_algorithm"):
        return body
    end = b"</ListPartsResult>"
    checksum_xml = f"<ChecksumAlgorithm>{upload['checksum_algorithm']}</ChecksumAlgorithm>"
    checksum_xml += f"<ChecksumType>{upload['checksum_type']}</ChecksumType>"
    return body.replace(end, checksum_xml.encode() + end)


def _install_put_checksums():
    """Answer a put with the verified checksum, as S3 does."""
    put = s3._put_object

    def put_with_checksums(bucket, key, body, headers):
        status, answer_headers, answer = put(bucket, key, body, headers)
        if status == 200:  # noqa: PLR2004 - HTTP
            checksums = s3._buckets[bucket]["objects"][key].get("checksums") or {}
            answer_headers.update(
                {_CHECKSUM_PREFIX + name.lower(): value for name, value in checksums.items()}
            )
            answer_headers.update({f"{_CHECKSUM_PREFIX}type": "FULL_OBJECT"} if checksums else {})
        return status, answer_headers, answer

    s3._put_object = put_with_checksums


def _error_response(code, message, extra=None):
    return s3._error(code, message, 400, extra=extra)
