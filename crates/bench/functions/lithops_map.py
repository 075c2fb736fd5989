"""Times a map of Lithops on this machine: prints its milliseconds, as JSON."""

import json
import sys
import time

import lithops


def nothing(number: int) -> int:
    return number


def main() -> None:
    tasks = int(sys.argv[1])
    config = {"lithops": {"backend": "localhost", "storage": "localhost", "telemetry": False}}
    with lithops.FunctionExecutor(config=config, log_level="ERROR") as executor:
        start = time.perf_counter()
        executor.map(nothing, range(tasks))
        assert executor.get_result(show_progressbar=False) == list(range(tasks))
        spent_ms = (time.perf_counter() - start) * 1e3
    print(json.dumps({"ms": spent_ms}))


if __name__ == "__main__":
    main()
