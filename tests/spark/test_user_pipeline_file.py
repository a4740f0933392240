"""Files of pipelines: what is wrong is told, with its place, before Spark starts."""

from pathlib import Path

import pytest

from monarq.errors import InvalidRequestError
from monarq.spark.pipelines.user.definition import Pipeline, sink_options
from monarq.spark.pipelines.user.reading import read_pipeline

GOOD = """
name = "score"
mode = "stream"
checkpoint = "checkpoints"
every = "10s"

[sources.orders]
queue = "orders"
payload_schema = "n INT"
options = { maxMessagesPerTrigger = 100, failOnDataLoss = false }

[sources.customers]
files = "customers.csv"
format = "csv"
options = { header = true }

[[steps]]
name = "joined"
python = "enriching.py:joined"

[[steps]]
name = "scored"
sql_file = "score.sql"

[sinks.out]
from = "scored"
queue = "scored"
options = { partitionColumn = "customer" }

[sinks.kept]
from = "joined"
files = "kept"
partition_by = ["customer"]
"""


def write(folder: Path, text: str) -> Path:
    (folder / "customers.csv").write_text("id\n1\n")
    (folder / "score.sql").write_text("SELECT * FROM joined;")
    (folder / "enriching.py").write_text("def joined(orders, customers, spark): ...\n")
    (folder / "p.toml").write_text(text)
    return folder / "p.toml"


def read(folder: Path, text: str) -> Pipeline:
    return read_pipeline(write(folder, text))


def test_a_whole_pipeline_is_read(tmp_path: Path) -> None:
    pipeline = read(tmp_path, GOOD)
    assert pipeline.is_stream
    assert pipeline.checkpoint == str(tmp_path / "checkpoints")
    assert [source.stream for source in pipeline.sources.values()] == [True, False]
    assert pipeline.sources["customers"].files == str(tmp_path / "customers.csv")
    assert pipeline.steps[0].python == f"{tmp_path}/enriching.py:joined"
    assert pipeline.steps[1].sql == "SELECT * FROM joined;"
    assert pipeline.sinks["kept"].of == "joined"
    assert sink_options(pipeline.sinks["out"], {"url": "http://h", "token": "t"}) == {
        "url": "http://h",
        "token": "t",
        "queue": "scored",
        "partitionColumn": "customer",
    }


def test_another_place_is_not_sent_this_ones_token(tmp_path: Path) -> None:
    text = GOOD.replace('queue = "scored"', 'queue = "scored"\nurl = "http://other"')
    options = sink_options(read(tmp_path, text).sinks["out"], {"url": "http://h", "token": "t"})
    assert options["url"] == "http://other"
    assert "token" not in options


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ('name = "score"', "name = 5", "name: Expected `str`"),
        ('name = "score"', 'name = "a b"', "name: must be 1 to 100 letters"),
        ('name = "score"', 'name = "x"\nmoed = "batch"', "unknown field `moed`"),
        ('mode = "stream"', 'mode = "strem"', "mode: Invalid enum value 'strem'"),
        ('mode = "stream"', 'mode = "batch"', "checkpoint: is for mode"),
        ('checkpoint = "checkpoints"', "", "checkpoint: a stream needs a folder"),
        ('every = "10s"', 'every = "soon"', "every: must be a time such as 10s"),
        ('queue = "orders"', "", "sources.orders: give one of queue, files, lake"),
        ('queue = "orders"', 'queue = "orders"\nfiles = "x"', "sources.orders: give one of"),
        ('queue = "orders"', 'queue = "orders"\nschema = "a INT"', "sources.orders.schema: is not"),
        ("maxMessagesPerTrigger", "maxMesagesPerTrigger", "sources.orders: there is no option"),
        ("= 100", "= 0", "sources.orders: option 'maxMessagesPerTrigger' must be"),
        ('format = "csv"', 'format = "xls"', "sources.customers.format: Invalid enum value"),
        ('"customers.csv"', '"none.csv"', "sources.customers.files: there is no .*none.csv"),
        ('format = "csv"', 'format = "csv"\nstream = true', "sources.customers.schema: files that"),
        ("[sources.customers]", '[sources."a b"]', "sources.a b: names are letters"),
        ("[sources.customers]", "[sources.Orders]", "sources.Orders: there is a 'Orders' already"),
        ('name = "joined"', 'name = "orders"', "(orders): there is a 'orders' already"),
        ('name = "joined"', "", "steps[0]: Object missing required field `name`"),
        ('python = "enriching.py:joined"', "", "steps[0] (joined): give one of sql, sql_file"),
        ("enriching.py:joined", "enriching.py", "steps[0] (joined).python: must be file.py:func"),
        ("enriching.py:joined", "none.py:joined", "steps[0] (joined).python: none.py cannot be"),
        ("enriching.py:joined", "enriching.py:nope", "has no function 'nope'"),
        ('sql_file = "score.sql"', 'sql_file = "x.sql"', "(scored).sql_file: x.sql cannot be"),
        ('sql_file = "score.sql"', 'sql = "  "', "steps[1] (scored).sql: is empty"),
        ('from = "scored"', 'from = "scord"', "sinks.out.from: there is no 'scord'; there are"),
        ('from = "scored"', "", "sinks.out: Object missing required field `from`"),
        ('queue = "scored"', "", "sinks.out: give one of queue"),
        ("partitionColumn", "partitionColum", "sinks.out: there is no option 'partitionColum'"),
        ('files = "kept"', 'files = "kept"\nurl = "http://x"', "sinks.kept.url: is not for this"),
        ('files = "kept"', 'lake = "l"\ntable = "messages"', "messages is the archive's own"),
        ('files = "kept"', 'files = "kept"\nmode = "replace"', "sinks.kept.mode: Invalid enum"),
        ('files = "kept"', 'files = "kept"\nmode = "append"', "sinks.kept.mode: is for mode"),
        ('queue = "scored"', 'queue = "scored"\noutput = "complete"', "sinks.out.output: a queue"),
        ('queue = "orders"', 'files = "customers.csv"', "sources.orders.payload_schema: is not"),
        ("[sinks.out]", "[sinks.out", "is not TOML"),
    ],
)
def test_a_mistake_is_told_with_its_place(tmp_path: Path, old: str, new: str, wrong: str) -> None:
    assert old in GOOD
    with pytest.raises(InvalidRequestError) as caught:
        read(tmp_path, GOOD.replace(old, new, 1))
    said = str(caught.value)
    assert said.startswith(str(tmp_path / "p.toml"))
    if ".*" in wrong:
        assert all(part in said for part in wrong.split(".*"))
    else:
        assert wrong in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ("def joined(order): ...", "parameter 'order'; before this step there are orders, cust"),
        ("def joined(*tables): ...", "must name its parameters one by one"),
        ("def joined(", "enriching.py, line 1"),
        ("joined = 5", "has no function 'joined'"),
    ],
)
def test_a_python_step_is_checked_without_running_it(tmp_path: Path, code: str, wrong: str) -> None:
    path = write(tmp_path, GOOD)
    (tmp_path / "enriching.py").write_text(f"raise SystemExit\n{code}" if ":" in code else code)
    with pytest.raises(InvalidRequestError, match="python: "):
        read_pipeline(path)
    (tmp_path / "enriching.py").write_text(code)
    with pytest.raises(InvalidRequestError) as caught:
        read_pipeline(path)
    assert wrong in str(caught.value)


def test_a_file_of_steps_may_not_hide_another_module(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD.replace("enriching.py", "json.py"))
    (tmp_path / "json.py").write_text("def joined(orders): ...")
    with pytest.raises(InvalidRequestError, match=r"json\.py has the name of another module"):
        read_pipeline(path)


def test_without_sinks_or_sources_there_is_no_pipeline(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="sources: there must be at least one"):
        read(tmp_path, 'name = "x"')
    with pytest.raises(InvalidRequestError, match="sinks: there must be at least one"):
        read(tmp_path, 'name = "x"\n[sources.a]\nqueue = "q"')


def test_a_stream_follows_something(tmp_path: Path) -> None:
    text = GOOD.replace('queue = "orders"', 'queue = "orders"\nstream = false').replace(
        "maxMessagesPerTrigger = 100, ", ""
    )
    with pytest.raises(InvalidRequestError, match="sources: none of them is a stream"):
        read(tmp_path, text)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"none\.toml cannot be read: No such file"):
        read_pipeline(tmp_path / "none.toml")


def test_a_lake_that_is_not_there_is_told(tmp_path: Path) -> None:
    text = 'name = "x"\n[sources.a]\nlake = "none"\ntable = "messages"\n'
    with pytest.raises(InvalidRequestError, match=r"sources\.a\.lake: there is no lake at"):
        read(tmp_path, text)
