# ruff: noqa: ANN001, ANN202 - MiniStack is untyped and has no public interface
"""PutMetricData's namespace, for policies that name it: plain MiniStack denies such calls."""

from __future__ import annotations

import gzip
import json

from ministack.core import iam_actions

_GZIP = b"\x1f\x8b"  # SDKs compress a large body


def install(_handlers: dict) -> None:
    """Wrap the function that gathers a request's own condition keys."""
    gather_context = iam_actions.request_tag_context

    def gather_with_namespace(service, iam_action, body, params):
        context = gather_context(service, iam_action, body, params)
        if iam_action != "cloudwatch:PutMetricData":
            return context
        return {**context, "cloudwatch:namespace": _read_namespace(body, params)}

    iam_actions.request_tag_context = gather_with_namespace


def _read_namespace(body, params):
    """Return the namespace from JSON or the query protocol; empty, admitted nowhere, if none."""
    namespace = params.get("Namespace")
    if namespace:
        return namespace[0] if isinstance(namespace, list) else namespace
    plain = gzip.decompress(body) if body.startswith(_GZIP) else body
    try:
        return json.loads(plain).get("Namespace", "")
    except (ValueError, AttributeError):
        return ""
