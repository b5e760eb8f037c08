# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""Uploads in parts, refused where S3 refuses them: too small a part, a wrong order, a checksum that was not given."""

from __future__ import annotations

from ministack.services import s3

NEEDS = {
    s3: (
        "ParseError", "S3_NS", "_buckets", "_complete_multipart_upload", "_completed_multipart_uploads",
        "_create_multipart_upload", "_error", "_list_parts", "_multipart_uploads", "_put_object", "_qp",
        "_upload_part", "fromstring",
    ),
}  # fmt: skip

SMALLEST_PART = 5 * 1024 * 1024  # bytes; docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html
_CHECKSUM = "x-amz-checksum-"
_ALGORITHMS = ("crc32", "crc32c", "crc64nvme", "sha1", "sha256")
_COMPOSITE = "COMPOSITE"


def install(_handlers: dict) -> None:
    """Put the refusals before MiniStack's own calls, and into its answers what they leave out."""
    create, upload, complete, listing = (
        s3._create_multipart_upload, s3._upload_part, s3._complete_multipart_upload, s3._list_parts
    )  # fmt: skip

    def created(bucket, key, headers):
        answer = create(bucket, key, headers)
        if answer[0] == 200:  # noqa: PLR2004 - HTTP
            identity = s3.fromstring(answer[2]).findtext(f"{{{s3.S3_NS}}}UploadId")
            s3._multipart_uploads[identity]["checksum_type"] = headers.get(f"{_CHECKSUM}type", _COMPOSITE).upper()
        return answer

    def uploaded(bucket, key, body, query, headers):
        return _other_checksum(_upload(query), headers) or upload(bucket, key, body, query, headers)

    def completed(bucket, key, body, query, headers=None):
        current = None if s3._qp(query, "uploadId") in s3._completed_multipart_uploads else _upload(query)
        return _incomplete(current, body) or complete(bucket, key, body, query, headers)

    def listed(bucket, key, query):
        status, headers, body = listing(bucket, key, query)
        return status, headers, _with_checksum_kind(body, _upload(query))

    s3._create_multipart_upload = created
    s3._upload_part = uploaded
    s3._complete_multipart_upload = completed
    s3._list_parts = listed
    _checksums_of_a_put()


def _upload(query):
    return s3._multipart_uploads.get(s3._qp(query, "uploadId"))


def _other_checksum(upload, headers):
    """A part must come with the checksum that its upload was begun with."""
    expected = ((upload or {}).get("checksum_algorithm") or "").lower()
    given = [name for name in _ALGORITHMS if headers.get(_CHECKSUM + name)]
    if not expected or given == [expected]:
        return None
    actual = given[0] if given else "null"
    return _refused(
        "InvalidRequest",
        f"Checksum Type mismatch occurred, expected checksum Type: {expected}, actual checksum Type: {actual}",
    )


def _incomplete(upload, body):
    """Why the listed parts make no object; None where MiniStack is to say so itself."""
    if upload is None:
        return None
    try:
        listed = [_said(part) for part in s3.fromstring(body) if part.tag.rpartition("}")[2] == "Part"]
    except s3.ParseError:
        return None
    if not listed:
        return _refused("MalformedXML", "The XML you provided was not well-formed or did not validate against our "
                                        "published schema")  # fmt: skip
    numbers = [int(part["PartNumber"]) for part in listed]
    if numbers != sorted(set(numbers)):
        return _refused("InvalidPartOrder", "The list of parts was not in ascending order. The parts list must be "
                                            "specified in order by part number.")  # fmt: skip
    if not set(numbers) <= upload["parts"].keys():
        return None
    return _without_checksum(upload, listed) or _too_small(upload, listed)


def _said(part):
    return {child.tag.rpartition("}")[2]: child.text for child in part}


def _without_checksum(upload, listed):
    algorithm = upload.get("checksum_algorithm")
    if not algorithm or upload.get("checksum_type") != _COMPOSITE:
        return None
    for part in listed:
        if not part.get(f"Checksum{algorithm}"):
            return _refused(
                "InvalidRequest",
                f"The upload was created using a {algorithm.lower()} checksum. The complete request must include the "
                f"checksum for each part. It was missing for part {part['PartNumber']} in the request.",
            )
    return None


def _too_small(upload, listed):
    for part in listed[:-1]:
        size = upload["parts"][int(part["PartNumber"])]["size"]
        if size < SMALLEST_PART:
            return _refused(
                "EntityTooSmall", "Your proposed upload is smaller than the minimum allowed size",
                {"ProposedSize": str(size), "MinSizeAllowed": str(SMALLEST_PART), "PartNumber": part["PartNumber"],
                 "ETag": (part.get("ETag") or "").strip('"')},
            )  # fmt: skip
    return None


def _with_checksum_kind(body, upload):
    if upload is None or not upload.get("checksum_algorithm"):
        return body
    end = b"</ListPartsResult>"
    kind = f"<ChecksumAlgorithm>{upload['checksum_algorithm']}</ChecksumAlgorithm>"
    kind += f"<ChecksumType>{upload['checksum_type']}</ChecksumType>"
    return body.replace(end, kind.encode() + end)


def _checksums_of_a_put():
    """S3 answers a put with the checksum that it verified."""
    put = s3._put_object

    def answered(bucket, key, body, headers):
        status, said, answer = put(bucket, key, body, headers)
        if status == 200:  # noqa: PLR2004 - HTTP
            checksums = s3._buckets[bucket]["objects"][key].get("checksums") or {}
            said.update({_CHECKSUM + name.lower(): value for name, value in checksums.items()})
            said.update({f"{_CHECKSUM}type": "FULL_OBJECT"} if checksums else {})
        return status, said, answer

    s3._put_object = answered


def _refused(code, message, extra=None):
    return s3._error(code, message, 400, extra=extra)
