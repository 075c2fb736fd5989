"""SQL over logs: a query reads only the records that it needs, and DuckDB answers it.

    ns.sql('select date_trunc(\\'hour\\', time) as hour, avg(value.celsius::double) from "raw/kitchen" group by hour').df()

Each log is a view with the columns seqno, time, id, cause, data and value; `runs` and `events` are views, too. The command
`millrace sql` runs `python -m millrace.sql`.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Optional, Union

from millrace._records import StoredRecord, _native
from millrace._worker import Denied, Invalid, NotFound
from millrace.codecs import package
from millrace.sql import _derived, _plan, _read, _values
from millrace.sql._read import MissingRecords as MissingRecords

if TYPE_CHECKING:
    import duckdb

    from millrace._namespace import Namespace
    from millrace.codecs import Codec

__all__ = ["MEMORY_DEFAULT", "MissingRecords", "query", "rows"]

#: What DuckDB may use before it writes to temporary files.
MEMORY_DEFAULT = "1GB"
#: The columns of a log.
COLUMNS = ("seqno", "time", "id", "cause", "data", "value")
_FETCH = 1000
#: Of a query with more words than this, all logs are listed instead of asking for each word.
_WORDS_MAX = 200
_STAGE = '"millrace stage"'
#: So many names of logs are in the error of a query.
_NAMES_MAX = 20

Decode = Mapping[str, Union[str, "Codec[Any]"]]


def query(
    namespace: Namespace,
    statement: str,
    parameters: Any = None,
    *,
    decode: Optional[Decode] = None,
    memory: str = MEMORY_DEFAULT,
    pushdown: bool = True,
) -> duckdb.DuckDBPyRelation:
    """The implementation of `Namespace.sql`. Without `pushdown` whole logs are read: for tests, and in case of doubt."""
    answered = _Query(namespace, decode or {}, memory, pushdown)
    connection, statement, writes = answered.prepare(statement, parameters)
    with answered.telling():
        if not writes:
            return connection.sql(statement, params=parameters)
        # A relation runs its statement whenever it is asked for rows; the file is written once.
        ((count,),) = connection.execute(statement, parameters).fetchall()
        return connection.sql("SELECT $1::BIGINT AS count", params=[count])


def rows(
    namespace: Namespace, statement: str, *, decode: Optional[Decode] = None, memory: str = MEMORY_DEFAULT
) -> tuple[list[tuple[str, str]], Iterator[tuple[Any, ...]]]:
    """The columns of the answer with their types, and the rows, a part at a time."""
    answered = _Query(namespace, decode or {}, memory, True)
    connection, statement, _ = answered.prepare(statement, None)

    def parts() -> Iterator[tuple[Any, ...]]:
        with answered.telling():
            while part := connection.fetchmany(_FETCH):
                yield from part

    with answered.telling():
        connection.execute(statement)
        return [(column[0], str(column[1])) for column in connection.description], parts()


def load() -> tuple[Any, Any]:
    """Loads DuckDB and NumPy; raises an error that names the command to install them."""
    return package("duckdb"), package("numpy")


class _Query:
    """One query: its database, and what the logs in it are."""

    def __init__(self, namespace: Namespace, decode: Decode, memory: str, pushdown: bool) -> None:
        self._namespace = namespace
        self._duckdb, self._numpy = load()
        self._pushdown = pushdown
        self._decode = dict(decode)
        # DuckDB creates the directory when the memory does not suffice, and removes it with the connection.
        spill = os.path.join(tempfile.gettempdir(), f"millrace-sql-{os.getpid()}-{uuid.uuid4().hex}")
        # Without the option a name that no log has would be looked for among the variables of this package.
        config = {"temp_directory": spill, "memory_limit": memory, "python_enable_replacements": "false"}
        try:
            self._connection = self._duckdb.connect(config=config)
        except self._duckdb.Error as why:
            raise _native.error("MR1006", f"memory is '{memory}': {_first(why)}") from why
        self._run("SET TimeZone = 'UTC'")
        self._run("CREATE SCHEMA store; CREATE SCHEMA millrace; SET search_path = 'main,millrace'")
        #: By table: the log, or nothing for the runs.
        self._logs: dict[str, _read.Snapshot] = {}
        self._decoders: dict[str, _values.Decoder] = {}
        #: Words of the query that are logs which may not be read.
        self._denied: dict[str, Denied] = {}

    def prepare(self, statement: str, parameters: Any) -> tuple[Any, str, bool]:
        """Reads what the statement needs; returns the database, the statement, and whether it writes a file."""
        with self.telling():
            statement, writes = self._checked(statement)
        names = _plan.names(statement)
        self._make(names)
        with self.telling():
            self._run(f"SET disabled_optimizers = '{_plan.DISABLED}'")
            explained = self._known(statement, parameters, names)
            self._read(statement, parameters, explained, writes)
            self._run("SET disabled_optimizers = ''")
        for log in self._logs.values():
            log.warn()
        return self._connection, statement, writes

    def _run(self, sql: str, parameters: Any = None) -> Any:
        return self._connection.execute(sql, parameters)

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        """Turns an error of DuckDB into ours, which says what logs there are."""
        try:
            yield
        except self._duckdb.InterruptException:
            raise KeyboardInterrupt from None
        except self._duckdb.Error as why:
            # What follows shows a place in the statement that explains the query, and names of DuckDB's own tables.
            detail = "the query: " + re.split(r"\n\s*LINE |\nDid you mean|\n\nPossible solutions", str(why))[0].strip()
            if isinstance(why, self._duckdb.OutOfMemoryException):
                detail += "; give the query more memory"
            if isinstance(why, self._duckdb.CatalogException):
                detail += f"\n{self._others()}"
            raise _native.error("MR1006", detail) from why
        except RuntimeError as why:
            # So DuckDB says that the query was interrupted by Ctrl-C.
            if "interrupted" not in str(why):
                raise
            raise KeyboardInterrupt from None

    def _others(self) -> str:
        """The names that a query can use."""
        try:
            logs = [log.name for log in self._namespace.logs()]
        except Denied:
            return "The capability does not permit listing the logs."
        said = ", ".join(quoted(name) for name in logs[:_NAMES_MAX]) or "none"
        more = f" and {len(logs) - _NAMES_MAX} more" if len(logs) > _NAMES_MAX else ""
        return f"The logs are: {said}{more}. The other views are runs and events."

    def _checked(self, statement: str) -> tuple[str, bool]:
        """The statement, if it is one and changes no log, and whether it is COPY."""
        kinds = self._duckdb.StatementType
        found = self._connection.extract_statements(statement)
        if len(found) != 1:
            raise _native.error("MR1006", f"the query has {len(found)} statements; it must be one")
        if found[0].type == kinds.MULTI:
            raise _native.error("MR1006", "a PIVOT must name its values: PIVOT ... ON column IN (value, ...)")
        if found[0].type not in (kinds.SELECT, kinds.COPY):
            raise _native.error("MR1006", f"the query is {found[0].type.name}; it must be SELECT, or COPY (SELECT ...) TO a file")
        return str(found[0].query), bool(found[0].type == kinds.COPY)

    def _make(self, names: set[str]) -> None:
        """Makes a view, and an empty table below it, for each log that the query may name. Most of the names are other words of the query."""
        if len(names) <= _WORDS_MAX:
            logs = {name for name in names if self._exists(name)}
        else:
            logs = {log.name for log in self._namespace.logs()} & names
        # SQL does not distinguish upper and lower case.
        by_name: dict[str, str] = {}
        for name in sorted(logs):
            if by_name.setdefault(name.lower(), name) != name:
                detail = f"the logs '{by_name[name.lower()]}' and '{name}' differ only in case, so a query can use only one of them"
                raise _native.error("MR1006", detail)
        words = {name.lower() for name in names}
        every = logs
        if "events" in words - logs:
            every = {log.name for log in self._namespace.logs()} | logs
            if len(every) > _derived.LOGS_MAX:
                detail = f"the view events joins all logs, and there are {len(every)}; the limit is {_derived.LOGS_MAX}: name the logs"
                raise _native.error("MR1006", detail)
        self._tables(every, logs)
        if words & {"runs", "events"}:
            self._run(_derived.RUNS)
        if "events" in words - logs:
            self._run(_derived.events({table: log.name for table, log in self._logs.items()}))

    def _known(self, statement: str, parameters: Any, names: set[str]) -> str:
        """The plan of the statement; a log may be named in it in other letters, as SQL does not distinguish them."""
        for _ in range(len(names)):
            try:
                return self._explain(statement, parameters)
            except self._duckdb.CatalogException as why:
                missing = re.search(r"Table with name (.+?) does not exist", str(why))
                name = missing.group(1) if missing else ""
                if name in self._denied:
                    raise self._denied[name] from None
                there = {log.name for log in self._logs.values()}
                alike = {log.name for log in self._namespace.logs() if log.name.lower() == name.lower()} - there
                if len(alike) != 1:
                    raise
                self._tables(alike, alike)
        return self._explain(statement, parameters)

    def _tables(self, logs: set[str], named: set[str]) -> None:
        for log in _read.snapshots(self._namespace, sorted(logs)).values():
            table = f"t{len(self._logs)}"
            self._logs[table] = log
            self._table(table, log, log.name in named)

    def _exists(self, name: str) -> bool:
        try:
            self._namespace.bounds(name)
        except (NotFound, Invalid):
            return False
        except Denied as why:
            # The word may stand for something else than a log. If not, the query fails.
            self._denied[name] = why
            return False
        return True

    def _table(self, table: str, log: _read.Snapshot, named: bool) -> None:
        # Of a log that only the view of events uses, nothing is decoded.
        decoder = _values.Decoder("bytes")
        if named and log.name in self._decode:
            decoder = _values.chosen(log.name, self._decode[log.name])
        elif named:
            newest = None
            for record in reversed(range(log.earliest, log.latest + 1)):
                with contextlib.suppress(NotFound):
                    newest = self._namespace.get(log.name, record).data
                    break
            decoder = _values.guessed(self._connection, newest)
        self._decoders[table] = decoder
        self._run(
            f"CREATE TABLE store.{table}(seqno BIGINT, time TIMESTAMPTZ, id VARCHAR, cause VARCHAR, data BLOB, value {decoder.type})"
        )
        if named:
            self._run(f"CREATE VIEW main.{quoted(log.name)} AS SELECT * FROM store.{table}")

    def _explain(self, statement: str, parameters: Any) -> str:
        return str(self._run(f"EXPLAIN (FORMAT json) {statement}", parameters).fetchall()[0][1])

    def _wanted(self, explained: str) -> dict[str, _plan.Wanted]:
        columns = tuple({*COLUMNS, *_derived.RUN_COLUMNS})
        found = _plan.wanted(explained, columns)
        # Only our own tables are in this schema.
        return {name.removeprefix("memory.store."): one for name, one in found.items() if name.startswith("memory.store.")}

    def _read(self, statement: str, parameters: Any, explained: str, writes: bool) -> None:
        """Fills the tables with what the query needs."""
        if writes and not _plan.copies(explained):
            raise _native.error("MR1006", "a query cannot write to a log; COPY must be COPY (SELECT ...) TO a file")
        wanted = self._wanted(explained)
        if not self._pushdown:
            wanted = {table: _everything() for table in wanted}
        unknown = {*self._decode} - {log.name for log in self._logs.values()}
        if unknown:
            raise _native.error("MR1006", f"decode names the log '{min(unknown)}', which the query does not")
        for table, one in wanted.items():
            self._fill(table, one)
        # The planner may choose another plan for tables with records. It must not need more than was read.
        for table, one in self._wanted(self._explain(statement, parameters)).items():
            if table not in wanted or not wanted[table].covers(one):
                self._run(f"TRUNCATE store.{table}")
                self._fill(table, _plan.Wanted(one.columns | (wanted[table].columns if table in wanted else set()), list(_plan.ALL)))

    def _fill(self, table: str, wanted: _plan.Wanted) -> None:
        if table == "runs":
            _derived.fill_runs(self._namespace, self._run)
            return
        log = self._logs[table]
        log.missing.clear()
        parts = _read.ranges(self._namespace, log, wanted.boxes)
        for chunk in _read.chunks(self._namespace, log, parts, wanted.limit):
            self._insert(table, chunk, wanted.columns)

    def _insert(self, table: str, chunk: list[StoredRecord], columns: set[str]) -> None:
        log, decoder = self._logs[table].name, self._decoders[table]
        array = self._numpy.array
        stage = {"seqno": array([record.seqno for record in chunk], dtype="int64")}
        targets = {"seqno": "seqno"}
        if "time" in columns:
            stage["us"] = array([record.clock >> _read.CLOCK_COUNT_BITS for record in chunk], dtype="int64")
            targets["time"] = "make_timestamptz(us)"
        for name in ("id", "cause"):
            if name in columns:
                # DuckDB takes the type of objects from the first ones, which may all be None.
                stage[name] = array([getattr(record, name) or "" for record in chunk], dtype=object)
                targets[name] = f"nullif({name}, '')"
        if "value" in columns and decoder.codec is not None:
            stage["decoded"] = array([decoder.decoded(log, record) for record in chunk], dtype=object)
            targets["value"] = decoder.expression
        elif "value" in columns:
            targets["value"] = decoder.expression
        if "data" in columns:
            targets["data"] = "data"
        if "data" in columns or ("value" in columns and decoder.codec is None):
            stage["data"] = array([record.data for record in chunk], dtype=object)
        self._connection.register(_STAGE.strip('"'), stage)
        try:
            self._run(f"INSERT INTO store.{table}({', '.join(targets)}) SELECT {', '.join(targets.values())} FROM {_STAGE}")
        except self._duckdb.Error as why:
            if "value" in columns:
                wrong = self._run(f"SELECT min(seqno) FROM {_STAGE} WHERE NOT {decoder.fits}").fetchall()[0][0]
                if wrong is not None:
                    raise decoder.error(log, wrong, "") from why
            raise
        finally:
            self._connection.unregister(_STAGE.strip('"'))


def _everything() -> _plan.Wanted:
    return _plan.Wanted(set(COLUMNS), list(_plan.ALL))


def quoted(name: str) -> str:
    """A name as SQL writes it, also if it has a `/`."""
    return '"' + name.replace('"', '""') + '"'


def _first(why: Exception) -> str:
    return str(why).split("\n", 1)[0]
