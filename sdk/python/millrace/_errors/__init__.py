"""The errors of Millrace: a class for each kind of code, which workers raise too."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional


class Error(Exception):
    """An error of Millrace: `code` is a stable code such as "MR2105", `detail` describes this case.

    `cause` describes the general cause of the code, and `remedy` what to do; inside a function, both are empty.

        Error
        +-- NotFound            no such log, record, function, run or namespace; also a LookupError
        |   +-- Gone            the record existed, and has left the log's history
        +-- Invalid             a name, value or definition is not valid; also a ValueError
        +-- Conflict            it exists already, or is in use
        +-- Busy                too much is pending; `retry_after` says when to try again, in seconds
        +-- TimedOut            it did not happen within the time given; also a TimeoutError
        +-- Denied              not permitted; also a PermissionError
        +-- Unavailable         the host cannot be reached, or the connection was lost; also a ConnectionError
        +-- FunctionFailed      a function's code cannot be used, or failed
        +-- StorageFailed       the disk is full, or returned an error
        |   +-- Damaged         stored bytes are damaged
        +-- Missing             a part of this package, or a package it can use, is not installed; also an ImportError
    """

    def __init__(
        self, code: str, detail: str, cause: str = "", remedy: str = "", retry_after: Optional[float] = None
    ) -> None:
        # Not super(): those that are an OSError too would take the texts for an errno and file names.
        BaseException.__init__(self, code, detail, cause, remedy, retry_after)
        self.code = code
        self.detail = detail
        self.cause = cause
        self.remedy = remedy
        self.retry_after = retry_after
        if hasattr(self, "add_note"):
            for note in filter(None, (cause, remedy)):
                self.add_note(note)

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self.args


class NotFound(Error, LookupError):
    """No such log, record, function, run or namespace."""


class Gone(NotFound):
    """The record existed, and has left the log's history."""


class Invalid(Error, ValueError):
    """A name, value or definition is not valid."""


class Conflict(Error):
    """It exists already, or is in use."""


class Busy(Error):
    """Too much is pending; `retry_after` says when to try again, in seconds."""


class TimedOut(Error, TimeoutError):
    """It did not happen within the time given."""


class Denied(Error, PermissionError):
    """Not permitted."""


class Unavailable(Error, ConnectionError):
    """The host cannot be reached, or the connection to it was lost."""


class FunctionFailed(Error):
    """A function's code cannot be used, or failed."""


class StorageFailed(Error):
    """The disk is full, or returned an error."""


class Damaged(StorageFailed):
    """Stored bytes are damaged."""


class Missing(Error, ImportError):
    """A part of this package, or a package it can use, is not installed."""


# The class of each code of spec/errors.toml, by its number.
# fmt: off
_KINDS = {
    **dict.fromkeys((
        2007, 2019, 2108, 3011, 6009, 6050, 6061, 6062, 6082, 6086, 6134, 6175, 6190, 6310, 6342, 6363,
        7012, 7016, 7109, 7133, 7204, 7207, 7230, 7246, 7326,
    ), Busy),
    **dict.fromkeys((
        2006, 2017, 2102, 2103, 2109, 3006, 3020, 3140, 3141, 4023, 4026, 4027, 6010, 6023, 6063, 6064,
        6065, 6066, 6068, 6071, 6079, 6081, 6146, 6147, 6177, 6199, 6300, 6302, 6304, 6311, 6313, 6318,
        6341, 6343, 6345, 6348, 6349, 6350, 6351, 6352, 6353, 7005, 7008, 7009, 7014, 7015, 7017, 7019,
        7103, 7105, 7108, 7111, 7112, 7116, 7118, 7120, 7125, 7127, 7138, 7203, 7209, 7210, 7212, 7215,
        7217, 7219, 7220, 7222, 7223, 7231, 7232, 7234, 7242, 7243, 7251, 7252, 7253, 7300, 7307, 7308,
        7316, 7317, 7318, 7319, 7320, 7321, 7325, 7327, 7330, 7334, 7336,
    ), Conflict),
    **dict.fromkeys((
        2003, 2004, 2010, 2011, 2030, 2032, 2033, 3005, 4024, 6077, 6145, 6148, 6160, 6167, 6347, 7121,
        7206, 7249,
    ), Damaged),
    **dict.fromkeys((
        2005, 3130, 4032, 6011, 6021, 6022, 6043, 6044, 6084, 6085, 6090, 6131, 6132, 6138, 6140, 6141,
        6142, 6143, 6144, 6162, 6163, 6165, 6166, 6168, 6170, 6176, 6194, 6196, 6315, 6319, 7211, 7250,
        7314,
    ), Denied),
    **dict.fromkeys((
        3003, 3004, 3008, 3010, 3012, 3013, 3101, 3102, 3103, 3104, 3105, 3106, 3108, 3109, 3110, 3111,
        3112, 3113, 3114, 3115, 3116, 3117, 3118, 3119, 3120, 3121, 3122, 3123, 3124, 3125, 3126, 3131,
        3142, 3150, 7010, 7011, 7119, 7132, 7135, 7137, 7306,
    ), FunctionFailed),
    **dict.fromkeys((
        2104, 3009, 3022, 6024, 6067, 6074, 6178, 7004, 7006, 7106, 7110, 7309, 7333,
    ), Gone),
    **dict.fromkeys((
        1001, 1002, 1003, 1004, 1005, 1006, 2002, 2015, 2016, 2107, 3002, 3132, 4002, 4003, 4004, 4005,
        4006, 4007, 4010, 4011, 4012, 4013, 4015, 4017, 4019, 4020, 4021, 4022, 4033, 4034, 6001, 6002,
        6014, 6025, 6026, 6042, 6045, 6046, 6047, 6048, 6051, 6052, 6075, 6087, 6102, 6103, 6104, 6106,
        6107, 6110, 6111, 6113, 6115, 6130, 6133, 6135, 6136, 6137, 6164, 6171, 6172, 6173, 6174, 6191,
        6192, 6193, 6195, 6301, 6305, 6306, 6307, 6309, 6316, 6340, 6344, 6346, 7002, 7003, 7013, 7101,
        7102, 7107, 7113, 7115, 7117, 7122, 7128, 7130, 7131, 7201, 7214, 7244, 7245, 7247, 7301, 7302,
        7303, 7304, 7311, 7312, 7324, 7335,
    ), Invalid),
    **dict.fromkeys((
        6101, 6105, 6112,
    ), Missing),
    **dict.fromkeys((
        2001, 2101, 2105, 3001, 3007, 3021, 3133, 4001, 4008, 4016, 6007, 6041, 6070, 6076, 6198, 6303,
        6308, 6314, 7001, 7007, 7104, 7114, 7123, 7126, 7202, 7205, 7216, 7218, 7233, 7323, 7337, 7340,
    ), NotFound),
    **dict.fromkeys((
        2008, 2009, 2012, 2013, 2014, 2018, 2020, 2034, 4009, 4014, 4018, 4025,
    ), StorageFailed),
    **dict.fromkeys((
        2106, 3107, 6049, 6122, 6124, 6312, 6355, 6362, 7134,
    ), TimedOut),
    **dict.fromkeys((
        5001, 5002, 5003, 5004, 5005, 5007, 5008, 5009, 5013, 6003, 6004, 6005, 6006, 6008, 6012, 6013,
        6053, 6054, 6069, 6072, 6073, 6078, 6080, 6083, 6114, 6116, 6121, 6123, 6125, 6126, 6127, 6128,
        6129, 6139, 6161, 6197, 6317, 6354, 6360, 6361, 7018, 7124, 7136, 7208, 7213, 7221, 7240, 7241,
        7248, 7310, 7313, 7315, 7322, 7331, 7332,
    ), Unavailable),
}
#: The errors after which another connection may help.
LOST = frozenset(("MR6008", "MR6009", "MR6053", "MR6121", "MR6122", "MR6123", "MR6127"))
# fmt: on


def error_of(
    code: str, detail: str, cause: str = "", remedy: str = "", retry_after: Optional[float] = None
) -> Error:
    """The error with this code, as an instance of the class of the code."""
    number = int(code[2:]) if code[2:].isdigit() else 0
    return _KINDS.get(number, Error)(code, detail, cause, remedy, retry_after)
