"""The data source `monarq`: what Spark calls for `spark.read.format("monarq")` and the like.

Only picks who does the work. Spark makes it in workers of its own, so nothing is kept here
beyond the options.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from monarq.errors import InvalidRequestError
from monarq.spark.batch import FilteredMessagesReader, LogReader, MessagesReader, StateReader
from monarq.spark.ddl import read_type
from monarq.spark.filters import is_pushdown_on
from monarq.spark.options import ReadOptions, read_options
from monarq.spark.plain_errors import plain
from monarq.spark.ranges import chosen_table
from monarq.spark.schemas import Shape, shape_of, spark_schema
from monarq.spark.stream import LogStream, MessageStream
from monarq.tables import TableKind, get_table


class MonarqSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "monarq"

    @plain
    def schema(self) -> StructType:
        options = read_options(self.options)
        payload = None
        if options.payload_schema is not None:
            try:
                payload = read_type(options.payload_schema)
            except InvalidRequestError as error:
                raise InvalidRequestError(f"option 'payloadSchema': {error}") from None
        return spark_schema(chosen_table(options), payload)

    @plain
    def reader(self, schema: StructType) -> DataSourceReader:
        options = read_options(self.options, stream=False)
        shape = _shape(options, schema)
        match get_table(shape.table).kind:
            case TableKind.MESSAGES:
                kind = FilteredMessagesReader if is_pushdown_on() else MessagesReader
                return kind(options, shape)
            case TableKind.LOG:
                return LogReader(options, shape)
            case TableKind.STATE:
                return StateReader(options, shape)

    @plain
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        options = read_options(self.options, stream=True)
        shape = _shape(options, schema)
        match get_table(shape.table).kind:
            case TableKind.MESSAGES:
                return MessageStream(options, shape)
            case TableKind.LOG:
                return LogStream(options, shape)
            case TableKind.STATE:
                raise InvalidRequestError(
                    f"table {shape.table} cannot be read as a stream, since its rows change: "
                    "use spark.read"
                )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from monarq.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        from monarq.spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)


def _shape(options: ReadOptions, schema: StructType) -> Shape:
    return shape_of(chosen_table(options), schema)
