"""A Spark session with settings that suit queues, for those who have none.

Finds Java and the interpreter for Spark's workers, and registers the format `monarq`. A session
that exists keeps its settings.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from monarq.errors import SettingsError
from monarq.spark.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG_SETTINGS = Path(__file__).parent / "log4j2.properties"


def session(
    master: str | None = None,
    *,
    app_name: str = "monarq",
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """A Spark session: the one that is active, or a new one on `master` (default: all cores of
    this machine). `config` are further settings of Spark, and win over ours."""
    if find_spec("pyspark") is None:
        raise SettingsError("Spark is not installed: pip install 'monarq[spark]'")
    from pyspark.sql import SparkSession

    from monarq.spark.source import MonarqSource

    active = SparkSession.getActiveSession()
    if active is not None:
        active.dataSource.register(MonarqSource)
        return active
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    master = master or "local[*]"
    builder = SparkSession.builder.master(master).appName(app_name)
    for name, value in (_settings(master) | dict(config or {})).items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    # A source that Spark finds by itself runs on executors with the driver's interpreter.
    made.dataSource.register(MonarqSource)
    return made


def _settings(master: str) -> dict[str, str]:
    settings = {
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.python.filterPushdown.enabled": "true",
        # Options that plans do not show. Spark's own default is (?i)url.
        "spark.sql.redaction.options.regex": "(?i)url|encryptionKey",
        "spark.sql.streaming.stopTimeout": "60s",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if master.startswith("local"):
        cores = str(len(os.sched_getaffinity(0)))
        settings |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": cores,
        }
    return settings
