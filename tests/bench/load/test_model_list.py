"""Lists of models in the forms of many servers."""

from __future__ import annotations

import msgspec
import pytest

from tandem.bench.load.event import EventError
from tandem.bench.load.model_list import ModelList, parse_model_list
from tandem.bench.load.reply import ServerReply

MODEL = "independent"


def parse(page: object) -> ModelList:
    return parse_model_list(ServerReply(0, reads=[(1, msgspec.json.encode(page))], status=200))


@pytest.mark.parametrize(
    "page",
    [
        [MODEL, "other"],
        {"models": [{"name": MODEL}]},
        {"id": MODEL, "object": "model"},
        {"data": [{"id": "*"}]},
        {"data": [{"id": "indep*"}]},
        {"data": [{"id": "Independent:latest"}]},
    ],
)
def test_a_list_in_any_form_has_the_model(page):
    assert parse(page).has_model(MODEL)


@pytest.mark.parametrize(
    "page", [{"data": None}, {"data": [1, {"id": None}]}, {"message": "no list here"}]
)
def test_a_page_without_a_list_has_no_models(page):
    assert parse(page) == ModelList()


def test_a_page_that_reports_an_error_is_no_list():
    with pytest.raises(EventError, match="api_error"):
        parse({"error": {"message": "no key"}})


def test_a_wildcard_names_no_model():
    models = parse({"data": [{"id": "*"}]})
    assert (models.list_names(MODEL), models.names) == (frozenset(), ())


def test_a_message_names_the_first_of_hundreds():
    models = parse([f"model-{number}" for number in range(300)])
    assert models.format_names().endswith(", model-11 and 288 more")
