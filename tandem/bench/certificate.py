"""What a failed TLS connection means, and what to change.

Invariant: the system's error number is never shown: OpenSSL's own numbers are no errno, and 1 reads as "Operation not
permitted".
"""

from __future__ import annotations

import ssl

import aiohttp

_TRUST = (
    "to trust it, export SSL_CERT_FILE=FILE, where FILE holds the certificate of its authority or, where it is "
    "self-signed, the certificate itself"
)
_NAME = "use a name that the certificate holds, or give the server a certificate for this name"
_CHANGES = {  # X509_V_ERR_... in openssl/x509_vfy.h
    9: "see whether the clocks of this machine and of the server are right",
    10: "renew the server's certificate, and see whether this machine's clock is right",
    18: _TRUST,
    19: _TRUST,
    20: _TRUST,
    21: _TRUST,
    62: _NAME,
    64: _NAME,
}


def describe_tls_error(error: aiohttp.ClientSSLError) -> tuple[str, str]:
    """Return the error's word, `certificate` or `connect`, and what a person should know and change."""
    address, cause = f"{error.host}:{error.port}", error.os_error
    if isinstance(cause, ssl.SSLCertVerificationError):
        problem = f"the certificate of {address} is not accepted: {cause.verify_message.rstrip('.')}"
        change = _CHANGES.get(cause.verify_code)
        return "certificate", f"{problem}; {change}" if change else problem
    reason = (getattr(cause, "reason", None) or str(cause)).replace("_", " ").lower()
    return "connect", f"{address}: no TLS connection: {reason}; where the server has no TLS, use http://"
