"""An error in the form in which a service of AWS says it, so that an SDK reads its code."""

from __future__ import annotations

import json
from xml.sax.saxutils import escape

_MESSAGE = "injected by the fault proxy"
_XML_TYPE = "application/xml"


def build_error_response(
    service: str, code: str, headers: dict[str, str], *, is_query_protocol: bool
) -> tuple[str, bytes]:
    """The content type and body of an error answer.

    Args:
        service: signing name.
        code: the error's code.
        headers: of the request, by lower-case name; the protocol is told by them.
        is_query_protocol: the operation stood in a form.
    """
    if headers.get("smithy-protocol") == "rpc-v2-cbor":
        return "application/cbor", b"\xa2" + b"".join(
            map(_encode_cbor, ("__type", code, "message", _MESSAGE))
        )
    error_xml = f"<Code>{escape(code)}</Code><Message>{_MESSAGE}</Message>"
    if service == "s3":
        return _XML_TYPE, f"<Error>{error_xml}<RequestId>injected</RequestId></Error>".encode()
    if service == "ec2":
        return (
            _XML_TYPE,
            f"<Response><Errors><Error>{error_xml}</Error></Errors></Response>".encode(),
        )
    if is_query_protocol:
        return _XML_TYPE, f"<ErrorResponse><Error>{error_xml}</Error></ErrorResponse>".encode()
    return "application/json", json.dumps({"__type": code, "message": _MESSAGE}).encode()


def _encode_cbor(text: str) -> bytes:
    """A text string of CBOR (RFC 8949, major type 3) of fewer than 256 bytes."""
    content = text.encode()
    return (
        bytes([0x60 + len(content)]) if len(content) < 24 else bytes([0x78, len(content)])
    ) + content
