"""An error in the form in which a service of AWS says it, so that an SDK reads its code."""

from __future__ import annotations

import json
from xml.sax.saxutils import escape

_MESSAGE = "injected by the fault proxy"
_XML = "application/xml"


def refusal(service: str, code: str, headers: dict[str, str], *, query_protocol: bool) -> tuple[str, bytes]:
    """The content type and body of an error answer.

    Args:
        service: signing name.
        code: the error's code.
        headers: of the request, by lower-case name; the protocol is told by them.
        query_protocol: the operation stood in a form.
    """
    if headers.get("smithy-protocol") == "rpc-v2-cbor":
        return "application/cbor", b"\xa2" + b"".join(map(_cbor, ("__type", code, "message", _MESSAGE)))
    said = f"<Code>{escape(code)}</Code><Message>{_MESSAGE}</Message>"
    if service == "s3":
        return _XML, f"<Error>{said}<RequestId>injected</RequestId></Error>".encode()
    if service == "ec2":
        return _XML, f"<Response><Errors><Error>{said}</Error></Errors></Response>".encode()
    if query_protocol:
        return _XML, f"<ErrorResponse><Error>{said}</Error></ErrorResponse>".encode()
    return "application/json", json.dumps({"__type": code, "message": _MESSAGE}).encode()


def _cbor(text: str) -> bytes:
    """A text string of CBOR (RFC 8949, major type 3) of fewer than 256 bytes."""
    raw = text.encode()
    return (bytes([0x60 + len(raw)]) if len(raw) < 24 else bytes([0x78, len(raw)])) + raw  # noqa: PLR2004 - RFC 8949
