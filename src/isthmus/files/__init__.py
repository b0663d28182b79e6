"""Open, read and check files that may come from anybody, so that nothing in them can do harm; write files safely."""

from isthmus.files.json_file import parse_json, read_json
from isthmus.files.limits import check_unpacked, unpacked_limit
from isthmus.files.npy import array_errors, map_array, read_array
from isthmus.files.regular import is_plain_name, open_regular, os_error_line, sha256, unreadable
from isthmus.files.schema import check_types, read_as
from isthmus.files.seal import check_seal, sealed

__all__ = [
    "array_errors",
    "check_seal",
    "check_types",
    "check_unpacked",
    "is_plain_name",
    "map_array",
    "open_regular",
    "os_error_line",
    "parse_json",
    "read_array",
    "read_as",
    "read_json",
    "sealed",
    "sha256",
    "unpacked_limit",
    "unreadable",
]
