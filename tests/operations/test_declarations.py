"""What operations declare is complete, and what is generated of it is fresh."""

from typing import Any

import pytest

from monarq.model.queue_options import QUEUE_OPTIONS
from monarq.operations import OPERATIONS, Operation
from monarq.operations.generate import TARGET, generated, method_name
from monarq.operations.generate_options import FORM, PAGE, form_module, page_with_table
from monarq.operations.handlers import Handlers, check
from monarq.operations.http import in_path
from monarq.operations.records import DeleteRecord, GetRecord
from monarq.server.routes import ROUTES


def test_the_generated_methods_are_fresh() -> None:
    assert TARGET.read_text() == generated(), "run ./dev generate"


def test_the_form_and_the_table_of_options_are_fresh() -> None:
    assert FORM.read_text() == form_module(), "run ./dev generate"
    page = PAGE.read_text()
    assert page == page_with_table(page), "run ./dev generate"
    assert all(f"| `{option.api_name}` |" in page for option in QUEUE_OPTIONS)


def test_each_route_of_an_operation_is_served_once() -> None:
    served = [(route.method, route.path) for route in ROUTES]
    assert len(set(served)) == len(served)
    declared = {(route.method, route.path) for each in OPERATIONS for route in each.routes}
    assert declared <= set(served)


@pytest.mark.parametrize("operation", OPERATIONS, ids=method_name)
def test_each_parameter_of_a_path_is_a_field(operation: type[Operation[Any]]) -> None:
    fields = set(operation.__struct_encode_fields__)
    for route in operation.routes:
        assert set(in_path(route)) <= fields


async def _get(context: None, request: GetRecord) -> bool:
    return True


def test_a_missing_handler_is_found_at_the_start() -> None:
    with pytest.raises(TypeError, match="DeleteRecord has no handler in a store"):
        check("a store", Handlers[None](), wanted=[DeleteRecord])


def test_a_second_handler_is_found_at_the_start() -> None:
    one, two = Handlers[None](), Handlers[None]()
    one.table[DeleteRecord] = two.table[DeleteRecord] = _delete
    with pytest.raises(TypeError, match="DeleteRecord has two handlers in a store"):
        check("a store", one, two, wanted=[DeleteRecord])


def test_a_handler_of_another_type_is_found_at_the_start() -> None:
    handles = Handlers[None]()
    handles.table[DeleteRecord] = _get
    with pytest.raises(TypeError, match="_get is no handler of DeleteRecord"):
        check("a store", handles, wanted=[DeleteRecord])


async def _delete(context: None, request: DeleteRecord) -> bool:
    return True
