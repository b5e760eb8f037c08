"""The values in an answer's frames; recordings show their fields and types."""

from __future__ import annotations

import msgspec
import pytest

from tandem.simulator.frames import ResponseFrames, build_error_body
from tandem.simulator.generation_request import GenerationRequest, VllmApiError
from tandem.simulator.response_plan import ResponsePlan, ResponseToken
from tandem.simulator.settings import SimulatorSettings


def test_text_offsets_go_on_from_burst_to_burst():
    # the pieces have 2 and 3 letters
    tokens = [ResponseToken(1, "ab", "ab", "content"), ResponseToken(2, "cde", "cde", "content")]
    frames = ResponseFrames(
        request=GenerationRequest(api="completions", logprobs=1),
        plan=ResponsePlan(
            class_="default",
            count=4,
            reasoning_tokens=0,
            begin=lambda: iter(tokens),
            finish_reason="stop",
        ),
        settings=SimulatorSettings(model="m"),
        id="cmpl-1",
        model="m",
    )
    bursts = [frames.burst(tokens, last=False).removeprefix(b"data: ") for _ in range(2)]
    choices = [msgspec.json.decode(burst)["choices"][0] for burst in bursts]
    assert [choice["logprobs"]["text_offset"] for choice in choices] == [[0, 2], [5, 7]]


@pytest.mark.parametrize(("runtime", "is_flat"), [("nxdi-v0", True), ("native", False)])
def test_only_an_older_vllm_gives_an_error_without_envelope(runtime, is_flat):
    body = build_error_body(VllmApiError("too long", status=413), runtime)
    assert ("error" in body) is not is_flat
    assert body.get("error", body)["code"] == 413
