"""What is said of a request that is refused: the field, and what it may be."""

import pytest

from monarq.errors import InvalidRequestError
from monarq.server.decoding import body_decoder, query_decoder
from monarq.server.routes import ROUTES

ROUTE = {(route.method, route.path): route for route in ROUTES}


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("push", "", "items is missing"),
        ("push", "[]", "the body must be an object, not an array"),
        ("push", '{"queues": "q"}', "there is no field 'queues'; there are items, queue"),
        ("push", '{"items": [{"queue": "q"}]}', "items[0]: payload is missing"),
        ("push", '{"items": [{"queue": 3, "payload": 1}]}', "items[0].queue must be text, not a"),
        (
            "push",
            '{"items": [{"queue": "q", "payload": 1, "lane": 1}]}',
            "items[0]: there is no field 'lane'; there are queue, payload, partition",
        ),
        (
            "push",
            '{"items": [{"queue": "q", "payload": 1, "runAt": "soon"}]}',
            "items[0].runAt must be a time in ISO 8601 with a time zone, such as",
        ),
        (
            "ack/batch",
            '{"acknowledgments": [{"transactionId": "1", "partitionId": "1", "status": "done"}]}',
            "acknowledgments[0].status must be one of completed, dead,",
        ),
        (
            "transaction",
            '{"operations": [{"type": "pop"}]}',
            "operations[0].type must be one of push, ack, not 'pop'",
        ),
        ("configure", '{"queue": "q", "kind": "topic"}', "kind must be one of ordered, work, not"),
        (
            "configure",
            '{"queue": "q", "options": {"leaseTime": -1}}',
            "options.leaseTime must be a number > 0",
        ),
    ],
)
def test_a_body_that_is_refused_says_what_would_be_right(path: str, body: str, said: str) -> None:
    decode = body_decoder(ROUTE["POST", f"/api/v1/{path}"].body)
    with pytest.raises(InvalidRequestError) as refused:
        decode(body.encode())
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("batch=many", "batch must be a whole number, not text"),
        ("batch=0", "batch must be a whole number >= 1"),
        ("bach=1", "there is no parameter 'bach'; there are batch, wait,"),
    ],
)
def test_a_query_that_is_refused_says_what_would_be_right(query: str, said: str) -> None:
    decode = query_decoder(ROUTE["GET", "/api/v1/pop/queue/{queue}"].query)
    with pytest.raises(InvalidRequestError) as refused:
        decode(query)
    assert str(refused.value).startswith(said)


def test_who_misspells_a_parameter_is_not_pointed_to_those_of_other_clients() -> None:
    decode = query_decoder(ROUTE["GET", "/api/v1/pop/queue/{queue}"].query)
    with pytest.raises(InvalidRequestError) as refused:
        decode("autopliot=true")
    assert "autopilot" not in str(refused.value)
    assert decode("autopilot=true")[0].autopilot
