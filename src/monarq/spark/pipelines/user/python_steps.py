"""Steps that are Python functions: `file.py:function`, which takes earlier tables by the names of
its parameters, and `spark` if it wants the session.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from monarq.errors import InvalidRequestError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SESSION = "spark"


def check_function(step: str, folder: Path, known: Sequence[str]) -> str:
    """Read the file, without running it, and see that the function can be called with what there
    is. Answers the step with the file's whole path."""
    file, colon, name = step.rpartition(":")
    if not colon or not file.endswith(".py") or not name.isidentifier():
        raise InvalidRequestError(f"must be file.py:function, not {step!r}")
    path = (folder / file).absolute()
    try:
        tree = ast.parse(path.read_bytes(), filename=str(path))
    except OSError as error:
        raise InvalidRequestError(f"{file} cannot be read: {error.strerror}") from None
    except SyntaxError as error:
        raise InvalidRequestError(f"{file}, line {error.lineno}: {error.msg}") from None
    _check_module_name(path)
    functions = [one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == name]
    if not functions:
        raise InvalidRequestError(f"{file} has no function {name!r}")
    arguments = functions[-1].args
    if arguments.vararg or arguments.kwarg or arguments.posonlyargs:
        raise InvalidRequestError(f"{name} must name its parameters one by one")
    for argument in [*arguments.args, *arguments.kwonlyargs]:
        if argument.arg not in (*known, SESSION):
            names = ", ".join((*known, SESSION))
            raise InvalidRequestError(
                f"{name} has the parameter {argument.arg!r}; before this step there are {names}"
            )
    return f"{path}:{name}"


def _check_module_name(path: Path) -> None:
    name = path.stem
    if not name.isidentifier():
        raise InvalidRequestError(f"{path.name}: a file of steps is named like a Python module")
    loaded = sys.modules.get(name)
    origin = getattr(loaded, "__file__", None) if loaded else getattr(find_spec(name), "origin", "")
    if (loaded is not None or origin) and origin != str(path):
        raise InvalidRequestError(
            f"{path.name} has the name of another module ({name}): rename the file"
        )


def call_function(spark: SparkSession, step: str, tables: Mapping[str, DataFrame]) -> DataFrame:
    """The DataFrame that the function of a checked step gives."""
    from pyspark.sql import DataFrame as Frame

    file, _, name = step.rpartition(":")
    # Functions of the file may be called in workers, on other machines too.
    spark.sparkContext.addPyFile(file)
    folder = str(Path(file).parent)
    sys.path.insert(0, folder)
    try:
        module = importlib.import_module(Path(file).stem)
    finally:
        sys.path.remove(folder)
    function = getattr(module, name)
    available: dict[str, Any] = {**tables, SESSION: spark}
    wanted = inspect.signature(function).parameters
    made = function(**{parameter: available[parameter] for parameter in wanted})
    if not isinstance(made, Frame):
        raise InvalidRequestError(f"{name} must return a DataFrame, not {type(made).__name__}")
    return made
